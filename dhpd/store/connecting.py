"""Connections to the file of a store, through aiosqlite: each a thread of its own, with one hop per piece of work.

Owns how work gets to the thread, the settings of a connection, and how a file is found to be a store.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import aiosqlite

from . import schema
from .backend import DiskError, StoreError
from .migration import migrate
from .wal import bound

T = TypeVar("T")

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


async def read(connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """As `run`; raises `DiskError`."""
    try:
        return await run(connection, work)
    except (sqlite3.Error, ValueError) as error:
        raise disk_error(error) from error


def disk_error(error: Exception, failed: frozenset[str] = frozenset()) -> DiskError:
    """What an error of SQLite's means; a `ValueError` is aiosqlite's word for a connection that is closed."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return DiskError(str(error), failed, out_of_room=code == sqlite3.SQLITE_FULL)


async def connect_readers(path: Path) -> tuple[aiosqlite.Connection, aiosqlite.Connection, aiosqlite.Connection]:
    """One for lookups, one for pages, and one that takes the write-ahead log over (which isn't writing in SQLite's sense)."""
    readers: list[aiosqlite.Connection] = []
    try:
        while len(readers) < 3:
            readers.append(await _connect_reader(path))
    except sqlite3.Error:
        for reader in readers:
            await reader.close()
        raise
    lookups, pages, aside = readers
    return lookups, pages, aside


async def _connect_reader(path: Path) -> aiosqlite.Connection:
    reader = await connect(path)
    try:
        await run(reader, _only_read)
    except sqlite3.Error:
        await reader.close()
        raise
    return reader


def _only_read(db: sqlite3.Connection) -> None:
    db.execute("pragma query_only = on")
    db.execute("pragma temp_store = memory")
    db.execute("pragma synchronous = full")  # However SQLite was built: what takes the log over has to sync the file.


async def connect(path: Path) -> aiosqlite.Connection:
    """A connection on which `run` works; raises `sqlite3.Error`."""
    # aiosqlite doesn't wait for the thread of a connection that could not be made, so it is tried without one.
    await asyncio.to_thread(lambda: sqlite3.connect(path).close())
    return await aiosqlite.connect(path, factory=_JobConnection, isolation_level=None, cached_statements=64)


async def run(connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Does `work` on the connection's thread, in one hop."""
    job = _Job(work)
    await connection.executemany(_JOB, [job])
    return job.result  # type: ignore[return-value]


def prepare(db: sqlite3.Connection, *, power_safe: bool) -> None:
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
    bound(db)
    db.execute("pragma cache_size = -65536")
    if not tables:
        db.executescript(
            f"begin immediate; {schema.CREATE} pragma application_id = {schema.APPLICATION_ID};"
            f" pragma user_version = {schema.VERSION}; commit;"
        )
    elif version < schema.VERSION:
        migrate(db, version)
    db.execute(
        "pragma temp_store = memory"
    )  # From now on all is short, and another disk that is full is no reason to fail.


def head_of(db: sqlite3.Connection) -> int:
    """The newest position that was ever given out."""
    (head,) = db.execute(schema.HEAD).fetchone()
    return int(head)
