"""What those hear who have waited for one handoff, and who asks for work that isn't given out any more.

Owns the answers. Does not own when they are given (`core`), nor who waits (`waiting`). Pure.
"""

from msgspec import Struct

from dhp_protocol.errors import DHPError, Draining, NotFound
from dhp_protocol.replies import DecisionReply, ResultReply

from .approvals import decision_of
from .facts import COMPLETED, DEAD, ApprovalFacts, Handoff
from .holding import not_claimable
from .lookups import Lookup, ResultLookup
from .moments import Now
from .views import rfc3339
from .waiting import ApprovalWaiter, ClaimWaiter, Waiter


def told_to(waiter: Waiter, facts: Handoff | None, now: Now) -> Struct | DHPError | Lookup | None:
    """The answer to one who waits for the handoff with these facts (None: it was forgotten); None: it hasn't come to one."""
    if facts is None:
        sentence = "The handoff was forgotten meanwhile: nothing is known of it any more."
        return NotFound(sentence, handoff=waiter.handoff)
    if isinstance(waiter, ApprovalWaiter):
        approval = (facts.approvals or {}).get(waiter.approval)
        # On record: that its time is over isn't, until somebody has looked.
        return decision_reply(approval, now) if approval is not None and approval.decision is not None else None
    if not facts.final:
        return None
    return not_claimable(facts, now) if isinstance(waiter, ClaimWaiter) else result_of(facts)


def decision_reply(approval: ApprovalFacts, now: Now) -> DecisionReply:
    """The answer to `approval_wait` as things stand."""
    at_ms = approval.decided_at_ms
    return DecisionReply(
        decision=decision_of(approval, now),
        by=approval.by,
        note=approval.note,
        at=rfc3339(at_ms) if at_ms else None,
    )


def result_of(facts: Handoff) -> ResultReply | ResultLookup:
    """The answer to `result` as things stand."""
    if facts.status == COMPLETED:
        return ResultLookup(facts.result_position)
    if facts.status == DEAD and facts.refused_position:
        return ResultLookup(facts.refused_position, DEAD)
    return ResultReply(status=facts.status)


def draining() -> Draining:
    """The answer to whoever asks for new work, or waits for it."""
    return Draining("The daemon is draining and takes no new work: use another one, or try again later.")
