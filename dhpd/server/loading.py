"""Handoffs that have ended and left memory: read when they are asked for.

Owns that one handoff is read once at a time, however many ask: so no older reading arrives after a newer one.
"""

import asyncio
from collections.abc import Sequence

from dhpd.engine.facts import Handoff
from dhpd.store.backend import StoreBackend


class Loader:
    def __init__(self, store: StoreBackend) -> None:
        self._store = store
        self._wanted: dict[str, asyncio.Future[Handoff | None]] = {}
        self._reading: dict[str, asyncio.Future[Handoff | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def load(self, handoffs: Sequence[str]) -> list[Handoff]:
        """The facts of those that the store has; raises `DiskError`."""
        loop = asyncio.get_running_loop()
        futures = []
        for handoff in handoffs:
            future = self._reading.get(handoff) or self._wanted.get(handoff)
            if future is None:
                future = self._wanted[handoff] = loop.create_future()
            futures.append(future)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._read())
        found = await asyncio.gather(*(asyncio.shield(future) for future in futures))
        return [facts for facts in found if facts is not None]

    async def _read(self) -> None:
        """All that was asked for meanwhile is one read."""
        while self._wanted:
            self._reading, self._wanted = self._wanted, {}
            try:
                by_id = {facts.id: facts for facts in await self._store.facts_of(list(self._reading))}
            except Exception as error:
                for future in self._reading.values():
                    future.set_exception(error)
                    future.exception()  # Somebody may have stopped waiting; the others hear of it.
            else:
                for handoff, future in self._reading.items():
                    future.set_result(by_id.get(handoff))
            self._reading = {}
