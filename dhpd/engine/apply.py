"""How records add up: the only thing that changes facts.

Owns the transition table. Start-up, import and undo run on the same function as a live command, so that memory and
journal can't come to say different things. Does not judge: a record that is in the journal is so.
"""

from msgspec.structs import replace

from .facts import (
    CANCELLED,
    COMPLETED,
    DEAD,
    FINAL,
    ORPHANED,
    PENDING,
    RUNNING,
    SUSPENDED,
    CheckpointFacts,
    Handoff,
    Hold,
    KeptWrite,
    Status,
)
from .notes import note, with_nonce, without_open_approvals
from .records import (
    Acked,
    ApprovalDecided,
    ApprovalRequested,
    BudgetAdded,
    Cancelled,
    CapabilityChecked,
    Change,
    Checkpointed,
    Claimed,
    Completed,
    Dead,
    Dispatched,
    EffectBegun,
    EffectDoneRecord,
    Entry,
    Exported,
    Failed,
    Imported,
    Orphaned,
    Record,
    Redriven,
    Released,
    ResultRefused,
    Resumed,
    Spent,
    Suspended,
    stays,
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
    (PENDING, Suspended): SUSPENDED,
    (RUNNING, Suspended): SUSPENDED,
    (ORPHANED, Suspended): SUSPENDED,
    (SUSPENDED, Suspended): SUSPENDED,
    (SUSPENDED, Resumed): PENDING,
    (PENDING, Dead): DEAD,
    (RUNNING, Dead): DEAD,
    (ORPHANED, Dead): DEAD,
    (SUSPENDED, Dead): DEAD,
    (DEAD, Redriven): PENDING,
    (COMPLETED, Acked): COMPLETED,
    (CANCELLED, Acked): CANCELLED,
    (DEAD, Acked): DEAD,
}
"""Every legal change of status; a failure for good is two records: failed, then dead."""

NOTES: frozenset[type[Record]] = frozenset(
    (
        Spent,
        ResultRefused,
        BudgetAdded,
        EffectBegun,
        EffectDoneRecord,
        ApprovalRequested,
        ApprovalDecided,
        CapabilityChecked,
        Exported,
        Imported,
    )
)
"""Records that change no status, and may come in any."""

KEEPS_FENCE: frozenset[type[Record]] = frozenset((Dispatched, Checkpointed, Completed, Acked, *NOTES))
"""Records that don't raise the fence. Every other one changes the status, and so does."""


_MAY_LEAP: frozenset[type[Record]] = frozenset((Claimed, Imported))
"""Records whose fence may be higher than the next one, though none is missing before them."""


def apply(handoff: Handoff | None, entry: Entry) -> Handoff:
    """The facts after `entry`; `handoff` is None for its first record only. A `Forgotten` leaves none (`retention`)."""
    record = entry.record
    if handoff is None:
        assert type(record) is Dispatched, "a handoff begins with its dispatch"
        return _begin(entry, record)
    status = handoff.status if type(record) in NOTES else TRANSITIONS[handoff.status, type(record)]
    assert follows(handoff, record)
    match record:
        case Checkpointed():
            return replace(
                handoff,
                position=entry.position,
                n=record.n,
                updated_at_ms=record.at_ms,
                steps=handoff.steps + record.steps,
                usd_nano=handoff.usd_nano + record.usd_nano,
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
                token=record.token,
            )
            first_ms = handoff.first_claimed_at_ms or record.at_ms
            changed = replace(
                handoff,
                attempt=record.attempt,
                hold=hold,
                not_before_ms=0,
                reason=None,
                first_claimed_at_ms=first_ms,
            )
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
                handoff,
                hold=_ended(handoff, record.why),
                failures=record.failures,
                stalls=record.stalls,
                reason=f"orphaned: {record.why}",
            )
        case Cancelled():
            changed = replace(handoff, hold=_ended(handoff, "cancelled"), reason=record.reason)
        case Suspended():
            changed = replace(
                handoff,
                hold=_ended(handoff, "suspended", own=record.worker is not None),
                reason=record.reason,
                wake_at_ms=record.wake_at_ms,
                wake_approval=record.approval,
            )
        case Resumed():
            changed = replace(handoff, reason=None, wake_at_ms=0, wake_approval=None)
        case Dead():
            changed = replace(
                handoff,
                hold=_ended(handoff, "dead"),
                reason=record.reason,
                kept=_kept(entry, record),
                died_at_ms=record.since_ms or record.at_ms,
            )
        case Redriven():
            changed = _redriven(handoff, entry, record)
        case _ if type(record) in NOTES:
            changed = note(handoff, entry)
        case Acked():
            changed = replace(handoff, acked=True, acked_at_ms=record.at_ms)
        case _:  # pragma: no cover - TRANSITIONS has no such pair
            raise AssertionError("an illegal record")
    if status in FINAL:
        changed = without_open_approvals(changed, record.at_ms)
    return replace(
        changed,
        status=status,
        position=entry.position,
        anchor=entry.position,
        n=record.n,
        fence=record.fence,
        updated_at_ms=record.at_ms,
        bundled=handoff.bundled + (not stays(record)),
    )


def follows(handoff: Handoff, record: Record) -> bool:
    """Whether the record's `n` and fence can be the next ones.

    Invariant 1: fences never fall, and a change of status but `complete` raises them: by one, unless records of elsewhere are
    missing in between, the handoff has just come from there, or it is claimed above the floor of a restored store.
    """
    least = handoff.fence + (type(record) not in KEEPS_FENCE)
    next_here = record.n == handoff.n + 1 and type(record) not in _MAY_LEAP
    return record.n > handoff.n and (record.fence == least or (record.fence > least and not next_here))


def placed(handoff: str, before: Handoff | None, position: int, change: Change) -> Entry:
    """The record in its place after `before`."""
    prev, anchor = (0, 0) if before is None else (before.position, before.anchor)
    return Entry(position, handoff, prev, anchor, change.record, change.payload)


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
        budget=record.budget,
        has_schema=record.has_schema,
        created_at_ms=record.at_ms,
        updated_at_ms=record.at_ms,
        not_before_ms=record.not_before_ms,
        ancestors=record.ancestors,
        labels=record.labels,
        keep_checkpoints=record.keep_checkpoints,
        capable=record.capable,
        token=record.token,
        bundled=1,
    )


def _kept(entry: Entry, record: Dead) -> KeptWrite | None:
    """What the refused write brought, for the redrive to apply."""
    if not (record.kept_steps or record.kept_usd_nano or record.kept_seq):
        return None
    return KeptWrite(
        record.kept_steps,
        record.kept_usd_nano,
        record.kept_seq,
        record.kept_sha256,
        entry.position,
        record.kept_nonce,
    )


def _redriven(handoff: Handoff, entry: Entry, record: Redriven) -> Handoff:
    """Dead work is live again: the counts start anew, what was spent doesn't."""
    checkpoint = handoff.checkpoint
    marks = with_nonce(handoff.nonce_marks, "redrive", record.nonce)
    if handoff.kept is not None:  # What was kept has been carried out now.
        marks = with_nonce(marks, "spend", handoff.kept.nonce)
    if record.seq and record.sha256 is not None:
        checkpoint = CheckpointFacts(record.seq, record.sha256, entry.position, record.at_ms)
    return replace(
        handoff,
        failures=0,
        stalls=0,
        invalid_results=0,
        dead_ms=record.dead_ms,
        steps=handoff.steps + record.steps,
        usd_nano=handoff.usd_nano + record.usd_nano,
        checkpoint=checkpoint,
        kept=None,
        reason=None,
        acked=False,
        acked_at_ms=0,
        not_before_ms=0,
        nonce_marks=marks,
    )


def _ended(handoff: Handoff, why: str, *, own: bool = False) -> Hold | None:
    """The hold with its end noted; the first end counts."""
    hold = handoff.hold
    return replace(hold, ended=why, own_end=own) if hold is not None and hold.ended is None else hold
