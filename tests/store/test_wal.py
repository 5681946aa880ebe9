"""The write-ahead log: bounded under steady writing, and nobody's business but its own."""

import asyncio
import logging
import signal
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dhpd.store import wal
from dhpd.store.backend import DiskError
from dhpd.store.connecting import run
from dhpd.store.sqlite import SqliteStore

from .conftest import SqliteKit
from .stories import Stories, name

KIB = 1024
MIB = 1024 * KIB
RECORDS = 16


@pytest.fixture
async def sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteKit]:
    """A store whose log is taken over each 512 KiB."""
    monkeypatch.setattr(wal, "TAKE_OVER_BYTES", 512 * KIB)
    monkeypatch.setattr(wal, "KEPT_BYTES", MIB)
    path = tmp_path / "store.sqlite"
    kit = SqliteKit(path, await SqliteStore.open(path))
    yield kit
    await kit.store.close()


class Writing:
    """Writes checkpoints of 1 to 4 KiB, 16 in a batch, and knows how large the log's file is."""

    def __init__(self, kit: SqliteKit) -> None:
        self.kit = kit
        self.stories = Stories()
        self.stories.dispatch(name(1))
        self.stories.claim(name(1))
        self.head = 0
        self.payload_bytes = 0

    async def batch(self) -> None:
        for _ in range(RECORDS):
            size_bytes = 1_024 + self.stories.position % 3_072
            self.stories.checkpoint(name(1), b"x" * size_bytes)
            self.payload_bytes += size_bytes
        batch = self.stories.batch(facts_of=[name(1)])
        self.head = (await self.kit.store.append(batch, self.head)).head

    async def write(self, payload_bytes: int) -> None:
        end = self.payload_bytes + payload_bytes
        while self.payload_bytes < end:
            await self.batch()

    @property
    def log_bytes(self) -> int:
        return log_of(self.kit.path).stat().st_size


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def assert_all_there(path: Path, head: int) -> None:
    """The file is sound and holds the records up to `head` and none beyond."""
    db = sqlite3.connect(path)
    assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    assert db.execute("select count(*), min(position), max(position) from journal").fetchone() == (head, 1, head)
    db.close()


# --- bounded --------------------------------------------------------------------------------------------------------


async def test_under_steady_writing_the_log_begins_anew_again_and_again(sqlite: SqliteKit) -> None:
    writing = Writing(sqlite)
    await writing.write(40 * MIB)
    assert writing.log_bytes < 10 * MIB, "far below SQLite's own bound"
    await sqlite.store.close()
    assert not log_of(sqlite.path).exists(), "a clean end leaves nothing in it"
    assert_all_there(sqlite.path, writing.head)
    await sqlite.reopen()


async def test_pruning_counts_as_writing(sqlite: SqliteKit, monkeypatch: pytest.MonkeyPatch) -> None:
    writing = Writing(sqlite)
    await writing.write(4 * MIB)
    position = writing.stories.position
    await sqlite.store.append(writing.stories.batch(facts_of=[name(1)], covers=position), position)
    counted: list[int] = []
    monkeypatch.setattr(sqlite.store._wal, "written", counted.append)
    async for _ in sqlite.store.prune(position, lambda handoff: None):
        pass
    assert sum(counted) > 3 * MIB, "of the 4 MiB hardly any is left, and all of it may have been overwritten"


async def test_a_reader_with_a_snapshot_lets_the_log_grow_only_until_it_lets_go(sqlite: SqliteKit) -> None:
    writing = Writing(sqlite)
    await writing.write(MIB)
    reader = sqlite3.connect(sqlite.path, isolation_level=None)
    reader.execute("begin")
    (seen,) = reader.execute("select count(*) from journal").fetchone()
    before = writing.payload_bytes
    await writing.write(8 * MIB)
    assert writing.log_bytes > writing.payload_bytes - before, "nothing that came since can leave it"
    assert reader.execute("select count(*) from journal").fetchone() == (seen,)
    reader.execute("rollback")
    batches = 0
    while writing.log_bytes > wal.KEPT_BYTES:
        await writing.batch()
        batches += 1
        assert batches < 200, "it is never cut back"
    reader.close()
    await sqlite.reopen()
    assert_all_there(sqlite.path, writing.head)


async def test_a_log_that_grows_behind_a_foreign_reader_is_told_of_at_each_doubling(
    sqlite: SqliteKit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wal, "LARGE_BYTES", MIB)
    writing = Writing(sqlite)
    await writing.write(3 * MIB)
    assert not caplog.records
    reader = sqlite3.connect(sqlite.path, isolation_level=None)
    reader.execute("begin")
    reader.execute("select count(*) from journal").fetchone()
    while len(caplog.records) < 3:
        await writing.batch()
    assert all("end whatever has dhpd.sqlite open" in record.message for record in caplog.records)
    sizes = [int(word) for record in caplog.records for word in record.message.split() if word.isdigit()]
    assert sizes[2] >= 3 * sizes[0] >= 3
    reader.close()


async def test_a_reader_in_a_short_log_is_not_waited_for_on_the_writer(sqlite: SqliteKit) -> None:
    """Nearly all is taken over, so it is the writer that finds the reader in its way; no more is asked of it than to try."""
    writing = Writing(sqlite)
    await sqlite.store._wal.close()  # Nothing is taken over by itself.
    await writing.batch()
    reader = sqlite3.connect(sqlite.path, isolation_level=None)
    reader.execute("begin")
    reader.execute("select count(*) from journal").fetchone()
    assert not await run(sqlite.store._writer, wal.take_over_the_rest)
    reader.execute("rollback")
    reader.close()
    assert await run(sqlite.store._writer, wal.take_over_the_rest)
    timeout = await run(sqlite.store._writer, lambda db: db.execute("pragma busy_timeout").fetchone())
    assert timeout == (2_000,), "it is as patient with other writers as before"


# --- what goes wrong ------------------------------------------------------------------------------------------------


async def test_a_failing_takeover_fails_no_batch_and_is_told_once(
    sqlite: SqliteKit, caplog: pytest.LogCaptureFixture
) -> None:
    writing = Writing(sqlite)
    await sqlite.store._aside.close()
    with caplog.at_level(logging.WARNING, "dhpd.store.wal"):
        await writing.write(4 * MIB)
    assert len(caplog.records) == 1
    assert "can't be taken over" in caplog.text
    assert writing.log_bytes > writing.payload_bytes
    assert await sqlite.store.settle() == writing.head
    await writing.write(8 * MIB)
    assert len(caplog.records) == 1, "and it is well again"
    assert_all_there(sqlite.path, writing.head)


async def test_where_it_fails_for_good_the_log_is_bounded_by_sqlite(
    sqlite: SqliteKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "AUTOCHECKPOINT_PAGES", 500)
    await sqlite.reopen()
    await sqlite.store._aside.close()
    writing = Writing(sqlite)
    for _ in range(200):
        await writing.batch()
        assert writing.log_bytes < 600 * wal.PAGE_BYTES
    assert writing.payload_bytes > 5 * MIB


@pytest.mark.parametrize("end", ["close", "settle"])
async def test_the_end_waits_for_a_takeover_and_lets_no_other_begin(sqlite: SqliteKit, end: str) -> None:
    writing = Writing(sqlite)
    going_on = threading.Event()
    aside = asyncio.create_task(run(sqlite.store._aside, lambda db: going_on.wait()))
    await writing.write(4 * MIB)
    log = sqlite.store._wal
    assert log._under_way is not None, "behind what its connection does"
    ending = asyncio.create_task(getattr(sqlite.store, end)())
    await asyncio.sleep(0)
    assert not ending.done()
    going_on.set()
    await aside
    await ending
    assert log._under_way is None
    log.written(100 * MIB)
    assert log._under_way is None
    if end == "close":
        assert not log_of(sqlite.path).exists()
        with pytest.raises(DiskError):
            await writing.batch()
        await sqlite.reopen()
    else:
        assert writing.log_bytes == 0
    assert_all_there(sqlite.path, writing.head)


async def test_after_kill_9_all_that_was_committed_is_there(tmp_path: Path) -> None:
    for heads in (3, 40, 333):
        path = tmp_path / f"{heads}.sqlite"
        command = (sys.executable, "-m", "tests.store.steady_writer", str(path), str(256 * KIB))
        writer = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert writer.stdout is not None
        committed = [int(await writer.stdout.readline()) for _ in range(heads)]
        writer.send_signal(signal.SIGKILL)
        rest, _ = await writer.communicate()
        committed += [int(line) for line in rest.decode().split("\n")[:-1]]
        store = await SqliteStore.open(path)
        head = (await store.load()).head
        await store.close()
        assert head in (committed[-1], committed[-1] + RECORDS), "one commit may have ended unsaid"
        assert_all_there(path, head)
