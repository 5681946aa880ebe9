"""Rules for what work uses up: spend, redrive, budget_add.

Owns how amounts are added, to the handoff and to all its ancestors in one change; what becomes of a write that a cap refused;
and how dead work comes back. Nothing spent is ever taken back. Pure.
"""

import hashlib
from collections.abc import Sequence

from msgspec import Raw, Struct
from msgspec.structs import replace

from dhp_protocol.errors import BudgetExceeded, StoreUnavailable, WrongState

from .budget import Budget, Shortfall, added, exceeded, redrive_refused, write_refused
from .facts import CANCELLED, COMPLETED, DEAD, Handoff
from .moments import Now
from .notes import knows_nonce
from .records import BudgetAdded, Change, Dead, Redriven, Spent


class Amounts(Struct, frozen=True, gc=False):
    steps: int
    usd_nano: int

    def __bool__(self) -> bool:
        return bool(self.steps or self.usd_nano)


def refused_at_a_cap(handoff: Handoff, ancestors: Sequence[Handoff], amounts: Amounts) -> BudgetExceeded | None:
    """Why these amounts can't be spent: the first cap that they would pass, of the handoff or of an ancestor."""
    shortfall = exceeded((handoff, *ancestors), amounts.steps, amounts.usd_nano)
    return None if shortfall is None else write_refused(shortfall, handoff.id)


def decide_parking(
    handoff: Handoff,
    refusal: BudgetExceeded,
    amounts: Amounts,
    seq: int,
    sha256: str | None,
    state: bytes | None,
    nonce: str | None,
    now: Now,
) -> Change:
    """The handoff is dead because a write would have passed a cap; what that write brought is kept."""
    details = refusal.details
    whose = "" if details["whose"] == handoff.id else f" of {details['whose']}"
    reason = f"{details['cap']}{whose}: {details['used']} of {details['limit']} used, {details['asked']} asked"
    record = Dead(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence + 1,
        reason=reason,
        cap=details["cap"],
        whose=details["whose"],
        kept_steps=amounts.steps,
        kept_usd_nano=amounts.usd_nano,
        kept_seq=seq,
        kept_sha256=sha256,
        kept_bytes=0 if state is None else len(state),
        kept_nonce=nonce,
    )
    return Change(record, state)


def decide_ancestor_spending(ancestor: Handoff, child: str, amounts: Amounts, now: Now) -> Change:
    """A descendant's spending, as its ancestor records it."""
    record = Spent(
        n=ancestor.n + 1,
        at_ms=now.wall_ms,
        fence=ancestor.fence,
        steps=amounts.steps,
        usd_nano=amounts.usd_nano,
        by=child,
    )
    return Change(record)


def decide_spend(handoff: Handoff, amounts: Amounts, nonce: str | None, now: Now) -> Change:
    """The handoff's own spending; its caps have been looked at."""
    record = Spent(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence,
        steps=amounts.steps,
        usd_nano=amounts.usd_nano,
        nonce=nonce,
    )
    return Change(record)


def decide_budget_add(handoff: Handoff, add: Raw, nonce: str | None, now: Now, *, member: str = "add") -> Change:
    """More of what is capped; raises `WrongState` once the work is completed or cancelled."""
    if handoff.status in (COMPLETED, CANCELLED):
        sentence = f"The handoff is {handoff.status}: nothing more can be used."
        raise WrongState(sentence, handoff=handoff.id, status=handoff.status)
    budget = added(handoff.budget, add, member=member)
    return Change(_budget_added(handoff, budget, nonce, now))


def _budget_added(handoff: Handoff, budget: Budget, nonce: str | None, now: Now) -> BudgetAdded:
    return BudgetAdded(n=handoff.n + 1, at_ms=now.wall_ms, fence=handoff.fence, budget=budget, nonce=nonce)


class RedriveDecision(Struct, frozen=True):
    """`amounts` are those of the kept write, which the ancestors record too."""

    changes: Sequence[Change]
    amounts: Amounts


def decide_redrive(
    handoff: Handoff,
    ancestors: Sequence[Handoff],
    budget_add: Raw | None,
    nonce: str | None,
    kept_state: bytes | None,
    now: Now,
) -> RedriveDecision:
    """Dead work comes back: failures, stalls, repeats and invalid results start anew, and what a cap refused is applied first.

    Raises `BudgetExceeded`, and changes nothing, where that still doesn't fit, or the time is used up. `kept_state` was read
    before; where it isn't the one that is kept now, the redrive is to be sent again.
    """
    if handoff.status != DEAD:
        sentence = f"The handoff is {handoff.status}, not dead."
        raise WrongState(sentence, handoff=handoff.id, status=handoff.status)
    changes: list[Change] = []
    budget = handoff.budget
    n = handoff.n
    if budget_add is not None:
        budget = added(budget, budget_add, member="budget_add")
        changes.append(Change(_budget_added(handoff, budget, None, now)))
        n += 1
    kept = handoff.kept
    if kept is None or not kept.seq:
        kept_state = None
    elif kept_state is None or hashlib.sha256(kept_state).hexdigest() != kept.sha256:
        raise StoreUnavailable("The kept checkpoint could not be read: send the same request again.", after_ms=50)
    amounts = Amounts(0, 0) if kept is None else Amounts(kept.steps, kept.usd_nano)
    own = replace(handoff, budget=budget)
    shortfall = exceeded((own, *ancestors), amounts.steps, amounts.usd_nano)
    if shortfall is not None:
        raise redrive_refused(shortfall, handoff.id)
    dead_ms = handoff.dead_ms + max(0, now.wall_ms - handoff.died_at_ms)
    _still_over(handoff, budget, dead_ms, now)
    record = Redriven(
        n=n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence + 1,
        dead_ms=dead_ms,
        nonce=nonce,
        steps=amounts.steps,
        usd_nano=amounts.usd_nano,
        seq=kept.seq if kept is not None else 0,
        sha256=kept.sha256 if kept is not None else None,
        bytes=len(kept_state) if kept_state is not None else 0,
    )
    changes.append(Change(record, kept_state))
    return RedriveDecision(changes, amounts)


def _still_over(handoff: Handoff, budget: Budget, dead_ms: int, now: Now) -> None:
    """A wall-clock cap that is used up would end it again at once."""
    cap_ms = budget.max_wallclock_ms
    if cap_ms is None or not handoff.first_claimed_at_ms:
        return
    used_ms = now.wall_ms - handoff.first_claimed_at_ms - dead_ms
    if used_ms >= cap_ms:
        shortfall = Shortfall("max_wallclock_ms", cap_ms, used_ms, 1, used_ms + 1 - cap_ms, handoff.id)
        raise redrive_refused(shortfall, handoff.id)


def done_before(handoff: Handoff, operation: str, nonce: str | None) -> bool:
    """Whether this operation was carried out on this handoff with this nonce lately."""
    return nonce is not None and knows_nonce(handoff.nonce_marks, operation, nonce)
