"""How late the loop is: what everybody who is served from it waits for.

Owns the measuring, and which figures are kept. A timer of its own is asked for a few times a second; how much later it comes
is how long whatever was ready at that moment had to wait.
"""

import asyncio
from collections import deque

EVERY_S = 0.1
KEPT = 600
"""A minute's."""
REORDER_EVERY = 10


class Lateness:
    def __init__(self) -> None:
        self.worst_ms = 0.0
        """Since the start."""
        self._recent_ms: deque[float] = deque(maxlen=KEPT)
        self._p99_ms = 0.0
        self._measured = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(EVERY_S, self._measure, loop.time() + EVERY_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def p99_ms(self) -> float:
        """Of the last minute, as it was a second ago at most; 0 before the first measurement."""
        return self._p99_ms

    def _measure(self, due_s: float) -> None:
        late_ms = max(0.0, (asyncio.get_running_loop().time() - due_s) * 1000)
        self._recent_ms.append(late_ms)
        self._measured += 1
        if self._measured % REORDER_EVERY == 1:
            self._p99_ms = sorted(self._recent_ms)[len(self._recent_ms) * 99 // 100]
        self.worst_ms = max(self.worst_ms, late_ms)
        self.start()
