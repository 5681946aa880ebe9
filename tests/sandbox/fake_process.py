"""A process that does nothing, and says that it has taken as long as it was told to."""

import asyncio

from dhpd.sandbox.bounds import BeyondBounds, Bounds, Unfinished
from dhpd.sandbox.process import Process


class Fakes:
    """Starts both. What they are asked is a name, and how many seconds it takes; what was begun is in `quick` and `slow`."""

    def __init__(self) -> None:
        self.quick: list[str] = []
        self.slow: list[str] = []
        self.may_go_on = asyncio.Event()
        """Cleared, whatever is being done slowly lasts."""
        self.may_go_on.set()

    async def start(self, bounds: Bounds) -> Process:
        return _Fake(self, bounds)


class _Fake(Process):
    def __init__(self, fakes: Fakes, bounds: Bounds) -> None:
        self.used_s = 0.0
        self._fakes = fakes
        self._bounds = bounds

    async def ask(self, task: str, *parts: bytes) -> bytes:
        seconds = float(parts[0])
        slice_s = self._bounds.slice_s
        (self._fakes.quick if slice_s else self._fakes.slow).append(task)
        await asyncio.sleep(0)
        if slice_s and seconds > slice_s:
            self.used_s += slice_s
            raise Unfinished
        if not slice_s:
            await self._fakes.may_go_on.wait()
        self.used_s += min(seconds, self._bounds.cpu_s)
        if seconds > self._bounds.cpu_s:
            raise BeyondBounds
        return task.encode()

    async def end(self) -> None:
        pass
