"""Operations on approvals and on work put aside: approval_request, approval_wait, approval_decide, approvals, suspend, resume."""

from itertools import islice

from msgspec import UNSET

from dhp_protocol.errors import DHPError, Forbidden, NotFound
from dhp_protocol.messages import ApprovalDecide, ApprovalRequest, Approvals, ApprovalWait, Resume, Suspend
from dhp_protocol.replies import ApprovalRequestReply, StatusAfter, SuspendReply

from .approvals import Asker, canonical_details, decide_approval, decide_approval_request, decision_of, handoff_of
from .facts import ApprovalFacts, Handoff
from .fencing import ended_by
from .lookups import ApprovalItem, ApprovalsLookup
from .moments import Now
from .settling import SETTLED_AT_ONCE, Settling
from .suspending import decide_resume, decide_suspend, decide_woken
from .telling import decision_reply
from .waiting import Address, ApprovalWaiter

SCANNED_AT_ONCE = 256
"""A page is cut after so many that a filter passes over."""


def approval_request(
    core: Settling, request: ApprovalRequest, details: bytes | DHPError | None, to: Address, now: Now
) -> None:
    """`details` are the canonical ones, or why there are none; None: they are short, and that is found out here."""
    facts = core.looked_at = core.look(request.handoff, now)
    limits = core.settings.limits
    if details is None:
        details = canonical_details(request, limits)
    decision = decide_approval_request(facts, request, details, asker(core, to), limits, now)
    core.sessions.asks(to.connection)
    facts = core.write(facts, decision.changes, now)
    core.reply(to, ApprovalRequestReply(approval=decision.approval), facts)


def approval_wait(core: Settling, request: ApprovalWait, to: Address, now: Now) -> None:
    facts, approval = _look(core, request.approval, now)
    wait_ms = min(max(request.wait_ms, 0), core.settings.limits.max_wait_ms)
    decided = decision_of(approval, now) is not None
    if decided or not wait_ms or core.sessions.of(to.connection) is None:
        core.reply(to, decision_reply(approval, now), facts)
    else:
        core.waiting.add(ApprovalWaiter(to, now.lease_ms + wait_ms, facts.id, approval.id))


def approval_decide(core: Settling, request: ApprovalDecide, to: Address, now: Now) -> None:
    facts, approval = _look(core, request.approval, now)
    decider = asker(core, to)
    if not decider.session:  # Who has gone meanwhile can't be told from whoever asked.
        raise Forbidden(
            "A decision needs somebody who is there: decide again, and wait for the answer.", role="approver"
        )
    if _holds(core, facts, decider):
        raise Forbidden("Whoever holds the work can't decide its approvals: another person must.", role="approver")
    changes = decide_approval(facts, approval, request, decider, now)
    if changes:
        facts = core.change(facts.id, facts, (*changes, *decide_woken(facts, approval.id, now)), now)
    core.reply(to, decision_reply((facts.approvals or {})[approval.id], now), facts)


def approvals(core: Settling, request: Approvals, to: Address, now: Now) -> None:
    limit = min(max(request.limit, 1), core.settings.limits.max_page)
    if request.handoff is UNSET:
        core.reply_of_all(to, _page_of_all(core, request, limit, now))
    else:
        facts = core.looked_at = core.look(request.handoff, now)
        core.reply(to, _page_of(facts, request, limit), facts)


def _page_of(facts: Handoff, request: Approvals, limit: int) -> ApprovalsLookup:
    items: list[ApprovalItem] = []
    for approval in (facts.approvals or {}).values():  # In the order in which they were asked for.
        if approval.details_position > request.after and _fits(approval, request):
            if len(items) == limit:
                return ApprovalsLookup(items, items[-1].approval.details_position)
            items.append(ApprovalItem(facts.id, approval, approval.decision))
    return ApprovalsLookup(items, None)


def _page_of_all(core: Settling, request: Approvals, limit: int, now: Now) -> ApprovalsLookup:
    """Looks at no more than a page may hold, or a filter may pass over, and settles what is due of that."""
    only_open = request.status == "open"
    scanned = limit if only_open or request.status is UNSET else max(limit, SCANNED_AT_ONCE)
    known = core.ledger.approvals.after(request.after, only_open=only_open)
    names = list(islice(known, scanned + 1))
    items: list[ApprovalItem] = []
    last = request.after
    settled = 0
    for number, (handoff, name) in enumerate(names):
        if number == scanned or len(items) == limit or settled == SETTLED_AT_ONCE:
            return ApprovalsLookup(items, last)
        before = core.ledger.get(handoff)
        assert before is not None, "live work is in memory"
        facts = core.settle_due(before, now)
        if facts is not before:
            settled += 1
            core.seal_if_full(now)
        approval = (facts.approvals or {})[name]
        last = approval.details_position
        if not facts.final and _fits(approval, request):
            items.append(ApprovalItem(handoff, approval, approval.decision))
    return ApprovalsLookup(items, None)


def _fits(approval: ApprovalFacts, request: Approvals) -> bool:
    return request.status in (UNSET, approval.decision or "open")


def suspend(core: Settling, request: Suspend, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    # What somebody else has put aside wakes as that one said, which isn't what this worker asks for.
    ended = request.fence is not UNSET and ended_by(facts, request.fence, "suspended")
    duplicate = ended and facts.hold is not None and facts.hold.own_end
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
    core.reply(to, StatusAfter(status=facts.status), facts)


def _holds(core: Settling, facts: Handoff, who: Asker) -> bool:
    """Whether `who` has the work now, by session or by token."""
    lease = core.leases.get(facts.id, facts.fence)
    if lease is None:
        return False
    by_session = not lease.detached and lease.session == who.session
    return by_session or (lease.token is not None and lease.token == who.token)


def _look(core: Settling, approval: str, now: Now) -> tuple[Handoff, ApprovalFacts]:
    facts = core.looked_at = core.look(handoff_of(approval), now)
    found = (facts.approvals or {}).get(approval)
    if found is None:
        raise NotFound("There is no such approval: compare the id.", approval=approval)
    return facts, found


def asker(core: Settling, to: Address) -> Asker:
    """Who speaks."""
    session = core.sessions.of(to.connection)
    return Asker(
        "" if session is None else session.name,
        to.caller.token,
        core.sessions.asked_as(to.connection),
        core.sessions.client_of(to.connection),
    )
