"""What leaves the disk: checkpoints that newer ones have replaced, and the records of what was forgotten.

Owns how they are found and deleted, in steps so short that neither a commit nor a read waits for long. Finding leads back along
a handoff's chain, on the connection for pages; deleting is a transaction of its own that isn't synced: whatever is
acknowledged next syncs it too, and if it is lost it is done again. Only what the table of facts covers goes, so that a start
finds in the journal's tail all that it has to replay. Does not own which checkpoints are replaced (`dhpd.engine.retention`).
"""

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from dhpd.engine.facts import Handoff
from dhpd.engine.records import Entry, Forgotten
from dhpd.engine.retention import replaced_seq

from . import schema
from .long_reads import SLICE_RECORDS, Read
from .rows import decode_facts

STEP_RECORDS = 256
STEP_BYTES = 4 * 1024 * 1024
"""So much at most is deleted in one step, or one record that is larger: a big payload costs time for each of its pages."""
GATHERED_RECORDS = 4_096
"""So many are looked for before they are deleted in the order in which they lie: neighbours are of many handoffs."""
LOOK_HANDOFFS = 32
LOOK_RECORDS = 2_000
"""So many handoffs are looked at in one step, and no further one after so many records."""
_MAX_N = 2**62

FirstInUse = Callable[[str], int | None]
"""From which seq on the handoff's checkpoints are being read for an answer (None: from none)."""


_Doomed = tuple[int, int]
"""A record that may go: its position, and how many bytes its payload has."""


class _Slice(Struct, frozen=True):
    """Part of a handoff's chain: whether it goes on from `prev` and `anchor`, and [seq, position, …, bytes] of what was found."""

    walked: int
    goes_on: bool
    prev: int
    anchor: int
    found: list[list[int]]


class _Surplus(Struct, frozen=True):
    """A handoff with checkpoints that have been replaced, and the first slice of its chain."""

    facts: Handoff
    pruned: int
    first: _Slice


async def prune(read: Read, write: Read, covered: int, first_in_use: FirstInUse) -> AsyncIterator[int]:
    """Goes once through all up to `covered` that may go; yields after each step how many records went."""
    after: int | None = 0
    while after is not None:
        doomed: list[_Doomed] = []
        pruned: list[tuple[int, int]] = []
        while after is not None and len(doomed) < GATHERED_RECORDS:
            surplus, after = await read(_look(after))
            for handoff in surplus:
                in_use = first_in_use(handoff.facts.id)
                up_to = replaced_seq(handoff.facts)
                up_to = up_to if in_use is None else min(up_to, in_use - 1)
                found, gone_to = await _doomed(read, handoff, covered, up_to)
                doomed += found
                pruned.append((gone_to, handoff.facts.number))
        doomed.sort()
        for step in _steps(doomed):
            yield await write(_delete_checkpoints(step))
        for start in range(0, len(pruned), STEP_RECORDS):
            await write(_note_pruned(pruned[start : start + STEP_RECORDS]))
    after = 0
    while (chain := await read(_one_row(schema.TO_DELETE, after, covered))) is not None:
        (after,) = chain
        over = False
        while not over:
            gone, over = await write(_shorten(after))
            yield gone


def forget(db: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    """With the record that forgets it, a handoff leaves the table of facts; its chain is noted, to be deleted in steps."""
    for entry in entries:
        if isinstance(entry.record, Forgotten):
            db.execute(schema.FORGET_FACTS, (bytes.fromhex(entry.handoff),))
            db.execute(schema.FORGET_CHAIN, (entry.position, entry.prev, entry.anchor))
            db.execute(schema.RAISE_META, (entry.record.fence, "purged_fence"))


def _look(after: int) -> Callable[[sqlite3.Connection], tuple[list[_Surplus], int | None]]:
    def look(db: sqlite3.Connection) -> tuple[list[_Surplus], int | None]:
        """Some handoffs with a surplus, and after which number to go on."""
        db.execute("begin")  # One snapshot.
        try:
            rows = db.execute(schema.TO_PRUNE, (after, LOOK_HANDOFFS)).fetchall()
            surplus: list[_Surplus] = []
            walked = 0
            for number, raw, pruned in rows:
                facts = decode_facts(raw)
                first = _slice(db, schema.CHECKPOINTS_TO_DELETE, facts.position, facts.position, pruned, facts)
                surplus.append(_Surplus(facts, pruned, first))
                walked += first.walked
                if walked >= LOOK_RECORDS:
                    return surplus, number
            return surplus, rows[-1][0] if len(rows) == LOOK_HANDOFFS else None
        finally:
            db.execute("rollback")

    return look


async def _doomed(read: Read, handoff: _Surplus, covered: int, up_to: int) -> tuple[list[_Doomed], int]:
    """Its checkpoints up to the position `covered` and the seq `up_to`, and up to which seq all are gone after them."""
    facts, pruned = handoff.facts, handoff.pruned
    part = handoff.first
    found = part.found
    while part.goes_on:
        prev, anchor = part.prev, part.anchor
        part = await read(lambda db: _slice(db, schema.CHECKPOINTS_TO_DELETE, prev, anchor, pruned, facts))  # noqa: B023
        found += part.found
    replaced = [(seq, position, size) for seq, position, _, _, size in found if seq <= up_to]
    uncovered = min((seq for seq, position, _ in replaced if position > covered), default=up_to + 1)
    return [(position, size) for _, position, size in replaced if position <= covered], max(pruned, uncovered - 1)


def _slice(db: sqlite3.Connection, sql: str, prev: int, anchor: int, after: int, facts: Handoff) -> _Slice:
    parameters = {"prev": prev, "anchor": anchor, "after": after, "up_to": replaced_seq(facts), "rows": SLICE_RECORDS}
    count, _, seq, prev, anchor, found = db.execute(sql, parameters).fetchone()
    goes_on = count == SLICE_RECORDS and (seq is None or seq > after + 1)
    return _Slice(count, goes_on, prev or 0, anchor or 0, json.loads(found))


def _steps(doomed: list[_Doomed]) -> Iterator[list[int]]:
    """The positions, in pieces that are deleted in one step each."""
    step: list[int] = []
    step_bytes = 0
    for position, size_bytes in doomed:
        if step and (len(step) >= STEP_RECORDS or step_bytes + size_bytes > STEP_BYTES):
            yield step
            step, step_bytes = [], 0
        step.append(position)
        step_bytes += size_bytes
    if step:
        yield step


def _delete_checkpoints(positions: list[int]) -> Callable[[sqlite3.Connection], int]:
    def delete(db: sqlite3.Connection) -> int:
        with _unsynced(db):
            return db.execute(schema.DELETE_CHECKPOINTS, (json.dumps(positions),)).rowcount

    return delete


def _note_pruned(pruned: list[tuple[int, int]]) -> Callable[[sqlite3.Connection], None]:
    """Up to which seq the checkpoints of handoffs are gone; if that is lost, they are looked for once more."""

    def note(db: sqlite3.Connection) -> None:
        with _unsynced(db):
            db.executemany(schema.SET_PRUNED, pruned)

    return note


def _shorten(position: int) -> Callable[[sqlite3.Connection], tuple[int, bool]]:
    def shorten(db: sqlite3.Connection) -> tuple[int, bool]:
        """Deletes the newest records of a forgotten chain that are left; tells how many they were, and whether it was all.

        The record that forgot it goes last.
        """
        with _unsynced(db):
            prev, anchor = db.execute(schema.CHAIN, (position,)).fetchone()
            parameters = {"prev": prev, "anchor": anchor, "after": 0, "up_to": _MAX_N, "rows": STEP_RECORDS}
            found = json.loads(db.execute(schema.RECORDS_TO_DELETE, parameters).fetchone()[-1])
            doomed: list[int] = []
            size_bytes = 0
            if not found:
                prev = anchor = 0
            for _, at, before, before_anchor, size in sorted(found, reverse=True):
                if doomed and size_bytes + size > STEP_BYTES:
                    break
                doomed.append(at)
                size_bytes += size
                prev, anchor = before, before_anchor
            db.execute(schema.DELETE_RECORDS, (json.dumps(doomed),))
            over = not (prev or anchor)
            if over:
                db.execute(schema.RAISE_META, (position, "head"))  # It may have been the newest of all.
                doomed.append(position)
                db.execute(schema.DELETE_RECORDS, (json.dumps([position]),))
                db.execute(schema.DELETED, (position,))
            else:
                db.execute(schema.SHORTEN, (prev, anchor, position))
            return len(doomed), over

    return shorten


@contextmanager
def _unsynced(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction whose commit doesn't wait for the disk. The next one that does takes it along."""
    (synchronous,) = db.execute("pragma synchronous").fetchone()
    db.execute("pragma synchronous = normal")
    try:
        db.execute("begin immediate")
        try:
            yield
            db.execute("commit")
        except BaseException:
            if db.in_transaction:
                db.execute("rollback")
            raise
    finally:
        db.execute(f"pragma synchronous = {synchronous}")


def _one_row(sql: str, *parameters: int) -> Callable[[sqlite3.Connection], tuple[int] | None]:
    return lambda db: db.execute(sql, parameters).fetchone()
