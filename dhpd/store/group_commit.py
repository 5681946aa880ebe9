"""Group commit: while one batch is on its way to the disk, the next gathers.

Owns the one loop that writes, and what is done when the disk fails: nothing is believed until the store has been opened
anew and says how far it is. On a full one the engine takes only what ends work, until the store has its ballast back. Does not own what a batch holds (`dhpd.engine.journal`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from dhpd.engine.journal import Batch
from dhpd.engine.moments import Now
from dhpd.engine.records import Record
from dhpd.engine.settling import Settling

from .backend import DiskError, StoreBackend, StoreError

SETTLE_AGAIN_S = 0.2
ROOM_AGAIN_S = 1.0
"""So often a full disk is looked at for room; and where nothing at all can be written any more, that is tried again."""

_log = logging.getLogger(__name__)


class GroupCommit:
    """`run` writes batches until cancelled; `poke` says that there may be something to write."""

    def __init__(
        self,
        engine: Settling,
        store: StoreBackend,
        head: int,
        now: Callable[[], Now],
        after_commit: Callable[[Batch | None], None],
    ) -> None:
        """`after_commit` is called with each batch that is on disk, and with None after a failed one."""
        self._engine = engine
        self._store = store
        self._head = head
        self._now = now
        self._after_commit = after_commit
        self._poked = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._ended = False
        self._stuck = False
        self._look_at_s = 0.0
        self.commits = 0
        self.records = 0
        self.steps = 0
        """How often the store has come back from what it was given to do, however that ended."""
        self.records_by_type: Counter[type[Record]] = Counter()

    def poke(self) -> None:
        """There may be something to write."""
        self._poked.set()

    @property
    def owes(self) -> bool:
        """Whether there is something to write."""
        return not self._idle.is_set() or self._engine.wants_commit(self._now())

    async def run(self) -> None:
        """Raises `StoreError` if the store turns out to be somebody else's by now."""
        try:
            self._tell_of_room()
            while True:
                await self._poke_or_time()
                await self._look_for_room()
                while self._engine.wants_commit(self._now()):
                    self._idle.clear()
                    await self._commit(self._engine.take_batch(self._now()))
                    await self._look_for_room()
                self._idle.set()
        finally:
            self._ended = True
            self._idle.set()

    async def flushed(self) -> None:
        """Waits until all that was decided so far is on disk, or nothing can be written for want of room, or `run` has ended."""
        self.poke()
        while not (self._ended or self._stuck) and (
            self._engine.wants_commit(self._now()) or self._engine.journal.in_flight
        ):
            await self._idle.wait()
            self.poke()
            await asyncio.sleep(0)

    async def _commit(self, batch: Batch) -> None:
        try:
            appended = await self._store.append(batch, self._head)
        except DiskError as error:
            self.steps += 1
            if not self._stuck:  # Else this has been said.
                _log.error("the disk failed: %s", error)
            await self._settle(batch, error.failed)
            return
        self.steps += 1
        self._head = appended.head
        self._stuck = False
        if appended.failed:
            _log.error("records of %d handoffs could not be stored: %s", len(appended.failed), sorted(appended.failed))
        self._engine.committed(self._now(), appended.failed)
        self._count(batch, appended.failed)
        self._after_commit(batch)

    def _count(self, batch: Batch, failed: frozenset[str]) -> None:
        entries = [entry for entry in batch.entries if entry.handoff not in failed] if failed else batch.entries
        self.commits += 1
        self.records += len(entries)
        self.records_by_type.update([type(entry.record) for entry in entries])

    async def _settle(self, batch: Batch, failed: frozenset[str]) -> None:
        """Finds out what is on disk, for as long as it takes; until then the engine takes nothing."""
        before = self._head
        was_full = self._engine.disk_full
        self._engine.lost_touch()
        self._after_commit(None)
        why = ""
        while True:
            try:
                self._head = await self._store.settle()
                break
            except DiskError as error:
                self.steps += 1
                if why != str(error):
                    why = str(error)
                    _log.error("the store can't be opened again yet: %s", why)
                await asyncio.sleep(SETTLE_AGAIN_S)
        written = [entry.position for entry in batch.entries if entry.handoff not in failed]
        kept = bool(written) and self._head == written[-1]
        if kept:
            self._engine.committed(self._now(), failed)
            self._count(batch, failed)
        elif self._head == before:
            self._engine.rolled_back(self._now())
        else:
            raise StoreError(f"The store is at position {self._head}, where nothing of ours ends: start dhpd again.")
        if not self._stuck:
            outcome = "kept" if kept else "not kept"
            _log.warning("the store is back at position %d; the last batch was %s", self._head, outcome)
        self._tell_of_room()
        self._engine.back_in_touch(self._now())
        self._after_commit(batch if kept else None)
        if was_full and not kept:
            await self._pause()

    async def _pause(self) -> None:
        """Nothing is left of the ballast's room either: what can't be written is tried again, but not without end at once."""
        if not self._stuck:
            _log.error("the disk is full, and nothing can be written any more: only reads go on until there is room")
        self._stuck = True
        self._idle.set()
        await asyncio.sleep(ROOM_AGAIN_S)

    async def _poke_or_time(self) -> None:
        """Waits until there may be something to write; on a full disk no longer than until it is time to look for room."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ROOM_AGAIN_S if self._store.full else None):
                await self._poked.wait()
        self._poked.clear()

    async def _look_for_room(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self._store.full or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + ROOM_AGAIN_S
        await self._store.find_room()
        if not self._store.full:
            self._stuck = False
            self._tell_of_room()
            self._after_commit(None)

    def _tell_of_room(self) -> None:
        """The engine hears what the store has found out."""
        if self._store.full and not self._engine.disk_full:
            _log.error("the disk is full: only what ends work is taken, and reads, until there is room again")
            self._engine.disk_filled()
        elif self._engine.disk_full and not self._store.full:
            _log.warning("the disk has room again: everything is taken")
            self._engine.disk_has_room(self._now())
