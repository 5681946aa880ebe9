"""`dhp top`: asking again and again, and drawing what there is.

Owns the rhythm, the ways to draw (a screen, pages of text, JSON), and that a terminal is left as it was found. What is shown is
`picture`'s and `layout`'s.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from dhp_client import Client, ConnectionLost, NotConnected
from dhp_client.addresses import parse_addresses
from dhp_client.clock import monotonic_ms, wall_time
from dhp_protocol.errors import DHPError, Forbidden, Unauthenticated

from .. import completing
from ..command import command
from ..printing import error_line
from ..settings import OK, Settings, warn
from ..staging import ENDED
from . import gathering
from .layout import lines
from .picture import Known, Picture, answered, picture_of, silent
from .table import Line

if TYPE_CHECKING:
    from rich.text import Text

LEAST_INTERVAL_MS = 100
ANSWERED_WITHIN_MS = 2_000
RICH_NEEDED = "for a screen that is drawn anew instead of text that goes on: pip install 'dhpd[rich]'"

_STYLES = {"plain": "", "title": "bold", "bad": "bold red", "warn": "yellow", "dim": "dim", "command": "bold cyan"}

Draw = Callable[[Picture], None]


@command("top")
@click.option("--once", is_flag=True, help="Show one picture, and end.")
@click.option(
    "--interval-ms",
    type=click.IntRange(min=LEAST_INTERVAL_MS),
    default=1_000,
    show_default=True,
    help="So long between two pictures.",
)
@click.option(
    "--kind",
    metavar="KIND",
    shell_complete=completing.kinds,
    help="Only work of this kind; the counts and rates stay those of all.",
)
async def top(client: Client, settings: Settings, once: bool, interval_ms: int, kind: str | None) -> int:
    """Show what goes on, and what is stuck, as it changes.

    What waits for a person stands first, with the command that answers it; then what is dead and nobody has acknowledged, what
    lost its worker, what is held (LEFT: of its lease; CHECKPOINT: the last one's number, and how long ago it came), what is put aside,
    and the oldest of what nobody has claimed. Rates are of the last ten seconds. On a terminal, with the extra `rich`, it is a
    screen, which Ctrl-C leaves; else a picture below the other, and with --json one object on each line.
    """
    watcher = _Watcher(client, settings, kind)
    with _told_to_end() as ending:
        if once:
            await watcher.look(ending)  # Rates come from two readings.
            await _pause(ending, min(interval_ms, 1_000))
            await watcher.look(ending)
            _plain(settings)(watcher.picture())
            return OK
        with _drawing(settings) as draw:
            while not ending.done():
                await watcher.look(ending)
                draw(watcher.picture())
                await _pause(ending, interval_ms)
        return await ending


class _Watcher:
    """What is known of the daemon, refreshed by `look`."""

    def __init__(self, client: Client, settings: Settings, kind: str | None) -> None:
        self._client = client
        self._kind = kind
        self._known = Known()
        self._address = ", ".join(str(address) for address in parse_addresses(settings.connect))
        self._dhp = "dhp" if settings.connect is None else f"dhp --connect {shlex.quote(settings.connect)}"

    async def look(self, ending: asyncio.Future[int]) -> None:
        """Asks once; returns early where this program is told to end."""
        asking = asyncio.ensure_future(self._ask())
        await asyncio.wait((asking, ending), return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking

    def picture(self) -> Picture:
        return picture_of(self._known, now_ms=monotonic_ms(), address=self._address, kind=self._kind, dhp=self._dhp)

    async def _ask(self) -> None:
        facts = refusal = None
        try:
            async with asyncio.timeout(ANSWERED_WITHIN_MS / 1000):
                health = await gathering.health(self._client)
        except (TimeoutError, NotConnected, ConnectionLost):
            self._known = silent(self._known, at=wall_time(), at_ms=monotonic_ms())
            return
        try:
            async with asyncio.timeout(ANSWERED_WITHIN_MS / 1000):
                facts = await gathering.facts(self._client, self._kind)
        except (Unauthenticated, Forbidden):
            raise
        except (TimeoutError, NotConnected, ConnectionLost):
            refusal = "The daemon answers, but not what it holds."
        except DHPError as error:
            refusal = error_line(error)
        self._known = answered(self._known, health, facts, refusal, at=wall_time(), at_ms=monotonic_ms())


@contextlib.contextmanager
def _told_to_end() -> Iterator[asyncio.Future[int]]:
    """Done, with the exit code, once Ctrl-C or a signal asks this program to end."""
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ending.done():
            ending.set_result(code)

    codes = {signal.SIGINT: OK, signal.SIGTERM: ENDED, signal.SIGHUP: ENDED}
    for number, code in codes.items():
        loop.add_signal_handler(number, end, code)
    try:
        yield ending
    finally:
        for number in codes:
            loop.remove_signal_handler(number)


async def _pause(ending: asyncio.Future[int], ms: int) -> None:
    await asyncio.wait((ending,), timeout=ms / 1000)


@contextlib.contextmanager
def _drawing(settings: Settings) -> Iterator[Draw]:
    """The way to draw that fits where the output goes."""
    if settings.as_json or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        yield _plain(settings)
        return
    try:
        from rich.console import Console, Group
        from rich.live import Live
    except ImportError:
        warn(RICH_NEEDED)
        yield _plain(settings)
        return
    console = Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def draw(picture: Picture) -> None:
            width, height = console.size
            shown = [_text(line) for line in lines(picture, width, height)]
            live.update(Group(*shown), refresh=True)

        yield draw


def _plain(settings: Settings) -> Draw:
    def draw(picture: Picture) -> None:
        width = os.get_terminal_size().columns if sys.stdout.isatty() else None
        settings.show(picture, ["".join(span.text for span in line).rstrip() for line in lines(picture, width)])
        sys.stdout.flush()

    return draw


def _text(line: Line) -> "Text":
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop", end="\n")
    for span in line:
        text.append(span.text, _STYLES[span.style])
    return text
