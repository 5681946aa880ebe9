"""How records add up: the only thing that changes facts.

Owns the transition table. Start-up, import and undo run on the same function as a live command, so that memory and
journal can't come to say different things. Does not judge: a record that is in the journal is so.
"""

from msgspec.structs import replace

from .facts import (
    CANCELLED,
    COMPLETED,
    DEAD,
    ORPHANED,
    PENDING,
    RUNNING,
    SUSPENDED,
    CheckpointFacts,
    Handoff,
    Hold,
    Status,
)
from .records import (
    Acked,
    Cancelled,
    Checkpointed,
    Claimed,
    Completed,
    Dead,
    Dispatched,
    Entry,
    Failed,
    Orphaned,
    Record,
    Released,
)

TRANSITIONS: dict[tuple[Status, type[Record]], Status] = {
    (PENDING, Claimed): RUNNING,
    (ORPHANED, Claimed): RUNNING,
    (RUNNING, Checkpointed): RUNNING,
    (RUNNING, Completed): COMPLETED,
    (RUNNING, Released): PENDING,
    (RUNNING, Failed): PENDING,
    (RUNNING, Orphaned): ORPHANED,
    (PENDING, Cancelled): CANCELLED,
    (RUNNING, Cancelled): CANCELLED,
    (ORPHANED, Cancelled): CANCELLED,
    (SUSPENDED, Cancelled): CANCELLED,
    (PENDING, Dead): DEAD,
    (ORPHANED, Dead): DEAD,
    (COMPLETED, Acked): COMPLETED,
    (CANCELLED, Acked): CANCELLED,
    (DEAD, Acked): DEAD,
}
"""Every legal step; a pair that isn't here is an illegal one. A failure for good is two records: failed, then dead."""

KEEPS_FENCE: frozenset[type[Record]] = frozenset((Dispatched, Checkpointed, Completed, Acked))
"""Records that don't raise the fence. Every other one changes the status, and so does."""


def apply(handoff: Handoff | None, entry: Entry) -> Handoff:
    """The facts after `entry`; `handoff` is None for its first record only."""
    record = entry.record
    if handoff is None:
        assert type(record) is Dispatched, "a handoff begins with its dispatch"
        return _begin(entry, record)
    status = TRANSITIONS[handoff.status, type(record)]
    # Invariant 1: fences never fall, and a change of status but `complete` raises them.
    assert record.fence == handoff.fence + (type(record) not in KEEPS_FENCE)
    assert record.n == handoff.n + 1
    match record:
        case Checkpointed():
            return replace(
                handoff,
                position=entry.position,
                n=record.n,
                updated_at_ms=record.at_ms,
                steps=handoff.steps + record.steps,
                checkpoint=CheckpointFacts(record.seq, record.sha256, entry.position, record.at_ms),
            )
        case Claimed():
            hold = Hold(
                record.worker,
                record.session,
                record.fence,
                record.ttl_ms,
                record.at_ms,
                record.was,
                record.nonce,
                record.detached,
            )
            changed = replace(handoff, attempt=record.attempt, hold=hold, not_before_ms=0, reason=None)
        case Completed():
            changed = replace(
                handoff,
                hold=_ended(handoff, "completed"),
                result_position=entry.position,
                result_sha256=record.sha256,
            )
        case Released():
            changed = replace(
                handoff, hold=_ended(handoff, "released"), not_before_ms=record.not_before_ms, reason=record.reason
            )
        case Failed():
            changed = replace(
                handoff,
                hold=_ended(handoff, "failed"),
                failures=record.failures,
                not_before_ms=record.not_before_ms,
                reason=f"{record.error.type}: {record.error.message}",
            )
        case Orphaned():
            changed = replace(
                handoff, hold=_ended(handoff, record.why), failures=record.failures, reason=f"orphaned: {record.why}"
            )
        case Cancelled():
            changed = replace(handoff, hold=_ended(handoff, "cancelled"), reason=record.reason)
        case Dead():
            changed = replace(handoff, reason=record.reason)
        case Acked():
            changed = replace(handoff, acked=True)
        case Dispatched():  # pragma: no cover - TRANSITIONS has no such pair
            raise AssertionError("a handoff is dispatched once")
    return replace(
        changed,
        status=status,
        position=entry.position,
        anchor=entry.position,
        n=record.n,
        fence=record.fence,
        updated_at_ms=record.at_ms,
    )


def _begin(entry: Entry, record: Dispatched) -> Handoff:
    return Handoff(
        id=entry.handoff,
        kind=record.kind,
        status=PENDING,
        priority=record.priority,
        number=entry.position,
        position=entry.position,
        anchor=entry.position,
        n=record.n,
        fence=record.fence,
        max_attempts=record.max_attempts,
        has_schema=record.has_schema,
        created_at_ms=record.at_ms,
        updated_at_ms=record.at_ms,
        not_before_ms=record.not_before_ms,
        ancestors=record.ancestors,
        labels=record.labels,
    )


def _ended(handoff: Handoff, why: str) -> Hold | None:
    """The hold with its end noted; the first end counts."""
    hold = handoff.hold
    return replace(hold, ended=why) if hold is not None and hold.ended is None else hold
