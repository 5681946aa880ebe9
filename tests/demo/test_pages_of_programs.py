"""The pages of programs do what they say: each program is run, and prints what is printed there."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ..client.waiting import until_blocking

DOCS = Path(__file__).parents[2] / "docs"
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def programs(page: str) -> dict[str, list[tuple[str, str]]]:
    """The blocks of each section that has any."""
    sections = {title: BLOCK.findall(text) for title, text in SECTION.findall((DOCS / page).read_text())}
    return {title: blocks for title, blocks in sections.items() if blocks}


PROGRAMS = {"contract.md": programs("contract.md"), "client.md": programs("client.md")}
PROMISES = {title: blocks for page in PROGRAMS.values() for title, blocks in page.items()}


def test_every_promise_has_a_program_and_what_it_prints() -> None:
    assert {page: len(found) for page, found in PROGRAMS.items()} == {"contract.md": 11, "client.md": 2}
    assert {tuple(language for language, _ in blocks) for blocks in PROMISES.values()} == {("python", "text")}


def end_daemon(described: Path) -> None:
    """Returns when it has ended."""
    os.kill(msgspec.json.decode(described.read_bytes())["pid"], signal.SIGTERM)
    until_blocking(lambda: not described.exists(), "the daemon has ended")


@pytest.mark.parametrize("title", PROMISES)
def test_a_program_prints_what_is_shown(title: str, tmp_path: Path) -> None:
    (_, source), (_, printed) = PROMISES[title]
    program = tmp_path / "program.py"
    program.write_text(source)
    environment = {name: value for name, value in os.environ.items() if name not in ("DHP_CONNECT", "DHP_TOKEN")}
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), environment.get("PATH", "")))
    try:
        ran = subprocess.run(
            [sys.executable, "-W", "error", str(program)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
    finally:
        for daemon in [*tmp_path.glob("*/dhpd.json")]:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # One that the program ends itself.
                end_daemon(daemon)
    assert (ran.stdout, ran.returncode) == (printed, 0), ran.stderr
