"""The tick: one timer for all that is due.

Owns the order in which a tick does its work: one reading of the clock, then everything that waits on the sockets, then
the end of what was due at that reading: a slice at a time, so that many ends hold up nobody, while time stands still.
Neither asyncio nor uvloop reads sockets before a due timer by itself, so a daemon that was stopped would otherwise end
every lease whose renewal lies unread.
"""

import asyncio
from collections.abc import Callable, Iterator

from dhpd.engine.moments import Now
from dhpd.engine.settling import Settling

from .clock import Clock, monotonic_ms, wall_ms

POLLS = 2
"""Turns of the loop between the reading and the ends: the poll of one of them takes in what waits."""
POLLS_WHEN_LATE = 8
"""After a pause there may be connections to accept, then their bytes to read, and more than one read's worth."""
MIN_TICK_MS = 10
SLICE_MS = 1
"""So long at most a tick works before the loop has its turn."""


class Ticker:
    def __init__(
        self, engine: Settling, clock: Clock, after_tick: Callable[[], None], failed: Callable[[Exception], None]
    ) -> None:
        """`after_tick` is called when a tick has done its work, or a slice of it; `failed` when it couldn't, and there are
        no more ticks.
        """
        self._engine = engine
        self._clock = clock
        self._after_tick = after_tick
        self._failed = failed
        self._timer: asyncio.Handle | None = None
        self._stopped = False
        self._ticking = False

    def start(self) -> None:
        self._clock.lease.schedule(self._clock.lease.next_tick_ms + MIN_TICK_MS)
        self._sleep()

    def stop(self) -> None:
        """Nothing is ended any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def reconsider(self) -> None:
        """Something may be due earlier than the tick that is scheduled."""
        if self._ticking or self._stopped:
            return
        now = self._clock.now()
        due_ms = max(self._engine.next_tick_ms(now), now.lease_ms + MIN_TICK_MS)
        if due_ms < self._clock.lease.next_tick_ms:
            self._clock.lease.schedule(due_ms)
            if self._timer is not None:
                self._timer.cancel()
            self._sleep()

    def _sleep(self) -> None:
        delay_s = self._clock.lease.until_tick_ms(monotonic_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._begin)

    def _begin(self) -> None:
        self._ticking = True
        lost_before_ms = self._clock.lease.offset_ms
        reading_ms = self._clock.lease.tick(monotonic_ms())
        late = self._clock.lease.offset_ms != lost_before_ms
        self._intake(reading_ms, POLLS_WHEN_LATE if late else POLLS)

    def _intake(self, reading_ms: int, polls: int) -> None:
        if self._stopped:
            return
        if polls:
            self._timer = asyncio.get_running_loop().call_soon(self._intake, reading_ms, polls - 1)
            return
        # From here on whatever is read comes after what is due at the reading, and before all that is due later.
        self._clock.lease.stand(reading_ms)
        now = Now(reading_ms, wall_ms())
        self._end(now, self._engine.tick_in_steps(now))

    def _end(self, now: Now, steps: Iterator[None]) -> None:
        if self._stopped:
            return
        try:
            ended = _slice(steps)
        except Exception as error:
            self._failed(error)
            return
        if ended:
            self._clock.lease.done(monotonic_ms())
            self._clock.lease.schedule(max(self._engine.next_tick_ms(now), now.lease_ms + MIN_TICK_MS))
            self._ticking = False
            self._sleep()
        else:
            self._timer = asyncio.get_running_loop().call_soon(self._end, now, steps)
        self._after_tick()


def _slice(steps: Iterator[None]) -> bool:
    """Takes steps for a slice's time, one at least; tells whether those were all."""
    until_ms = monotonic_ms() + SLICE_MS
    return all(monotonic_ms() < until_ms for _ in steps)
