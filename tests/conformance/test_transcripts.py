"""SPEC.md's transcripts are what a new daemon says, letter for letter."""

import re
from pathlib import Path

import pytest

from dhp_client.addresses import parse_address
from dhp_client.conform.wire import Wire
from tests.support.daemon_process import DaemonProcess

SPEC = (Path(__file__).parents[2] / "protocol" / "SPEC.md").read_text("utf-8")
TIME = re.escape("2026-11-29T18:00:00.000Z")
ANY_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def transcripts() -> list[list[tuple[str, str]]]:
    """What is typed and what comes back, for each transcript; a reply's lines are put together again."""
    section = SPEC[SPEC.index("## 14 Transcripts") : SPEC.index("## 15 ")]
    found = []
    for block in re.findall(r"```\n(.*?)```", section, re.DOTALL):
        turns = re.split(r"^> ", block, flags=re.MULTILINE)[1:]
        found.append([(typed, answer) for typed, answer in (turn.split("\n< ", 1) for turn in turns)])
    return found


def pattern_of(answer: str) -> str:
    """What the answer has to look like: wrapped anywhere, `…` for anything, and any time."""
    text = re.escape("".join(answer.split()))
    return text.replace("…", ".*").replace(TIME, ANY_TIME)


@pytest.fixture
def new_daemon(tmp_path: Path) -> DaemonProcess:
    return DaemonProcess(tmp_path / "data")


def test_the_transcripts_are_what_a_new_daemon_says(new_daemon: DaemonProcess) -> None:
    assert len(transcripts()) == 3
    with new_daemon:
        for transcript in transcripts():
            with Wire(parse_address(new_daemon.address)) as wire:
                for typed, answer in transcript:
                    wire.send(typed.encode() + b"\n")
                    line = wire.receive()
                    assert line is not None
                    assert re.fullmatch(pattern_of(answer), "".join(line.text.split())), f"{typed}\n{line.text}"
