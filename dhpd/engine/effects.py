"""Rules for effects: what a worker does to the outside world, so that no standby does it again unawares.

Owns the three states of an effect (new, in doubt, done), and the key by which an outside service can tell a repetition. Pure.
"""

import hashlib
from collections.abc import Sequence

from msgspec import UNSET, Struct

from dhp_protocol.errors import EffectConflict, InvalidRequest, TooLarge
from dhp_protocol.limits import Limits
from dhp_protocol.messages import EffectBegin, EffectDone

from .approvals import Asker, usable_for
from .facts import EffectFacts, Handoff
from .fencing import check_fence
from .moments import Now
from .records import Change, EffectBegun, EffectDoneRecord
from .sizes import check_result


class EffectDecision(Struct, frozen=True):
    """`state` is `new`, `in_doubt` or `done`; `done` then tells where its result lies."""

    changes: Sequence[Change]
    state: str
    idempotency_key: str
    done: EffectFacts | None = None


def idempotency_key(handoff: str, step: str) -> str:
    """The same for every attempt at this step of this handoff, and no other."""
    return hashlib.sha256(f"{handoff}\n{step}".encode()).hexdigest()


def decide_effect_begin(
    handoff: Handoff, request: EffectBegin, holder: Asker, limits: Limits, now: Now
) -> EffectDecision:
    """Whether the effect may be carried out: the answer to one fence never changes until it is done.

    An approval that is named must be one for this step, and not of the `holder`'s own giving, unless the step is done. It is
    used up even where the step was begun before without it.
    """
    check_fence(handoff, request.fence)
    key = idempotency_key(handoff.id, request.step)
    known = (handoff.effects or {}).get(request.step)
    if known is not None and known.done_position:
        return EffectDecision((), "done", key, known)
    count = len(handoff.effects or ())
    if known is None and count >= limits.max_effects:
        sentence = f"A handoff may have {limits.max_effects} effects: make one step of several."
        raise TooLarge(sentence, member="step", limit=limits.max_effects, size=count + 1)
    fresh = False
    approval = None if request.approval is UNSET else request.approval
    if approval is not None:
        fresh = usable_for(handoff, approval, request.step, holder, now).used_by is None
    record = EffectBegun(n=handoff.n + 1, at_ms=now.wall_ms, fence=handoff.fence, step=request.step, approval=approval)
    changes = (Change(record),) if known is None or fresh else ()
    state = "new" if known is None or known.begun_fence == request.fence else "in_doubt"
    return EffectDecision(changes, state, key)


def decide_effect_done(handoff: Handoff, request: EffectDone, limits: Limits, now: Now) -> Sequence[Change]:
    """The effect's result; the same bytes again change nothing."""
    check_fence(handoff, request.fence)
    known = (handoff.effects or {}).get(request.step)
    if known is None:
        raise InvalidRequest("This effect was never begun: ask with effect_begin first.", member="step")
    result = bytes(request.result)
    check_result(len(result), limits)
    sha256 = hashlib.sha256(result).hexdigest()
    if known.done_position:
        if known.sha256 != sha256:
            sentence = "This effect is done with another result: the first one stands."
            raise EffectConflict(sentence, step=request.step, expected=known.sha256, got=sha256)
        return ()
    record = EffectDoneRecord(
        n=handoff.n + 1, at_ms=now.wall_ms, fence=handoff.fence, step=request.step, sha256=sha256, bytes=len(result)
    )
    return (Change(record, result),)
