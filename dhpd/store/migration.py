"""Stores of older versions, brought to the present one.

Owns what was different. All of it is one transaction, so that a store is of the one version or of the other. The table of facts
is made anew by replaying the journal, in bounded memory: so it says what the present rules make of the records.
"""

import logging
import sqlite3
from collections import OrderedDict

import msgspec

from dhpd.engine.apply import apply
from dhpd.engine.facts import Handoff
from dhpd.engine.records import Dispatched, Entry, decode_record

from . import schema
from .backend import StoreError
from .rows import decode_facts, facts_row

PAGE_RECORDS = 1_000
MAX_HANDOFFS_IN_MEMORY = 10_000

_PAGE = "select position, handoff, prev, anchor, body from journal where position > ? order by position limit ?"
_SET_BODY = "update journal set body = ? where position = ?"

_log = logging.getLogger(__name__)


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Brings a store of `version` to `schema.VERSION`; raises `StoreError`, with the store as it was, where it can't be."""
    if version != 1:
        raise StoreError(
            f"The store has schema {version}, which no released dhpd wrote: choose another --data directory."
        )
    _log.info("the store is brought from schema %d to %d", version, schema.VERSION)
    db.execute("begin immediate")
    try:
        db.execute("drop table handoffs")
        for statement in schema.CREATE_FACTS.split(";"):
            db.execute(statement)
        _replay(db)
        (head,) = db.execute(schema.HEAD).fetchone()
        db.execute(schema.RAISE_META, (head, "covered"))
        db.execute(f"pragma user_version = {schema.VERSION}")
        db.execute("commit")
    except BaseException:
        db.execute("rollback")
        raise


def _replay(db: sqlite3.Connection) -> None:
    """Goes through the journal from its beginning; what hasn't been changed for longest is in the table meanwhile."""
    in_memory: OrderedDict[bytes, Handoff] = OrderedDict()
    after = 0
    while page := db.execute(_PAGE, (after, PAGE_RECORDS)).fetchall():
        bodies = []
        for position, handoff, prev, anchor, old_body in page:
            body = _body_of_1(old_body)
            if body is not old_body:
                bodies.append((body, position))
            try:
                entry = Entry(position, handoff.hex(), prev, anchor, decode_record(body), None)
                first = isinstance(entry.record, Dispatched)
                in_memory[handoff] = apply(None if first else _before(db, in_memory, handoff), entry)
            except (AssertionError, KeyError, TypeError, msgspec.MsgspecError) as error:
                raise StoreError(
                    f"The record at position {position} can't be taken over from schema 1: keep the file, and report it."
                ) from error
            in_memory.move_to_end(handoff)
        db.executemany(_SET_BODY, bodies)
        after = page[-1][0]
        _put_aside(db, in_memory, MAX_HANDOFFS_IN_MEMORY)
    _put_aside(db, in_memory, 0)


def _before(db: sqlite3.Connection, in_memory: OrderedDict[bytes, Handoff], handoff: bytes) -> Handoff:
    found = in_memory.get(handoff)
    return found if found is not None else decode_facts(db.execute(schema.FACTS_OF, (handoff,)).fetchone()[0])


def _put_aside(db: sqlite3.Connection, in_memory: OrderedDict[bytes, Handoff], limit: int) -> None:
    rows = []
    while len(in_memory) > limit:
        rows.append(facts_row(in_memory.popitem(last=False)[1]))
    db.executemany(schema.PUT_FACTS, rows)


def _body_of_1(body: bytes) -> bytes:
    """A record's body as it is written now: of its caps, a dispatch had `max_attempts` only."""
    if not body.startswith(b'{"type":"dispatched"'):
        return body
    members = msgspec.json.decode(body)
    members["budget"] = {"max_attempts": members.pop("max_attempts")}
    return msgspec.json.encode(members)
