"""A store in memory that can fail wherever a disk can.

Owns what is "on disk": the journal, the table of facts, the extensions. It keeps encoded bytes, as a disk does, so that
nothing of a live object survives in it. An append fails before anything is written, or after all of it was: which of the
two, only `settle` tells. What may go from the disk goes at once, before the next append (`prunes_by_itself`).
"""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum

import msgspec

from dhpd.engine.binding import bound_to
from dhpd.engine.facts import FINAL, CheckpointFacts, Handoff
from dhpd.engine.journal import Batch, Extension
from dhpd.engine.lookups import ListLookup
from dhpd.engine.records import Checkpointed, Entry, Forgotten, Redriven, decode_record, encode_record
from dhpd.engine.retention import replaced_seq
from dhpd.store.backend import Appended, DiskError, Loaded, StoredRecord, StoreError

_encode_facts = msgspec.msgpack.Encoder().encode
_decode_facts = msgspec.msgpack.Decoder(Handoff).decode


class Outcome(Enum):
    """How the next append ends."""

    KEPT = "kept"
    FAILS = "fails, nothing written"
    FAILS_BUT_KEPT = "fails, all written"
    POISON = "one handoff's records can't be stored"


class Row(msgspec.Struct, frozen=True):
    """One row of the journal, as a disk holds it. `seq`: a checkpoint's, in a record of its own (0: it is none)."""

    position: int
    handoff: str
    prev: int
    anchor: int
    body: bytes
    payload: bytes | None
    seq: int = 0


class ModelStore:
    """`rows` is all that was ever written, for whoever checks; what a daemon can read of it is `left`."""

    durability = "nothing: it is a model"

    def __init__(self) -> None:
        self.full = False
        self.room = True
        self.rows: dict[int, Row] = {}
        self.left: dict[int, Row] = {}
        self.facts: dict[str, bytes] = {}
        self.extensions: dict[str, Extension] = {}
        self.covered = 0
        self.purged_fence = 0
        self.prunes_by_itself = True
        self.pruned: list[int] = []
        """Positions of the rows that have gone, for whoever takes them out of here."""
        self.head = 0
        self._surplus: set[str] = set()  # Of these handoffs checkpoints may have been replaced.
        self._forgotten: dict[int, str] = {}  # By the record at this position.
        self._chains: dict[str, list[int]] = {}  # The positions of each handoff's rows that are left.
        self.outcome = Outcome.KEPT
        self.settle_failures = 0
        self.unreadable = False

    async def load(self) -> Loaded:
        facts = [_decode_facts(raw) for raw in self.facts.values()]
        tail = [self._entry(row) for position, row in sorted(self.left.items()) if position > self.covered]
        spoken_of = {entry.handoff for entry in tail}
        counts: dict[str, int] = {}
        for handoff in facts:
            counts[handoff.status] = counts.get(handoff.status, 0) + 1
        return Loaded(
            head=self.head,
            covered=self.covered,
            purged_fence=self.purged_fence,
            counts=counts,  # type: ignore[arg-type]
            dead_children={each.id: each.ancestors for each in facts if each.status == "dead" and each.ancestors},
            facts=[handoff for handoff in facts if handoff.status not in FINAL or handoff.id in spoken_of],
            tail=tail,
            extensions=dict(self.extensions),
        )

    async def append(self, batch: Batch, expected_head: int) -> Appended:
        outcome, self.outcome = self.outcome, Outcome.KEPT
        if self.head != expected_head:
            raise StoreError("Another daemon has written to this store.")
        if self.prunes_by_itself:
            self._prune(self.covered, lambda handoff: None)
        if outcome is Outcome.FAILS:
            raise DiskError("simulated: nothing written")
        failed: frozenset[str] = frozenset()
        if outcome is Outcome.POISON and batch.entries:
            failed = bound_to(frozenset({batch.entries[0].handoff}), batch.entries)
        kept = [entry for entry in batch.entries if entry.handoff not in failed]
        for entry in kept:
            assert entry.position not in self.rows, "a position is written once"
            self.rows[entry.position] = self.left[entry.position] = Row(
                entry.position,
                entry.handoff,
                entry.prev,
                entry.anchor,
                encode_record(entry.record),
                entry.payload,
                entry.record.seq if isinstance(entry.record, Checkpointed) else 0,
            )
            self._chains.setdefault(entry.handoff, []).append(entry.position)
            self.head = entry.position
            if isinstance(entry.record, Forgotten):
                self.facts.pop(entry.handoff, None)
                self._forgotten[entry.position] = entry.handoff
                self.purged_fence = max(self.purged_fence, entry.record.fence)
        for handoff in batch.facts:
            if handoff.id not in failed:
                self.facts[handoff.id] = _encode_facts(handoff)
                self._surplus.add(handoff.id)
        if batch.covers is not None and not failed:
            self.covered = batch.covers
        for extension in batch.extended:
            self.extensions[extension.handoff] = extension
        for freed in batch.freed:
            self.extensions.pop(freed, None)
        if outcome is Outcome.FAILS_BUT_KEPT:
            raise DiskError("simulated: all written")
        return Appended(self.head if kept else expected_head, failed)

    async def settle(self) -> int:
        if self.settle_failures:
            self.settle_failures -= 1
            raise DiskError("simulated: still failing")
        return self.head

    async def find_room(self) -> None:
        self.full = not self.room

    async def facts_of(self, handoffs: Sequence[str]) -> list[Handoff]:
        self._readable()
        return [_decode_facts(self.facts[handoff]) for handoff in handoffs if handoff in self.facts]

    async def payloads(self, positions: Sequence[int]) -> dict[int, bytes]:
        self._readable()
        rows = ((position, self.left.get(position)) for position in positions)
        return {position: row.payload for position, row in rows if row is not None and row.payload is not None}

    async def records_of(self, head: int, after_n: int, limit: int) -> list[StoredRecord]:
        self._readable()
        chain = [StoredRecord(row.position, row.handoff, decode_record(row.body)) for row in self._chain(head)]
        return [stored for stored in reversed(chain) if stored.record.n > after_n][:limit]

    async def checkpoints_of(self, head: int, after_seq: int, limit: int) -> list[CheckpointFacts]:
        found = []
        for stored in await self.records_of(head, 0, len(self.rows)):
            record = stored.record
            if isinstance(record, (Checkpointed, Redriven)) and record.seq > after_seq and record.sha256 is not None:
                found.append(CheckpointFacts(record.seq, record.sha256, stored.position, record.at_ms))
        return found[:limit]

    async def handoffs(self, lookup: ListLookup) -> tuple[list[Handoff], int | None]:
        self._readable()
        wanted = {"status": lookup.status, "kind": lookup.kind, "holder": lookup.worker}
        page = []
        for raw in self.facts.values():
            facts = _decode_facts(raw)
            fits = all(value is msgspec.UNSET or getattr(facts, name) == value for name, value in wanted.items())
            name, _, value = (lookup.label or "").partition("=")
            fits = fits and (lookup.label is msgspec.UNSET or (facts.labels or {}).get(name) == value)
            fits = fits and (lookup.prefix is msgspec.UNSET or facts.id.startswith(lookup.prefix))
            beyond = facts.number < (lookup.after or math.inf) if lookup.newest_first else facts.number > lookup.after
            if fits and beyond:
                page.append(facts)
        page.sort(key=lambda facts: facts.number, reverse=lookup.newest_first)
        return page[: lookup.limit], page[lookup.limit - 1].number if len(page) > lookup.limit else None

    async def records_after(self, position: int, limit: int) -> list[StoredRecord]:
        self._readable()
        later = [self.left[at] for at in sorted(at for at in self.left if at > position)[:limit]]
        return [StoredRecord(row.position, row.handoff, decode_record(row.body), self._kind_of(row)) for row in later]

    async def prune(self, covered: int, first_in_use: Callable[[str], int | None]) -> AsyncIterator[int]:
        self._readable()
        yield self._prune(covered, first_in_use)

    async def acked_before(self, acked_before_ms: int, after: tuple[int, int], limit: int) -> list[Handoff]:
        self._readable()
        every = [_decode_facts(raw) for raw in self.facts.values()]
        parents = {facts.parent for facts in every}
        found = [
            facts
            for facts in every
            if facts.acked
            and facts.acked_at_ms <= acked_before_ms
            and (facts.acked_at_ms, facts.number) > after
            and facts.id not in parents
        ]
        return sorted(found, key=lambda facts: (facts.acked_at_ms, facts.number))[:limit]

    async def close(self) -> None:
        pass

    def _readable(self) -> None:
        if self.unreadable:
            raise DiskError("simulated: can't be read")

    def _entry(self, row: Row) -> Entry:
        return Entry(row.position, row.handoff, row.prev, row.anchor, decode_record(row.body), row.payload)

    def _kind_of(self, row: Row) -> str | None:
        raw = self.facts.get(row.handoff)
        return _decode_facts(raw).kind if raw is not None else None

    def _chain(self, head: int) -> list[Row]:
        chain = []
        at = head
        while at:
            row = self.left[at]
            chain.append(row)
            at = row.prev if row.prev in self.left else row.anchor
        return chain

    def _prune(self, covered: int, first_in_use: Callable[[str], int | None]) -> int:
        """Takes away whatever may go."""
        gone: list[int] = []
        void = {handoff: at for at, handoff in self._forgotten.items() if at <= covered}
        for handoff, at in void.items():
            gone += self._take_away(handoff, lambda row, at=at: row.position <= at)
            del self._forgotten[at]
        for handoff in sorted(self._surplus & self.facts.keys()):
            in_use = first_in_use(handoff)
            replaced = replaced_seq(_decode_facts(self.facts[handoff]))
            up_to = replaced if in_use is None else min(replaced, in_use - 1)
            gone += self._take_away(handoff, lambda row, up_to=up_to: row.position <= covered and 0 < row.seq <= up_to)
            if not any(0 < self.left[position].seq <= replaced for position in self._chains[handoff]):
                self._surplus.discard(handoff)
        self.pruned += gone
        return len(gone)

    def _take_away(self, handoff: str, doomed: Callable[[Row], bool]) -> list[int]:
        gone = [position for position in self._chains[handoff] if doomed(self.left[position])]
        for position in gone:
            del self.left[position]
        self._chains[handoff] = [position for position in self._chains[handoff] if position in self.left]
        return gone
