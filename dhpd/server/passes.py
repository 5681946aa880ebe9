"""Work that waits for the loop's next passes: of those in line, a bounded time's worth in each pass.

Owns the order (first come, first served; who isn't done lines up again) and the measure. Input of connections has an order of its
own (`turns`). Does not own what a step is. No I/O: the clock and the loop's `call_soon` are handed in.
"""

from collections.abc import Callable
from typing import Protocol

PASS_S = 0.001
"""So long in each pass of the loop, and one step more."""


class Worker(Protocol):
    """Who has something to do that can wait."""

    def step(self) -> None:
        """Does some of it, less than a millisecond's; lines up again where that wasn't all."""


class Passes:
    def __init__(self, clock_s: Callable[[], float], call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._clock_s = clock_s
        self._call_soon = call_soon
        self._line: dict[Worker, None] = {}
        self._is_due = False

    def line_up(self, worker: Worker) -> None:
        """Its step comes when those in front have had theirs; whoever stands in line already stays there."""
        self._line.setdefault(worker)
        self._want_pass()

    def leave(self, worker: Worker) -> None:
        """There is nothing more to do for it."""
        self._line.pop(worker, None)

    def _pass(self) -> None:
        self._is_due = False
        until_s = self._clock_s() + PASS_S
        try:
            while self._line:
                worker = next(iter(self._line))
                del self._line[worker]
                worker.step()
                if self._clock_s() >= until_s:
                    break
        finally:  # A mistake in somebody's step costs nobody else theirs.
            self._want_pass()

    def _want_pass(self) -> None:
        if self._line and not self._is_due:
            self._is_due = True
            self._call_soon(self._pass)
