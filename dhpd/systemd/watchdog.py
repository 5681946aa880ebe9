"""What the watchdog is fed by: word that the loop, the ticks and the store have all got on.

Owns that none of them is taken for alive because another one is. The loop runs what stands here; a tick that is under way has
to get on; and of the store, what it was given to write has to come back, or where it was given nothing, a read. A call that
comes back with an error has come back: a disk that fails is mended without a new start.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from .manager import Manager

PER_PERIOD = 4
"""A watchdog is fed so often in its time."""
STATUS_EVERY_S = 10.0
"""Where there is no watchdog."""
LOOK_AGAIN_S = 0.1


class Progress(Protocol):
    """Somebody who works: `owes` tells whether there is something to do, `steps` grows whenever some of it is done."""

    steps: int

    @property
    def owes(self) -> bool: ...


async def feed(
    manager: Manager, workers: tuple[Progress, ...], probe: Callable[[], Awaitable[object]], status: Callable[[], str]
) -> None:
    """Feeds the watchdog and tells the status, until cancelled. `probe` returns when the store answers."""
    every_s = STATUS_EVERY_S if manager.watchdog_s is None else manager.watchdog_s / PER_PERIOD
    told = ""
    while True:
        before = [worker.steps for worker in workers]
        await asyncio.sleep(every_s)
        for worker, steps in zip(workers, before, strict=True):
            while worker.owes and worker.steps == steps:
                await asyncio.sleep(min(LOOK_AGAIN_S, every_s))
        await probe()
        manager.alive()
        if (now := status()) != told:
            manager.doing(now)
            told = now
