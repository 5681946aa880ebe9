"""Appending a batch to the file: one transaction, one fsync.

Owns what an error means while a batch is written: the disk's failure fails the batch, a record that can't be stored fails alone
with whatever stands and falls with it. All of it runs on the writer's thread.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from dhpd.engine.binding import groups
from dhpd.engine.journal import Batch

from . import schema
from .backend import Appended, StoreError
from .connecting import disk_error, head_of
from .pruning import forget
from .rows import facts_row, record_row


def append(db: sqlite3.Connection, batch: Batch, expected_head: int) -> Appended:
    """The whole batch in one transaction; where that fails for another cause than the disk, handoff by handoff."""
    _begin(db, expected_head)
    try:
        insert(db, [record_row(entry) for entry in batch.entries])
        forget(db, batch.entries)
        _write_behind(db, batch, frozenset())
    except _NOT_THE_DISK:
        db.execute("rollback")
        return _append_each(db, batch, expected_head)
    except sqlite3.Error:
        _rollback(db)
        raise
    _commit(db)
    return Appended(batch.entries[-1].position if batch.entries else expected_head)


def _append_each(db: sqlite3.Connection, batch: Batch, expected_head: int) -> Appended:
    """One transaction with a savepoint for all that stands and falls together: what can't be stored fails alone."""
    _begin(db, expected_head)
    failed: set[str] = set()
    try:
        for entries in groups(batch.entries):
            db.execute("savepoint handoffs")
            try:
                insert(db, [record_row(entry) for entry in entries])
                forget(db, entries)
            except _NOT_THE_DISK:
                db.execute("rollback to handoffs")
                failed.update(entry.handoff for entry in entries)
            db.execute("release handoffs")
        _write_behind(db, batch, failed)
        _commit(db)
    except sqlite3.Error as error:
        _rollback(db)
        raise disk_error(error, frozenset(failed)) from error
    kept = [entry.position for entry in batch.entries if entry.handoff not in failed]
    return Appended(max(kept, default=expected_head), frozenset(failed))


def insert(db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Rows of `journal`. Many with one statement: at each the interpreter's lock is given up and taken back, and the loop
    wants it too.
    """
    at = 0
    for many, statement in schema.INSERT_RECORDS.items():
        while len(rows) - at >= many:
            db.execute(statement, list(chain.from_iterable(rows[at : at + many])))
            at += many


_NOT_THE_DISK = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    TypeError,
    ValueError,
)
"""What is wrong with a record, or with what it holds."""


def _begin(db: sqlite3.Connection, expected_head: int) -> None:
    db.execute("begin immediate")
    if head_of(db) != expected_head:
        db.execute("rollback")
        raise StoreError("Another dhpd has written to this store: stop one of them.")


def _commit(db: sqlite3.Connection) -> None:
    try:
        db.execute("commit")
    except sqlite3.Error:
        _rollback(db)
        raise


def _rollback(db: sqlite3.Connection) -> None:
    """As far as it goes: what really is on disk is found out by `settle`."""
    if db.in_transaction:
        try:
            db.execute("rollback")
        except sqlite3.Error:
            pass


def _write_behind(db: sqlite3.Connection, batch: Batch, failed: Iterable[str]) -> None:
    skipped = set(failed)
    rows = [facts_row(facts) for facts in batch.facts if facts.id not in skipped]
    db.executemany(schema.PUT_FACTS, rows)
    if batch.covers is not None and not skipped:
        db.execute(schema.SET_META, (batch.covers, "covered"))
    for extension in batch.extended:
        parameters = (bytes.fromhex(extension.handoff), extension.fence, extension.until_ms)
        db.execute(schema.PUT_EXTENSION, parameters)
    for handoff in batch.freed:  # Afterwards: one that was granted and used up in the same batch is gone.
        db.execute(schema.FREE_EXTENSION, (bytes.fromhex(handoff),))
