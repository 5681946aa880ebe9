"""The command line's page, as its reader types it."""

import signal
from pathlib import Path

from dhp_client.cli import settings

from .blocks import ROOT, table
from .terminals import type_page

PAGE = "docs/command-line.md"


def test_the_command_line_answers_as_printed(tmp_path: Path) -> None:
    type_page(PAGE, tmp_path)


def test_every_exit_code_is_told() -> None:
    codes = {settings.OK, settings.FAILED, settings.USAGE, settings.UNREACHABLE, settings.NOT_YET, settings.INTERRUPTED}
    told = {int(code) for row in table((ROOT / PAGE).read_text("utf-8"), "Exit codes") for code in row[0].split(", ")}
    assert told == codes | {128 + signal.SIGHUP, 128 + signal.SIGTERM}
