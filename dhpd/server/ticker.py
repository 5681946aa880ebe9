"""The tick: one timer for all that is due.

Owns the order in which a tick does its work: one reading of the clock, then everything that waits on the sockets or in line
(`turns`), then the end of what was due at that reading: a slice at a time, so that many ends hold up nobody, while time stands
still.
Neither asyncio nor uvloop reads sockets before a due timer by itself, so a daemon that was stopped would otherwise end
every lease whose renewal lies unread.
"""

import asyncio
from collections.abc import Callable, Iterator

from dhpd.engine.moments import Now
from dhpd.engine.settling import Settling

from .clock import Clock, monotonic_ms, wall_ms
from .turns import Turns

POLLS = 2
"""Turns of the loop between the reading and the ends: the poll of one of them takes in what waits."""
POLLS_WHEN_LATE = 8
"""After a pause there may be connections to accept, then their bytes to read, and more than one read's worth."""
MIN_TICK_MS = 10
SLICE_MS = 1
"""So long at most a tick works before the loop has its turn."""


class Ticker:
    def __init__(
        self,
        engine: Settling,
        clock: Clock,
        turns: Turns,
        after_tick: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`after_tick` is called when a tick has done its work, or a slice of it; `failed` when it couldn't, and there are
        no more ticks.
        """
        self._engine = engine
        self._clock = clock
        self._turns = turns
        self._after_tick = after_tick
        self._failed = failed
        self._timer: asyncio.Handle | None = None
        self._stopped = False
        self._ticking = False
        self.steps = 0
        """How many slices of ticks were done."""

    @property
    def owes(self) -> bool:
        """Whether a tick is under way."""
        return self._ticking

    def start(self) -> None:
        self._clock.lease.schedule(self._clock.lease.next_tick_ms + MIN_TICK_MS)
        self._sleep()

    def stop(self) -> None:
        """Nothing is ended any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def finish(self) -> None:
        """After `stop`: what is under way comes to its end, a slice at a time, for as long as that takes."""
        while self._engine.backlog:
            now = self._clock.now()
            _slice(self._engine.carry_on(now))
            self._after_tick()
            await asyncio.sleep(0)

    def reconsider(self) -> None:
        """Something may be due earlier than the tick that is scheduled."""
        if self._ticking or self._stopped:
            return
        now = self._clock.now()
        due_ms = self._due_ms(now)
        if due_ms < self._clock.lease.next_tick_ms:
            self._clock.lease.schedule(due_ms)
            if self._timer is not None:
                self._timer.cancel()
            self._sleep()

    def _due_ms(self, now: Now) -> int:
        soonest_ms = (
            1 if self._engine.backlog else MIN_TICK_MS
        )  # What is under way goes on as soon as others had their turn.
        return max(self._engine.next_tick_ms(now), now.lease_ms + soonest_ms)

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
        self._await_turns(reading_ms, self._turns.newest)

    def _await_turns(self, reading_ms: int, newest: int) -> None:
        """What was read may still stand in line: a renewal that came in time must not find its lease ended."""
        if self._stopped:
            return
        if not self._turns.have_had(newest):
            self._timer = asyncio.get_running_loop().call_soon(self._await_turns, reading_ms, newest)
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
            self.steps += 1
        except Exception as error:
            self._failed(error)
            return
        if ended:
            self._clock.lease.done(monotonic_ms())
            self._clock.lease.schedule(self._due_ms(now))
            self._ticking = False
            self._sleep()
        else:
            self._timer = asyncio.get_running_loop().call_soon(self._end, now, steps)
        self._after_tick()


def _slice(steps: Iterator[None]) -> bool:
    """Takes steps for a slice's time, one at least; tells whether those were all."""
    until_ms = monotonic_ms() + SLICE_MS
    return all(monotonic_ms() < until_ms for _ in steps)
