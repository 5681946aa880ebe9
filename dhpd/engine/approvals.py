"""Rules for approvals: a person's word on one action, asked for by a worker.

Owns what an approval is bound to (this handoff, exactly this action and these details), who may decide it, when it has
expired, and that it is used up by one effect. An approval that nobody decided in time is expired, which isn't a "no". Pure.
"""

import hashlib
from collections.abc import Sequence

from msgspec import UNSET, Struct

from dhp_protocol.errors import AlreadyDecided, ApprovalExpired, Forbidden, NotFound, TooLarge, WrongState
from dhp_protocol.intent import canonical, parse_exact
from dhp_protocol.limits import Limits
from dhp_protocol.messages import ApprovalDecide, ApprovalRequest

from .facts import ApprovalFacts, Handoff
from .fencing import check_fence
from .moments import Now
from .records import ApprovalDecided, ApprovalRequested, Change

MAX_OPEN_APPROVALS = 100
"""Per handoff."""


def handoff_of(approval: str) -> str:
    """The handoff that an approval belongs to: its id begins with it."""
    return approval[:64]


class Asker(Struct, frozen=True):
    """Who speaks: the session, and the token's name (None: no tokens are in use)."""

    session: str
    token: str | None


class ApprovalDecision(Struct, frozen=True):
    changes: Sequence[Change]
    approval: str


def decide_approval_request(
    handoff: Handoff, request: ApprovalRequest, asker: Asker, limits: Limits, now: Now
) -> ApprovalDecision:
    """A question to a person; the same question again is the same approval, unless that expired."""
    check_fence(handoff, request.fence)
    details = canonical(parse_exact(bytes(request.details), member="details"), member="details")
    if len(details) > limits.max_details_bytes:
        sentence = f"Details may have {limits.max_details_bytes} bytes: keep large data elsewhere and name it."
        raise TooLarge(sentence, member="details", limit=limits.max_details_bytes, size=len(details))
    sha256 = hashlib.sha256(details).hexdigest()
    asked_before = 0
    for known in (handoff.approvals or {}).values():
        if (known.action, known.details_sha256) == (request.action, sha256):
            if decision_of(handoff, known, now) != "expired":
                return ApprovalDecision((), known.id)
            asked_before += 1
    name = f"{handoff.id}\n{request.action}\n{sha256}\n{asked_before}"
    record = ApprovalRequested(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence,
        approval=f"{handoff.id}-{hashlib.sha256(name.encode()).hexdigest()[:16]}",
        action=request.action,
        details_sha256=sha256,
        expires_at_ms=now.wall_ms + request.timeout_ms,
        session=asker.session,
        token=asker.token,
    )
    return ApprovalDecision((Change(record, details),), record.approval)


def decide_approval(
    handoff: Handoff, approval: ApprovalFacts, request: ApprovalDecide, decider: Asker, now: Now
) -> Sequence[Change]:
    """A person's decision, once; the same one again changes nothing."""
    wanted = "approved" if request.decision == "approve" else "denied"
    if decider.session == approval.session or (approval.token is not None and decider.token == approval.token):
        raise Forbidden("Whoever asked for an approval can't decide it: another person must.", role="approver")
    present = decision_of(handoff, approval, now)
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
        by=decider.token,
        note=None if request.note is UNSET else request.note,
    )
    return (Change(record),)


def decide_approval_expiry(handoff: Handoff, approval: ApprovalFacts, now: Now) -> Change:
    """Nobody decided in time."""
    return Change(
        ApprovalDecided(
            n=handoff.n + 1, at_ms=now.wall_ms, fence=handoff.fence, approval=approval.id, decision="expired"
        )
    )


def decision_of(handoff: Handoff, approval: ApprovalFacts, now: Now) -> str | None:
    """`approved`, `denied`, `expired`, `cancelled` (its work has ended), or None while it is open."""
    if approval.decision is not None:
        return approval.decision
    if approval.expires_at_ms <= now.wall_ms:
        return "expired"
    return "cancelled" if handoff.final else None


def usable_for(handoff: Handoff, approval_id: str, step: str, now: Now) -> None:
    """Raises unless the approval is this handoff's, approved, and not used up by another step."""
    approval = (handoff.approvals or {}).get(approval_id)
    if approval is None:
        raise NotFound("This handoff has no such approval: ask with approval_request first.", approval=approval_id)
    decision = decision_of(handoff, approval, now)
    if decision == "approved" and approval.used_by in (None, step):
        return
    told = "used up" if decision == "approved" else decision or "open"
    raise WrongState(
        f"The approval is {told}: this effect can't begin with it.", approval=approval_id, decision=decision
    )
