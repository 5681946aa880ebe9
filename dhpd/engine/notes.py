"""How records that change no status add up: spending, effects, approvals, refused results.

Owns what each of them leaves in the facts. Judges nothing.
"""

from msgspec.structs import replace

from .facts import ApprovalFacts, EffectFacts, Handoff
from .records import (
    ApprovalDecided,
    ApprovalRequested,
    BudgetAdded,
    EffectBegun,
    EffectDoneRecord,
    Entry,
    ResultRefused,
    Spent,
)

KEPT_NONCES = 32


def note(handoff: Handoff, entry: Entry) -> Handoff:
    """The facts after a record that leaves the status as it is."""
    record = entry.record
    match record:
        case Spent():
            return replace(
                handoff,
                steps=handoff.steps + record.steps,
                usd_nano=handoff.usd_nano + record.usd_nano,
                nonces=with_nonce(handoff.nonces, record.nonce),
            )
        case BudgetAdded():
            return replace(handoff, budget=record.budget, nonces=with_nonce(handoff.nonces, record.nonce))
        case ResultRefused():
            return replace(handoff, invalid_results=handoff.invalid_results + 1, refused_position=entry.position)
        case EffectBegun():
            begun = {**(handoff.effects or {}), record.step: EffectFacts(record.fence)}
            return replace(handoff, effects=begun, approvals=_used(handoff, record))
        case EffectDoneRecord():
            effects = handoff.effects or {}
            done = EffectFacts(effects[record.step].begun_fence, entry.position, record.sha256)
            return replace(handoff, effects={**effects, record.step: done})
        case ApprovalRequested():
            asked = ApprovalFacts(
                record.approval,
                record.action,
                record.details_sha256,
                entry.position,
                record.expires_at_ms,
                record.session,
                record.token,
            )
            return replace(handoff, approvals={**(handoff.approvals or {}), record.approval: asked})
        case ApprovalDecided():
            approvals = handoff.approvals or {}
            decided = replace(
                approvals[record.approval],
                decision=record.decision,
                by=record.by,
                note=record.note,
                decided_at_ms=record.at_ms,
            )
            return replace(handoff, approvals={**approvals, record.approval: decided})
        case _:  # A capability check leaves nothing but its record.
            return handoff


def _used(handoff: Handoff, record: EffectBegun) -> dict[str, ApprovalFacts] | None:
    """The approvals, with the one that this effect uses up."""
    approvals = handoff.approvals
    if approvals is None or record.approval is None:
        return approvals
    return {**approvals, record.approval: replace(approvals[record.approval], used_by=record.step)}


def with_nonce(nonces: tuple[str, ...], nonce: str | None) -> tuple[str, ...]:
    """The last nonces, with one more."""
    return nonces if nonce is None else (*nonces[-KEPT_NONCES + 1 :], nonce)
