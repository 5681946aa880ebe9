"""The judge: what the three books, of the workers, the daemon and the dispatcher, say when they are laid beside each other.

Pure. Knows the promises, and none of the parties: whoever lies in one book is found out by the others. A *holding* is what
one fence stands for: from a claim until that claim's end. Figures of a run are counted in `figures`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from ..checks import Check
from .books import Accepted, Acknowledged, Begun, Books, Claimed, Dispatched, Late, Record, Surprise, Told, WorkerEntry
from .work import chain_at, right_result

SHOWN = 3
"""So many faults of one kind are told; the others are counted."""

ENDS_A_HOLDING = frozenset(
    ("orphaned", "released", "failed", "completed", "suspended", "cancelled", "dead", "exported")
)
WRITES = frozenset(("checkpointed", "completed"))


@dataclass
class Case:
    """What the books say of one handoff; workers' entries with the name of who wrote them."""

    dispatched: Dispatched
    told: Told | None = None
    entries: list[tuple[str, WorkerEntry]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.dispatched.handoff[:12]

    @property
    def records(self) -> list[Record]:
        return [] if self.told is None else self.told.records

    @property
    def stored(self) -> list[Record]:
        return [record for record in self.records if record.type == "checkpointed"]

    @property
    def claims(self) -> list[Record]:
        return [record for record in self.records if record.type == "claimed"]

    def acknowledged(self) -> Iterator[tuple[str, Acknowledged]]:
        return ((worker, entry) for worker, entry in self.entries if isinstance(entry, Acknowledged))

    def claimed(self) -> Iterator[tuple[str, Claimed]]:
        return ((worker, entry) for worker, entry in self.entries if isinstance(entry, Claimed))


def cases(books: Books) -> list[Case]:
    """One for each handoff on the dispatcher's list."""
    found = {dispatched.handoff: Case(dispatched) for dispatched in books.dispatched}
    for told in books.daemon:
        if told.handoff in found:
            found[told.handoff].told = told
    for worker, entries in books.workers.items():
        for entry in entries:
            if entry.handoff in found:
                found[entry.handoff].entries.append((worker, entry))
    return list(found.values())


def judge(books: Books) -> list[Check]:
    """Every promise that a run can break, and whether it was kept."""
    looked_at = cases(books)
    checks = [_strangers(books)]
    for claim, look in _PROMISES:
        faults = [f"{case.name}: {fault}" for case in looked_at for fault in look(case)]
        checks.append(_check(claim, faults, f"{len(looked_at)} handoffs"))
    return checks


def redone(case: Case) -> dict[int, int]:
    """By fence: how many of the steps that were begun under it were begun once more, under it or a later one."""
    begun: dict[int, Counter[int]] = defaultdict(Counter)
    for _, entry in case.entries:
        if isinstance(entry, Begun):
            begun[entry.fence][entry.step] += 1
    later: set[int] = set()
    again: dict[int, int] = {}
    for fence in sorted(begun, reverse=True):
        again[fence] = sum(times - 1 + (step in later) for step, times in begun[fence].items())
        later |= begun[fence].keys()
    return again


def lost_checkpoints(case: Case) -> Iterator[str]:
    """Each acknowledged checkpoint that the daemon doesn't have, and each claim that began before one."""
    stored = {record.seq: record for record in case.stored}
    newest = max((*(seq or 0 for seq in stored), *(entry.seq for _, entry in case.acknowledged())), default=0)
    for worker, entry in case.acknowledged():
        record = stored.get(entry.seq)
        if record is not None:
            if record.sha256 != entry.sha256:
                yield f"checkpoint {entry.seq} was acknowledged to {worker} with another content than is there"
        elif entry.seq > newest - case.dispatched.keep_checkpoints:
            yield f"checkpoint {entry.seq} was acknowledged to {worker}, and isn't there"
    for worker, claim in case.claimed():
        last = max((entry.seq for _, entry in case.acknowledged() if entry.fence < claim.fence), default=0)
        if claim.seq < last:
            yield f"{worker} went on from checkpoint {claim.seq}, though {last} was acknowledged before"


def _strangers(books: Books) -> Check:
    ours = Counter(dispatched.handoff for dispatched in books.dispatched)
    told = Counter(told.handoff for told in books.daemon)
    faults = [f"{handoff[:12]} was acknowledged, and isn't there" for handoff in ours if handoff not in told]
    faults += [f"{handoff[:12]} is there, and nobody dispatched it" for handoff in told if handoff not in ours]
    faults += [f"{handoff[:12]} was dispatched {times} times" for handoff, times in ours.items() if times > 1]
    faults += [f"{handoff[:12]} is there {times} times" for handoff, times in told.items() if times > 1]
    faults += [
        f"{worker} worked on {handoff[:12]}, which nobody dispatched"
        for worker, entries in books.workers.items()
        for handoff in dict.fromkeys(entry.handoff for entry in entries)
        if handoff not in ours
    ]
    return _check("What was dispatched is what the daemon has", faults, f"{len(ours)} handoffs")


def _one_result(case: Case) -> Iterator[str]:
    results = sum(record.type == "completed" for record in case.records)
    if results != 1:
        yield f"{results} results were accepted"
    if case.told is not None and case.told.status != "completed":
        yield f"it is {case.told.status}"
    accepted = [(worker, entry) for worker, entry in case.entries if isinstance(entry, Accepted)]
    if len(accepted) > 1:
        yield f"a result was accepted from each of {', '.join(worker for worker, _ in accepted)}"
    fences = [record.fence for record in case.records if record.type == "completed"]
    for worker, entry in accepted:
        if entry.fence not in fences:
            yield f"the result of {worker} was accepted under fence {entry.fence}, which isn't there"


def _right_result(case: Case) -> Iterator[str]:
    expected = right_result(case.dispatched.number, case.dispatched.steps)
    if case.told is not None and case.told.result != expected:
        yield f"the result is {str(case.told.result)[:100]}"
    for worker, entry in case.entries:
        if isinstance(entry, Accepted) and entry.chain != expected["chain"]:
            yield f"another result was accepted from {worker}"


def _resumed_right(case: Case) -> Iterator[str]:
    for worker, claim in case.claimed():
        if claim.seq > case.dispatched.steps or claim.chain != chain_at(case.dispatched.number, claim.seq):
            yield f"{worker} was given a state for checkpoint {claim.seq} that nobody made"


def _fences_rise(case: Case) -> Iterator[str]:
    for before, after in pairwise(case.records):
        if after.fence < before.fence:
            yield f"the fence fell from {before.fence} ({before.type}) to {after.fence} ({after.type})"
        elif after.type == "claimed" and after.fence == before.fence:
            yield f"a claim left the fence at {after.fence}"


def _one_holder(case: Case) -> Iterator[str]:
    holders: dict[int, set[str]] = defaultdict(set)
    for record in case.claims:
        holders[record.fence].add(str(record.worker))
    for fence, times in Counter(record.fence for record in case.claims).items():
        if times > 1:
            yield f"fence {fence} was given out {times} times"
    for worker, entry in case.entries:
        if worker not in holders[entry.fence]:
            if not holders[entry.fence]:
                yield f"{worker} worked under fence {entry.fence}, which was never given out"
            holders[entry.fence].add(worker)
    for fence, workers in holders.items():
        if len(workers) > 1:
            yield f"fence {fence} was held by {', '.join(sorted(workers))}"


def _one_step_redone(case: Case) -> Iterator[str]:
    for fence, steps in redone(case).items():
        if steps > 1:
            yield f"{steps} steps of what was begun under fence {fence} were done again"


def _nothing_superseded(case: Case) -> Iterator[str]:
    holder: int | None = None
    last_seq = 0
    for record in case.records:
        if record.type == "claimed":
            holder = record.fence
        elif record.type in WRITES and record.fence != holder:
            now = "nobody held it" if holder is None else f"{holder} had been given out"
            yield f"{record.type} under fence {record.fence} while {now}"
        if record.type == "checkpointed":
            if (record.seq or 0) <= last_seq:
                yield f"checkpoint {record.seq} was stored after {last_seq}"
            last_seq = record.seq or 0
        if record.type in ENDS_A_HOLDING:
            holder = None


def _late_refused(case: Case) -> Iterator[str]:
    for worker, entry in case.entries:
        if isinstance(entry, Late) and entry.answer != "lease_lost":
            yield f"{entry.op} of {worker} under the lost fence {entry.fence} was answered {entry.answer}"


def _no_surprise(case: Case) -> Iterator[str]:
    for worker, entry in case.entries:
        if isinstance(entry, Surprise):
            yield f"{worker}: {entry.error}"


_PROMISES: tuple[tuple[str, Callable[[Case], Iterable[str]]], ...] = (
    ("Each handoff has exactly one accepted result", _one_result),
    ("Each result is the right one", _right_result),
    ("No acknowledged checkpoint is lost", lost_checkpoints),
    ("Each take-over began with a state that was really stored", _resumed_right),
    ("No fence ever fell, and each claim raised it", _fences_rise),
    ("Each fence had one holder", _one_holder),
    ("Of each holding at most one step was done again", _one_step_redone),
    ("Nothing was written under a superseded fence", _nothing_superseded),
    ("Whoever wrote after a loss was refused", _late_refused),
    ("No worker met an error that the faults don't explain", _no_surprise),
)


def _check(claim: str, faults: list[str], found: str) -> Check:
    if not faults:
        return Check(True, claim, found)
    more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return Check(False, claim, "; ".join(faults[:SHOWN]) + more)
