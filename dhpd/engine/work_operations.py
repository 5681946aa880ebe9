"""Operations on the work itself: dispatch, checkpoint, complete, cancel, ack."""

from msgspec import UNSET

from dhp_protocol.errors import ResultInvalid
from dhp_protocol.messages import Ack, Cancel, Checkpoint, Complete
from dhp_protocol.replies import CancelledEvent, CompleteReply, DispatchReply, Empty, StatusAfter

from .backlog import Steps
from .budget_operations import note_activity, refuse_at_a_cap, spend_with_ancestors
from .dispatching import PreparedDispatch, decide_ack, decide_cancel, decide_dispatch
from .facts import RUNNING, Handoff
from .moments import Now
from .records import Change
from .roles import check_parent
from .scarcity import check_room
from .settling import Settling
from .spending import Amounts
from .telling import draining
from .waiting import Address
from .writing import decide_checkpoint, decide_complete


def dispatch(core: Settling, prepared: PreparedDispatch, to: Address, now: Now) -> None:
    facts = core.ledger.get(prepared.handoff)
    if facts is not None:
        facts = core.look(prepared.handoff, now)
        core.reply(to, DispatchReply(handoff=facts.id, created=False, status=facts.status), facts)
        return
    if core.draining:
        raise draining()
    check_room(core)
    parent = None
    if prepared.request.parent is not UNSET and core.find(prepared.request.parent) is not None:
        parent = core.looked_at = core.look(prepared.request.parent, now)
        check_parent(parent, to.caller)
    changes = decide_dispatch(prepared, parent, to.caller.token, core.purged_fence, now)
    facts = core.change(prepared.handoff, None, changes, now)
    core.reply(to, DispatchReply(handoff=facts.id, created=True, status=facts.status), facts)


def checkpoint(core: Settling, request: Checkpoint, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    decision = decide_checkpoint(facts, request, core.settings.limits, now)
    record = decision.record
    if record is not None:
        check_room(core)
        amounts = Amounts(record.steps, record.usd_nano)
        refuse_at_a_cap(core, facts, amounts, now, seq=record.seq, sha256=record.sha256, state=decision.state)
        facts = spend_with_ancestors(core, facts, (Change(record, decision.state),), amounts, now)
    lease = core.renew(facts, now)
    if record is not None:
        core.leases.moved(lease, now.lease_ms)
        if request.activity is not UNSET:  # A checkpoint sent again isn't another activity.
            note_activity(core, facts, lease, request.activity, now)
    core.reply(to, decision.answer, facts)


def complete(core: Settling, request: Complete, verdict: ResultInvalid | None, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    lease = core.leases.get(facts.id, request.fence)
    unheard = None if lease is None else lease.unheard_refusal(to.connection)
    decision = decide_complete(facts, request, verdict, core.settings.limits, now, refused_before=unheard)
    if lease is not None and decision.refusal is not None:
        lease.refusal = (decision.sha256, to.connection) if decision.changes else None
    if decision.changes:
        take = core.change if decision.refusal is None else core.end_hold
        facts = core.looked_at = take(facts.id, facts, decision.changes, now)
    if decision.refusal is not None:
        if facts.status == RUNNING:  # Whoever sends a result is alive, and now has to mend it.
            core.renew(facts, now)
        raise decision.refusal
    core.reply(to, CompleteReply(duplicate=decision.duplicate), facts)


def cancel(core: Settling, request: Cancel, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    reason = None if request.reason is UNSET else request.reason
    facts = _cancel_one(core, facts, reason, now)
    answer = StatusAfter(status=facts.status)
    if request.children:
        core.backlog.begin(_cancel_descendants(core, facts.id, reason, answer, to), now, to)
    else:
        core.reply(to, answer, facts)


def _cancel_descendants(core: Settling, name: str, reason: str | None, answer: StatusAfter, to: Address) -> Steps:
    """Those that come meanwhile as well, by way of some that are still live: what has ended takes no children."""
    now = yield
    while (descendant := next(iter(core.ledger.descendants(name)), None)) is not None:
        core.seal_if_full(now)
        _cancel_one(core, core.look(descendant, now), reason, now)
        now = yield
    core.reply_of_all(to, answer)


def _cancel_one(core: Settling, facts: Handoff, reason: str | None, now: Now) -> Handoff:
    lease = core.leases.get(facts.id, facts.fence) if facts.status == RUNNING else None
    changes = decide_cancel(facts, reason, now)
    if not changes:
        return facts
    after = core.change(facts.id, facts, changes, now)
    if lease is not None and not lease.detached:
        event = CancelledEvent(handoff=facts.id, fence=lease.fence, reason=reason)
        core.notify(lease.session, event, after)
    return after


def ack(core: Settling, request: Ack, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    changes = decide_ack(facts, now)
    if changes:
        facts = core.change(facts.id, facts, changes, now)
    core.reply(to, Empty(), facts)
