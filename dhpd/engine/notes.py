"""How records that change no status add up: spending, effects, approvals, refused results.

Owns what each of them leaves in the facts. Judges nothing.
"""

import hashlib

from msgspec.structs import replace

from .facts import SUSPENDED, ApprovalFacts, EffectFacts, Handoff
from .records import (
    ApprovalDecided,
    ApprovalRequested,
    BudgetAdded,
    EffectBegun,
    EffectDoneRecord,
    Entry,
    Exported,
    Imported,
    ResultRefused,
    Spent,
)

KEPT_NONCES = 1_024
"""Of each operation: as many as a connection may have unanswered (`max_inflight_requests`, unless set higher), and so in doubt."""
MARK_BYTES = 8
KEPT_SESSIONS = 32
"""An approval remembers so many sessions that asked again without a token; those with one it remembers all."""


def note(handoff: Handoff, entry: Entry) -> Handoff:
    """The facts after a record that leaves the status as it is."""
    record = entry.record
    match record:
        case Spent():
            return replace(
                handoff,
                steps=handoff.steps + record.steps,
                usd_nano=handoff.usd_nano + record.usd_nano,
                nonce_marks=with_nonce(handoff.nonce_marks, "spend", record.nonce),
            )
        case BudgetAdded():
            marks = with_nonce(handoff.nonce_marks, "budget_add", record.nonce)
            return replace(handoff, budget=record.budget, nonce_marks=marks)
        case ResultRefused():
            return replace(handoff, invalid_results=handoff.invalid_results + 1, refused_position=entry.position)
        case EffectBegun():
            effects = handoff.effects or {}
            begun = {**effects, record.step: effects.get(record.step, EffectFacts(record.fence))}
            return replace(handoff, effects=begun, approvals=_used(handoff, record))
        case EffectDoneRecord():
            effects = handoff.effects or {}
            done = EffectFacts(effects[record.step].begun_fence, entry.position, record.sha256)
            return replace(handoff, effects={**effects, record.step: done})
        case ApprovalRequested():
            known = (handoff.approvals or {}).get(record.approval)
            return _with_approval(handoff, _asked(entry, record) if known is None else _asked_again(known, record))
        case ApprovalDecided():
            decided = replace(
                (handoff.approvals or {})[record.approval],
                decision=record.decision,
                by=record.by,
                note=record.note,
                decided_at_ms=record.at_ms,
                decided_session=record.session,
                decided_token=record.token,
            )
            return _with_approval(handoff, decided)
        case Exported():
            return replace(handoff, exported_n=record.n)
        case Imported():
            return _imported(handoff, record)
        case _:  # A capability check leaves nothing but its record.
            return handoff


def _asked(entry: Entry, record: ApprovalRequested) -> ApprovalFacts:
    return ApprovalFacts(
        record.approval,
        record.action,
        record.details_sha256,
        entry.position,
        record.expires_at_ms,
        record.session,
        record.token,
        fence=record.fence,
    )


def _asked_again(known: ApprovalFacts, record: ApprovalRequested) -> ApprovalFacts:
    """The same question by another worker, who is an asker from now on, or under another fence."""
    if (record.session, record.token) in ((known.session, known.token), *known.further_askers):
        return replace(known, fence=record.fence)
    by_token = [asker for asker in known.further_askers if asker[1] is not None]
    by_session = [asker for asker in known.further_askers if asker[1] is None]
    (by_session if record.token is None else by_token).append((record.session, record.token))
    return replace(known, further_askers=(*by_token, *by_session[-KEPT_SESSIONS:]), fence=record.fence)


def _with_approval(handoff: Handoff, approval: ApprovalFacts) -> Handoff:
    approvals = {**(handoff.approvals or {}), approval.id: approval}
    still_open = (each.expires_at_ms for each in approvals.values() if each.decision is None)
    return replace(handoff, approvals=approvals, open_until_ms=min(still_open, default=0))


def _imported(handoff: Handoff, record: Imported) -> Handoff:
    """It runs on only when somebody says so; and what was acknowledged elsewhere is kept for as long as if it were here."""
    suspended = handoff.status == SUSPENDED
    return replace(
        handoff,
        steps=handoff.steps + record.steps,
        usd_nano=handoff.usd_nano + record.usd_nano,
        reason="imported" if suspended else handoff.reason,
        wake_at_ms=0,
        wake_approval=None,
        acked_at_ms=record.at_ms if handoff.acked else 0,
    )


def without_open_approvals(handoff: Handoff, at_ms: int) -> Handoff:
    """The work has ended: nobody is asked any more, and a redrive doesn't take up what was asked before."""
    if not handoff.open_until_ms:
        return handoff
    approvals = {
        each.id: each
        if each.decision is not None
        else replace(each, decision="expired" if each.expires_at_ms <= at_ms else "cancelled", decided_at_ms=at_ms)
        for each in (handoff.approvals or {}).values()
    }
    return replace(handoff, approvals=approvals, open_until_ms=0)


def _used(handoff: Handoff, record: EffectBegun) -> dict[str, ApprovalFacts] | None:
    """The approvals, with the one that this effect uses up."""
    approvals = handoff.approvals
    if approvals is None or record.approval is None:
        return approvals
    return {**approvals, record.approval: replace(approvals[record.approval], used_by=record.step)}


def with_nonce(marks: dict[str, bytes] | None, operation: str, nonce: str | None) -> dict[str, bytes] | None:
    """The marks of the last nonces of each operation, with one more: callers of one don't know of those of another."""
    if nonce is None:
        return marks
    known = (marks or {}).get(operation, b"")
    return {**(marks or {}), operation: (known + _mark(nonce))[-KEPT_NONCES * MARK_BYTES :]}


def knows_nonce(marks: dict[str, bytes] | None, operation: str, nonce: str) -> bool:
    """Whether the nonce is among those that are remembered of this operation."""
    known, mark = (marks or {}).get(operation, b""), _mark(nonce)
    at = known.find(mark)
    while at % MARK_BYTES and at > 0:  # It lies across two others.
        at = known.find(mark, at + 1)
    return at >= 0


def _mark(nonce: str) -> bytes:
    """What is remembered of a nonce: short, and of one length."""
    return hashlib.sha256(nonce.encode()).digest()[:MARK_BYTES]
