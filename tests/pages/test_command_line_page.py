"""The command line's page, as its reader types it."""

from pathlib import Path

from .terminals import type_page

PAGE = "docs/command-line.md"


def test_the_command_line_answers_as_printed(tmp_path: Path) -> None:
    type_page(PAGE, tmp_path)
