"""Rules for moving a handoff from one daemon to another: export, import.

Owns what an export leaves behind, and when records from elsewhere may go on from those that are here. Does not own what may
stand in a bundle (`arriving`). Pure; what takes long here looks at nothing of the engine's, and so may run anywhere.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dhp_protocol.errors import TooLarge
from dhp_protocol.limits import Limits

from .apply import apply, placed
from .arriving import ELSEWHERE, Arrival
from .facts import RUNNING, SUSPENDED, Handoff
from .foreign_records import portable
from .moments import Now
from .records import (
    AnyRecord,
    Change,
    Checkpointed,
    Entry,
    Exported,
    Imported,
    Spent,
    Suspended,
)
from .succession import OUTSIDE, why_not


def decide_export(handoff: Handoff, limits: Limits, now: Now) -> Sequence[Change]:
    """What an export records: unfinished work is put aside, so that it can't run on two hosts, and nothing wakes it.

    Nothing at all where nothing has happened since the last one. Raises `TooLarge` where unfinished work has more records than
    a bundle may have: nobody could take it up from there.
    """
    changes: list[Change] = []
    n, fence = handoff.n, handoff.fence
    aside = handoff.status == SUSPENDED and handoff.reason == "exported"
    if not handoff.final and not (aside and not handoff.wake_at_ms and handoff.wake_approval is None):
        _check_size(handoff, limits)
        n, fence = n + 1, fence + 1
        changes.append(Change(Suspended(n=n, at_ms=now.wall_ms, fence=fence, reason="exported")))
    if changes or handoff.exported_n != n:
        changes.append(Change(Exported(n=n + 1, at_ms=now.wall_ms, fence=fence)))
    return changes


def _check_size(handoff: Handoff, limits: Limits) -> None:
    most = limits.max_bundle_records
    records = handoff.bundled + min(handoff.seq, handoff.keep_checkpoints) + 1  # The suspension is one more.
    if records > most:
        sentence = f"A bundle may have {most} records, and this work's would have {records}: let it end here."
        raise TooLarge(sentence, member="handoff", limit=most, size=records)


class Plan(Struct, frozen=True):
    """What an import would do: `changes` in a row after what is here now, which was last changed at `position` (0: nothing is).

    `facts` are those after them, with positions from `ELSEWHERE` on; `steps` and `usd_nano` what is still to be added to them;
    `n` is the number of the `imported` record.
    """

    handoff: str
    position: int
    changes: Sequence[Change]
    facts: Handoff
    n: int
    steps: int
    usd_nano: int

    def placed(self, before: Handoff | None, position: int) -> tuple[list[Entry], Handoff]:
        """The changes in the places that follow `position`, and the facts after them."""
        shift = position - ELSEWHERE
        entries = []
        prev, anchor = (0, 0) if before is None else (before.position, before.anchor)
        for at, change in enumerate(self.changes, position + 1):
            entries.append(Entry(at, self.handoff, prev, anchor, change.record, change.payload))
            prev = at
            anchor = anchor if isinstance(change.record, Checkpointed) else at
        return entries, _shifted(self.facts, shift)


def plan_new(arrival: Arrival) -> Plan:
    """A handoff that isn't here begins with all the bundle's records."""
    envelope, facts = arrival.envelope, arrival.facts
    assert envelope is not None
    assert facts is not None
    assert arrival.whole
    steps, usd_nano = envelope.steps - facts.steps, envelope.usd_nano - facts.usd_nano
    return Plan(facts.id, 0, arrival.changes, facts, envelope.n, steps, usd_nano)


def plan_extension(arrival: Arrival, present: Handoff, own: Sequence[AnyRecord]) -> Plan | None:
    """A handoff that is here goes on with what its records, `own`, are a beginning of; None: it is left as it is."""
    envelope = arrival.envelope
    assert envelope is not None
    assert arrival.whole
    theirs = [change.record for change in arrival.changes]
    rest = [change for change in arrival.changes if change.record.n > present.n]
    # What somebody holds isn't taken from them by what was written elsewhere.
    if not rest or present.status == RUNNING or not begins(own, theirs, present.n):
        return None
    facts = present
    taken: list[Change] = []
    for change in rest:
        if why_not(facts, change.record, change.record.n) is not None:
            return None
        taken.append(change)
        facts = apply(facts, placed(present.id, facts, ELSEWHERE + len(taken), change))
    steps, usd_nano = envelope.steps - facts.steps, envelope.usd_nano - facts.usd_nano
    if min(steps, usd_nano) < 0:
        return None
    return Plan(present.id, present.position, taken, facts, envelope.n, steps, usd_nano)


def begins(own: Iterable[AnyRecord], theirs: Iterable[AnyRecord], n: int) -> bool:
    """Whether the records here, up to `n`, are a beginning of `theirs`.

    Records are compared where both sides have one, hashes of payloads included; only checkpoints may be missing on a side,
    since those are pruned, and what descendants spent before the work last came or went: later, the sides know different sums.
    Records that stay where they are don't count.
    """
    moves = {record.n for record in own if isinstance(record, OUTSIDE)}
    last_move = max(moves, default=0)
    here = {record.n: portable(record) for record in own if record.n not in moves}
    there = {record.n: record for record in theirs}
    if max(here, default=0) > max(there, default=0) or any(number in moves for number in there):
        return False
    for number in {*here, *(number for number in there if number <= n)}:
        mine, other = here.get(number), there.get(number)
        if mine is None or other is None:
            only = mine or other
            summed_up = isinstance(only, Spent) and only.by is not None and number < last_move
            if not isinstance(only, Checkpointed) and not summed_up:
                return False
        elif mine != other:
            return False
    return True


def decide_imported(plan: Plan, facts: Handoff, purged_fence: int, now: Now) -> Change:
    """What closes an import. Its fence is nowhere below another that this store has given out for anything that is gone."""
    return Change(
        Imported(
            n=max(plan.n, facts.n + 1),
            at_ms=now.wall_ms,
            fence=max(facts.fence, purged_fence),
            steps=plan.steps,
            usd_nano=plan.usd_nano,
        )
    )


def _shifted(facts: Handoff, shift: int) -> Handoff:
    """The facts with every position from `ELSEWHERE` on shifted."""

    def at(position: int) -> int:
        return position + shift if position >= ELSEWHERE else position

    checkpoint, kept = facts.checkpoint, facts.kept
    effects, approvals = facts.effects, facts.approvals
    return replace(
        facts,
        number=at(facts.number),
        position=at(facts.position),
        anchor=at(facts.anchor),
        result_position=at(facts.result_position),
        refused_position=at(facts.refused_position),
        checkpoint=None if checkpoint is None else replace(checkpoint, position=at(checkpoint.position)),
        kept=None if kept is None else replace(kept, position=at(kept.position)),
        effects=effects
        and {step: replace(each, done_position=at(each.done_position)) for step, each in effects.items()},
        approvals=approvals
        and {name: replace(each, details_position=at(each.details_position)) for name, each in approvals.items()},
    )
