"""What a commit costs the store doesn't grow with what is stored: counted in SQLite's own instructions, not in time."""

import sqlite3

from dhpd.store.connecting import run

from .conftest import SqliteKit
from .stories import Stories, name

FEW, MANY = 20, 3_000
SLACK = 1.2


async def test_a_checkpoint_costs_the_same_however_long_the_history_and_however_many_handoffs(
    sqlite: SqliteKit,
) -> None:
    stories, head, counted = Stories(), 0, 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    async def commit() -> None:
        nonlocal head
        head = (await sqlite.store.append(stories.batch(facts_of=[name(1)]), head)).head

    stories.dispatch(name(1))
    stories.claim(name(1))
    costs = []
    for length in (FEW, MANY):
        while stories.facts[name(1)].seq < length:
            stories.checkpoint(name(1), b"x" * 100)
            stories.dispatch(name(stories.position))
        await commit()
        await run(sqlite.store._writer, lambda db: db.set_progress_handler(count, 1))
        before = counted
        stories.checkpoint(name(1), b"x" * 100)
        await commit()
        costs.append(counted - before)
        await run(sqlite.store._writer, lambda db: db.set_progress_handler(None, 1))
    assert 0 < costs[1] <= SLACK * costs[0]


async def test_a_commit_touches_one_row_of_the_journal_and_no_index_of_it(sqlite: SqliteKit) -> None:
    """What would have to be kept in order for each record is what makes a long history dear."""
    db = sqlite3.connect(sqlite.path)
    assert db.execute("select name from sqlite_master where type = 'index' and tbl_name = 'journal'").fetchall() == []
    assert db.execute("select name from sqlite_master where type = 'trigger'").fetchall() == []
    db.close()
