"""Rules for taking and giving back a handoff: claim, recover, release, fail, and the end of a lease.

Owns who may take what, and what the end of a hold costs. Pure. Does not own the choice among several handoffs
(`claim_queue`) or deadlines (`leases`).
"""

from collections.abc import Sequence

from msgspec import UNSET

from dhp_protocol.errors import AlreadyClaimed, DHPError, NotClaimable, WrongState
from dhp_protocol.limits import MAX_REASON_CHARS
from dhp_protocol.messages import Fail, Release

from .facts import CANCELLED, COMPLETED, DEAD, ORPHANED, PENDING, RUNNING, SUSPENDED, Handoff, Status
from .fencing import check_fence
from .moments import Now
from .records import Change, Claimed, Dead, Failed, Orphaned, Released

FIRST_BACKOFF_MS = 200
MAX_BACKOFF_MS = 300_000


def claimable(handoff: Handoff, wall_ms: int) -> bool:
    """Whether a claim would be granted now."""
    return handoff.status == ORPHANED or (handoff.status == PENDING and handoff.not_before_ms <= wall_ms)


def not_claimable(handoff: Handoff, now: Now) -> DHPError:
    """Why a claim of a handoff that isn't `claimable` is refused."""
    if handoff.status == RUNNING:
        sentence = "Somebody holds this handoff: wait with wait_ms, or take other work."
        return AlreadyClaimed(sentence, handoff=handoff.id, holder=handoff.holder)
    if handoff.status == PENDING:
        left_ms = max(1, handoff.not_before_ms - now.wall_ms)
        sentence = f"The handoff is delayed for {left_ms} ms more: claim it then, or wait with wait_ms."
        return NotClaimable(sentence, after_ms=left_ms, handoff=handoff.id, status=handoff.status)
    sentence = f"The handoff is {handoff.status}: nobody can claim it. {_WAYS_ON.get(handoff.status, '')}".rstrip()
    asleep = handoff.status == SUSPENDED and handoff.wake_at_ms > now.wall_ms
    after_ms = handoff.wake_at_ms - now.wall_ms if asleep else None
    refusal = NotClaimable(sentence, after_ms=after_ms, handoff=handoff.id, status=handoff.status)
    refusal.retry = "no" if handoff.final else "later"
    return refusal


_WAYS_ON: dict[Status, str] = {
    COMPLETED: "Ask for its result.",
    CANCELLED: "Dispatch it under another key to have it done after all.",
    DEAD: "Its history says why; redrive brings it back.",
}


def not_recoverable(handoff: Handoff, now: Now) -> DHPError:
    """Why `recover` of a handoff that isn't orphaned is refused."""
    if handoff.status == PENDING:
        sentence = "The handoff is pending, not orphaned: claim it."
        return WrongState(sentence, handoff=handoff.id, status=handoff.status)
    return not_claimable(handoff, now)


def decide_claim(
    handoff: Handoff,
    *,
    worker: str,
    session: str,
    token: str | None,
    ttl_ms: int,
    nonce: str | None,
    detached: bool,
    fence_floor: int,
    now: Now,
) -> Sequence[Change]:
    """The grant of a claimable handoff, above the floor that a restored store has."""
    record = Claimed(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=max(handoff.fence, fence_floor) + 1,
        worker=worker,
        session=session,
        ttl_ms=ttl_ms,
        attempt=handoff.attempt + 1,
        was=handoff.status,
        nonce=nonce,
        detached=detached,
        token=token,
    )
    return (Change(record),)


def decide_expiry(handoff: Handoff, why: str, now: Now) -> Sequence[Change]:
    """The end of a lease at its deadline: a failure, or a stall, and the last one allowed makes the handoff dead."""
    hold = handoff.hold
    assert hold is not None, "what runs is held"
    stalled = why == "stalled"
    orphaned = Orphaned(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence + 1,
        worker=hold.worker,
        why=why,
        failures=handoff.failures + (not stalled),
        stalls=handoff.stalls + stalled,
    )
    if stalled:
        # A plan that stands still again and again is a bad plan: it isn't retried blindly.
        if orphaned.stalls < handoff.budget.max_stalls:
            return (Change(orphaned),)
        sentence = f"max_stalls: stalled {orphaned.stalls} times"
        return Change(orphaned), _die(handoff, orphaned.fence, sentence, "max_stalls", now)
    return _dead_when_used_up(handoff, orphaned, orphaned.failures, now)


def decide_release(handoff: Handoff, request: Release, now: Now) -> Sequence[Change]:
    """Work handed back: costs no attempt."""
    hold = check_fence(handoff, request.fence)
    return (_release(handoff, hold.worker, None if request.reason is UNSET else request.reason, request.delay_ms, now),)


def decide_goodbye(handoff: Handoff, now: Now) -> Sequence[Change]:
    """What the end of a session does to work that it holds."""
    hold = handoff.hold
    assert hold is not None, "what runs is held"
    return (_release(handoff, hold.worker, "goodbye", 0, now),)


def _release(handoff: Handoff, worker: str, reason: str | None, delay_ms: int, now: Now) -> Change:
    return Change(
        Released(
            n=handoff.n + 1,
            at_ms=now.wall_ms,
            fence=handoff.fence + 1,
            worker=worker,
            reason=reason,
            not_before_ms=now.wall_ms + delay_ms if delay_ms else 0,
        )
    )


def backoff_ms(failures: int, chance: float) -> int:
    """How long work waits after its `failures`-th failure in a row: doubling, bounded, and spread by `chance` in [0, 1)."""
    longest_ms = min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** min(failures - 1, 20))
    return int(longest_ms * (0.5 + chance / 2))


def decide_fail(handoff: Handoff, request: Fail, chance: float, now: Now) -> Sequence[Change]:
    """The end of an attempt: pending again, or dead when told so or when the failures are used up.

    Without `delay_ms` it waits for a back-off; `chance` spreads that.
    """
    hold = check_fence(handoff, request.fence)
    delay_ms = backoff_ms(handoff.failures + 1, chance) if request.delay_ms is UNSET else request.delay_ms
    failed = Failed(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence + 1,
        worker=hold.worker,
        error=request.error,
        retry=request.retry,
        failures=handoff.failures + 1,
        not_before_ms=now.wall_ms + delay_ms if delay_ms else 0,
    )
    if not request.retry:
        return Change(failed), _die(handoff, failed.fence, f"failed for good: {request.error.type}", None, now)
    return _dead_when_used_up(handoff, failed, failed.failures, now)


def _dead_when_used_up(handoff: Handoff, ended: Orphaned | Failed, failures: int, now: Now) -> Sequence[Change]:
    # Invariant 6, for attempts: the failure that reaches the cap ends the handoff in the same change.
    most = handoff.budget.max_attempts
    if failures < most:
        return (Change(ended),)
    last = f"{ended.error.type}: {ended.error.message}" if isinstance(ended, Failed) else f"the lease {ended.why}"
    reason = f"max_attempts: {failures} of {most} failed; the last: {last}"
    return Change(ended), _die(handoff, ended.fence, reason[:MAX_REASON_CHARS], "max_attempts", now)


def _die(handoff: Handoff, fence: int, reason: str, cap: str | None, now: Now) -> Change:
    return Change(Dead(n=handoff.n + 2, at_ms=now.wall_ms, fence=fence + 1, reason=reason, cap=cap))
