"""How long to wait before trying again.

Owns exponential back-off with full jitter, so that clients that were cut off together don't come back together.
"""

import random
from collections.abc import Callable

FIRST_PAUSE_MS = 250
MOST_PAUSE_MS = 2_000
"""Of coming back to a daemon; shorter where leases are."""


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

    def next_ms(self) -> float:
        """The pause before the next attempt."""
        pause_ms = self._uniform(0, self._reach_ms)
        self._reach_ms = min(self._most_ms, self._reach_ms * 2)
        return pause_ms

    def reset(self) -> None:
        """It went well: the next pause is a short one again."""
        self._reach_ms = self._first_ms


def reconnecting(ttl_ms: float, grace_ms: float) -> Backoff:
    """The pauses before each attempt to come back, the first one too: whoever was cut off with others comes back among them.

    `ttl_ms` is the shortest lease's: the pauses are short enough for being back within half of it once the daemon is there.
    `grace_ms` is what a session may be without a connection: the first pause leaves most of it.
    """
    first_ms = min(FIRST_PAUSE_MS, grace_ms / 4, ttl_ms / 8)
    return Backoff(first_ms, max(first_ms, min(MOST_PAUSE_MS, ttl_ms / 4)))


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

    def restart(self) -> None:
        """The trouble is over: what comes next is new trouble."""
        self._until_ms = None
        self._backoff.reset()
