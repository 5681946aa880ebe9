"""The pages of programs do what they say: each program is run, and prints what is printed there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.embedded import end_embedded
from .blocks import programs

PAGES = {"docs/contract.md": programs("docs/contract.md"), "docs/client.md": programs("docs/client.md")}
PROGRAMS = {title: pair for page in PAGES.values() for title, pair in page.items()}


def test_no_program_has_gone() -> None:
    assert {page: len(found) for page, found in PAGES.items()} == {"docs/contract.md": 11, "docs/client.md": 2}
    assert len(PROGRAMS) == 13, "two sections have the same title"


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_program_prints_what_is_shown(title: str, tmp_path: Path) -> None:
    source, printed = PROGRAMS[title]
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
        end_embedded(tmp_path)
    assert (ran.stdout, ran.returncode) == (printed, 0), ran.stderr
