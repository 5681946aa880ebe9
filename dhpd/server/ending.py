"""When the daemon ends: told to, with or without a grace for those who hold work, or by itself where nobody uses it.

Owns the decision. Does not own what an end is (`daemon`), nor what draining means to requests (`dhpd.engine.session_operations`).
"""

import asyncio
from collections.abc import Callable, Sized

from dhpd.config import Config
from dhpd.engine.facts import RUNNING
from dhpd.engine.operations import Engine

from .clock import Clock


class Ending:
    """`stopping` is set once the daemon is to stop."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self.stopping = asyncio.Event()
        self._grace_ms = config.drain_grace_ms
        self._idle_exit_ms = config.idle_exit_ms
        self._clock = clock
        self._idle_since_ms: int | None = None
        self._draining = False
        self._drains_first = False  # It was asked for before there was anybody to drain.
        self._engine: Engine | None = None
        self._connections: Sized = ()
        self._worked: Callable[[], None]

    def serves(self, engine: Engine, connections: Sized, worked: Callable[[], None]) -> None:
        """From now on there is somebody to drain; `worked` is called when the engine may have something to say."""
        self._engine, self._connections, self._worked = engine, connections, worked
        if self._drains_first:
            self.drain()

    def drain(self) -> None:
        """Step one of an end: no new claims and dispatches, while whoever holds work finishes it."""
        if self._engine is None:
            self._drains_first = True
            return
        self._engine.drain(self._clock.now())
        self._worked()

    def end(self) -> None:
        """Told to stop: after a grace in which those who hold work finish it, if there is one; told again, at once."""
        if self._draining or not self._grace_ms or self._engine is None:
            self.stopping.set()
            return
        self._draining = True
        self._engine.drain(self._clock.now(), self._grace_ms)
        self._worked()
        asyncio.get_running_loop().call_later(self._grace_ms / 1000, self.stopping.set)
        self.consider()

    def consider(self) -> None:
        """Something has changed: perhaps nobody holds work any more, or uses the daemon."""
        if self._engine is None:
            return
        counts, journal = self._engine.ledger.counts, self._engine.journal
        if self._draining and not counts[RUNNING] and journal.durable == journal.position:
            self.stopping.set()
        if self._idle_exit_ms is None:
            return
        live = counts["pending"] + counts["running"] + counts["orphaned"]
        busy = len(self._connections) or live or self._engine.ledger.next_wall_ms() is not None  # Sleepers are to wake.
        now_ms = self._clock.uptime_ms()
        if busy or self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        elif now_ms - self._idle_since_ms >= self._idle_exit_ms:
            self.stopping.set()
