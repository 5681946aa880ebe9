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
        self._wanted: dict[str, list[asyncio.Future[_Reading]]] = {}  # Those who wait for each, in the order of asking.
        self._reading: dict[str, list[asyncio.Future[_Reading]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def load(self, handoffs: Sequence[str]) -> list[Handoff]:
        """Has the engine take up those that the store has; gives their facts. Raises `DiskError`."""
        found = []
        while handoffs:
            again = []
            for waiting in [self._wait(handoff) for handoff in handoffs]:
                reading = await waiting
                if reading is None:
                    continue
                facts, read_after = reading
                if self._engine.admit(facts, self._clock.now(), read_after):
                    found.append(facts)
                else:
                    again.append(facts.id)
            handoffs = again
        return found

    def _wait(self, handoff: str) -> asyncio.Future[_Reading]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Reading] = loop.create_future()
        line = self._reading.get(handoff)
        (self._wanted.setdefault(handoff, []) if line is None else line).append(future)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._read())
        return future

    async def _read(self) -> None:
        """What was asked for meanwhile is one read, as far as it may be."""
        while self._wanted:
            for handoff in list(islice(self._wanted, READ_AT_ONCE)):
                self._reading[handoff] = self._wanted.pop(handoff)
            read_after = self._engine.journal.durable
            try:
                by_id = {facts.id: facts for facts in await self._store.facts_of(list(self._reading))}
            except Exception as error:
                for _, future in self._waiting():
                    future.set_exception(error)
                    future.exception()  # Somebody may have stopped waiting; the others hear of it.
            else:
                for handoff, future in self._waiting():
                    facts = by_id.get(handoff)
                    future.set_result(None if facts is None else (facts, read_after))
            self._reading = {}

    def _waiting(self) -> list[tuple[str, asyncio.Future[_Reading]]]:
        """What is being read, and for whom; whoever has stopped waiting is left out."""
        return [(handoff, future) for handoff, line in self._reading.items() for future in line if not future.done()]
