"""What goes by itself: replaced checkpoints, the records of what was forgotten, and work that was acknowledged long ago.

Owns when the store is asked to let something go, and in what portions. Does not own what may go (`dhpd.engine.retention`), nor
how it leaves the disk (`dhpd.store.pruning`).
"""

import asyncio
import logging
from collections.abc import Callable

from dhpd.engine.operations import Engine
from dhpd.engine.retention import SETTLING_IN_MS, retention_wall_ms
from dhpd.store.backend import DiskError, StoreBackend

from .clock import Clock

LOOK_EVERY_S = 1.0
MAX_SWEEP_EVERY_MS = 60_000
SWEEPS_PER_RETENTION = 30
RETIRED_AT_ONCE = 64
BETWEEN_PORTIONS_S = 0.05

_log = logging.getLogger(__name__)


class Pruner:
    """`run` prunes until cancelled. `first_in_use` tells from which seq on a handoff's checkpoints are read for answers."""

    def __init__(
        self,
        engine: Engine,
        store: StoreBackend,
        clock: Clock,
        retention_ms: int,
        first_in_use: Callable[[str], int | None],
        poke: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._store = store
        self._clock = clock
        self._retention_ms = retention_ms
        self._ask_first_in_use = first_in_use
        self._poke = poke
        self._started = clock.now()
        self._sweep_at_ms = clock.uptime_ms() + min(SETTLING_IN_MS, retention_ms)
        self._pruned_up_to = -1
        self._held_back = False
        self._told = ""

    async def run(self) -> None:
        while True:
            try:
                await self._look()
                self._told = ""
            except DiskError as error:
                if str(error) != self._told:  # Once, however long the disk is full.
                    self._told = str(error)
                    _log.warning("nothing could be pruned: %s", error)
            except Exception:  # A mistake here costs room on the disk; nobody's work should end for that.
                _log.exception("nothing could be pruned")
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self) -> None:
        if not self._engine.available:
            return
        if self._clock.uptime_ms() >= self._sweep_at_ms:
            every_ms = max(self._retention_ms // SWEEPS_PER_RETENTION, round(LOOK_EVERY_S * 1000))
            self._sweep_at_ms = self._clock.uptime_ms() + min(every_ms, MAX_SWEEP_EVERY_MS)
            await self._retire()
        covered = self._engine.journal.covered
        if covered != self._pruned_up_to or self._held_back:
            self._held_back = False
            async for _ in self._store.prune(covered, self._first_in_use):
                await asyncio.sleep(0)  # Others have their turn.
            self._pruned_up_to = covered

    def _first_in_use(self, handoff: str) -> int | None:
        seq = self._ask_first_in_use(handoff)
        self._held_back = self._held_back or seq is not None
        return seq

    async def _retire(self) -> None:
        """Forgets what was acknowledged long enough ago."""
        acked_before_ms = retention_wall_ms(self._started, self._clock.now()) - self._retention_ms
        after = (0, 0)
        while True:
            read_after = self._engine.journal.durable
            found = await self._store.acked_before(acked_before_ms, after, RETIRED_AT_ONCE)
            for facts in found:
                self._engine.retire(facts, acked_before_ms, read_after, self._clock.now())
            self._poke()
            if len(found) < RETIRED_AT_ONCE:
                return
            after = (found[-1].acked_at_ms, found[-1].number)
            await asyncio.sleep(BETWEEN_PORTIONS_S)
