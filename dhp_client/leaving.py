"""Leaving in good order when a deploy asks for it.

Owns turning SIGTERM, which ends a Python program on the spot, into an exit that passes through the blocks around the
work, so that they release it; at once, or when what runs has finished. Ctrl-C needs nothing: Python makes an exception of it by
itself.
"""

import asyncio
import logging
import queue
import signal
import threading
from types import FrameType
from typing import NoReturn

from .clock import monotonic_ms
from .draining import program

log = logging.getLogger("dhp_client")

EXIT_CODE = 128 + signal.SIGTERM
"""What a shell calls the end by that signal."""
LOOK_EVERY_MS = 50
"""Also what the code behind a block has for itself before the program is left."""
LEFT_WITHIN_MS = 2_000
"""What the blocks of the main thread may take to hand back; then what other threads hold is handed back for them."""


class _Grace(threading.Thread):
    """Waits for the first SIGTERM, then for the work to finish, and sends the second.

    It is there before, since a signal handler mustn't start a thread, nor take a lock: it may have interrupted who has it.
    """

    def __init__(self, grace_ms: float) -> None:
        super().__init__(name="dhp-grace", daemon=True)
        self.begun = False
        self._grace_ms = grace_ms
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()  # Made to be used in signal handlers, too.

    def hear(self) -> None:
        """There was a SIGTERM, the first or a further one."""
        self.begun = True
        self._asked.put(None)

    def run(self) -> None:
        self._asked.get()
        until_ms = monotonic_ms() + self._grace_ms
        program.drain()
        log.info("SIGTERM: nothing new is begun, and what runs has %d ms to finish", self._grace_ms)
        idle_before = False
        while monotonic_ms() < until_ms:
            idle = not program.busy
            if idle and idle_before:
                break
            idle_before = idle
            if self._heard(LOOK_EVERY_MS):
                break
        # To the main thread, which a signal to the process may leave asleep.
        main = threading.main_thread()
        if main.is_alive() and main.ident is not None:  # Else it is on its way out already.
            signal.pthread_kill(main.ident, signal.SIGTERM)
        threading.Event().wait(LEFT_WITHIN_MS / 1000)
        program.let_go()

    def _heard(self, wait_ms: float) -> bool:
        try:
            self._asked.get(timeout=wait_ms / 1000)
        except queue.Empty:
            return False
        return True


_grace: _Grace | None = None


def exit_on_sigterm(grace_ms: int = 0) -> None:
    """Has SIGTERM end the program as `sys.exit(143)` in the main thread would: blocks release their work on the way.

    Called once at the program's start, in the main thread. Where an event loop runs there, the loop is left and
    `asyncio.run` cancels its tasks.

    With `grace_ms` the work that runs may finish first: nothing new is claimed from the signal on, as if there were no work (a
    claim that waits ends empty), `task.draining` and `client.draining` tell so, and the program is left when no block runs and
    nothing is held any more, or else when `grace_ms` have passed: what isn't finished then is handed back with its last checkpoint, which
    costs no attempt. A second SIGTERM doesn't wait. Further ones change nothing: kill -9 is for a program that doesn't end.
    """
    global _grace
    _grace = None
    if grace_ms > 0:
        _grace = _Grace(grace_ms)
        _grace.start()
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    if _grace is not None and _grace.is_alive():  # A forked child doesn't have the thread.
        first = not _grace.begun
        _grace.hear()
        if first:
            return
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
