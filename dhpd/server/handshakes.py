"""Handshakes that aren't done yet: how many, how long, and how much of the loop's time they get.

A handshake costs about a millisecond, for whoever asks for one. So they have passes of their own, and requests go on in between.
Where there are too many, the oldest goes: an honest one is done soon, and who only wants to take up room doesn't keep it. Does
not own what a step of one is (`tls`). No I/O: clock and loop are handed in.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from .passes import Passes, Worker

MOST = 1_000
"""So many are under way at most: each may hold 66 KB."""
FEWEST = 16
"""So many may be under way however many connections there are."""
SAY_AT_MOST, SAY_WITHIN_S = 10, 10.0
"""Strangers mustn't fill the log: of what goes wrong in so long, so much is told, and then how much more there was."""

_log = logging.getLogger(__name__)


class Shaker(Worker, Protocol):
    """A connection before its handshake is done; a step goes on with that, as far as what was received allows."""

    def give_up(self) -> None:
        """Ends the connection."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Handshakes:
    def __init__(
        self,
        most: Callable[[], int],
        within_ms: int,
        clock_s: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        """`most` tells how many there is room for at this moment; each has `within_ms` to be done."""
        self._most = most
        self._within_ms = within_ms
        self._clock_s = clock_s
        self._passes = Passes(clock_s, call_soon)
        self._call_later = call_later
        self._deadlines: dict[Shaker, Timer] = {}  # Those under way, oldest first.
        self._said_since_s = float("-inf")
        self._said = 0
        self._unsaid = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def began(self, shaker: Shaker, peer: str) -> None:
        """A connection has come."""
        while len(self._deadlines) >= max(FEWEST, min(MOST, self._most())):
            oldest = next(iter(self._deadlines))
            self.ended(oldest)
            oldest.give_up()

        def too_late() -> None:
            self.failed(peer, f"it wasn't done within {self._within_ms} ms")
            self.ended(shaker)
            shaker.give_up()

        self._deadlines[shaker] = self._call_later(self._within_ms / 1000, too_late)

    def line_up(self, shaker: Shaker) -> None:
        """Something was received: there may be a step to do."""
        self._passes.line_up(shaker)

    def ended(self, shaker: Shaker) -> None:
        """It is done, or the connection is."""
        self._passes.leave(shaker)
        deadline = self._deadlines.pop(shaker, None)
        if deadline is not None:
            deadline.cancel()

    def failed(self, peer: str, why: str) -> None:
        """Notes in the log why there is no connection with that peer."""
        now_s = self._clock_s()
        if now_s - self._said_since_s >= SAY_WITHIN_S:
            self._said_since_s, self._said = now_s, 0
        if self._said >= SAY_AT_MOST:
            self._unsaid += 1
            return
        others = f" (and with {self._unsaid} others since the last line like this)" if self._unsaid else ""
        _log.warning("no TLS with %s: %s%s", peer, why, others)
        self._said, self._unsaid = self._said + 1, 0
