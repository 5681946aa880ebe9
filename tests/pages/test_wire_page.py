"""The session by hand, as its reader types it, with a worker in Perl at its end."""

from pathlib import Path

from .terminals import type_page

PAGE = "docs/wire.md"


def test_the_session_by_hand_answers_as_printed(tmp_path: Path) -> None:
    type_page(PAGE, tmp_path)
