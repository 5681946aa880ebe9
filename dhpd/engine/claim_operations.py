"""Operations that begin and end a hold: claim, recover, release, fail."""

from msgspec import UNSET

from dhp_protocol.errors import InvalidRequest
from dhp_protocol.messages import Claim, Fail, Recover, Release
from dhp_protocol.replies import FailReply, NothingToClaim, ReleaseReply

from .facts import ORPHANED, RUNNING
from .fencing import ended_by, lease_lost
from .holding import decide_fail, decide_release, not_claimable, not_recoverable
from .moments import Now
from .roles import check_worker
from .scarcity import check_room
from .serving import claim_lookup
from .settling import Settling
from .telling import draining
from .waiting import Address, ClaimWaiter


def claim(core: Settling, request: Claim, to: Address, now: Now) -> None:
    handoff = None if request.handoff is UNSET else request.handoff
    kinds = () if request.kinds is UNSET else tuple(dict.fromkeys(request.kinds))
    if (handoff is None) == (not kinds):
        raise InvalidRequest("A claim names either a handoff or kinds: give one of them.", member="kinds")
    _take(core, request, handoff, kinds, False, to, now)


def recover(core: Settling, request: Recover, to: Address, now: Now) -> None:
    _take(core, request, request.handoff, (), True, to, now)


def _take(
    core: Settling,
    request: Claim | Recover,
    handoff: str | None,
    kinds: tuple[str, ...],
    only_orphaned: bool,
    to: Address,
    now: Now,
) -> None:
    check_worker(request.worker, to.caller)
    if core.sessions.of(to.connection) is None:  # Whoever asked has gone meanwhile: nothing is granted to nobody.
        core.reply_of_all(to, NothingToClaim())
        return
    terms = core.settings.terms
    ttl_ms = terms.ttl_ms if request.ttl_ms is UNSET else min(max(request.ttl_ms, terms.min_ttl_ms), terms.max_ttl_ms)
    nonce = None if request.nonce is UNSET else request.nonce
    wait_ms = min(max(request.wait_ms, 0), core.settings.limits.max_wait_ms)
    place = 0
    if nonce is not None:
        if _taken_before(core, request.worker, nonce, to, now):
            return
        waiting = core.waiting.claim_with_nonce(request.worker, nonce, to.caller.token)
        if waiting is not None:
            place = waiting.number
            core.end_wait(waiting, now)
    if core.draining:
        raise draining()
    check_room(core)
    if handoff is not None:
        core.look(handoff, now)
    core.settle_some_due(now)
    core.serve(now)  # What has become free just now belongs to whoever has waited for it.
    facts = core.look(handoff, now) if handoff is not None else core.ledger.queue.first(kinds)
    core.looked_at = facts
    free = facts is not None and core.ledger.claimable(facts, now.wall_ms)
    if facts is not None and free and (not only_orphaned or facts.status == ORPHANED):
        core.grant(facts, to, worker=request.worker, ttl_ms=ttl_ms, nonce=nonce, detached=request.detached, now=now)
    elif facts is not None and (facts.final or not wait_ms):
        raise not_recoverable(facts, now) if only_orphaned else not_claimable(facts, now)
    elif wait_ms:
        waiter = ClaimWaiter(
            to,
            now.lease_ms + wait_ms,
            worker=request.worker,
            handoff=handoff,
            kinds=kinds,
            ttl_ms=ttl_ms,
            nonce=nonce,
            detached=request.detached,
            only_orphaned=only_orphaned,
        )
        waiter.number = place
        core.waiting.add(waiter)
    else:
        core.reply_of_all(to, NothingToClaim())


def _taken_before(core: Settling, worker: str, nonce: str, to: Address, now: Now) -> bool:
    """Whether this is a claim sent again that was granted already: answered as then while its lease lives."""
    grant = core.ledger.nonce(worker, nonce, to.caller.token)
    if grant is None or core.ledger.get(grant[0]) is None:
        return False
    facts = core.look(grant[0], now)
    if facts.status != RUNNING or facts.fence != grant[1]:
        core.looked_at = facts
        raise lease_lost(facts, grant[1])
    lease = core.leases.get(facts.id, facts.fence)
    assert lease is not None, "what runs has a lease"
    if core.sessions.adopt(lease, to.connection):
        core.leases.restore(lease, now.lease_ms)
    core.renew(facts, now)
    core.reply(to, claim_lookup(facts), facts)
    return True


def release(core: Settling, request: Release, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    duplicate = facts.status != RUNNING and ended_by(facts, request.fence, "released")
    if not duplicate:
        facts = core.change(facts.id, facts, decide_release(facts, request, now), now)
    core.reply(to, ReleaseReply(duplicate=duplicate), facts)


def fail(core: Settling, request: Fail, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    duplicate = facts.status != RUNNING and ended_by(facts, request.fence, "failed")
    if not duplicate:
        facts = core.change(facts.id, facts, decide_fail(facts, request, core.chance(), now), now)
    core.reply(to, FailReply(status=facts.status, duplicate=duplicate), facts)
