"""The fence: who may write to a handoff.

Owns invariant 1's check, which every operation that takes a fence goes through, and the words for why a fence is void.
Pure: whether a lease has reached its deadline is settled before (`core`), by the record that ends it.
"""

from dhp_protocol.errors import LeaseLost

from .facts import RUNNING, Handoff, Hold


def check_fence(handoff: Handoff, fence: int) -> Hold:
    """The hold that `fence` stands for; raises `LeaseLost` unless the handoff runs under exactly this fence."""
    hold = handoff.hold
    if hold is not None and handoff.status == RUNNING and hold.fence == fence == handoff.fence:
        return hold
    raise lease_lost(handoff, fence)


def ended_by(handoff: Handoff, fence: int, why: str) -> bool:
    """Whether `fence` was the newest hold's and ended as `why` says, and nobody has claimed since."""
    hold = handoff.hold
    return hold is not None and hold.fence == fence and hold.ended == why


def lease_lost(handoff: Handoff, fence: int) -> LeaseLost:
    """The refusal of `fence`, with the handoff's present fence and status."""
    why = why_lost(handoff, fence)
    return LeaseLost(_SENTENCES[why], why=why, fence=handoff.fence, status=handoff.status, handoff=handoff.id)


def why_lost(handoff: Handoff, fence: int) -> str:
    """Why `fence` doesn't hold `handoff`."""
    hold = handoff.hold
    if hold is None or fence > hold.fence:
        return "never_claimed"
    if fence < hold.fence:
        return "superseded"
    return hold.ended or "expired"


_SENTENCES = {
    "expired": "The lease ended at its deadline: stop this work, somebody else may have it.",
    "superseded": "A newer holder has this handoff: stop this work.",
    "released": "This hold was released: claim again to go on.",
    "failed": "This attempt was reported as failed: claim again to go on.",
    "suspended": "The handoff was suspended: stop this work.",
    "cancelled": "The handoff was cancelled: stop this work.",
    "completed": "The handoff is completed, and its result stands: stop this work.",
    "dead": "The handoff is dead: stop this work.",
    "stalled": "The handoff was taken back because it did not move: stop this work.",
    "never_claimed": "This fence was never given out: claim the handoff first.",
}
