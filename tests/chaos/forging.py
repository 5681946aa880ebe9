"""Books of a small run that went well, for tests to forge.

Two handoffs of four steps. Worker a is killed in the middle of step 3 of the first, and b goes on from checkpoint 2; b does the
second alone. The second keeps two checkpoints, and the rest are pruned.
"""

import hashlib
from dataclasses import dataclass, field

from dhp_client.chaos.books import (
    Accepted,
    Acknowledged,
    Begun,
    Books,
    Claimed,
    Dispatched,
    Fault,
    Late,
    Record,
    Told,
    WorkerEntry,
)
from dhp_client.chaos.plan import KILL_WORKER, Options
from dhp_client.chaos.work import chain_at, right_result

STEPS = 4
FIRST, SECOND = "1" * 64, "2" * 64
NUMBERS = {FIRST: 0, SECOND: 1}


def sha256(handoff: str, seq: int) -> str:
    return hashlib.sha256(f"{handoff} {seq}".encode()).hexdigest()


def claimed(handoff: str, fence: int, seq: int = 0) -> Claimed:
    return Claimed(at_ms=0, handoff=handoff, fence=fence, seq=seq, chain=chain_at(NUMBERS[handoff], seq))


def begun(handoff: str, fence: int, step: int) -> Begun:
    return Begun(at_ms=0, handoff=handoff, fence=fence, step=step)


def acknowledged(handoff: str, fence: int, seq: int) -> Acknowledged:
    return Acknowledged(at_ms=0, handoff=handoff, fence=fence, seq=seq, sha256=sha256(handoff, seq))


def accepted(handoff: str, fence: int) -> Accepted:
    return Accepted(at_ms=0, handoff=handoff, fence=fence, chain=chain_at(NUMBERS[handoff], STEPS))


def late(handoff: str, fence: int, answer: str) -> Late:
    return Late(at_ms=0, handoff=handoff, fence=fence, op="complete", answer=answer)


def steps(handoff: str, fence: int, first: int, last: int) -> list[WorkerEntry]:
    """Each begun and acknowledged."""
    return [
        entry
        for step in range(first, last + 1)
        for entry in (begun(handoff, fence, step), acknowledged(handoff, fence, step))
    ]


def checkpointed(handoff: str, fence: int, seq: int) -> Record:
    return Record(type="checkpointed", fence=fence, seq=seq, sha256=sha256(handoff, seq))


@dataclass
class Forgery:
    """The books before they are bound: change anything, then `books()`."""

    dispatched: list[Dispatched] = field(default_factory=list)
    workers: dict[str, list[WorkerEntry]] = field(default_factory=dict)
    records: dict[str, list[Record]] = field(default_factory=dict)
    results: dict[str, object] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)

    def books(self) -> Books:
        told = [
            Told(handoff=handoff, status=self.statuses[handoff], result=self.results[handoff], records=records)
            for handoff, records in self.records.items()
        ]
        faults = [Fault(at_ms=0, kind=KILL_WORKER, whom="a")]
        return Books(options=Options(), dispatched=self.dispatched, workers=self.workers, daemon=told, faults=faults)


def good_run() -> Forgery:
    return Forgery(
        dispatched=[
            Dispatched(number=0, handoff=FIRST, steps=STEPS, keep_checkpoints=STEPS),
            Dispatched(number=1, handoff=SECOND, steps=STEPS, keep_checkpoints=2),
        ],
        workers={
            "a": [claimed(FIRST, 1), *steps(FIRST, 1, 1, 2), begun(FIRST, 1, 3)],
            "b": [
                claimed(FIRST, 3, seq=2),
                *steps(FIRST, 3, 3, 4),
                accepted(FIRST, 3),
                claimed(SECOND, 1),
                *steps(SECOND, 1, 1, 4),
                accepted(SECOND, 1),
            ],
        },
        records={
            FIRST: [
                Record(type="dispatched", fence=0),
                Record(type="claimed", fence=1, worker="a"),
                checkpointed(FIRST, 1, 1),
                checkpointed(FIRST, 1, 2),
                Record(type="orphaned", fence=2),
                Record(type="claimed", fence=3, worker="b"),
                checkpointed(FIRST, 3, 3),
                checkpointed(FIRST, 3, 4),
                Record(type="completed", fence=3),
            ],
            SECOND: [
                Record(type="dispatched", fence=0),
                Record(type="claimed", fence=1, worker="b"),
                checkpointed(SECOND, 1, 3),
                checkpointed(SECOND, 1, 4),
                Record(type="completed", fence=1),
            ],
        },
        results={handoff: right_result(number, STEPS) for handoff, number in NUMBERS.items()},
        statuses={FIRST: "completed", SECOND: "completed"},
    )
