"""What only SQLite has: a file, its settings, its errors."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dhpd.engine.facts import Handoff
from dhpd.engine.journal import Extension
from dhpd.engine.operations import Engine
from dhpd.store import long_reads, schema
from dhpd.store.backend import DiskError, StoreError
from dhpd.store.sqlite import SqliteStore
from tests.support.engine_world import START, World

from .conftest import SqliteKit
from .stories import EVERYTHING, Stories, name


def rows(path: Path, query: str) -> list[Any]:
    with sqlite3.connect(path) as db:
        found = db.execute(query).fetchall()
    db.close()
    return found


# --- whose file it is -----------------------------------------------------------------------------------------------


async def test_a_newer_schema_is_refused_and_left_as_it_is(sqlite: SqliteKit) -> None:
    await sqlite.store.close()
    rows(sqlite.path, f"pragma user_version = {schema.VERSION + 1}")
    before = sqlite.path.read_bytes()
    with pytest.raises(StoreError, match="newer dhpd"):
        await SqliteStore.open(sqlite.path)
    assert sqlite.path.read_bytes() == before
    rows(sqlite.path, f"pragma user_version = {schema.VERSION}")
    await sqlite.reopen()


async def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    rows(path, "create table theirs (a)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        await SqliteStore.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"this is no database, but some text of more than a hundred bytes" * 3, b"\x00" * 4096]
)
async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.sqlite"
    path.write_bytes(content)
    with pytest.raises(StoreError):
        await SqliteStore.open(path)
    assert path.read_bytes() == content


async def test_a_path_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="can't be opened"):
        await SqliteStore.open(tmp_path / "missing" / "store.sqlite")


async def test_the_file_is_marked_and_each_commit_is_synced(sqlite: SqliteKit) -> None:
    assert rows(sqlite.path, "pragma application_id") == [(schema.APPLICATION_ID,)]
    assert rows(sqlite.path, "pragma user_version") == [(schema.VERSION,)]
    assert rows(sqlite.path, "pragma journal_mode") == [("wal",)]
    assert await settings_of(sqlite.store) == (2, 1, 1)
    assert sqlite.store.durability == "power loss"
    await sqlite.store.settle()
    assert await settings_of(sqlite.store) == (2, 1, 1), "also after it was opened anew"


async def test_without_power_safety_it_says_so(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.sqlite", power_safe=False)
    assert await settings_of(store) == (1, 1, 1)
    assert store.durability == "process crash"
    await store.close()


async def settings_of(store: SqliteStore) -> tuple[int, int, int]:
    """`synchronous` of the writing connection, `query_only` of the two reading ones."""
    cursor = await store._writer.execute("pragma synchronous")
    (synchronous,) = await cursor.fetchone() or ()
    query_only = []
    for reader in (store._lookups, store._pages):
        cursor = await reader.execute("pragma query_only")
        query_only += await cursor.fetchone() or ()
    return synchronous, query_only[0], query_only[1]


async def test_a_second_daemon_cannot_write_beside_the_first(sqlite: SqliteKit) -> None:
    second = await SqliteStore.open(sqlite.path)
    ours, theirs = Stories(), Stories()
    ours.dispatch(name(1))
    theirs.dispatch(name(2))
    await sqlite.store.append(ours.batch(), 0)
    with pytest.raises(StoreError, match="Another dhpd"):
        await second.append(theirs.batch(), 0)
    await second.close()
    ours.claim(name(1))
    await sqlite.store.append(ours.batch(), 1)
    assert rows(sqlite.path, "select count(*) from journal") == [(2,)]


# --- what can't be stored -------------------------------------------------------------------------------------------


def poisoned(kind: str) -> Stories:
    """Three handoffs' records; no store takes the second one's."""
    stories = Stories()
    for number in (1, 2, 3):
        stories.dispatch(name(number))
        stories.claim(name(number))
    if kind == "an integer above 2^63":
        stories.spoil(2, prev=2**63)
    elif kind == "a doubled position":
        stories.spoil(2, position=1)
    else:
        stories.spoil(2, record=replace(stories.told[2].record, kind="\ud800"))
    return stories


@pytest.mark.parametrize("kind", ["an integer above 2^63", "a doubled position", "text that is no Unicode"])
async def test_one_that_cannot_be_stored_fails_alone(sqlite: SqliteKit, kind: str) -> None:
    stories = poisoned(kind)
    appended = await sqlite.store.append(stories.batch(facts_of=[name(1), name(2), name(3)], covers=6), 0)
    assert (appended.head, appended.failed) == (6, {name(2)})
    assert {stored.handoff for stored in await sqlite.store.records_after(0, 10)} == {name(1), name(3)}
    loaded = await sqlite.store.load()
    assert {facts.id for facts in loaded.facts} == {name(1), name(3)}
    assert loaded.covered == 0, "the table doesn't have all"
    stories.dispatch(name(9))
    assert (await sqlite.store.append(stories.batch(), 6)).failed == frozenset()


async def test_spending_that_cannot_be_stored_for_one_is_stored_for_none(sqlite: SqliteKit) -> None:
    stories = Stories()
    for number in (1, 2, 3):
        stories.dispatch(name(number))
        stories.claim(name(number))
    await sqlite.store.append(stories.batch(), 0)
    stories.spend(name(1))
    stories.spend(name(2), by=name(1))
    stories.spend(name(3))
    stories.spoil(1, prev=2**63)
    appended = await sqlite.store.append(stories.batch(), 6)
    assert (appended.head, appended.failed) == (9, {name(1), name(2)})
    assert [stored.position for stored in await sqlite.store.records_after(6, 10)] == [9]


async def test_when_nothing_of_it_can_be_stored_the_head_stays(sqlite: SqliteKit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    stories.spoil(0, prev=2**63)
    appended = await sqlite.store.append(stories.batch(extended=[Extension(name(2), 1, 5)]), 0)
    assert (appended.head, appended.failed) == (0, {name(1)})
    assert (await sqlite.store.load()).extensions, "the rest of the batch is kept"


# --- a failing disk -------------------------------------------------------------------------------------------------


async def fill(store: SqliteStore, pages: int) -> None:
    """The file may grow no further than so many pages: SQLite then says what it says on a full disk."""
    await store._writer.execute(f"pragma max_page_count = {pages}")


async def test_a_full_disk_is_a_disk_error_and_nothing_of_the_batch_is_there(sqlite: SqliteKit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    stories.claim(name(1))
    await sqlite.store.append(stories.batch(), 0)
    await fill(sqlite.store, 20)
    for _ in range(40):
        stories.checkpoint(name(1), b"x" * 10_000)
    too_much = stories.batch(facts_of=[name(1)], covers=stories.position, extended=[Extension(name(1), 1, 5)])
    with pytest.raises(DiskError):
        await sqlite.store.append(too_much, 2)
    assert await sqlite.store.settle() == 2
    assert len(await sqlite.store.records_after(0, 100)) == 2
    loaded = await sqlite.store.load()
    assert (loaded.facts, loaded.covered, loaded.extensions) == ([], 0, {})
    assert (await sqlite.store.append(too_much, 2)).head == 42, "there is room again, and no restart was needed"


async def test_a_connection_that_is_gone_is_a_disk_error_and_settle_brings_it_back(sqlite: SqliteKit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    await sqlite.store.append(stories.batch(), 0)
    await sqlite.store._writer.close()
    await sqlite.store._lookups.close()
    await sqlite.store._pages.close()
    stories.claim(name(1))
    batch = stories.batch()
    with pytest.raises(DiskError):
        await sqlite.store.append(batch, 1)
    with pytest.raises(DiskError):
        await sqlite.store.payloads([1])
    with pytest.raises(DiskError):
        await sqlite.store.records_after(0, 1)
    assert await sqlite.store.settle() == 1
    assert (await sqlite.store.append(batch, 1)).head == 2


async def test_settle_fails_as_long_as_the_file_cannot_be_opened(sqlite: SqliteKit, tmp_path: Path) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    await sqlite.store.append(stories.batch(), 0)
    away = tmp_path / "away"
    await sqlite.store.close()
    sqlite.path.rename(away)
    sqlite.path.mkdir()
    for _ in range(2):
        with pytest.raises(DiskError):
            await sqlite.store.settle()
        with pytest.raises(DiskError):
            await sqlite.store.append(stories.batch(), 1)
    sqlite.path.rmdir()
    away.rename(sqlite.path)
    assert await sqlite.store.settle() == 1


async def test_settle_waits_for_the_write_ahead_log_to_be_taken_over(sqlite: SqliteKit) -> None:
    """Until that has succeeded nothing in it is believed."""
    stories = Stories()
    stories.dispatch(name(1))
    await sqlite.store.append(stories.batch(), 0)
    with sqlite3.connect(sqlite.path) as db:
        db.execute("begin")
        db.execute("select * from journal").fetchall()
        stories.claim(name(1))
        await sqlite.store.append(stories.batch(), 1)
        with pytest.raises(DiskError):
            await sqlite.store.settle()
        db.rollback()
    db.close()
    assert await sqlite.store.settle() == 2


async def test_what_one_appends_the_other_side_reads_only_when_it_is_committed(sqlite: SqliteKit) -> None:
    stories = Stories()
    for number in range(400):
        stories.dispatch(name(number))
    seen: list[int] = []

    async def look() -> None:
        while not seen or seen[-1] < 400:
            seen.append(len(await sqlite.store.records_after(0, 1_000)))

    await asyncio.gather(look(), sqlite.store.append(stories.batch(), 0))
    assert set(seen) <= {0, 400}


# --- size -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def many(sqlite: SqliteKit, monkeypatch: pytest.MonkeyPatch) -> Stories:
    """Fifty handoffs: each tenth of a rare kind and with a rare label, the last one running. A list scans 7 rows a step."""
    monkeypatch.setattr(long_reads, "SCAN_ROWS", 7)
    monkeypatch.setattr(long_reads, "MAX_SCANNED_ROWS", 21)
    stories = Stories()
    for number in range(1, 51):
        rare: dict[str, Any] = {"kind": "rare", "labels": {"é": "yes=1"}} if number % 10 == 0 else {}
        stories.dispatch(name(number), **rare)
    stories.claim(name(50), "ada")
    await sqlite.append(stories.batch(facts_of=stories.facts, covers=stories.position))
    return stories


def numbers(page: list[Handoff]) -> list[int]:
    return [facts.number for facts in page]


RARE = pytest.mark.parametrize("rare", [{"kind": "rare"}, {"label": "é=yes=1"}], ids=str)


@RARE
async def test_a_list_goes_through_so_many_rows_and_the_next_goes_on(
    sqlite: SqliteKit, many: Stories, rare: dict[str, str]
) -> None:
    lookup = replace(EVERYTHING, **rare)
    pages = []
    after: int | None = 0
    while after is not None:
        page, after = await sqlite.store.handoffs(replace(lookup, after=after))
        pages.append((numbers(page), after))
    assert pages == [([10, 20], 21), ([30, 40], 42), ([50], None)]


async def test_a_page_of_a_list_may_be_empty_although_there_are_more(sqlite: SqliteKit, many: Stories) -> None:
    lookup = replace(EVERYTHING, kind="rare", label="é=yes=1")
    assert await sqlite.store.handoffs(replace(lookup, kind="none")) == ([], 21)
    assert await sqlite.store.handoffs(replace(lookup, after=42, kind="none")) == ([], None)
    assert await sqlite.store.handoffs(replace(lookup, label="é=yes")) == ([], 21)


@RARE
async def test_a_full_page_says_whether_there_are_more(sqlite: SqliteKit, many: Stories, rare: dict[str, str]) -> None:
    lookup = replace(EVERYTHING, limit=1, **rare)
    page, after = await sqlite.store.handoffs(lookup)
    assert (numbers(page), after) == ([10], 10)
    page, after = await sqlite.store.handoffs(replace(lookup, after=42))
    assert (numbers(page), after) == ([50], None)


@pytest.mark.parametrize(
    "wanted", [{"status": "running"}, {"worker": "ada"}, {"worker": "ada", "kind": "rare"}], ids=str
)
async def test_a_list_of_what_runs_goes_through_nothing_else(
    sqlite: SqliteKit, many: Stories, wanted: dict[str, str]
) -> None:
    page, after = await sqlite.store.handoffs(replace(EVERYTHING, **wanted))
    assert (numbers(page), after) == ([50], None)


async def test_a_long_history_is_walked_to_its_beginning(sqlite: SqliteKit) -> None:
    await long_history(sqlite)
    assert [r.position for r in await sqlite.store.records_of(3_002, 0, 5)] == [1, 2, 3, 4, 5]
    assert [c.seq for c in await sqlite.store.checkpoints_of(3_002, 0, 5)] == [1, 2, 3, 4, 5]
    assert [c.seq for c in await sqlite.store.checkpoints_of(3_002, 2_998, 5)] == [2_999, 3_000]


async def test_pages_of_a_long_history_join_over_slices_and_pruned_checkpoints(
    sqlite: SqliteKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_reads, "SLICE_RECORDS", 10)
    await long_history(sqlite, 100)
    await sqlite.prune(range(3, 33))  # Checkpoints 1 to 30.
    for limit in (1, 7, 10, 30, 1_000):
        seen: list[int] = []
        while page := await sqlite.store.records_of(102, seen[-1] if seen else 0, limit):
            seen += [stored.record.n for stored in page]
            assert len(page) <= limit
        assert seen == [1, 2, *range(33, 103)]
        seqs: list[int] = []
        while checkpoints := await sqlite.store.checkpoints_of(102, seqs[-1] if seqs else 0, limit):
            seqs += [facts.seq for facts in checkpoints]
        assert seqs == list(range(31, 101))


async def long_history(sqlite: SqliteKit, checkpoints: int = 3_000) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    stories.claim(name(1))
    for _ in range(checkpoints):
        stories.checkpoint(name(1), b"1")
    await sqlite.append(stories.batch(facts_of=[name(1)]))


# --- who waits for whom ---------------------------------------------------------------------------------------------


async def ended_first(long: Awaitable[Any], short: Awaitable[Any]) -> str:
    """Which of two reads ends first, when the short one begins right behind the long one."""
    order: list[str] = []

    async def note(which: str, read: Awaitable[Any]) -> None:
        await read
        order.append(which)

    await asyncio.gather(note("long", long), note("short", short))
    return order[0]


@pytest.mark.parametrize("read", ["records_of", "checkpoints_of"])
async def test_a_walk_through_a_long_history_lets_others_read_in_between(sqlite: SqliteKit, read: str) -> None:
    await long_history(sqlite)
    walk = getattr(sqlite.store, read)(3_002, 0, 1)
    assert await ended_first(walk, sqlite.store.records_after(0, 1)) == "short"


@pytest.mark.parametrize("wanted", [{"kind": "none"}, {"label": "none=1"}], ids=str)
async def test_a_list_that_finds_little_lets_others_read_in_between(
    sqlite: SqliteKit, many: Stories, wanted: dict[str, str]
) -> None:
    listed = sqlite.store.handoffs(replace(EVERYTHING, **wanted))
    assert await ended_first(listed, sqlite.store.records_after(0, 1)) == "short"


async def test_what_is_looked_up_in_a_moment_does_not_wait_for_a_page(sqlite: SqliteKit) -> None:
    await long_history(sqlite, 1)
    going_on = threading.Event()
    long = asyncio.create_task(sqlite.store._read_page(lambda db: going_on.wait()))
    assert await sqlite.store.payloads([3]) == {3: b"1"}
    assert len(await sqlite.store.facts_of([name(1)])) == 1
    assert not long.done()
    going_on.set()
    await long


async def test_a_hundred_thousand_live_handoffs_start(sqlite: SqliteKit) -> None:
    count = 100_000
    stories = Stories()
    stories.dispatch(name(0))
    model = stories.facts[name(0)]
    batch = stories.batch(covers=count)
    batch.entries = []
    batch.facts = [replace(model, id=name(number), number=number, position=number) for number in range(1, count + 1)]
    await sqlite.store.append(batch, 0)
    rows(sqlite.path, f"update meta set value = {count} where name = 'head'")
    began = time.perf_counter()
    loaded = await sqlite.store.load()
    world = World()
    engine = world.engine = Engine(world.settings, lambda: "own")
    engine.load(
        loaded.facts,
        loaded.tail,
        loaded.extensions,
        loaded.counts,
        loaded.dead_children,
        head=loaded.head,
        covered=loaded.covered,
        now=START,
    )
    print(f"{count} live handoffs were loaded in {time.perf_counter() - began:.2f} s")
    assert len(engine.ledger) == count
    assert engine.ledger.counts["pending"] == count
    first = engine.ledger.queue.first(["work"])
    assert first is not None
    assert first.number == 1
