"""The audit of dependencies finds what it is there for, and says plainly what it couldn't look up."""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.security import audit


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
        for found in audit.brought_along("dhpd"):
            self.tell(found.metadata["Name"].lower(), found.version)

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
    return next(found.version for found in audit.brought_along("dhpd") if found.metadata["Name"] == "click")


def test_nothing_comes_along_but_what_is_listed() -> None:
    assert audit.faults_at_hand(list(audit.brought_along("dhpd"))) == []


def test_where_nothing_is_known_all_is_well(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(index.url) == 0
    assert "5 of them were looked up; 0 faults" in capsys.readouterr().out


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


def test_a_package_that_isnt_listed_or_has_another_licence_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(audit.brought_along("dhpd"))
    listed = {name: licences for name, licences in audit.ALLOWED.items() if name != "click"}
    monkeypatch.setattr(audit, "ALLOWED", {**listed, "msgspec": ("Proprietary-1",), "gone": ("MIT",)})
    assert [fault.partition(" ")[0] for fault in audit.faults_at_hand(found)] == ["click", "gone", "msgspec"]
