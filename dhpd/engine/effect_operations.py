"""Operations on effects and capabilities: effect_begin, effect_done, effects, check_capability."""

from dhp_protocol.messages import CheckCapability, EffectBegin, EffectDone, Effects
from dhp_protocol.replies import CapabilityReply, EffectDoneReply, EffectReply, EffectsReply, EffectView

from .approval_operations import asker
from .approvals import Asker
from .effects import decide_effect_begin, decide_effect_done
from .facts import Handoff
from .fencing import check_fence
from .lookups import EffectLookup
from .moments import Now
from .records import CapabilityChecked, Change
from .settling import Settling
from .waiting import Address

MAX_CHECKS_KEPT = 256
"""So many checks of a hold are recorded once only, however often they are asked."""
MAX_VIEW_BYTES = 2_048
"""What the view of one effect takes at most: a step of control characters is six times as long when escaped."""


def effect_begin(core: Settling, request: EffectBegin, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    decision = decide_effect_begin(facts, request, _holder(core, facts, to), core.settings.limits, now)
    facts = core.write(facts, decision.changes, now)
    if decision.done is not None:
        core.reply(to, EffectLookup(decision.idempotency_key, decision.done.done_position), facts)
    else:
        core.reply(to, EffectReply(state=decision.state, idempotency_key=decision.idempotency_key), facts)


def _holder(core: Settling, facts: Handoff, to: Address) -> Asker:
    """Who holds the work, and who speaks for it: by a fence any connection of the same token may."""
    speaker = asker(core, to)
    lease = core.leases.get(facts.id, facts.fence)
    if lease is None:
        return speaker
    sessions = {speaker.session, *speaker.earlier}
    if not lease.detached and facts.hold is not None:
        sessions |= {lease.session, facts.hold.session}
    return Asker(speaker.session, lease.token, frozenset(sessions))


def effect_done(core: Settling, request: EffectDone, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    changes = decide_effect_done(facts, request, core.settings.limits, now)
    facts = core.write(facts, changes, now)
    core.reply(to, EffectDoneReply(duplicate=not changes), facts)


def effects(core: Settling, request: Effects, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    limits = core.settings.limits
    limit = min(max(request.limit, 1), limits.max_page, max(1, limits.max_frame_bytes // MAX_VIEW_BYTES))
    found = list((facts.effects or {}).items())
    views = [
        EffectView(
            step=step, state="done" if known.done_position else "begun", fence=known.begun_fence, sha256=known.sha256
        )
        for step, known in found[request.after : request.after + limit]
    ]
    end = request.after + len(views)
    core.reply(to, EffectsReply(effects=views, next=end if end < len(found) else None), facts)


def check_capability(core: Settling, request: CheckCapability, granted: bool, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    check_fence(facts, request.fence)
    lease = core.renew(facts, now)
    asked = (request.domain, request.resource)
    if not granted or asked not in lease.checked:
        record = CapabilityChecked(
            n=facts.n + 1,
            at_ms=now.wall_ms,
            fence=facts.fence,
            domain=request.domain,
            resource=request.resource,
            granted=granted,
        )
        facts = core.change(facts.id, facts, (Change(record),), now)
        if granted and len(lease.checked) < MAX_CHECKS_KEPT:  # Beyond that, each grant is on record each time.
            lease.checked.add(asked)
    core.reply(to, CapabilityReply(granted=granted), facts)
