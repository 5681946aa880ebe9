"""Turns: which of many connections has its input taken in next, and for how long.

Owns the order and the measure. In one pass of the loop, input is taken in for a bounded time; then the loop polls again, so
that whoever has just sent something comes into line as well. There are two lines: who comes with something new stands in the
one, which is served first, though not for ever; who wasn't done in its turn goes on in the other. So whoever says little is
hardly held up by those who never end; and in either line each comes to its turn before anybody there has a second one. Does
not own what is done in a turn (`connection`). No I/O: the clock and the loop's `call_soon` are handed in.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

PASS_S = 0.002
"""So long is input taken in between two polls, and one frame more."""
TURN_S = 0.0005
"""So long at most is one connection's turn, and one frame more; where many wait, each has its share of a pass."""
SHORTEST_TURN_S = 0.0002
"""A share isn't less than this: a turn's answers leave in one write, and that costs as much as several small requests."""
NEW_IN_A_ROW = 3
"""After so many who came with something new it is the turn of somebody who goes on, so that those come to an end as well."""


class Taker(Protocol):
    """Who has input."""

    def take_turn(self, is_over: Callable[[], bool]) -> None:
        """Takes in one frame, and more until `is_over`; lines up again where that wasn't all."""


class Turns:
    def __init__(self, clock_s: Callable[[], float], call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`clock_s` tells seconds since some moment; what `call_soon` gets is called in the loop's next pass."""
        self._clock_s = clock_s
        self._call_soon = call_soon
        # Each with its number in the order of lining up.
        self._new: OrderedDict[Taker, int] = OrderedDict()
        self._going_on: OrderedDict[Taker, int] = OrderedDict()
        self._new_in_a_row = 0
        self._newest = 0
        self._spent_s = 0.0
        self._until_s = 0.0
        self._pass_is_due = False

    def take_at_once(self, taker: Taker) -> bool:
        """Gives the taker its turn now, unless others wait or the pass is used up: then it has to line up."""
        if self._new or self._going_on or self._spent_s >= PASS_S:
            return False
        self._give_turn(taker)
        return True

    def line_up(self, taker: Taker, *, new: bool = False) -> None:
        """The taker's turn comes when those in front have had theirs; whoever stands in a line already stays there."""
        if taker not in self._new and taker not in self._going_on:
            self._newest += 1
            (self._new if new else self._going_on)[taker] = self._newest
            self._want_pass()

    def charge(self, cost_s: float) -> None:
        """So much of this pass is used up outside of anybody's turn: by reading."""
        self._spent_s += cost_s
        self._forget_soon()

    def leave(self, taker: Taker) -> None:
        """The taker wants no turn any more."""
        self._new.pop(taker, None)
        self._going_on.pop(taker, None)

    @property
    def newest(self) -> int:
        """The number of whoever lined up last: see `have_had`."""
        return self._newest

    def have_had(self, number: int) -> bool:
        """Whether all those who had lined up by then, up to that `newest`, have had their turn, or left."""
        return all(next(iter(line.values()), number + 1) > number for line in (self._new, self._going_on))

    def _pass(self) -> None:
        self._pass_is_due = False
        self._spent_s = 0.0
        try:
            while (line := self._next_line()) and self._spent_s < PASS_S:
                self._new_in_a_row = self._new_in_a_row + 1 if line is self._new else 0
                self._give_turn(line.popitem(last=False)[0])
        finally:  # A mistake in somebody's turn costs nobody else theirs.
            if self._next_line():
                self._want_pass()

    def _next_line(self) -> OrderedDict[Taker, int]:
        """The one whose turn it is, if anybody is there, else the other one."""
        if self._new_in_a_row < NEW_IN_A_ROW:
            return self._new or self._going_on
        return self._going_on or self._new

    def _give_turn(self, taker: Taker) -> None:
        began_s = self._clock_s()
        share_s = PASS_S / (len(self._new) + len(self._going_on) + 1)
        self._until_s = began_s + max(SHORTEST_TURN_S, min(TURN_S, share_s))
        try:
            taker.take_turn(self._is_over)
        finally:
            self._spent_s += self._clock_s() - began_s
            self._forget_soon()

    def _forget_soon(self) -> None:
        """What is spent is forgotten once it is much: a pass of its own for every little turn would cost more than that."""
        if self._spent_s >= TURN_S:
            self._want_pass()

    def _is_over(self) -> bool:
        return self._clock_s() >= self._until_s

    def _want_pass(self) -> None:
        if not self._pass_is_due:
            self._pass_is_due = True
            self._call_soon(self._pass)
