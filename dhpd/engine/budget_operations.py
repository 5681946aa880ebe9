"""Operations on what work uses up: spend, activity, redrive, budget_add; and what every spending write shares."""

from collections.abc import Sequence

from msgspec import UNSET

from dhp_protocol.messages import Activity, BudgetAdd, Redrive, Spend
from dhp_protocol.money import nano_usd, usd
from dhp_protocol.replies import ActivityReply, BudgetReply, SpendReply, StatusAfter

from .budget import budget_view
from .facts import Handoff
from .fencing import check_fence, lease_lost
from .holding import decide_expiry
from .leases import Lease
from .moments import Now
from .records import Change
from .settling import Settling
from .spending import (
    Amounts,
    decide_ancestor_spending,
    decide_budget_add,
    decide_parking,
    decide_redrive,
    decide_spend,
    done_before,
    refused_at_a_cap,
)
from .waiting import Address


def refuse_at_a_cap(
    core: Settling,
    facts: Handoff,
    amounts: Amounts,
    now: Now,
    *,
    seq: int = 0,
    sha256: str | None = None,
    state: bytes | None = None,
    nonce: str | None = None,
) -> None:
    """Raises `BudgetExceeded` where a cap is in the way; the handoff is then parked, with what the write brought."""
    refusal = refused_at_a_cap(facts, _sums_shown(core, facts), amounts)
    if refusal is not None:
        parked = decide_parking(facts, refusal, amounts, seq, sha256, state, nonce, now)
        core.looked_at = core.end_hold(facts.id, facts, (parked,), now)
        raise refusal


def _sums_shown(core: Settling, facts: Handoff) -> list[Handoff]:
    """The ancestors whose caps count as well. A refusal shows their sums, and so waits for the newest of them."""
    ancestors = core.ancestors(facts)
    core.looked_at = max((facts, *ancestors), key=lambda seen: seen.position) if ancestors else facts
    return ancestors


def spend_with_ancestors(
    core: Settling, facts: Handoff, changes: Sequence[Change], amounts: Amounts, now: Now
) -> Handoff:
    """Applies `changes`, and counts `amounts` against every ancestor in the same commit."""
    after = core.change(facts.id, facts, changes, now)
    if amounts:
        for ancestor in core.ancestors(facts):
            core.change(ancestor.id, ancestor, (decide_ancestor_spending(ancestor, facts.id, amounts, now),), now)
    return after


def spend(core: Settling, request: Spend, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    check_fence(facts, request.fence)
    nonce = None if request.nonce is UNSET else request.nonce
    usd_nano = 0 if request.usd is UNSET else nano_usd(request.usd, member="usd")
    amounts = Amounts(request.steps, usd_nano)
    if amounts and not done_before(facts, "spend", nonce):
        refuse_at_a_cap(core, facts, amounts, now, nonce=nonce)
        facts = spend_with_ancestors(core, facts, (decide_spend(facts, amounts, nonce, now),), amounts, now)
    core.renew(facts, now)
    core.reply(to, SpendReply(usd=usd(facts.usd_nano), steps=facts.steps), facts)


def activity(core: Settling, request: Activity, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    check_fence(facts, request.fence)
    lease = core.renew(facts, now)
    repeats = note_activity(core, facts, lease, request.digest, now)
    core.reply(to, ActivityReply(repeats=repeats), facts)


def note_activity(core: Settling, facts: Handoff, lease: Lease, digest: str, now: Now) -> int:
    """Something new moves the stall clock; the same again counts, and the last time allowed takes the work back.

    The checkpoint that it may have come with stands: what it brought is paid for.
    """
    repeats = lease.activities.say(digest, now.lease_ms)
    if not repeats:
        core.leases.moved(lease, now.lease_ms)
    most = facts.budget.max_repeats
    if most is not None and repeats >= most:
        core.looked_at = core.end_hold(facts.id, facts, decide_expiry(facts, "stalled", now), now)
        raise lease_lost(core.looked_at, lease.fence)
    return repeats


def redrive(core: Settling, request: Redrive, kept_state: bytes | None, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    nonce = None if request.nonce is UNSET else request.nonce
    if not done_before(facts, "redrive", nonce):
        budget_add = None if request.budget_add is UNSET else request.budget_add
        decision = decide_redrive(facts, _sums_shown(core, facts), budget_add, nonce, kept_state, now)
        facts = spend_with_ancestors(core, facts, decision.changes, decision.amounts, now)
    core.reply(to, StatusAfter(status=facts.status), facts)


def budget_add(core: Settling, request: BudgetAdd, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    nonce = None if request.nonce is UNSET else request.nonce
    if not done_before(facts, "budget_add", nonce):
        facts = core.change(facts.id, facts, (decide_budget_add(facts, request.add, nonce, now),), now)
        if (lease := core.leases.get(facts.id, facts.fence)) is not None:
            core.leases.cap_stalls(lease, facts.budget.stall_ms)
    core.reply(to, BudgetReply(budget=budget_view(facts.budget)), facts)
