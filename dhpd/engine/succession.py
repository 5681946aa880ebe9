"""What can have happened next: whether a record from elsewhere can follow what is known of its handoff.

Owns, for records that no rule here has decided, what the rules would have seen to: so that `apply` can take them, and what it
makes of them is the state of a handoff that there could be. Judges nobody's reasons, and no clock. Pure.
"""

from collections.abc import Iterator

from dhp_protocol.limits import MAX_APPROVALS, MAX_EFFECTS, MAX_SAFE_INTEGER
from dhp_protocol.money import MAX_USD, NANO

from .apply import NOTES, TRANSITIONS, follows
from .approvals import handoff_of
from .budget import Budget
from .facts import CANCELLED, COMPLETED, RUNNING, Handoff
from .records import (
    Acked,
    AnyRecord,
    ApprovalDecided,
    ApprovalRequested,
    BudgetAdded,
    CapabilityChecked,
    Checkpointed,
    Claimed,
    Completed,
    Dead,
    EffectBegun,
    EffectDoneRecord,
    Exported,
    Failed,
    Imported,
    Orphaned,
    Redriven,
    Released,
    ResultRefused,
    Spent,
    Suspended,
)

HELD = (EffectBegun, EffectDoneRecord, ApprovalRequested, CapabilityChecked, ResultRefused)
"""Only who holds the handoff can have caused them."""
OUTSIDE = (Exported, Imported)
"""Records that stay where they are: no part of a bundle, nor of what two daemons compare."""


def why_not(handoff: Handoff, record: AnyRecord, missing: int) -> str | None:
    """Why `record` can't be the next one of `handoff` (None: it can); `missing` checkpoints may be left out before it."""
    if type(record) not in NOTES and (handoff.status, type(record)) not in TRANSITIONS:
        return f"tells of what can't happen to work that is {handoff.status}"
    if isinstance(record, OUTSIDE):
        return "holds a record that stays where it is"
    if not follows(handoff, record):
        return "holds a number or a fence that doesn't follow the one before"
    return next((fault for fault in _faults(handoff, record, missing) if fault is not None), None)


def _faults(handoff: Handoff, record: AnyRecord, missing: int) -> Iterator[str | None]:
    hold = handoff.hold
    held = hold is not None and handoff.status == RUNNING
    if isinstance(record, HELD) or (isinstance(record, Spent) and record.by is None):
        yield None if held else "tells of a write without a holder"
    if isinstance(record, Orphaned | Released | Failed | Completed | ResultRefused):
        yield None if hold is not None and record.worker == hold.worker else "names another worker than the holder"
    if isinstance(record, Checkpointed | Spent | Redriven):
        steps, usd_nano = handoff.steps + record.steps, handoff.usd_nano + record.usd_nano
        yield None if steps <= MAX_SAFE_INTEGER and usd_nano <= MAX_USD * NANO else "brings a sum out of its bounds"
    match record:
        case Claimed():
            yield None if record.was == handoff.status else "tells another status before it than there was"
            yield None if record.attempt == handoff.attempt + 1 else "counts the claims wrongly"
        case Checkpointed():
            yield _seq_fault(handoff, record.seq, missing)
        case Orphaned():
            failed = record.why == "expired"
            counted = (record.failures, record.stalls) == (handoff.failures + failed, handoff.stalls + (not failed))
            yield None if counted else "counts failures or stalls wrongly"
        case Failed():
            yield None if record.failures == handoff.failures + 1 else "counts failures wrongly"
        case ResultRefused():
            left = handoff.budget.max_invalid_results - handoff.invalid_results - 1
            yield None if handoff.has_schema and record.left == left else "refuses a result that nothing refused"
        case Suspended():
            known = record.approval is None or record.approval in (handoff.approvals or {})
            yield None if known else "names an approval that nobody asked for"
        case Dead():
            yield _kept_fault(handoff, record, missing, held=held)
        case Redriven():
            yield _redriven_fault(handoff, record)
        case BudgetAdded():
            yield _budget_fault(handoff, record.budget)
        case EffectBegun():
            yield _effect_fault(handoff, record)
        case EffectDoneRecord():
            begun = (handoff.effects or {}).get(record.step)
            yield None if begun is not None and not begun.done_position else "ends an effect that isn't under way"
        case ApprovalRequested():
            yield _request_fault(handoff, record)
        case ApprovalDecided():
            asked = (handoff.approvals or {}).get(record.approval)
            yield None if asked is not None and asked.decision is None else "decides what isn't open"
        case Acked():
            yield None if not handoff.acked else "acknowledges what was acknowledged before"


def _seq_fault(handoff: Handoff, seq: int, missing: int) -> str | None:
    return None if handoff.seq < seq <= handoff.seq + 1 + missing else "holds a seq that doesn't follow the one before"


def _kept_fault(handoff: Handoff, record: Dead, missing: int, *, held: bool) -> str | None:
    if not record.kept_seq:
        plain = record.kept_sha256 is None and not record.kept_bytes
        return None if plain and (held or not record.kept_steps + record.kept_usd_nano) else "keeps what nobody wrote"
    if record.kept_sha256 is None or not held:
        return "keeps what nobody wrote"
    return _seq_fault(handoff, record.kept_seq, missing)


def _redriven_fault(handoff: Handoff, record: Redriven) -> str | None:
    if record.dead_ms < handoff.dead_ms:
        return "takes back time that was spent dead"
    kept = handoff.kept
    brought = (record.steps, record.usd_nano, record.seq, record.sha256)
    wanted = (0, 0, 0, None) if kept is None else (kept.steps, kept.usd_nano, kept.seq, kept.sha256)
    return None if brought == wanted else "brings something else than was kept"


def _budget_fault(handoff: Handoff, after: Budget) -> str | None:
    if handoff.status in (COMPLETED, CANCELLED):
        return "adds to the budget of work that has ended"
    for name in Budget.__struct_fields__:
        was, now = getattr(handoff.budget, name), getattr(after, name)
        if (was is None) != (now is None) or (was is not None and now < was):
            return "takes something from the budget, or sets a cap where there was none"
    return None


def _effect_fault(handoff: Handoff, record: EffectBegun) -> str | None:
    effects = handoff.effects or {}
    known = effects.get(record.step)
    if known is None and len(effects) >= MAX_EFFECTS:
        return f"begins more than {MAX_EFFECTS} effects"
    if known is not None and (known.done_position or record.approval is None):
        return "begins an effect that was begun before"
    if record.approval is None:
        return None
    approval = (handoff.approvals or {}).get(record.approval)
    if approval is None or approval.decision != "approved" or approval.used_by not in (None, record.step):
        return "uses an approval that isn't to be had"
    given_by, hold = approval.decided_token, handoff.hold
    own = given_by is not None and hold is not None and given_by == hold.token
    return "uses an approval that its holder gave" if own else None


def _request_fault(handoff: Handoff, record: ApprovalRequested) -> str | None:
    approvals = handoff.approvals or {}
    known = approvals.get(record.approval)
    if handoff_of(record.approval) != handoff.id:
        return "asks for an approval of another handoff"
    if known is None:
        return None if len(approvals) < MAX_APPROVALS else f"asks for more than {MAX_APPROVALS} approvals"
    asked = (known.action, known.details_sha256, known.expires_at_ms, known.decision)
    again = (record.action, record.details_sha256, record.expires_at_ms, None)
    return None if asked == again else "asks for something else under the same name"
