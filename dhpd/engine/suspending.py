"""Rules for putting work aside and taking it up again: suspend, resume, and what wakes it by itself.

Owns the wake-ups (a time, an approval, whichever comes first) and the wall-clock matters of a handoff: when the next is due,
and what it does. Pure.
"""

from collections.abc import Sequence

from msgspec import UNSET

from dhp_protocol.errors import InvalidRequest, NotFound, WrongState
from dhp_protocol.messages import Resume, Suspend

from .approvals import decide_approval_expiry, decision_of
from .facts import PENDING, SUSPENDED, Handoff
from .fencing import check_fence
from .moments import Now
from .records import Change, Dead, Resumed, Suspended

FOREIGN_REASONS = ("exported", "imported")
"""Suspended by a move to or from another daemon."""


_NEVER_MS = 2**63
"""Later than any moment."""


def decide_suspend(handoff: Handoff, request: Suspend, now: Now) -> Sequence[Change]:
    """Work put aside, by its worker (with the fence) or from outside (without)."""
    worker = None
    if request.fence is not UNSET:
        worker = check_fence(handoff, request.fence).worker
    elif handoff.final or handoff.status == SUSPENDED:
        sentence = f"The handoff is {handoff.status}: it can't be suspended."
        raise WrongState(sentence, handoff=handoff.id, status=handoff.status)
    if request.reason in FOREIGN_REASONS:
        sentence = f"The reasons {' and '.join(FOREIGN_REASONS)} are the daemon's own: give another."
        raise InvalidRequest(sentence, member="reason")
    approval = None if request.approval is UNSET else request.approval
    if approval is not None and approval not in (handoff.approvals or {}):
        raise NotFound("This handoff has no such approval: ask with approval_request first.", approval=approval)
    suspended = Suspended(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence + 1,
        worker=worker,
        reason=None if request.reason is UNSET else request.reason,
        wake_at_ms=0 if request.wake_ms is UNSET else max(1, now.wall_ms + request.wake_ms),
        approval=approval,
    )
    if approval is not None and decision_of((handoff.approvals or {})[approval], now) is not None:
        # It has been decided already: the work comes back in the same change.
        return Change(suspended), _resumed(handoff.n + 2, suspended.fence + 1, "approval", now)
    return (Change(suspended),)


def decide_resume(handoff: Handoff, request: Resume, now: Now) -> Sequence[Change]:
    """Work taken up again from outside."""
    if handoff.status != SUSPENDED:
        sentence = f"The handoff is {handoff.status}, not suspended."
        raise WrongState(sentence, handoff=handoff.id, status=handoff.status)
    if handoff.reason == "exported" and not request.force:
        sentence = "The handoff was exported and may run elsewhere: resume with force if it doesn't."
        raise WrongState(sentence, handoff=handoff.id, status=handoff.status, reason=handoff.reason)
    return (_resumed(handoff.n + 1, handoff.fence + 1, "resume", now),)


def _resumed(n: int, fence: int, why: str, now: Now) -> Change:
    return Change(Resumed(n=n, at_ms=now.wall_ms, fence=fence, why=why))


def wallclock_end_ms(handoff: Handoff) -> int | None:
    """When the wall-clock cap ends the handoff; time spent dead doesn't count."""
    cap_ms = handoff.budget.max_wallclock_ms
    if cap_ms is None or not handoff.first_claimed_at_ms or handoff.final:
        return None
    return handoff.first_claimed_at_ms + cap_ms + handoff.dead_ms


def next_wall_ms(handoff: Handoff, wall_ms: int) -> int | None:
    """The wall time at which something of this handoff is due next by itself; None: nothing is.

    A delay that is over at `wall_ms` has been seen to; anything else that is past is due at once.
    """
    if handoff.final:
        return None
    soonest_ms = handoff.open_until_ms or _NEVER_MS
    if handoff.status == PENDING and handoff.not_before_ms > wall_ms:
        soonest_ms = min(soonest_ms, handoff.not_before_ms)
    elif handoff.status == SUSPENDED and handoff.wake_at_ms:
        soonest_ms = min(soonest_ms, handoff.wake_at_ms)
    if (end_ms := wallclock_end_ms(handoff)) is not None:
        soonest_ms = min(soonest_ms, end_ms)
    return None if soonest_ms == _NEVER_MS else soonest_ms


def decide_due(handoff: Handoff, now: Now) -> Sequence[Change]:
    """What is due by the wall clock, one thing at a time; nothing when nothing is. A delay that is over needs no record."""
    end_ms = wallclock_end_ms(handoff)
    if end_ms is not None and end_ms <= now.wall_ms:
        sentence = f"max_wallclock_ms: {handoff.budget.max_wallclock_ms} ms since the first claim are over"
        return (
            Change(
                Dead(
                    n=handoff.n + 1,
                    at_ms=now.wall_ms,
                    fence=handoff.fence + 1,
                    reason=sentence,
                    cap="max_wallclock_ms",
                    since_ms=end_ms if end_ms < now.wall_ms else 0,
                )
            ),
        )
    if handoff.final:
        return ()
    if handoff.open_until_ms and handoff.open_until_ms <= now.wall_ms:
        approvals = (handoff.approvals or {}).values()
        due = next(each for each in approvals if each.decision is None and each.expires_at_ms <= now.wall_ms)
        return decide_approval_expiry(handoff, due, now), *decide_woken(handoff, due.id, now)
    if handoff.status == SUSPENDED and handoff.wake_at_ms and handoff.wake_at_ms <= now.wall_ms:
        return (_resumed(handoff.n + 1, handoff.fence + 1, "wake", now),)
    return ()


def decide_woken(handoff: Handoff, approval: str, now: Now) -> Sequence[Change]:
    """What the decision on `approval`, which is the record before this one, means for work that waits for it."""
    if handoff.status == SUSPENDED and handoff.wake_approval == approval:
        return (_resumed(handoff.n + 2, handoff.fence + 1, "approval", now),)
    return ()
