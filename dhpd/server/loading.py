"""Handoffs that have ended and left memory: read when they are asked for.

Owns that one handoff is read once at a time, however many ask, so that no older reading arrives after a newer one; and that
a reading is done again where the handoff may have been forgotten since.
"""

import asyncio
from collections.abc import Sequence
from itertools import islice

from dhpd.engine.facts import Handoff
from dhpd.engine.operations import Engine
from dhpd.store.backend import StoreBackend

from .clock import Clock

READ_AT_ONCE = 32
"""Whoever waits for these goes on in one pass of the loop, all of them."""

_Reading = tuple[Handoff, int] | None
"""The facts, and which position was durable when they were read. None: the store has none."""


class Loader:
    def __init__(self, engine: Engine, store: StoreBackend, clock: Clock) -> None:
        self._engine = engine
        self._store = store
        self._clock = clock
        self._wanted: dict[str, asyncio.Future[_Reading]] = {}
        self._reading: dict[str, asyncio.Future[_Reading]] = {}
        self._task: asyncio.Task[None] | None = None

    async def load(self, handoffs: Sequence[str]) -> list[Handoff]:
        """Has the engine take up those that the store has; gives their facts. Raises `DiskError`."""
        found = []
        while handoffs:
            again = []
            for reading in await self._readings(handoffs):
                if reading is None:
                    continue
                facts, read_after = reading
                if self._engine.admit(facts, self._clock.now(), read_after):
                    found.append(facts)
                else:
                    again.append(facts.id)
            handoffs = again
        return found

    async def _readings(self, handoffs: Sequence[str]) -> list[_Reading]:
        loop = asyncio.get_running_loop()
        futures = []
        for handoff in handoffs:
            future = self._reading.get(handoff) or self._wanted.get(handoff)
            if future is None:
                future = self._wanted[handoff] = loop.create_future()
            futures.append(future)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._read())
        return await asyncio.gather(*(asyncio.shield(future) for future in futures))

    async def _read(self) -> None:
        """What was asked for meanwhile is one read, as far as it may be."""
        while self._wanted:
            for handoff in list(islice(self._wanted, READ_AT_ONCE)):
                self._reading[handoff] = self._wanted.pop(handoff)
            read_after = self._engine.journal.durable
            try:
                by_id = {facts.id: facts for facts in await self._store.facts_of(list(self._reading))}
            except Exception as error:
                for future in self._reading.values():
                    future.set_exception(error)
                    future.exception()  # Somebody may have stopped waiting; the others hear of it.
            else:
                for handoff, future in self._reading.items():
                    facts = by_id.get(handoff)
                    future.set_result(None if facts is None else (facts, read_after))
            self._reading = {}
