"""What only SQLite has: a file, its settings, its errors."""

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dhpd.engine.journal import Extension
from dhpd.engine.operations import Engine
from dhpd.store import schema
from dhpd.store import sqlite as sqlite_module
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
    assert await settings_of(sqlite.store) == (2, 1)
    assert sqlite.store.durability == "power loss"
    await sqlite.store.settle()
    assert await settings_of(sqlite.store) == (2, 1), "also after it was opened anew"


async def test_without_power_safety_it_says_so(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.sqlite", power_safe=False)
    assert await settings_of(store) == (1, 1)
    assert store.durability == "process crash"
    await store.close()


async def settings_of(store: SqliteStore) -> tuple[int, int]:
    """`synchronous` of the writing connection, `query_only` of the reading one."""
    cursor = await store._writer.execute("pragma synchronous")
    (synchronous,) = await cursor.fetchone() or ()
    cursor = await store._reader.execute("pragma query_only")
    (query_only,) = await cursor.fetchone() or ()
    return synchronous, query_only


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
    await sqlite.store._reader.close()
    stories.claim(name(1))
    batch = stories.batch()
    with pytest.raises(DiskError):
        await sqlite.store.append(batch, 1)
    with pytest.raises(DiskError):
        await sqlite.store.payloads([1])
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


async def test_a_list_with_a_rare_label_goes_through_all_chunks(
    sqlite: SqliteKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "LIST_CHUNK", 7)
    stories = Stories()
    for number in range(50):
        stories.dispatch(name(number), labels={"rare": "yes"} if number % 20 == 0 else None)
    await sqlite.append(stories.batch(facts_of=[name(number) for number in range(50)]))
    lookup = replace(EVERYTHING, label="rare=yes", limit=2)
    page, after = await sqlite.store.handoffs(lookup)
    assert [int(facts.id, 16) for facts in page] == [0, 20]
    assert after is not None
    rest, end = await sqlite.store.handoffs(replace(lookup, after=after))
    assert ([int(facts.id, 16) for facts in rest], end) == ([40], None)


async def test_a_long_history_is_walked_to_its_beginning(sqlite: SqliteKit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    stories.claim(name(1))
    for _ in range(3_000):
        stories.checkpoint(name(1), b"1")
    await sqlite.append(stories.batch())
    assert [r.position for r in await sqlite.store.records_of(3_002, 0, 5)] == [1, 2, 3, 4, 5]
    assert [c.seq for c in await sqlite.store.checkpoints_of(3_002, 2_998, 5)] == [2_999, 3_000]


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
