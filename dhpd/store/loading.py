"""What a daemon starts from, read from the file in one go.

Owns the order, and that memory which holds millions of handoffs isn't filled with copies of the same few parts.
"""

import sqlite3
from collections.abc import Sequence

from dhpd.engine.facts import Handoff
from dhpd.engine.journal import Extension
from dhpd.engine.records import Entry, decode_record
from dhpd.engine.sharing import SharedParts

from . import schema
from .backend import Loaded
from .connecting import head_of
from .rows import decode_facts

PORTION_ROWS = 1_000


def load(db: sqlite3.Connection) -> Loaded:
    """Everything that a daemon needs in memory, as of one moment."""
    db.execute("begin")  # One snapshot.
    try:
        covered, purged_fence = (meta(db, name) for name in ("covered", "purged_fence"))
        facts = _live_facts(db)
        tail = [
            Entry(position, handoff.hex(), prev, anchor, decode_record(body), b"" if has_payload else None)
            for position, handoff, prev, anchor, body, has_payload in db.execute(schema.TAIL, (covered,))
        ]
        known = {handoff.id for handoff in facts} if tail else set()
        facts.extend(facts_of(db, sorted({entry.handoff for entry in tail} - known)))
        return Loaded(
            head=head_of(db),
            covered=covered,
            purged_fence=purged_fence,
            fence_floor=meta(db, "fence_floor"),
            counts=dict(db.execute(schema.COUNTS).fetchall()),
            dead_children={
                facts.id: facts.ancestors
                for facts in (decode_facts(row[0]) for row in db.execute(schema.DEAD_CHILDREN))
            },
            facts=facts,
            tail=tail,
            extensions={
                (name := handoff.hex()): Extension(name, fence, until_ms)
                for handoff, fence, until_ms in db.execute(schema.EXTENSIONS)
            },
        )
    finally:
        db.execute("rollback")


def meta(db: sqlite3.Connection, name: str) -> int:
    """One of the store's own numbers; 0 where it was never set."""
    row = db.execute(schema.META, (name,)).fetchone()
    return 0 if row is None else int(row[0])


def facts_of(db: sqlite3.Connection, handoffs: Sequence[str]) -> list[Handoff]:
    """The facts of those that the table has."""
    found = (db.execute(schema.FACTS_OF, (bytes.fromhex(handoff),)).fetchone() for handoff in handoffs)
    return [decode_facts(row[0]) for row in found if row is not None]


def _live_facts(db: sqlite3.Connection) -> list[Handoff]:
    """All live handoffs, in portions: so no copy of a part outlives the portion that brought it."""
    shared = SharedParts()
    live: list[Handoff] = []
    rows = db.execute(schema.LIVE_FACTS)
    while portion := rows.fetchmany(PORTION_ROWS):
        facts = [decode_facts(row[0]) for row in portion]
        shared.in_new(facts)
        live += facts
    return live
