"""The write-ahead log: taken over into the file beside the writing, and begun anew before it grows large.

Owns when that is done, and on which connection. Left to SQLite it is done inside of a commit, which then takes ten times as
long. Done aside alone it would never end: the log begins anew only with a write that finds all of it taken over, and while
writing goes on there is always something more. So nearly all is done aside, and the little that was written meanwhile on the
writer's connection, between two batches. No answer waits for any of it, since what stands in the log is on disk; so an error
here is logged, and what is wrong with the disk shows in the next commit. Does not own the connections.
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from dhpd.engine.journal import Batch

from .backend import DiskError
from .ballast import free_bytes
from .long_reads import Read

T = TypeVar("T")

PAGE_BYTES = 4096
TAKE_OVER_BYTES = 8 * 1024 * 1024
"""About so much is written before the log is taken over. Commits are held up about as much from 1 MiB to 16."""
AGAIN_SHARE = 4
"""This part of it more is written before it is tried again, where a reader's snapshot or an error was in the way."""
PASSES = 3
"""The first takes over most, and each next one what was written during the one before. What the file system puts off at the
first fsync it does at the second or third, so that the writer's own is short."""
LARGE_BYTES = 256 * 1024 * 1024
"""A log that has grown so far behind a reader's snapshot is told of in the daemon's log, and again each time it has doubled."""
LITTLE_PAGES = 64
"""Where a reader's snapshot keeps more than this in the log, the writer isn't troubled."""
AUTOCHECKPOINT_PAGES = 16_000
"""At this size SQLite takes the log over inside of a commit: a bound that holds even where what is reckoned here is wrong."""
KEPT_BYTES = 4 * TAKE_OVER_BYTES
"""A log that had to grow beyond this is cut back when it begins anew. Up to it the file keeps its size, as growing costs."""

_log = logging.getLogger(__name__)


class WriteAheadLog:
    """`written` says that the log has grown; `close` comes before the connections are closed, and ends what is under way."""

    def __init__(
        self,
        aside: Read,
        between_batches: Read,
        scarce: Path | None = None,
        most_bytes: int | None = None,
    ) -> None:
        """The first two do a piece of work on a connection's thread: on one that nobody waits for, and on the writer's.

        `scarce`: the store's file, if the disk is full: while it hasn't room, the log is left alone. `most_bytes`: the log is
        taken over at this size already, if that is less than usual.
        """
        self._aside = aside
        self._between_batches = between_batches
        self._scarce = scarce
        self._take_over_bytes = TAKE_OVER_BYTES if most_bytes is None else min(TAKE_OVER_BYTES, most_bytes)
        self._written_bytes = 0
        # How much an earlier run has left isn't known, so it is begun after the first write.
        self._due_bytes = 0
        self._under_way: asyncio.Task[None] | None = None
        self._failing = False
        self._closed = False
        self._told_bytes = 0

    def written(self, size_bytes: int) -> None:
        """About so much has come to the log (`size_of`, `sized`)."""
        self._written_bytes += size_bytes
        if self._written_bytes >= self._due_bytes and self._under_way is None and not self._closed:
            self._under_way = asyncio.create_task(self._take_over())

    async def close(self) -> None:
        """Waits for the step that is being done, and begins no other."""
        self._closed = True
        if self._under_way is not None:
            await asyncio.wait({self._under_way})

    async def _take_over(self) -> None:
        try:
            if await self._begins_anew():
                self._written_bytes = self._told_bytes = 0
            self._tell_size()
            self._failing = False
        except DiskError as error:
            if not self._failing:
                _log.warning("the write-ahead log can't be taken over, it grows until it can: %s", error)
            self._failing = True
        finally:
            self._due_bytes = max(self._take_over_bytes, self._written_bytes + self._take_over_bytes // AGAIN_SHARE)
            self._under_way = None

    def _tell_size(self) -> None:
        if self._written_bytes < max(LARGE_BYTES, 2 * self._told_bytes):
            return
        self._told_bytes = self._written_bytes
        _log.warning(
            "the write-ahead log has grown by %d MB, since something reads the store and doesn't end: it isn't this daemon, so "
            "end whatever has dhpd.sqlite open",
            self._written_bytes // (1024 * 1024),
        )

    async def _begins_anew(self) -> bool:
        """Takes over what can be; tells whether the next write begins the log anew."""
        left_pages = 0
        scarce = self._scarce
        if scarce is not None and not await self._aside(lambda db: has_room(db, scarce)):
            return False
        for _ in range(PASSES):
            left_pages = await self._aside(_take_over_aside)
            if self._closed:
                return False
        return left_pages <= LITTLE_PAGES and await self._between_batches(take_over_the_rest)


def size_of(batch: Batch) -> int:
    """About how many bytes of the log it takes: its records, a page for each row elsewhere, and two for a small batch."""
    return batch.size_bytes + PAGE_BYTES * (2 + len(batch.facts) + len(batch.extended) + len(batch.freed))


def sized(work: Callable[[sqlite3.Connection], T]) -> Callable[[sqlite3.Connection], tuple[T, int]]:
    """`work`, telling also about how many bytes of the log it took: a page for each row that it changed or deleted.

    And one for each page that this freed, since SQLite may be built to overwrite those.
    """

    def with_size(db: sqlite3.Connection) -> tuple[T, int]:
        changes, free = db.total_changes, _free_pages(db)
        result = work(db)
        return result, PAGE_BYTES * (db.total_changes - changes + max(0, _free_pages(db) - free))

    return with_size


def bound(db: sqlite3.Connection) -> None:
    """Settings of the writing connection."""
    db.execute(f"pragma wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
    db.execute(f"pragma journal_size_limit = {KEPT_BYTES}")


def take_all_over(db: sqlite3.Connection) -> None:
    """Takes the whole log over into the file, so that what is read is on disk; raises `sqlite3.Error` where it can't."""
    (busy, _, _) = db.execute("pragma wal_checkpoint(truncate)").fetchone()
    if busy:
        raise sqlite3.OperationalError("the write-ahead log could not be taken over")


def has_room(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the disk has room for all that the file at `path` grows by when the log is taken over.

    Half of that would use the room up, and the log could not begin anew.
    """
    (pages,) = db.execute("pragma page_count").fetchone()
    try:
        return free_bytes(path.parent) >= int(pages) * PAGE_BYTES - path.stat().st_size
    except OSError:
        return False


def sync_log(path: Path) -> None:
    """Has the disk keep what stands in the log of the store at `path`; raises `OSError`."""
    with suppress(FileNotFoundError):
        sync(log_of(path))


def sync(path: Path) -> None:
    """Has the disk keep what stands in the file, or which files the directory has; raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def log_of(path: Path) -> Path:
    """Where the log of the store at `path` lies."""
    return path.with_name(f"{path.name}-wal")


def _take_over_aside(db: sqlite3.Connection) -> int:
    """Takes over what was in the log at the beginning, as far as no reader needs it there; gives how many pages that left."""
    (_, in_log, taken_over) = db.execute("pragma wal_checkpoint(passive)").fetchone()
    return int(in_log - taken_over)


def take_over_the_rest(db: sqlite3.Connection) -> bool:
    """Takes over the rest; tells whether all is, with no reader in the log: only then does the next write begin it anew."""
    # As a passive checkpoint, but that it looks for readers as well; it would wait for them if it were let.
    (timeout_ms,) = db.execute("pragma busy_timeout").fetchone()
    db.execute("pragma busy_timeout = 0")
    try:
        (busy, _, _) = db.execute("pragma wal_checkpoint(restart)").fetchone()
    finally:
        db.execute(f"pragma busy_timeout = {timeout_ms}")
    return not busy


def _free_pages(db: sqlite3.Connection) -> int:
    (pages,) = db.execute("pragma freelist_count").fetchone()
    return int(pages)
