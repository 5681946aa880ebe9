"""The journal in SQLite, through aiosqlite: one writer, two readers, one thread hop per batch or step of a read.

Owns which connection does what, and when the ballast is given up and taken back. A batch is one transaction with one fsync (`appending`). What is looked up in a moment has a
reader of its own: pages, and walks back through long histories (`long_reads`), don't hold it up. A fourth connection takes the
write-ahead log over (`wal`). Does not own when a batch is made (`group_commit`), nor what a record means.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import aiosqlite

from dhpd.engine.facts import CheckpointFacts, Handoff
from dhpd.engine.journal import Batch
from dhpd.engine.lookups import ListLookup
from dhpd.engine.records import Checkpointed, Redriven, decode_record

from . import schema
from .appending import append
from .backend import Appended, DiskError, Loaded, StoredRecord, StoreError
from .ballast import Ballast
from .connecting import connect, connect_readers, disk_error, head_of, prepare, read, run
from .loading import facts_of, load
from .long_reads import scan, walk
from .pruning import FirstInUse, prune
from .restoring import lift_fences
from .rows import decode_facts
from .wal import WriteAheadLog, has_room, log_of, size_of, sized, sync_log, take_all_over, take_over_the_rest

T = TypeVar("T")

SHARE = 2
"""The write-ahead log is taken over before it is so large a part of the ballast: given up, that has to have room for all of it."""
FULL_SHARE = 4
"""The same on a full disk, where the log grows into what the ballast has left."""


class SqliteStore:
    """`SqliteStore.open(path)` opens or creates the file; a newer schema is refused."""

    def __init__(
        self,
        path: Path,
        writer: aiosqlite.Connection,
        lookups: aiosqlite.Connection,
        pages: aiosqlite.Connection,
        aside: aiosqlite.Connection,
        *,
        power_safe: bool,
        ballast: Ballast | None = None,
        full: bool = False,
    ) -> None:
        self._path = path
        self._ballast = ballast
        self.full = full
        self._in_doubt = False
        self._writer = writer
        self._lookups = lookups
        self._pages = pages
        # Not the one for pages: whoever reads there would wait for as long as the disk takes to sync the file.
        self._aside = aside
        self._wal = self._keep_wal()
        self._power_safe = power_safe
        self._identities = _identities(path)
        self.durability = "power loss" if power_safe else "process crash"

    @classmethod
    async def open(
        cls, path: Path, *, power_safe: bool = True, ballast_bytes: int | None = None, wall_ms: int = 0
    ) -> "SqliteStore":
        """`power_safe=False` trades the fsync of each commit for speed: answers then survive a crash, not a power loss.

        `ballast_bytes` are held back beside the file for when the disk is full (None: nothing is). `wall_ms`: the time now, by which
        the fences go on in a store that was restored from a backup (`restoring`).
        """
        ballast = None if ballast_bytes is None else Ballast(path.parent, ballast_bytes)
        full = ballast is not None and await asyncio.to_thread(_is_full, ballast)
        try:
            return await cls._open(path, power_safe=power_safe, ballast=ballast, full=full, wall_ms=wall_ms)
        except StoreError as error:
            if not full:
                raise
            raise StoreError(f"{error} The disk is full: free some room.") from error

    @classmethod
    async def _open(
        cls, path: Path, *, power_safe: bool, ballast: Ballast | None, full: bool, wall_ms: int
    ) -> "SqliteStore":
        try:
            writer = await connect(path)
        except sqlite3.Error as error:
            raise StoreError(f"{path} can't be opened: {error}.") from error
        try:
            await run(writer, lambda db: prepare(db, power_safe=power_safe))
            await run(writer, lambda db: lift_fences(db, wall_ms))
            lookups, pages, aside = await connect_readers(path)
        except sqlite3.Error as error:
            await writer.close()
            raise StoreError(
                f"{path} is no store that this version can use: {error}. `dhpd check {path}` tells more."
            ) from error
        except StoreError:
            await writer.close()
            raise
        return cls(path, writer, lookups, pages, aside, power_safe=power_safe, ballast=ballast, full=full)

    async def close(self) -> None:
        await self._wal.close()
        for connection in (self._aside, self._lookups, self._pages, self._writer):
            await connection.close()

    async def load(self) -> Loaded:
        return await self._read_page(load)

    async def append(self, batch: Batch, expected_head: int) -> Appended:
        try:
            appended = await run(self._writer, lambda db: append(db, batch, expected_head))
        except (sqlite3.Error, ValueError) as error:
            failure = disk_error(error)
        except DiskError as error:
            failure = error
        else:
            self._wal.written(size_of(batch))
            return appended
        self._in_doubt = self._in_doubt or not failure.out_of_room
        raise failure

    async def settle(self) -> int:
        # After a failed fsync pages may look clean that aren't on disk: nothing that this connection holds is believed.
        try:
            self._identities = {}
            await self.close()
            await asyncio.to_thread(self._make_room)
            self._writer = await connect(self._path)
            await run(self._writer, lambda db: prepare(db, power_safe=self._power_safe))
            await run(self._writer, self._make_certain)
            head = await run(self._writer, head_of)
            self._lookups, self._pages, self._aside = await connect_readers(self._path)
            self._wal = self._keep_wal()
            self._identities = _identities(self._path)
        except (sqlite3.Error, StoreError, OSError) as error:
            failure = disk_error(error)
            self._in_doubt = self._in_doubt or not failure.out_of_room
            raise failure from error
        self._in_doubt = False
        return head

    async def find_room(self) -> None:
        if self.full and self._ballast is not None and await asyncio.to_thread(self._ballast.take_back):
            await self._wal.close()
            self.full = False
            self._wal = self._keep_wal()

    @property
    def lost(self) -> bool:
        """Whether one of its files was removed or replaced while it was open: what is written now, nobody will find."""
        return bool(self._identities.items() - _identities(self._path).items())

    async def facts_of(self, handoffs: Sequence[str]) -> list[Handoff]:
        return await self._look_up(lambda db: facts_of(db, handoffs))

    async def payloads(self, positions: Sequence[int]) -> dict[int, bytes]:
        def found(db: sqlite3.Connection) -> dict[int, bytes]:
            rows = ((position, db.execute(schema.PAYLOAD, (position,)).fetchone()) for position in positions)
            return {position: row[0] for position, row in rows if row is not None}

        return await self._look_up(found)

    async def records_of(self, head: int, after_n: int, limit: int) -> list[StoredRecord]:
        return await self._walked(schema.RECORDS_SLICE, head, after_n, limit)

    async def checkpoints_of(self, head: int, after_seq: int, limit: int) -> list[CheckpointFacts]:
        checkpoints = []
        for stored in await self._walked(schema.CHECKPOINTS_SLICE, head, after_seq, limit):
            record = stored.record
            assert isinstance(record, (Checkpointed, Redriven))
            assert record.sha256 is not None, "it holds a checkpoint"
            checkpoints.append(CheckpointFacts(record.seq, record.sha256, stored.position, record.at_ms))
        return checkpoints

    async def handoffs(self, lookup: ListLookup) -> tuple[list[Handoff], int | None]:
        return await scan(self._read_page, lookup)

    async def records_after(self, position: int, limit: int) -> list[StoredRecord]:
        rows = await self._read_page(lambda db: db.execute(schema.RECORDS_AFTER, (position, limit)).fetchall())
        return [
            StoredRecord(position, handoff.hex(), decode_record(body), kind, before)
            for position, handoff, before, body, kind in rows
        ]

    def prune(self, covered: int, first_in_use: FirstInUse) -> AsyncIterator[int]:
        return prune(self._read_page, self._write, covered, first_in_use)

    async def acked_before(self, acked_before_ms: int, after: tuple[int, int], limit: int) -> list[Handoff]:
        parameters = {"acked_before_ms": acked_before_ms, "after_ms": after[0], "after_number": after[1], "rows": limit}
        rows = await self._read_page(lambda db: db.execute(schema.ACKED_BEFORE, parameters).fetchall())
        return [decode_facts(facts) for (facts,) in rows]

    async def _walked(self, slice_sql: str, head: int, after: int, limit: int) -> list[StoredRecord]:
        while True:
            positions = await walk(self._read_page, slice_sql, head, after, limit)
            wanted = json.dumps(positions)
            rows = await self._read_page(lambda db: db.execute(schema.RECORDS_AT, (wanted,)).fetchall())  # noqa: B023
            if len(rows) == len(positions):  # Else some have gone since they were found.
                return [StoredRecord(position, handoff.hex(), decode_record(body)) for position, handoff, body in rows]

    async def _look_up(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await read(self._lookups, work)

    async def _read_page(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await read(self._pages, work)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What isn't a batch, between two of them."""
        result, size_bytes = await read(self._writer, sized(work))
        self._wal.written(size_bytes)
        return result

    def _make_room(self) -> None:
        """After an append that failed: was it for want of room? Then the ballast is given up."""
        if self._ballast is not None and (not self._in_doubt or self._ballast.is_needed()):
            self._ballast.give_up()
            self.full = True

    def _make_certain(self, db: sqlite3.Connection) -> None:
        """What is read afterwards is on disk."""
        if self._in_doubt or not self.full:
            take_all_over(db)
        elif not (has_room(db, self._path) and take_over_the_rest(db)):
            # Only room was lacking: no sync has failed, so one that succeeds says enough, and the log may stay. Taken over
            # without having room it would use up what the ends of work need; and somebody may be reading in it.
            sync_log(self._path)

    def _keep_wal(self) -> WriteAheadLog:
        return WriteAheadLog(
            lambda work: read(self._aside, work),
            lambda work: read(self._writer, work),
            self._path if self.full else None,
            None if self._ballast is None else self._ballast.size_bytes // (FULL_SHARE if self.full else SHARE),
        )


def _is_full(ballast: Ballast) -> bool:
    """Whether a start finds the disk full; then the ballast is given up for what the start itself needs."""
    full = not ballast.take_back() or ballast.is_needed()
    if full:
        ballast.give_up()
    return full


def _identities(path: Path) -> dict[Path, tuple[int, int]]:
    """Which file each one is, as far as they are there."""
    found = {}
    for file in (path, log_of(path)):
        with suppress(OSError):
            status = file.stat()
            found[file] = (status.st_dev, status.st_ino)
    return found
