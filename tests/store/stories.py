"""Journals for store tests: handoffs whose records add up, in batches as the engine makes them.

Owns how a test says what happened. Records go through the engine's `apply`, so that facts and journal agree.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from dhp_protocol.messages import WorkError
from dhpd.engine.apply import KEEPS_FENCE, apply
from dhpd.engine.budget import Budget
from dhpd.engine.facts import Handoff
from dhpd.engine.journal import ENTRY_OVERHEAD_BYTES, Batch, Extension
from dhpd.engine.lookups import ListLookup
from dhpd.engine.records import (
    Acked,
    AnyRecord,
    Checkpointed,
    Claimed,
    Completed,
    Dead,
    Dispatched,
    Entry,
    Failed,
    Forgotten,
    Orphaned,
    Redriven,
    Released,
    Spent,
)

EVERYTHING = ListLookup(position=0, after=0, limit=1_000, status=UNSET, kind=UNSET, worker=UNSET, label=UNSET)


def name(number: int) -> str:
    """A handoff's id."""
    return f"{number:064x}"


class Stories:
    """`facts` is what all told so far adds up to; `batch` takes what was told since the last one."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.facts: dict[str, Handoff] = {}
        self.told: list[Entry] = []
        self._untaken: list[Entry] = []

    def dispatch(self, handoff: str, **members: Any) -> Entry:
        settings: dict[str, Any] = {"kind": "work", "priority": 5, "budget": Budget(), "bytes": 2, **members}
        return self._tell(handoff, Dispatched(n=1, at_ms=1_000, fence=0, **settings), b"{}")

    def claim(self, handoff: str, worker: str = "ada") -> Entry:
        facts = self.facts[handoff]
        members = {"session": "s", "ttl_ms": 6_000, "attempt": facts.attempt + 1, "was": facts.status}
        return self._tell(handoff, Claimed(worker=worker, **members, **self._next(handoff, Claimed)))

    def checkpoint(self, handoff: str, state: bytes) -> Entry:
        members = {"seq": self.facts[handoff].seq + 1, "sha256": f"{len(state):064x}", "bytes": len(state), "steps": 1}
        return self._tell(handoff, Checkpointed(**members, **self._next(handoff, Checkpointed)), state)

    def spend(self, handoff: str, by: str | None = None) -> Entry:
        return self._tell(handoff, Spent(steps=1, usd_nano=0, by=by, **self._next(handoff, Spent)))

    def release(self, handoff: str, reason: str | None = None) -> Entry:
        return self._tell(handoff, Released(worker="ada", reason=reason, **self._next(handoff, Released)))

    def fail(self, handoff: str) -> Entry:
        members = {"error": WorkError(type="Oops", message="it broke"), "retry": True, "failures": 1}
        return self._tell(handoff, Failed(worker="ada", **members, **self._next(handoff, Failed)))

    def orphan(self, handoff: str) -> Entry:
        return self._tell(handoff, Orphaned(worker="ada", why="expired", failures=1, **self._next(handoff, Orphaned)))

    def complete(self, handoff: str, result: bytes = b'"done"') -> Entry:
        members = {"sha256": "0" * 64, "bytes": len(result)}
        return self._tell(handoff, Completed(worker="ada", **members, **self._next(handoff, Completed)), result)

    def ack(self, handoff: str) -> Entry:
        return self._tell(handoff, Acked(**self._next(handoff, Acked)))

    def die(self, handoff: str) -> Entry:
        return self._tell(handoff, Dead(reason="max_steps: 1 of 1 used, 1 asked", **self._next(handoff, Dead)))

    def come_back(self, handoff: str, state: bytes) -> Entry:
        """Dead work is redriven, with a checkpoint that a cap had refused."""
        members = {"seq": self.facts[handoff].seq + 1, "sha256": f"{len(state):064x}", "bytes": len(state), "steps": 1}
        return self._tell(handoff, Redriven(dead_ms=0, **members, **self._next(handoff, Redriven)), state)

    def forget(self, handoff: str) -> Entry:
        facts = self.facts.pop(handoff)
        record = Forgotten(n=facts.n + 1, at_ms=1_000 + self.position, fence=facts.fence)
        self.position += 1
        entry = Entry(self.position, handoff, facts.position, facts.anchor, record, None)
        self.told.append(entry)
        self._untaken.append(entry)
        return entry

    def batch(
        self,
        *,
        facts_of: Iterable[str] = (),
        covers: int | None = None,
        extended: Iterable[Extension] = (),
        freed: Iterable[str] = (),
    ) -> Batch:
        batch = Batch(self.position)
        batch.entries, self._untaken = self._untaken, []
        batch.size_bytes = sum(ENTRY_OVERHEAD_BYTES + len(entry.payload or b"") for entry in batch.entries)
        batch.facts = [self.facts[handoff] for handoff in facts_of]
        batch.covers = covers
        batch.extended = list(extended)
        batch.freed = list(freed)
        return batch

    def spoil(self, index: int, **members: Any) -> None:
        """Makes something else of one entry of the next batch."""
        self._untaken[index] = replace(self._untaken[index], **members)

    def records_of(self, handoff: str) -> list[tuple[int, AnyRecord]]:
        return [(entry.position, entry.record) for entry in self.told if entry.handoff == handoff]

    def _next(self, handoff: str, record_type: type[AnyRecord]) -> dict[str, Any]:
        facts = self.facts[handoff]
        fence = facts.fence + (record_type not in KEEPS_FENCE)
        return {"n": facts.n + 1, "at_ms": 1_000 + self.position, "fence": fence}

    def _tell(self, handoff: str, record: AnyRecord, payload: bytes | None = None) -> Entry:
        before = self.facts.get(handoff)
        self.position += 1
        prev, anchor = (0, 0) if before is None else (before.position, before.anchor)
        entry = Entry(self.position, handoff, prev, anchor, record, payload)
        self.facts[handoff] = apply(before, entry)
        self.told.append(entry)
        self._untaken.append(entry)
        return entry


def long_life(stories: Stories, handoff: str) -> None:
    """Two holds with checkpoints 1–3 and 4–5, a release between them, and an end."""
    stories.dispatch(handoff)
    stories.claim(handoff)
    for state in (b"1", b"22", b"333"):
        stories.checkpoint(handoff, state)
    stories.release(handoff, "tired")
    stories.claim(handoff, "bob")
    for state in (b"4444", b"55555"):
        stories.checkpoint(handoff, state)
    stories.complete(handoff)
