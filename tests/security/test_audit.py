"""The audit of dependencies finds what it is there for, and says plainly what it couldn't look up."""

import http.server
import json
import re
import threading
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import Distribution, distribution
from typing import Any

import pytest

from tests.security import audit
from tests.security.licences import is_permissive, licences_of


class Index:
    """Answers as the package index does, with what a test has put there; everything else is 404."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        documents = self.documents

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = documents.get(self.path)
                body = json.dumps(found).encode()
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        for name, found in audit.brought_along("dhpd", audit.EXTRAS).items():
            self.tell(name, found.version)

    def tell(self, name: str, version: str, vulnerabilities: Any = (), *, yanked: bool = False) -> None:
        files = [{"yanked": yanked, "yanked_reason": "broken"}]
        self.documents[f"/pypi/{name}/{version}/json"] = {"vulnerabilities": list(vulnerabilities), "urls": files}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    yield made
    made.close()


@pytest.fixture
def click_version() -> str:
    return audit.brought_along("dhpd")["click"].version


@pytest.fixture(scope="module")
def brought() -> tuple[dict[str, Distribution], dict[str, Distribution]]:
    return audit.brought_along("dhpd"), audit.brought_along("dhpd", audit.EXTRAS)


def test_nothing_comes_along_but_what_is_listed(
    brought: tuple[dict[str, Distribution], dict[str, Distribution]],
) -> None:
    base, with_extras = brought
    assert list(audit.faults_at_hand(base, with_extras)) == []
    assert set(base) == set(audit.ALLOWED)
    assert set(base) | {"rich", "mcp", "a2a-sdk", "langgraph", "pydantic-ai-slim", "starlette", "certifi"} <= set(
        with_extras
    )
    declared = set(distribution("dhpd").metadata.get_all("Provides-Extra") or ())
    assert declared == {*audit.EXTRAS, "test"}, "each extra is audited"


def test_where_nothing_is_known_all_is_well(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(index.url) == 0
    assert "5 of them were looked up; 0 faults" in capsys.readouterr().out
    assert audit.main(index.url, look_up_extras=True) == 0
    (number,) = re.findall(r"(\d+) of them were looked up; 0 faults", capsys.readouterr().out)
    assert int(number) == len(audit.brought_along("dhpd", audit.EXTRAS))


def test_a_known_vulnerability_is_a_failure(
    index: Index, click_version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"id": "PYSEC-1", "summary": "it is bad", "fixed_in": ["99.0"], "withdrawn": None}
    index.tell("click", click_version, [known, {"id": "PYSEC-2", "withdrawn": "2026-01-01T00:00:00Z"}])
    assert audit.main(index.url) == 1
    said = capsys.readouterr().out
    assert f"AUDIT: click {click_version}: PYSEC-1 it is bad (mended in 99.0)" in said
    assert "PYSEC-2" not in said, "it was taken back"


def test_a_withdrawn_version_is_a_failure(index: Index, click_version: str, capsys: pytest.CaptureFixture[str]) -> None:
    index.tell("click", click_version, yanked=True)
    assert audit.main(index.url) == 1
    assert "was withdrawn: broken" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["unknown", "nonsense", "away"])
def test_what_couldnt_be_looked_up_is_said_loudly_and_is_no_failure(
    index: Index, click_version: str, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    if what == "away":
        index.documents.clear()
    else:
        index.documents[f"/pypi/click/{click_version}/json"] = None if what == "unknown" else {"message": "hello"}
    url = "http://127.0.0.1:1" if what == "away" else index.url
    assert audit.main(url) == 0
    said = capsys.readouterr().out
    assert f"NOT AUDITED for vulnerabilities: click {click_version}" in said
    assert f"{0 if what == 'away' else 4} of them were looked up" in said


def test_a_package_that_isnt_listed_or_has_another_licence_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, brought: tuple[dict[str, Distribution], dict[str, Distribution]]
) -> None:
    monkeypatch.setattr(audit, "ALLOWED", (*(name for name in audit.ALLOWED if name != "click"), "gone"))
    monkeypatch.setattr(audit, "COPYLEFT", {"orjson": "why", "away": "why"})
    faults = [fault.partition(" ")[0] for fault in audit.faults_at_hand(*brought)]
    assert faults == ["click", "away", "gone", "certifi"]


@pytest.mark.parametrize(
    ("told", "permissive"),
    [
        (["MIT"], True),
        (["Apache-2.0 OR BSD-3-Clause"], True),
        (["GPL-3.0-or-later OR MIT"], True),
        (["GPL-3.0-or-later AND MIT"], False),
        (["MIT AND (GPL-2.0-only OR ISC)"], True),
        (["MIT AND (GPL-2.0-only OR LGPL-2.1-only)"], False),
        (["MIT OR GPL-2.0-only AND ISC"], True),
        (["Apache-2.0 WITH LLVM-exception"], False),  # Nobody has read that one.
        (["(MIT"], False),
        (["MIT License", "Apache Software License"], True),
        (["MIT License", "GNU General Public License v3 (GPLv3)"], False),
        (["MPL-2.0"], False),
        (["Permission is hereby granted to MIT"], False),
        ([""], False),
        ([], False),
    ],
)
def test_a_licence_is_read_as_it_is_written(told: list[str], permissive: bool) -> None:
    assert is_permissive(told) == permissive


def test_what_metadata_says_of_a_licence() -> None:
    metadata = Message()
    metadata["License"] = "BSD"
    assert licences_of(metadata) == ["BSD"]
    metadata["Classifier"] = "License :: OSI Approved :: MIT License"
    metadata["Classifier"] = "Topic :: Internet"
    assert licences_of(metadata) == ["MIT License"]
    metadata["License-Expression"] = "ISC"
    assert licences_of(metadata) == ["ISC"]
    assert is_permissive(["MPL-2.0 AND (Apache-2.0 OR MIT)"], {"MPL-2.0"})
