"""The quick start, as its reader types it."""

from pathlib import Path

from .terminals import type_page

PAGE = "docs/quick-start.md"


def test_the_quick_start_answers_as_printed(tmp_path: Path) -> None:
    type_page(PAGE, tmp_path, but="Install")
