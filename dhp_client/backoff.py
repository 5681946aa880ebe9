"""How long to wait before trying again.

Owns exponential back-off with full jitter, so that clients that were cut off together don't come back together.
"""

import random
from collections.abc import Callable

SHARE_OF_TTL = 0.25
"""Whoever has a lease waits for no more of its ttl before it tries again, so that it is back within half of it."""


class Backoff:
    """Pauses of 0 to `first_ms`, then twice that, and so on up to `most_ms`; random over the whole range each time.

    `uniform(low, high)` draws the number; tests give their own.
    """

    def __init__(
        self, first_ms: float, most_ms: float, *, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._uniform = uniform
        self._reach_ms = first_ms

    def next_ms(self, *, at_most_ms: float = float("inf")) -> float:
        """The pause before the next attempt; random over the whole range up to `at_most_ms` too."""
        pause_ms = self._uniform(0, min(self._reach_ms, at_most_ms))
        self._reach_ms = min(self._most_ms, self._reach_ms * 2)
        return pause_ms

    def reset(self) -> None:
        """It went well: the next pause is a short one again."""
        self._reach_ms = self._first_ms


class Patience:
    """How long one call bears errors that may pass by themselves.

    The first trouble starts the clock; `restart` forgets it. `now_ms` is the same clock at each call.
    """

    def __init__(self, patience_ms: float) -> None:
        self._patience_ms = patience_ms
        self._backoff = Backoff(20, 1_000)
        self._until_ms: float | None = None

    def pause_ms(self, now_ms: float, *, at_least_ms: float = 0) -> float | None:
        """How long to wait before the next attempt; None when that would be too late."""
        if self._until_ms is None:
            self._until_ms = now_ms + self._patience_ms
        pause_ms = max(self._backoff.next_ms(), at_least_ms)
        return pause_ms if now_ms + pause_ms <= self._until_ms else None

    def borne_ms(self, now_ms: float) -> float:
        """For how long there has been trouble."""
        return 0 if self._until_ms is None else now_ms - (self._until_ms - self._patience_ms)

    def restart(self) -> None:
        """The trouble is over: what comes next is new trouble."""
        self._until_ms = None
        self._backoff.reset()
