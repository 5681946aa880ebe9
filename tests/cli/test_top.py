"""`dhp top` against a real daemon: one picture, pages of text, JSON, and a real terminal."""

import asyncio
import builtins
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import pytest

import dhp_client
import dhp_client.sync
from dhp_client.cli.settings import Settings
from dhp_client.cli.top import command, gathering
from dhp_client.cli.top.picture import Known, picture_of

from ..support.daemon_process import DaemonProcess
from .conftest import Dhp

HOME = b"\x1b[H"
IN, OUT = b"\x1b[?1049h", b"\x1b[?1049l"
SHOWN_WITHIN_S = 30.0


def test_one_picture_tells_what_is_held_what_is_dead_and_who_is_asked(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    client.dispatch("top.dead", {}, budget={"max_attempts": 1})
    with client.claim(kinds="top.dead") as task:
        task.fail("Broken", "for good", retry=False)
    work = client.dispatch("top.held", {})
    with client.claim(work.handoff, worker="ada") as task:
        task.checkpoint({"n": 1})
        task.activity("turn")
        task.activity("turn")
        shown = dhp("top", "--once", "--interval-ms", "100", "--kind", "top.held")
        told = dhp("top", "--once", "--interval-ms", "100", "--json").json
        task.complete(None)
    assert (shown.code, shown.err) == (0, "")
    assert re.search(rf"{work.handoff[:12]}  top\.held  ada  .*  1, \d s ago  repeats 1, \d s ago", shown.out)
    assert "top.dead" not in shown.out
    (lease,) = [one for one in told["leases"] if one["handoff"] == work.handoff]
    assert (lease["worker"], lease["attempt"], lease["seq"], lease["repeats"]) == ("ada", 1, 1, 1)
    assert 0 < lease["left_ms"] <= 6_000
    (dead,) = [one for one in told["dead"] if one["kind"] == "top.dead"]
    assert dead["reason"] == "failed for good: Broken"
    assert dhp(*dead["command"].split()[1:]).code == 0
    assert told["rates_per_s"].keys() >= {"dispatched", "claimed", "checkpointed", "completed"}


def test_the_command_that_is_shown_answers_the_question(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    work = client.dispatch("top.asks", {})
    with client.claim(work.handoff) as task:
        task.approval("pay", {"usd": 3}, timeout_ms=60_000, park=True)
    told = dhp("top", "--once", "--interval-ms", "100", "--kind", "top.asks", "--json").json
    (question,) = told["approvals"]
    assert (question["kind"], question["details"], told["suspended"]) == ("top.asks", {"usd": 3}, [])
    assert dhp(*question["command"].split()[1:]).out.startswith('approved: pay {"usd":3}')


async def test_little_is_asked_for_however_much_there_is(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "LEASES_AT_MOST", 3)
    monkeypatch.setattr(gathering, "OTHERS_AT_MOST", 2)
    monkeypatch.setattr(gathering, "PAGE", 2)
    async with dhp_client.connect(daemon.address) as client:
        works = await asyncio.gather(*(client.dispatch("top.much", {"n": n}) for n in range(12)))
        held = [await client.claim(works[n].handoff) for n in range(4)]
        for task in held[:3]:
            assert task is not None
            await task.fail("Broken", "for good", retry=False)
        assert held[3] is not None
        await held[3].release()
        await client.ack(works[2].handoff)
        found = await gathering.facts(client, "top.much")
    assert [one.handoff for one in found.pending.handoffs] == [works[3].handoff, works[4].handoff]
    assert found.pending.more
    dead = [one.handoff for one in found.dead.handoffs]
    assert dead == [works[1].handoff, works[0].handoff], "the newest, and none that was acknowledged"


async def test_a_rare_kind_is_looked_for_behind_pages_without_it() -> None:
    class Pages:
        """Each page has one look-up's worth behind it; only the third has what is wanted."""

        async def list(self, *, after: int, **_: Any) -> Any:
            handoffs = [SimpleNamespace(handoff="found", acked=False)] if after == 2 else []
            return SimpleNamespace(handoffs=handoffs, next=after + 1 if after < self.last else None)

        def __init__(self, last: int) -> None:
            self.last = last

    for last, wanted in ((2, (["found"], False)), (100, (["found"], True)), (1, ([], False))):
        found = await gathering._listed(Pages(last), "pending", "rare", 5, newest_first=False)  # type: ignore[arg-type]
        assert ([one.handoff for one in found.handoffs], found.more) == wanted


@pytest.mark.parametrize("how", ["no rich", "a dumb terminal", "json"])
def test_without_rich_or_a_screen_it_is_text(
    how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    genuine = builtins.__import__

    def without_rich(name: str, *arguments: Any, **named: Any) -> ModuleType:
        if name.startswith("rich"):
            raise ImportError(name)
        return genuine(name, *arguments, **named)

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(os, "get_terminal_size", lambda: os.terminal_size((40, 24)))
    monkeypatch.setenv("TERM", "dumb" if how == "a dumb terminal" else "xterm")
    if how == "no rich":
        monkeypatch.setattr(builtins, "__import__", without_rich)
    with click.Context(click.Command("top")), command._drawing(Settings(as_json=how == "json")) as draw:
        for _ in range(2):
            draw(picture_of(Known(), now_ms=0, address="unix:/x"))
    written = capsys.readouterr()
    assert written.out.count('"address":"unix:/x"' if how == "json" else "dhp top  unix:/x") == 2
    assert "\x1b" not in written.out
    assert ("pip install 'dhpd[rich]'" in written.err) == (how == "no rich")


class Screen:
    """A terminal of our own, and the program that draws on it."""

    def __init__(self, *arguments: str, width: int, height: int) -> None:
        self._own, theirs = pty.openpty()
        self.resize(width, height)
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        self.seen = b""
        environment = {**os.environ, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dhp_client.cli", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._own)
        os.close(self._theirs)

    @property
    def after(self) -> list[Any]:
        """How the terminal is set by now."""
        return termios.tcgetattr(self._theirs)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._own, keys)

    def until(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        """The lines of the first whole picture from now on that is `wanted`."""
        while True:
            *whole, last = self.seen.split(HOME)
            for one in whole:
                shown = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", one).decode().replace("\r", "").split("\n")
                if wanted(shown):
                    self.seen = last
                    return shown
            self.seen = last
            self.read()

    def read(self) -> None:
        ready, _, _ = select.select([self._own], [], [], SHOWN_WITHIN_S)
        assert ready, "nothing more is shown"
        self.seen += os.read(self._own, 65536)


@contextlib.contextmanager
def top_on_a_screen(daemon: DaemonProcess) -> Iterator[Screen]:
    screen = Screen("--connect", daemon.address, "top", "--interval-ms", "250", width=100, height=30)
    try:
        yield screen
    finally:
        screen.close()


def has(text: str) -> Callable[[list[str]], bool]:
    return lambda shown: any(text in line for line in shown)


def test_on_a_terminal_it_outlives_the_daemon_and_leaves_the_screen_as_it_was(
    daemon: DaemonProcess, client: dhp_client.sync.Client
) -> None:
    work = client.dispatch("top.screen", {})
    with (
        client.claim(work.handoff, worker="ada", detached=True, ttl_ms=600_000) as task,
        top_on_a_screen(daemon) as screen,
    ):
        shown = screen.until(has("top.screen"))
        assert any(line.startswith("dhp top  tcp://") for line in shown)
        assert len(shown) <= 30
        screen.resize(44, 12)
        screen.until(lambda shown: len(shown) <= 12 and max(map(len, shown)) <= 44 and has("dhp top")(shown))
        daemon.kill()
        screen.until(has("NOBODY ANSWERS since"))
        daemon.start()
        screen.until(lambda shown: has("running 1")(shown) and not has("NOBODY")(shown))
        screen.type(b"\x03")
        while OUT not in screen.seen:
            screen.read()
        assert screen.process.wait(SHOWN_WITHIN_S) == 0
        assert b"\x1b[?25h" in screen.seen, "the cursor is there again"
        assert screen.after == screen.before
        task.complete(None)
