"""What only SQLite's pruning has: steps that are small, what a crash between them leaves, and a file that stays small."""

import sqlite3
from pathlib import Path

import pytest

from dhpd.engine.facts import Handoff
from dhpd.store import long_reads, pruning
from dhpd.store.backend import DiskError
from dhpd.store.sqlite import SqliteStore
from dhpd.store.wal import KEPT_BYTES

from .conftest import SqliteKit
from .stories import Stories, name
from .test_pruning import ended, nothing_in_use, prune, seqs, working, written
from .test_sqlite import rows, settings_of

PAGE_BYTES = 4_096


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of five records; three handoffs are looked at in one; a walk goes on after ten records."""
    monkeypatch.setattr(pruning, "STEP_RECORDS", 5)
    monkeypatch.setattr(pruning, "LOOK_HANDOFFS", 3)
    monkeypatch.setattr(pruning, "LOOK_RECORDS", 25)
    monkeypatch.setattr(pruning, "SLICE_RECORDS", 10)
    monkeypatch.setattr(long_reads, "SLICE_RECORDS", 10)


# --- when it is worth looking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "spare"), [(1, 1), (3, 1), (16, 4), (100, 25)])
async def test_of_live_work_a_share_of_the_checkpoints_goes_at_once(sqlite: SqliteKit, keep: int, spare: int) -> None:
    """Looking for one costs a walk over all that are kept, so it is done for several together."""
    stories = Stories()
    working(stories, name(1), keep + spare - 1, keep=keep)
    assert await prune(sqlite, await written(sqlite, stories)) == 0
    stories.checkpoint(name(1), b"one more")
    assert await prune(sqlite, await written(sqlite, stories)) == spare
    stories.checkpoint(name(1), b"one more")
    stories.complete(name(1))
    assert await prune(sqlite, await written(sqlite, stories)) == 1, "of what has ended all go that may"
    assert len(await seqs(sqlite, stories.facts[name(1)])) == keep


async def test_what_has_nothing_to_give_is_not_looked_at(sqlite: SqliteKit) -> None:
    stories = Stories()
    for number in range(1, 6):
        working(stories, name(number), number, keep=3)
        stories.complete(name(number))
    covered = await written(sqlite, stories)
    due = "select number from handoffs where pruned < prune_below"
    assert len(rows(sqlite.path, due)) == 2
    plan = rows(sqlite.path, f"explain query plan {due} and number > 0 order by number limit 5")
    assert "handoffs_to_prune" in plan[0][-1], "an index leads to them"
    assert await prune(sqlite, covered) == 3
    assert rows(sqlite.path, due) == []


# --- steps ----------------------------------------------------------------------------------------------------------


async def test_steps_are_small_and_commits_come_in_between(sqlite: SqliteKit, small_steps: None) -> None:
    stories = Stories()
    for number in range(1, 8):
        working(stories, name(number), 23, keep=2)
        stories.complete(name(number))
    stories.dispatch(name(9))
    covered = await written(sqlite, stories)
    steps = []
    async for gone in sqlite.store.prune(covered, nothing_in_use):
        steps.append(gone)
        stories.claim(name(9))
        stories.release(name(9))
        await sqlite.store.append(stories.batch(), stories.position - 2)
    assert sum(steps) == 7 * 21
    assert max(steps) <= 5
    for number in range(1, 8):
        assert await seqs(sqlite, stories.facts[name(number)]) == [22, 23]


async def test_a_large_state_makes_a_step_of_its_own(sqlite: SqliteKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "STEP_BYTES", 10_000)
    stories = Stories()
    stories.dispatch(name(1), keep_checkpoints=1)
    stories.claim(name(1))
    for size in (1, 20_000, 4_000, 4_000, 4_000, 1):
        stories.checkpoint(name(1), b"x" * size)
    stories.complete(name(1))
    covered = await written(sqlite, stories)
    assert [gone async for gone in sqlite.store.prune(covered, nothing_in_use)] == [1, 1, 2, 1]
    stories.forget(name(1))
    await sqlite.append(stories.batch(covers=stories.position))
    assert await prune(sqlite, stories.position) == 5


@pytest.mark.parametrize("done", [1, 2, 3])
async def test_killed_between_steps_it_goes_on_where_it_was(sqlite: SqliteKit, small_steps: None, done: int) -> None:
    stories = Stories()
    working(stories, name(1), 30, keep=4)
    stories.release(name(1))
    working(stories, name(2), 12, keep=4)
    stories.complete(name(2))
    ended(stories, name(3))
    covered = await written(sqlite, stories)
    gone = await some_steps(sqlite.store, covered, done)
    assert gone
    await sqlite.reopen()
    assert gone + await prune(sqlite, covered) == 26 + 8
    assert await seqs(sqlite, stories.facts[name(1)]) == [27, 28, 29, 30]
    assert await seqs(sqlite, stories.facts[name(2)]) == [9, 10, 11, 12]
    assert len(await sqlite.store.records_of(stories.facts[name(3)].position, 0, 100)) == 6


@pytest.mark.parametrize("done", [1, 2, 5])
async def test_killed_while_a_forgotten_chain_is_deleted_it_goes_on(
    sqlite: SqliteKit, small_steps: None, done: int
) -> None:
    stories = Stories()
    working(stories, name(1), 30, keep=100)
    stories.complete(name(1))
    ended(stories, name(2))
    await written(sqlite, stories)
    stories.forget(name(1))
    await sqlite.append(stories.batch(covers=stories.position))
    gone = await some_steps(sqlite.store, stories.position, done)
    for _ in range(2):
        await sqlite.reopen()
        loaded = await sqlite.store.load()
        assert (loaded.head, loaded.counts) == (stories.position, {"completed": 1})
    assert gone + await prune(sqlite, stories.position) == 34
    assert rows(sqlite.path, "select count(*) from forgotten") == [(0,)]
    assert rows(sqlite.path, "select distinct handoff from journal") == [(bytes.fromhex(name(2)),)]


async def some_steps(store: SqliteStore, covered: int, steps: int) -> int:
    """So many steps, and no more."""
    gone = 0
    async for step in store.prune(covered, nothing_in_use):
        gone += step
        steps -= 1
        if not steps:
            break
    return gone


async def test_many_handoffs_are_gone_through(sqlite: SqliteKit, small_steps: None) -> None:
    stories = Stories()
    for number in range(1, 20):
        working(stories, name(number), number, keep=3)
        stories.complete(name(number))
    covered = await written(sqlite, stories)
    assert await prune(sqlite, covered, {name(7): 1, name(19): 4}) == sum(range(17)) - 4 - 13
    assert await prune(sqlite, covered) == 4 + 13


# --- the file -------------------------------------------------------------------------------------------------------


async def test_a_step_does_not_wait_for_the_disk_and_commits_still_do(sqlite: SqliteKit) -> None:
    stories = Stories()
    working(stories, name(1), 10)
    covered = await written(sqlite, stories)
    statements: list[str] = []
    await sqlite.store._writer.set_trace_callback(statements.append)
    assert await prune(sqlite, covered) == 7
    said = [statement.lower() for statement in statements]
    assert said.index("pragma synchronous = normal") < said.index("commit") < said.index("pragma synchronous = 2")
    assert await settings_of(sqlite.store) == (2, 1, 1)


async def test_a_step_that_fails_changes_nothing_and_commits_go_on(sqlite: SqliteKit) -> None:
    stories = Stories()
    working(stories, name(1), 10)
    covered = await written(sqlite, stories)
    with sqlite3.connect(sqlite.path) as db:
        db.execute("create trigger kept before delete on journal begin select raise(abort, 'no'); end")
    with pytest.raises(DiskError):
        await prune(sqlite, covered)
    assert await settings_of(sqlite.store) == (2, 1, 1)
    assert await seqs(sqlite, stories.facts[name(1)]) == list(range(1, 11))
    stories.checkpoint(name(1), b"11")
    await sqlite.store.append(stories.batch(), covered)
    db.execute("drop trigger kept")
    db.close()
    assert await prune(sqlite, covered) == 7


async def test_a_connection_that_is_gone_is_a_disk_error(sqlite: SqliteKit) -> None:
    stories = Stories()
    working(stories, name(1), 10)
    covered = await written(sqlite, stories)
    await sqlite.store.close()
    with pytest.raises(DiskError):
        await prune(sqlite, covered)
    await sqlite.store.settle()
    assert await prune(sqlite, covered) == 7


async def test_freed_pages_are_used_again_and_the_log_stays_bounded(sqlite: SqliteKit) -> None:
    """Work that checkpoints for ever takes the room of what is kept; so does work that is forgotten when it is done."""
    stories = Stories()
    working(stories, name(1), 0, keep=16)
    sizes = []
    for number in range(30):
        for _ in range(100):
            stories.checkpoint(name(1), b"x" * 6_000)
        working(stories, name(100 + number), 20, keep=100)
        stories.complete(name(100 + number))
        await written(sqlite, stories)
        stories.forget(name(100 + number))
        covered = await written(sqlite, stories)
        await prune(sqlite, covered)
        ((pages,),) = rows(sqlite.path, "pragma page_count")
        sizes.append(pages)
    assert sizes[-1] == sizes[5], "it doesn't grow"
    wal_bytes = Path(f"{sqlite.path}-wal").stat().st_size  # noqa: ASYNC240
    assert wal_bytes <= KEPT_BYTES


async def test_records_that_cannot_be_stored_are_not_forgotten_either(sqlite: SqliteKit) -> None:
    stories = Stories()
    for number in (1, 2):
        ended(stories, name(number))
    await written(sqlite, stories)
    kept: dict[str, Handoff] = dict(stories.facts)
    for number in (1, 2):
        stories.forget(name(number))
    stories.spoil(0, prev=2**63)
    appended = await sqlite.store.append(stories.batch(), stories.position - 2)
    assert appended.failed == {name(1)}
    assert await sqlite.store.facts_of([name(1), name(2)]) == [kept[name(1)]]
    found = rows(sqlite.path, "select position from forgotten")
    assert found == [(stories.position,)]
