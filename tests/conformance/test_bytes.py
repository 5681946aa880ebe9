"""Streams of bytes, against a real daemon: every answer, and nothing but the answers."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.protocol.vectors import Case, load, parameters, spelled
from tests.support.daemon_process import DaemonProcess

from .conversation import Wire

MAX_FRAME_BYTES = 8 * 1024 * 1024


def answers(wire: Wire) -> list[tuple[bool, Any]]:
    """All that comes until the daemon ends the connection."""
    lines = []
    while (line := wire.receive()) is not None:
        lines.append((line.counted, line.value))
    return lines


def fits(expected: Any, got: Any) -> bool:
    """Whether `got` has at least the members of `expected`."""
    if isinstance(expected, dict):
        return isinstance(got, dict) and all(name in got and fits(expected[name], got[name]) for name in expected)
    return type(expected) is type(got) and bool(expected == got)


def said(wire: Wire, chunks: list[bytes], *, closes: bool) -> list[tuple[bool, Any]]:
    """The answers to these chunks. Where the daemon is to close by itself, the input isn't ended."""

    def send() -> None:
        try:
            for chunk in chunks:
                wire.send(chunk)
            if not closes:
                wire.end_input()
        except OSError:  # The daemon has closed: what it said before tells whether it should have.
            pass

    sender = threading.Thread(target=send)
    sender.start()
    try:
        return answers(wire)
    finally:
        sender.join()


def check(case: Case, got: list[tuple[bool, Any]]) -> None:
    left = list(got)
    for answer in case["answers"]:
        reply = answer["reply"]
        found = next(
            (
                (counted, body)
                for counted, body in left
                if counted == answer["counted"] and fits(reply, body) and ("id" in reply) == ("id" in body)
            ),
            None,
        )
        assert found is not None, f"{answer} isn't among {got}"
        left.remove(found)
    assert not left, "more than that"


def cases(*, default_limit: bool) -> list[Case]:
    return [case for case in load("frames") if (case["max_frame_bytes"] == MAX_FRAME_BYTES) == default_limit]


def named(some: list[Case]) -> list[Any]:
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in some]


Played = dict[str, "Future[list[tuple[bool, Any]]]"]


def play_all(some: list[Case], address: str) -> Played:
    """What the daemon says to each stream. All at once: where it closes, it first waits a second for the rest."""

    def play(case: Case) -> list[tuple[bool, Any]]:
        closes = any(event.get("closes") and "at_end" not in event for event in case["events"])
        with Wire(address) as wire:
            return said(wire, [spelled(chunk) for chunk in case["chunks"]], closes=closes)

    with ThreadPoolExecutor(16) as pool:
        return {case["name"]: pool.submit(play, case) for case in some}


@pytest.fixture(scope="module")
def played(address: str) -> Played:
    return play_all(cases(default_limit=True), address)


@pytest.fixture(scope="module")
def played_small(small_frames_daemon: DaemonProcess) -> Played:
    return play_all(cases(default_limit=False), small_frames_daemon.address)


@pytest.mark.parametrize("case", named(cases(default_limit=True)))
def test_stream(case: Case, played: Played) -> None:
    check(case, played[case["name"]].result())


@pytest.mark.parametrize("case", named(cases(default_limit=False)))
def test_stream_where_the_limit_is_small(case: Case, played_small: Played) -> None:
    check(case, played_small[case["name"]].result())


@pytest.mark.parametrize("case", [p for p in parameters("requests") if "error" in p.values[0]])
def test_refused_request(case: Case, address: str) -> None:
    body = spelled(case["body"])
    with Wire(address) as wire:
        wire.send(b"%d %b\n" % (len(body), body))
        line = wire.receive()
        assert line is not None
        assert line.value["ok"] is False
        assert line.value["error"]["code"] == case["error"]
        assert line.value["error"].get("details", {}).get("member") == case.get("member")
        assert line.value.get("id") == case.get("id")


def test_every_stream_leaves_the_daemon_well(daemon: DaemonProcess) -> None:
    before = daemon.pid
    with Wire(daemon.address) as bystander:
        for case in load("frames"):
            with Wire(daemon.address) as wire:
                for chunk in case["chunks"]:
                    try:
                        wire.send(spelled(chunk))
                    except OSError:
                        break
        bystander.send(b'{"op":"ping","id":"still here"}\n')
        line = bystander.receive()
    assert line is not None
    assert line.value == {"id": "still here", "ok": True}
    assert (daemon.pid, daemon.alive) == (before, True)
