"""The journal in SQLite, through aiosqlite: one writer, two readers, one thread hop per batch or step of a read.

Owns the file, its settings, and what an error of SQLite means. A batch is one transaction with one fsync. What is looked up
in a moment has a reader of its own: pages, and walks back through long histories (`long_reads`), don't hold it up. Does not
own when a batch is made (`group_commit`), nor what a record means.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import aiosqlite

from dhpd.engine.binding import groups
from dhpd.engine.facts import CheckpointFacts, Handoff
from dhpd.engine.journal import Batch, Extension
from dhpd.engine.lookups import ListLookup
from dhpd.engine.records import Checkpointed, Entry, Redriven, decode_record

from . import schema
from .backend import Appended, DiskError, Loaded, StoredRecord, StoreError
from .long_reads import scan, walk
from .migration import migrate
from .pruning import FirstInUse, forget, prune
from .rows import decode_facts, facts_row, record_row

T = TypeVar("T")

WAL_AUTOCHECKPOINT_PAGES = 1000
"""Higher is faster on average, and worse in the tail: the copy-back happens inside a commit."""

_JOB = "run a job on the connection's thread"


class _Job(Generic[T]):
    """Work to do on the connection's thread, all of it in one hop."""

    def __init__(self, work: Callable[[sqlite3.Connection], T]) -> None:
        self.work = work
        self.result: T | None = None


class _JobConnection(sqlite3.Connection):
    """Runs a whole job where aiosqlite asks for one `executemany`: a hop per statement would cost more than the work."""

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        if sql is not _JOB:
            return super().executemany(sql, parameters)
        (job,) = parameters
        job.result = job.work(self)
        return self.cursor()


class SqliteStore:
    """`SqliteStore.open(path)` opens or creates the file; a newer schema is refused."""

    def __init__(
        self,
        path: Path,
        writer: aiosqlite.Connection,
        lookups: aiosqlite.Connection,
        pages: aiosqlite.Connection,
        *,
        power_safe: bool,
    ) -> None:
        self._path = path
        self._writer = writer
        self._lookups = lookups
        self._pages = pages
        self._power_safe = power_safe
        self.durability = "power loss" if power_safe else "process crash"

    @classmethod
    async def open(cls, path: Path, *, power_safe: bool = True) -> "SqliteStore":
        """`power_safe=False` trades the fsync of each commit for speed: answers then survive a crash, not a power loss."""
        try:
            writer = await _connect(path)
        except sqlite3.Error as error:
            raise StoreError(f"{path} can't be opened: {error}.") from error
        try:
            await _run(writer, lambda db: _prepare(db, power_safe=power_safe))
            lookups, pages = await _connect_readers(path)
        except sqlite3.Error as error:
            await writer.close()
            raise StoreError(f"{path} is no store that this version can use: {error}.") from error
        except StoreError:
            await writer.close()
            raise
        return cls(path, writer, lookups, pages, power_safe=power_safe)

    async def close(self) -> None:
        for connection in (self._lookups, self._pages, self._writer):
            await connection.close()

    async def load(self) -> Loaded:
        return await self._read_page(_load)

    async def append(self, batch: Batch, expected_head: int) -> Appended:
        try:
            return await _run(self._writer, lambda db: _append(db, batch, expected_head))
        except sqlite3.Error as error:
            raise DiskError(str(error)) from error
        except ValueError as error:  # aiosqlite's word for a connection that is closed.
            raise DiskError(str(error)) from error

    async def settle(self) -> int:
        # After a failed fsync pages may look clean that aren't on disk: nothing that this connection holds is believed.
        try:
            await self.close()
            self._writer = await _connect(self._path)
            await _run(self._writer, lambda db: _prepare(db, power_safe=self._power_safe))
            head = await _run(self._writer, _checkpoint_wal)
            self._lookups, self._pages = await _connect_readers(self._path)
        except (sqlite3.Error, StoreError) as error:
            raise DiskError(str(error)) from error
        return head

    async def facts_of(self, handoffs: Sequence[str]) -> list[Handoff]:
        return await self._look_up(lambda db: _facts_of(db, handoffs))

    async def payloads(self, positions: Sequence[int]) -> dict[int, bytes]:
        def read(db: sqlite3.Connection) -> dict[int, bytes]:
            rows = ((position, db.execute(schema.PAYLOAD, (position,)).fetchone()) for position in positions)
            return {position: row[0] for position, row in rows if row is not None}

        return await self._look_up(read)

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
        return [StoredRecord(at, handoff.hex(), decode_record(body), kind) for at, handoff, body, kind in rows]

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
        return await _read(self._lookups, work)

    async def _read_page(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await _read(self._pages, work)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What isn't a batch, between two of them."""
        return await _read(self._writer, work)


async def _read(connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    try:
        return await _run(connection, work)
    except (sqlite3.Error, ValueError) as error:
        raise DiskError(str(error)) from error


async def _connect_readers(path: Path) -> tuple[aiosqlite.Connection, aiosqlite.Connection]:
    """One for lookups and one for pages."""
    lookups = await _connect_reader(path)
    try:
        return lookups, await _connect_reader(path)
    except sqlite3.Error:
        await lookups.close()
        raise


async def _connect_reader(path: Path) -> aiosqlite.Connection:
    reader = await _connect(path)
    try:
        await _run(reader, lambda db: db.execute("pragma query_only = on").fetchall())
    except sqlite3.Error:
        await reader.close()
        raise
    return reader


async def _connect(path: Path) -> aiosqlite.Connection:
    # aiosqlite doesn't wait for the thread of a connection that could not be made, so it is tried without one.
    await asyncio.to_thread(lambda: sqlite3.connect(path).close())
    return await aiosqlite.connect(path, factory=_JobConnection, isolation_level=None, cached_statements=64)


async def _run(connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    job = _Job(work)
    await connection.executemany(_JOB, [job])
    return job.result  # type: ignore[return-value]


def _prepare(db: sqlite3.Connection, *, power_safe: bool) -> None:
    """Settings of the writing connection; creates the tables in an empty file."""
    db.execute("pragma busy_timeout = 2000")
    (application_id,) = db.execute("pragma application_id").fetchone()
    (version,) = db.execute("pragma user_version").fetchone()
    (tables,) = db.execute("select count(*) from sqlite_schema").fetchone()
    if tables and application_id != schema.APPLICATION_ID:
        raise StoreError("The file belongs to another program: choose another --data directory.")
    if version > schema.VERSION:
        raise StoreError(f"The store has schema {version}, this dhpd knows {schema.VERSION}: install a newer dhpd.")
    db.execute("pragma journal_mode = wal")
    db.execute(f"pragma synchronous = {'full' if power_safe else 'normal'}")
    db.execute(f"pragma wal_autocheckpoint = {WAL_AUTOCHECKPOINT_PAGES}")
    db.execute("pragma cache_size = -65536")
    if not tables:
        db.executescript(
            f"begin immediate; {schema.CREATE} pragma application_id = {schema.APPLICATION_ID};"
            f" pragma user_version = {schema.VERSION}; commit;"
        )
    elif version < schema.VERSION:
        migrate(db, version)


def _checkpoint_wal(db: sqlite3.Connection) -> int:
    (busy, _, _) = db.execute("pragma wal_checkpoint(truncate)").fetchone()
    if busy:
        raise sqlite3.OperationalError("the write-ahead log could not be taken over")
    return _head(db)


def _head(db: sqlite3.Connection) -> int:
    (head,) = db.execute(schema.HEAD).fetchone()
    return int(head)


def _append(db: sqlite3.Connection, batch: Batch, expected_head: int) -> Appended:
    """The whole batch in one transaction; where that fails for another cause than the disk, handoff by handoff."""
    _begin(db, expected_head)
    try:
        db.executemany(schema.INSERT_RECORD, [record_row(entry) for entry in batch.entries])
        forget(db, batch.entries)
        _write_behind(db, batch, frozenset())
    except _NOT_THE_DISK:
        db.execute("rollback")
        return _append_each(db, batch, expected_head)
    except sqlite3.Error:
        _rollback(db)
        raise
    _commit(db)
    return Appended(batch.entries[-1].position if batch.entries else expected_head)


def _append_each(db: sqlite3.Connection, batch: Batch, expected_head: int) -> Appended:
    """One transaction with a savepoint for all that stands and falls together: what can't be stored fails alone."""
    _begin(db, expected_head)
    failed: set[str] = set()
    try:
        for entries in groups(batch.entries):
            db.execute("savepoint handoffs")
            try:
                db.executemany(schema.INSERT_RECORD, [record_row(entry) for entry in entries])
                forget(db, entries)
            except _NOT_THE_DISK:
                db.execute("rollback to handoffs")
                failed.update(entry.handoff for entry in entries)
            db.execute("release handoffs")
        _write_behind(db, batch, failed)
        _commit(db)
    except sqlite3.Error as error:
        _rollback(db)
        raise DiskError(str(error), frozenset(failed)) from error
    kept = [entry.position for entry in batch.entries if entry.handoff not in failed]
    return Appended(max(kept, default=expected_head), frozenset(failed))


_NOT_THE_DISK = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    TypeError,
    ValueError,
)
"""What is wrong with a record, or with what it holds."""


def _begin(db: sqlite3.Connection, expected_head: int) -> None:
    db.execute("begin immediate")
    if _head(db) != expected_head:
        db.execute("rollback")
        raise StoreError("Another dhpd has written to this store: stop one of them.")


def _commit(db: sqlite3.Connection) -> None:
    try:
        db.execute("commit")
    except sqlite3.Error:
        _rollback(db)
        raise


def _rollback(db: sqlite3.Connection) -> None:
    """As far as it goes: what really is on disk is found out by `settle`."""
    if db.in_transaction:
        try:
            db.execute("rollback")
        except sqlite3.Error:
            pass


def _write_behind(db: sqlite3.Connection, batch: Batch, failed: Iterable[str]) -> None:
    skipped = set(failed)
    rows = [facts_row(facts) for facts in batch.facts if facts.id not in skipped]
    db.executemany(schema.PUT_FACTS, rows)
    if batch.covers is not None and not skipped:
        db.execute(schema.SET_META, (batch.covers, "covered"))
    for extension in batch.extended:
        parameters = (bytes.fromhex(extension.handoff), extension.fence, extension.until_ms)
        db.execute(schema.PUT_EXTENSION, parameters)
    for handoff in batch.freed:  # Afterwards: one that was granted and used up in the same batch is gone.
        db.execute(schema.FREE_EXTENSION, (bytes.fromhex(handoff),))


def _load(db: sqlite3.Connection) -> Loaded:
    db.execute("begin")  # One snapshot.
    try:
        covered, purged_fence = (db.execute(schema.META, (name,)).fetchone()[0] for name in ("covered", "purged_fence"))
        facts = [decode_facts(row[0]) for row in db.execute(schema.LIVE_FACTS)]
        tail = [
            Entry(position, handoff.hex(), prev, anchor, decode_record(body), b"" if has_payload else None)
            for position, handoff, prev, anchor, body, has_payload in db.execute(schema.TAIL, (covered,))
        ]
        known = {handoff.id for handoff in facts}
        facts.extend(_facts_of(db, sorted({entry.handoff for entry in tail} - known)))
        return Loaded(
            head=_head(db),
            covered=covered,
            purged_fence=purged_fence,
            counts=dict(db.execute(schema.COUNTS).fetchall()),
            facts=facts,
            tail=tail,
            extensions={
                handoff.hex(): Extension(handoff.hex(), fence, until_ms)
                for handoff, fence, until_ms in db.execute(schema.EXTENSIONS)
            },
        )
    finally:
        db.execute("rollback")


def _facts_of(db: sqlite3.Connection, handoffs: Sequence[str]) -> list[Handoff]:
    found = (db.execute(schema.FACTS_OF, (bytes.fromhex(handoff),)).fetchone() for handoff in handoffs)
    return [decode_facts(row[0]) for row in found if row is not None]
