"""Operations on approvals and on work put aside: approval_request, approval_wait, approval_decide, approvals, suspend, resume."""

from msgspec import UNSET

from dhp_protocol.errors import NotFound
from dhp_protocol.messages import ApprovalDecide, ApprovalRequest, Approvals, ApprovalWait, Resume, Suspend
from dhp_protocol.replies import ApprovalRequestReply, CancelReply, SuspendReply

from .approvals import Asker, decide_approval, decide_approval_request, decision_of, handoff_of
from .core import decision_reply
from .facts import ApprovalFacts, Handoff
from .fencing import ended_by
from .lookups import ApprovalItem, ApprovalsLookup
from .moments import Now
from .settling import Settling
from .suspending import decide_resume, decide_suspend, decide_woken
from .waiting import Address, ApprovalWaiter


def approval_request(core: Settling, request: ApprovalRequest, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    decision = decide_approval_request(facts, request, _asker(core, to), core.settings.limits, now)
    if decision.changes:
        facts = core.change(facts.id, facts, decision.changes, now)
    core.leases.moved(core.renew(facts, now), now.lease_ms)
    core.reply(to, ApprovalRequestReply(approval=decision.approval), facts)


def approval_wait(core: Settling, request: ApprovalWait, to: Address, now: Now) -> None:
    facts, approval = _look(core, request.approval, now)
    wait_ms = min(max(request.wait_ms, 0), core.settings.limits.max_wait_ms)
    decided = decision_of(facts, approval, now) is not None
    if decided or not wait_ms or core.sessions.of(to.connection) is None:
        core.reply(to, decision_reply(facts, approval, now), facts)
    else:
        core.waiting.add(ApprovalWaiter(to, now.lease_ms + wait_ms, facts.id, approval.id))


def approval_decide(core: Settling, request: ApprovalDecide, to: Address, now: Now) -> None:
    facts, approval = _look(core, request.approval, now)
    changes = decide_approval(facts, approval, request, _asker(core, to), now)
    if changes:
        facts = core.change(facts.id, facts, changes, now)
        woken = decide_woken(facts, approval.id, now)
        if woken:
            facts = core.change(facts.id, facts, woken, now)
    core.reply(to, decision_reply(facts, (facts.approvals or {})[approval.id], now), facts)


def approvals(core: Settling, request: Approvals, to: Address, now: Now) -> None:
    limit = min(max(request.limit, 1), core.settings.limits.max_page)
    found = core.ledger.with_approvals() if request.handoff is UNSET else [core.look(request.handoff, now)]
    items = [
        ApprovalItem(facts.id, approval, decision_of(facts, approval, now))
        for facts in found
        for approval in (facts.approvals or {}).values()
        if approval.details_position > request.after
        and request.status in (UNSET, decision_of(facts, approval, now) or "open")
    ]
    items.sort(key=lambda item: item.approval.details_position)
    after = items[limit - 1].approval.details_position if len(items) > limit else None
    core.reply_of_all(to, ApprovalsLookup(items[:limit], after))


def suspend(core: Settling, request: Suspend, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    duplicate = request.fence is not UNSET and ended_by(facts, request.fence, "suspended")
    if not duplicate:
        changes = decide_suspend(facts, request, now)
        if request.fence is UNSET:
            facts = core.end_hold(facts.id, facts, changes, now)
        else:  # The worker that puts its own work aside needn't be told that it has lost it.
            facts = core.change(facts.id, facts, changes, now)
    core.reply(to, SuspendReply(status=facts.status, duplicate=duplicate), facts)


def resume(core: Settling, request: Resume, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    facts = core.change(facts.id, facts, decide_resume(facts, request, now), now)
    core.reply(to, CancelReply(status=facts.status), facts)


def _look(core: Settling, approval: str, now: Now) -> tuple[Handoff, ApprovalFacts]:
    facts = core.looked_at = core.look(handoff_of(approval), now)
    found = (facts.approvals or {}).get(approval)
    if found is None:
        raise NotFound("There is no such approval: compare the id.", approval=approval)
    return facts, found


def _asker(core: Settling, to: Address) -> Asker:
    session = core.sessions.of(to.connection)
    return Asker("" if session is None else session.name, None)
