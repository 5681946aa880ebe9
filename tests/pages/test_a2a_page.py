"""The page about A2A, as its reader types it. Its tables are compared with the code in tests/a2a."""

from pathlib import Path

from .terminals import type_page

PAGE = "docs/a2a.md"


def test_the_page_about_a2a_answers_as_printed(tmp_path: Path) -> None:
    type_page(PAGE, tmp_path)
