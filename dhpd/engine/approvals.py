"""Rules for approvals: a person's word on one action, asked for by a worker.

Owns what an approval is bound to (this handoff, exactly this action and these details), who may decide it, when it has
expired, and that it is used up by one effect. An approval that nobody decided in time is expired, which isn't a "no". Pure.
"""

import hashlib
from collections.abc import Sequence

from msgspec import UNSET, Struct

from dhp_protocol.errors import AlreadyDecided, ApprovalExpired, DHPError, Forbidden, NotFound, TooLarge, WrongState
from dhp_protocol.intent import canonical, parse_exact
from dhp_protocol.limits import Limits
from dhp_protocol.messages import ApprovalDecide, ApprovalRequest

from .facts import ApprovalFacts, Handoff
from .fencing import check_fence
from .moments import Now
from .records import ApprovalDecided, ApprovalRequested, Change
from .sizes import check_details


def handoff_of(approval: str) -> str:
    """The handoff that an approval belongs to: its id begins with it."""
    return approval[:64]


class Asker(Struct, frozen=True):
    """Who speaks: the session, and the token's name (None: no token is in use there).

    `earlier` are sessions under which it has asked for approvals before; `client` is what it says it is.
    """

    session: str
    token: str | None
    earlier: frozenset[str] = frozenset()
    client: str | None = None


class ApprovalDecision(Struct, frozen=True):
    changes: Sequence[Change]
    approval: str


def canonical_details(request: ApprovalRequest, limits: Limits) -> bytes | DHPError:
    """What is asked about, in canonical form, or why there is none. Costs about 0.1 ms per KB and may run anywhere."""
    try:
        details = bytes(request.details)
        check_details(len(details), limits)  # Of what was sent first: reading it costs time.
        details = canonical(parse_exact(details, member="details"), member="details")
        check_details(len(details), limits)
    except DHPError as error:
        return error
    return details


def decide_approval_request(
    handoff: Handoff, request: ApprovalRequest, details: bytes | DHPError, asker: Asker, limits: Limits, now: Now
) -> ApprovalDecision:
    """A question to a person; the same question again is the same approval, unless that expired or its work ended.

    Whoever asks again is an asker too, and whoever holds the work now waits for it. The fence comes first: a late writer hears
    that it is late, whatever it asks.
    """
    check_fence(handoff, request.fence)
    if isinstance(details, DHPError):
        raise details
    sha256 = hashlib.sha256(details).hexdigest()
    asked_before = 0
    for known in (handoff.approvals or {}).values():
        if (known.action, known.details_sha256) == (request.action, sha256):
            decision = decision_of(known, now)
            if decision is None and not (asked_by(known, asker) and known.fence == handoff.fence):
                again = _requested(handoff, request, sha256, known.id, known.expires_at_ms, asker, now)
                return ApprovalDecision((Change(again),), known.id)
            if decision not in ("expired", "cancelled"):
                return ApprovalDecision((), known.id)
            asked_before += 1
    _check_room(handoff, limits, now)
    name = f"{handoff.id}\n{request.action}\n{sha256}\n{asked_before}"
    approval = f"{handoff.id}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    record = _requested(handoff, request, sha256, approval, now.wall_ms + request.timeout_ms, asker, now)
    return ApprovalDecision((Change(record, details),), approval)


def _requested(
    handoff: Handoff, request: ApprovalRequest, sha256: str, approval: str, expires_at_ms: int, asker: Asker, now: Now
) -> ApprovalRequested:
    return ApprovalRequested(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence,
        approval=approval,
        action=request.action,
        details_sha256=sha256,
        expires_at_ms=expires_at_ms,
        session=asker.session,
        token=asker.token,
    )


def _check_room(handoff: Handoff, limits: Limits, now: Now) -> None:
    """A handoff's approvals are few enough for memory, and its open ones for a person."""
    approvals = (handoff.approvals or {}).values()
    still_open = sum(decision_of(approval, now) is None for approval in approvals)
    for count, limit, what in (
        (len(approvals), limits.max_approvals, "approvals"),
        (still_open, limits.max_open_approvals, "open approvals: wait for decisions"),
    ):
        if count >= limit:
            raise TooLarge(f"A handoff may have {limit} {what}.", member="action", limit=limit, size=count + 1)


def asked_by(approval: ApprovalFacts, who: Asker) -> bool:
    """Whether `who` is one of those who asked, by session or by token."""
    askers = ((approval.session, approval.token), *approval.further_askers)
    return any(
        (session in who.earlier or who.session == session) or (token is not None and who.token == token)
        for session, token in askers
    )


def decided_by(approval: ApprovalFacts, who: Asker) -> bool:
    """Whether `who` decided it, by session or by token."""
    session, token = approval.decided_session, approval.decided_token
    by_session = bool(session) and (session == who.session or session in who.earlier)
    return by_session or (token is not None and token == who.token)


def decide_approval(
    handoff: Handoff, approval: ApprovalFacts, request: ApprovalDecide, decider: Asker, now: Now
) -> Sequence[Change]:
    """A person's decision, once; the same one again changes nothing."""
    wanted = "approved" if request.decision == "approve" else "denied"
    if asked_by(approval, decider):
        raise Forbidden("Whoever asked for an approval can't decide it: another person must.", role="approver")
    present = decision_of(approval, now)
    if present in ("expired", "cancelled"):
        sentence = f"This approval is {present} and can't be decided any more."
        raise ApprovalExpired(sentence, approval=approval.id, decision=present)
    if present is not None:
        if present != wanted:
            sentence = f"This approval was {present} before: the first decision stands."
            raise AlreadyDecided(sentence, approval=approval.id, decision=present, by=approval.by)
        return ()
    record = ApprovalDecided(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence,
        approval=approval.id,
        decision=wanted,
        by=decider.client if decider.token is None else decider.token,
        note=None if request.note is UNSET else request.note,
        session=decider.session,
        token=decider.token,
    )
    return (Change(record),)


def decide_approval_expiry(handoff: Handoff, approval: ApprovalFacts, now: Now) -> Change:
    """Nobody decided in time."""
    return Change(
        ApprovalDecided(
            n=handoff.n + 1, at_ms=now.wall_ms, fence=handoff.fence, approval=approval.id, decision="expired"
        )
    )


def decision_of(approval: ApprovalFacts, now: Now) -> str | None:
    """`approved`, `denied`, `expired`, `cancelled` (its work had ended before), or None while it is open."""
    if approval.decision is not None:
        return approval.decision
    return "expired" if approval.expires_at_ms <= now.wall_ms else None


def usable_for(handoff: Handoff, approval_id: str, step: str, holder: Asker, now: Now) -> ApprovalFacts:
    """The approval; raises unless it is this handoff's, approved by another than `holder`, and not used up by another step."""
    approval = (handoff.approvals or {}).get(approval_id)
    if approval is None:
        raise NotFound("This handoff has no such approval: ask with approval_request first.", approval=approval_id)
    decision = decision_of(approval, now)
    if decision == "approved" and approval.used_by in (None, step):
        if decided_by(approval, holder):
            sentence = (
                "Whoever gave an approval can't carry the action out: release the work, so that another worker does."
            )
            raise Forbidden(sentence, role="worker", approval=approval_id)
        return approval
    told = "used up" if decision == "approved" else decision or "open"
    raise WrongState(
        f"The approval is {told}: this effect can't begin with it.",
        approval=approval_id,
        decision=decision,
        used_by=approval.used_by,
        status=handoff.status,
    )
