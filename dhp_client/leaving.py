"""Leaving in good order when a deploy asks for it.

Owns turning SIGTERM, which ends a Python program on the spot, into an exit that passes through the blocks around the
work, so that they release it. Ctrl-C needs nothing: Python makes an exception of it by itself.
"""

import asyncio
import signal
from types import FrameType
from typing import NoReturn

EXIT_CODE = 128 + signal.SIGTERM
"""What a shell calls the end by that signal."""


def exit_on_sigterm() -> None:
    """Has SIGTERM end the program as `sys.exit(143)` in the main thread would: blocks release their work on the way.

    Called once at the program's start, in the main thread. Where an event loop runs there, the loop is left and
    `asyncio.run` cancels its tasks. Further SIGTERMs change nothing: kill -9 is for a program that doesn't end.
    """
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    signal.signal(number, _leave_already)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        _exit()
    loop.call_soon_threadsafe(_exit)  # Between two callbacks, never in the middle of the loop's own affairs.


def _leave_already(number: int, frame: FrameType | None) -> None:
    """A supervisor may tell a program and its whole group; giving back work mustn't be broken off by that."""


def _exit() -> NoReturn:
    raise SystemExit(EXIT_CODE)
