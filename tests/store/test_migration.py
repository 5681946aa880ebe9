"""A store of the first version is taken over, with each handoff as it was; what isn't ours to change stays as it is."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dhpd.engine.budget import Budget
from dhpd.engine.facts import CheckpointFacts, Handoff, Hold
from dhpd.engine.journal import Extension
from dhpd.engine.records import Dispatched
from dhpd.store import migration, schema
from dhpd.store.backend import StoreError
from dhpd.store.sqlite import SqliteStore

from .stories import EVERYTHING, Stories, name
from .version_1 import Version1Store

DONE, HELD, DEAD, LATER = (name(number) for number in range(1, 5))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """One completed and acknowledged, one running, one dead of its failures, and one that only the tail speaks of."""
    path = tmp_path / "store.sqlite"
    store = Version1Store(path)
    number = store.dispatch(DONE, max_attempts=7, labels={"é": "🙂"}, priority=9)
    store.claim(DONE, 1)
    store.checkpoint(DONE, 1, 1, b"1")
    store.tell(DONE, "released", 2, worker="ada", reason="tired")
    store.claim(DONE, 3, "bob", attempt=2)
    store.checkpoint(DONE, 3, 2, b"22")
    store.tell(DONE, "completed", 3, b'"done"', worker="bob", sha256="0" * 64, bytes=6)
    store.tell(DONE, "acked", 3)
    store.in_table(DONE, number, "completed")
    number = store.dispatch(HELD, kind="other", ancestors=[DONE], not_before_ms=5, has_schema=True)
    store.claim(HELD, 1)
    store.checkpoint(HELD, 1, 1, b"1")
    store.in_table(HELD, number, "running")
    store.extend(HELD, 1, 9_999)
    number = store.dispatch(DEAD, max_attempts=2)
    store.claim(DEAD, 1)
    store.tell(DEAD, "orphaned", 2, worker="ada", why="expired", failures=1)
    covered = store.claim(DEAD, 3, was="orphaned", attempt=2)
    store.in_table(DEAD, number, "orphaned")
    error = {"type": "Oops", "message": "it broke"}
    store.tell(DEAD, "failed", 4, worker="ada", error=error, retry=True, failures=2)
    store.tell(DEAD, "dead", 5, reason="max_attempts: 2 of 2 failed")
    store.dispatch(LATER)
    store.tell(LATER, "cancelled", 1, reason="no longer wanted")
    store.close(covered=covered)
    return path


async def facts_in(path: Path) -> dict[str, Handoff]:
    store = await SqliteStore.open(path)
    handoffs, _ = await store.handoffs(EVERYTHING)
    await store.close()
    return {facts.id: facts for facts in handoffs}


async def test_each_handoff_is_as_it_was(path: Path) -> None:
    facts = await facts_in(path)
    assert facts.keys() == {DONE, HELD, DEAD, LATER}
    done = facts[DONE]
    assert (done.status, done.fence, done.n, done.number, done.position) == ("completed", 3, 8, 1, 8)
    assert (done.attempt, done.steps, done.failures, done.acked) == (2, 2, 0, True)
    assert (done.labels, done.priority, done.budget) == ({"é": "🙂"}, 9, Budget(max_attempts=7))
    assert (done.result_position, done.result_sha256) == (7, "0" * 64)
    assert done.checkpoint == CheckpointFacts(2, f"{2:064x}", 6, 1_006)
    held = facts[HELD]
    assert (held.status, held.kind, held.parent, held.has_schema) == ("running", "other", DONE, True)
    assert held.hold == Hold("ada", "s", 1, 6_000, 1_010, "pending", None, False)
    assert held.first_claimed_at_ms == 1_010
    dead = facts[DEAD]
    assert (dead.status, dead.fence, dead.failures, dead.attempt) == ("dead", 5, 2, 2)
    assert dead.reason == "max_attempts: 2 of 2 failed"
    assert (facts[LATER].status, facts[LATER].reason) == ("cancelled", "no longer wanted")


async def test_what_lies_beside_the_facts_is_as_it_was(path: Path) -> None:
    store = await SqliteStore.open(path)
    loaded = await store.load()
    assert (loaded.head, loaded.covered, loaded.tail) == (19, 19, [])
    assert loaded.extensions == {HELD: Extension(HELD, 1, 9_999)}
    assert loaded.counts == {"completed": 1, "running": 1, "dead": 1, "cancelled": 1}
    assert await store.payloads([1, 3, 6, 7]) == {1: b"{}", 3: b"1", 6: b"22", 7: b'"done"'}
    records = [stored.record for stored in await store.records_of(8, 0, 100)]
    assert [record.n for record in records] == list(range(1, 9))
    assert isinstance(records[0], Dispatched)
    assert records[0].budget == Budget(max_attempts=7)
    await store.close()


async def test_it_goes_on_as_any_other_store(path: Path) -> None:
    store = await SqliteStore.open(path)
    stories = Stories(position=19)
    stories.facts.update({facts.id: facts for facts in (await store.handoffs(EVERYTHING))[0]})
    stories.complete(HELD)
    stories.forget(DONE)
    await store.append(stories.batch(facts_of=[HELD], covers=21), 19)
    assert sum([gone async for gone in store.prune(21, lambda handoff: None)]) == 9
    assert (await store.load()).purged_fence == 3
    await store.close()


async def test_taken_over_once_it_is_a_store_of_this_version(path: Path) -> None:
    first = await facts_in(path)
    assert await facts_in(path) == first
    with sqlite3.connect(path) as db:
        assert db.execute("pragma user_version").fetchone() == (schema.VERSION,)
        made = db.execute("select name, sql from sqlite_schema order by name").fetchall()
    db.close()
    fresh = path.parent / "fresh.sqlite"
    await (await SqliteStore.open(fresh)).close()
    with sqlite3.connect(fresh) as db:
        assert made == db.execute("select name, sql from sqlite_schema order by name").fetchall()
    db.close()


async def test_memory_holds_few_of_them_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = path.with_name("whole.sqlite")
    shutil.copy(path, whole)
    monkeypatch.setattr(migration, "PAGE_RECORDS", 1)
    monkeypatch.setattr(migration, "MAX_HANDOFFS_IN_MEMORY", 0)
    in_pieces = await facts_in(path)
    monkeypatch.undo()
    assert in_pieces == await facts_in(whole)


async def test_what_cannot_be_taken_over_is_told_and_left_as_it_is(path: Path) -> None:
    change(path, "update journal set body = x'7b7d' where position = 12")
    before = everything(path)
    with pytest.raises(StoreError, match="position 12"):
        await SqliteStore.open(path)
    assert everything(path) == before


async def test_a_version_that_nobody_wrote_is_refused(path: Path) -> None:
    change(path, "pragma user_version = 0")
    with pytest.raises(StoreError, match="schema 0"):
        await SqliteStore.open(path)


def change(path: Path, sql: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute(sql)
    db.close()


def everything(path: Path) -> list[Any]:
    with sqlite3.connect(path) as db:
        found = [db.execute(f"select * from {table}").fetchall() for table in ("journal", "handoffs", "meta")]
        found.append(db.execute("pragma user_version").fetchall())
    db.close()
    return found
