"""How late the loop is: what everybody who is served from it waits for.

Owns the measuring, and which figures are kept. A timer of its own is asked for a few times a second; how much later it comes
is how long whatever was ready at that moment had to wait.
"""

import asyncio
from collections import deque

EVERY_S = 0.1
KEPT = 600
"""A minute's."""


class Lateness:
    def __init__(self) -> None:
        self.worst_ms = 0.0
        """Since the start."""
        self._recent_ms: deque[float] = deque(maxlen=KEPT)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(EVERY_S, self._measure, loop.time() + EVERY_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def p99_ms(self) -> float:
        """Of the last minute; 0 before the first measurement."""
        ordered = sorted(self._recent_ms)
        return ordered[len(ordered) * 99 // 100] if ordered else 0.0

    def _measure(self, due_s: float) -> None:
        late_ms = max(0.0, (asyncio.get_running_loop().time() - due_s) * 1000)
        self._recent_ms.append(late_ms)
        self.worst_ms = max(self.worst_ms, late_ms)
        self.start()
