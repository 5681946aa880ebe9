"""Whether a store is whole: every page, every record, and what they add up to.

Owns the points that are looked at and what is wrong with each, in words. Only reads, in one snapshot, so it works beside a running
daemon and on a backup alike. Doesn't mend: what to do is said by whoever asked (`dhpd.upkeep`).
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import msgspec
from msgspec import Struct

from dhpd.engine.apply import apply, follows
from dhpd.engine.facts import Handoff
from dhpd.engine.records import (
    AnyRecord,
    Checkpointed,
    Completed,
    Dead,
    Dispatched,
    EffectDoneRecord,
    Entry,
    Forgotten,
    Redriven,
    ResultRefused,
    decode_record,
)

from . import schema
from .connecting import head_of
from .loading import facts_of, meta
from .rows import decode_facts, facts_row

MAX_FAULTS = 20
"""Of each point so many are told: a broken page breaks thousands of records."""

_UNREADABLE = (msgspec.MsgspecError, RecursionError, ValueError, OverflowError, TypeError, AttributeError)
"""What a file raises, while it is read, that holds what no dhpd wrote."""

_JOURNAL = "select position, handoff, n, seq, prev, anchor, body, payload from journal order by position"
_TABLE = (
    "select number, id, status, kind, holder, facts, parent, acked_at_ms, prune_below from handoffs order by number"
)

_SHAPE = "select type, name, sql from sqlite_schema where sql is not null"

_FACTS = 5
"""The column."""


class Point(Struct, frozen=True):
    """One thing that was looked at: how much of it there is, and what is wrong with it (nothing: it is whole)."""

    name: str
    counted: str
    faults: tuple[str, ...]


class _Seen(NamedTuple):
    """The newest record of a handoff that the journal was read up to, as the next one of it must find it."""

    position: int
    anchor: int
    n: int
    fence: int


class Checker:
    """`points` looks at everything in a database file that is open in `db`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._seen: dict[bytes, _Seen] = {}
        self._first: dict[bytes, int] = {}
        self._forgotten: dict[bytes, int] = {}

    @property
    def handoffs(self) -> int:
        """How many there are in the journal, once that was looked at: the table of facts may lack the newest ones."""
        return len(self._first)

    def points(self) -> Iterator[Point]:
        """One after the other, each as soon as it was looked at; raises `sqlite3.Error` where the file can't be read at all."""
        self._db.execute("begin")  # One snapshot.
        try:
            yield self._file()
            version = self._version()
            yield version
            if not version.faults:
                yield self._looked_at("journal", self._journal)
                yield self._looked_at("table of facts", self._table)
                yield self._looked_at("tail", self._tail)
                yield self._looked_at("numbers", self._numbers)
        finally:
            self._db.execute("rollback")

    def _looked_at(self, name: str, look: Callable[[], Point]) -> Point:
        """The point of that name; where a value of another type than its column's stops the look, that is what is wrong."""
        try:
            return look()
        except _UNREADABLE as error:
            return _point(name, "it can't be read on", [f"it holds what no dhpd wrote: {error!r}"])

    def _file(self) -> Point:
        told = [row[0] for row in self._db.execute("pragma integrity_check(20)")]
        (pages,) = self._db.execute("pragma page_count").fetchone()
        return _point("file", f"{pages} pages", [] if told == ["ok"] else told)

    def _version(self) -> Point:
        (application_id,) = self._db.execute("pragma application_id").fetchone()
        (version,) = self._db.execute("pragma user_version").fetchone()
        if application_id != schema.APPLICATION_ID:
            return _point("schema", "of another program", ["this is no store of dhpd"])
        faults = [f"schema {version}, where this dhpd knows {schema.VERSION}"]
        if version == schema.VERSION:
            faults = _shape_faults(_shape(self._db))
        return _point("schema", f"version {version}", faults)

    def _journal(self) -> Point:
        faults: list[str] = []
        records = 0
        for position, handoff, n, seq, prev, anchor, body, payload in self._db.execute(_JOURNAL):
            records += 1
            try:
                record = decode_record(body)
            except _UNREADABLE as error:
                faults.append(f"position {position}, {handoff.hex()}: the record can't be read: {error}")
                continue
            wrong = self._record_fault(position, handoff, n, seq, prev, anchor, record, payload)
            if wrong is not None:
                faults.append(f"position {position}, {handoff.hex()}: {wrong}")
            is_checkpoint = isinstance(record, Checkpointed)
            self._seen[handoff] = _Seen(position, anchor if is_checkpoint else position, record.n, record.fence)
            if isinstance(record, Forgotten):
                del self._seen[handoff]
                self._first.pop(handoff, None)
                self._forgotten[handoff] = position
        return _point("journal", f"{records} records", faults)

    def _record_fault(
        self,
        position: int,
        handoff: bytes,
        n: int,
        seq: int | None,
        prev: int,
        anchor: int,
        record: AnyRecord,
        payload: bytes | None,
    ) -> str | None:
        if n != record.n or (seq or 0) != (record.seq if isinstance(record, (Checkpointed, Redriven)) else 0):
            return "its row and its body don't say the same"
        wrong = _payload_fault(handoff, record, payload)
        before = self._seen.get(handoff)
        if wrong is not None:
            return wrong
        if isinstance(record, Dispatched):
            self._first[handoff] = position
            return None if (prev, anchor) == (0, 0) else "a dispatch that something comes before"
        if isinstance(record, Forgotten):  # What it leads to goes from the newest on, and it goes last of all.
            return None
        if before is None:
            return "nothing of its handoff comes before it"
        if anchor != before.anchor or not (prev == before.position or before.position < prev < position):
            return "it doesn't lead to the record before it"
        # Where checkpoints were pruned in between, the numbers leap.
        if not (record.n > before.n and record.fence >= before.fence):
            return f"n or fence fall: {before.n}, {before.fence} before, {record.n}, {record.fence} here"
        return None

    def _table(self) -> Point:
        covered = meta(self._db, "covered")
        faults: list[str] = []
        rows = 0
        missing = {handoff for handoff, position in self._first.items() if position <= covered}
        for row in self._db.execute(_TABLE):
            rows += 1
            missing.discard(row[1])
            try:
                wrong = self._facts_fault(decode_facts(row[5]), row, covered)
            except _UNREADABLE as error:
                wrong = f"its facts can't be read: {error}"
            if wrong is not None:
                faults.append(f"{row[1].hex()}: {wrong}")
        faults += [f"{handoff.hex()}: it is in the journal, and not in the table" for handoff in sorted(missing)]
        return _point("table of facts", f"{rows} handoffs", faults)

    def _facts_fault(self, facts: Handoff, row: tuple[object, ...], covered: int) -> str | None:
        columns, expected = list(row), list(facts_row(facts))
        columns[_FACTS] = expected[_FACTS] = None  # An older version may have encoded the same facts in another way.
        if columns != expected:
            return "its row says something else than its facts"
        last = self._seen.get(bytes.fromhex(facts.id))
        if last is None or self._first.get(bytes.fromhex(facts.id)) != facts.number:
            return "the journal doesn't know it"
        if facts.position > last.position or (last.position > facts.position and last.position <= covered):
            return f"its facts end at position {facts.position}, its records at {last.position}"
        if facts.position == last.position and (facts.n, facts.fence, facts.anchor) != (
            last.n,
            last.fence,
            last.anchor,
        ):
            return "its facts don't follow from its newest record"
        places = [facts.checkpoint.position if facts.checkpoint is not None else 0, facts.result_position]
        for place in filter(None, places):
            if self._db.execute(schema.PAYLOAD, (place,)).fetchone() in (None, (None,)):
                return f"the payload at position {place} is missing"
        return None

    def _tail(self) -> Point:
        """What a start replays: the records behind the table of facts."""
        faults: list[str] = []
        facts: dict[str, Handoff | None] = {}
        records = 0
        for position, raw, prev, anchor, body, has_payload in self._db.execute(
            schema.TAIL, (meta(self._db, "covered"),)
        ):
            records += 1
            handoff = raw.hex()
            try:
                entry = Entry(position, handoff, prev, anchor, decode_record(body), b"" if has_payload else None)
                if handoff not in facts:
                    facts[handoff] = next(iter(facts_of(self._db, [handoff])), None)
                before = facts[handoff]
                if before is not None and before.position >= position:
                    continue  # The table holds this one already.
                begins = isinstance(entry.record, Dispatched)
                if isinstance(entry.record, Forgotten) or (before is None and self._forgotten.get(raw, 0) > position):
                    facts[handoff] = None  # Of what was forgotten in the tail the table has nothing any more.
                elif before is None and not begins:
                    faults.append(f"position {position}, {handoff}: nothing is known of what was before it")
                elif before is not None and not follows(before, entry.record):
                    faults.append(f"position {position}, {handoff}: it can't follow what is known before it")
                else:
                    facts[handoff] = apply(before, entry)
            except (AssertionError, KeyError, *_UNREADABLE) as error:
                faults.append(f"position {position}, {handoff}: it can't be replayed: {error!r}")
        return _point("tail", f"{records} records to replay at a start", faults)

    def _numbers(self) -> Point:
        head, covered = head_of(self._db), meta(self._db, "covered")
        faults = []  # A record that couldn't be stored has used up its position, so the table may cover more than the journal has.
        for handoff, fence, _ in self._db.execute(schema.EXTENSIONS):
            seen = self._seen.get(handoff)
            if seen is None or seen.fence < fence:
                faults.append(f"{handoff.hex()}: a lease under fence {fence} was extended, which nobody had")
        return _point("numbers", f"head {head}, covered {covered}", faults)


def _shape(db: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """What the file has of tables and the like, by kind and name, as it was made."""
    return {(kind, name): " ".join(sql.split()) for kind, name, sql in db.execute(_SHAPE)}


def _shape_faults(found: dict[tuple[str, str], str]) -> list[str]:
    """A table that is made otherwise may hold anything; a view may have no end, and a trigger changes what others write."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema.CREATE)
        expected = _shape(db)
    other = [place for place, sql in expected.items() if found.get(place) != sql]
    foreign = [place for place in found if place[0] in ("view", "trigger") and place not in expected]
    return [f"the {kind} {name} isn't the one that dhpd makes" for kind, name in (*other, *foreign)]


def _point(name: str, counted: str, faults: list[str]) -> Point:
    more = len(faults) - MAX_FAULTS
    told = [*faults[:MAX_FAULTS], f"and {more} more"] if more > 0 else faults
    return Point(name, counted, tuple(told))


def _payload_fault(handoff: bytes, record: AnyRecord, payload: bytes | None) -> str | None:
    """Whether the payload is the one that the record names by its hash. Invariant 5 for the intent."""
    wanted: Callable[[], str | None]
    match record:
        case Dispatched():
            wanted, size = (lambda: handoff.hex()), record.bytes
        case Checkpointed() | Completed() | ResultRefused() | EffectDoneRecord():
            wanted, size = (lambda: record.sha256), record.bytes
        case Redriven() if record.seq:
            wanted, size = (lambda: record.sha256), record.bytes
        case Dead() if record.kept_seq:
            wanted, size = (lambda: record.kept_sha256), record.kept_bytes
        case _:
            return None
    if payload is None:
        return "its payload is missing"
    if len(payload) != size or hashlib.sha256(payload).hexdigest() != wanted():
        return "its payload isn't the one that was written: size or SHA-256 differ"
    return None
