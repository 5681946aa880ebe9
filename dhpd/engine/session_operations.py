"""Operations of a session: hello, ping, goodbye, heartbeat, drain."""

from msgspec import UNSET
from msgspec.structs import replace

from dhp_protocol import PROTOCOL
from dhp_protocol.messages import Drain, Goodbye, Heartbeat, Hello, Ping
from dhp_protocol.replies import DrainingEvent, DrainReply, Empty, HeartbeatReply, HelloReply

from .claim_operations import draining
from .facts import RUNNING
from .holding import decide_goodbye
from .moments import Now
from .roles import may_hold
from .sessions import disconnect_grace_ms
from .settling import Settling
from .views import rfc3339
from .waiting import Address

FEATURES = ("bare", "checkpoints", "watch", "embedded")


def hello(core: Settling, request: Hello, to: Address, now: Now) -> None:
    name = None if request.session is UNSET else request.session
    local = core.sessions.is_local(to.connection)
    session, left = core.sessions.hello(to.connection, name, to.caller.token)
    core.sessions.introduce(to.connection, None if request.client is UNSET else request.client)
    for lease in session.leases.values():
        core.leases.restore(lease, now.lease_ms)
    for lease in left:
        core.leases.shorten(lease, now.lease_ms, disconnect_grace_ms(lease.ttl_ms, local=local))
    terms = core.settings.terms
    reply = HelloReply(
        server=core.settings.server,
        protocol=PROTOCOL,
        session=session.name,
        roles=list(to.caller.told_roles()),
        limits=core.settings.limits,
        lease=replace(terms, disconnect_grace_ms=disconnect_grace_ms(terms.ttl_ms, local=local)),
        features=list(FEATURES),
        time=rfc3339(now.wall_ms),
    )
    core.reply(to, reply)
    if core.draining:
        core.notify_connection(to.connection, DrainingEvent())


def ping(core: Settling, request: Ping, to: Address, now: Now) -> None:
    core.reply(to, Empty())


def goodbye(core: Settling, request: Goodbye, to: Address, now: Now) -> None:
    session = core.sessions.of(to.connection)
    for lease in list(session.leases.values()) if session is not None else ():
        facts = core.ledger.get(lease.handoff)
        if facts is not None and facts.status == RUNNING and facts.fence == lease.fence:
            facts = core.look(lease.handoff, now)
            if facts.status == RUNNING:
                core.change(facts.id, facts, decide_goodbye(facts, now), now)
            core.seal_if_full(now)
    core.reply_of_all(to, Empty())


def heartbeat(core: Settling, request: Heartbeat, to: Address, now: Now) -> None:
    renewed: list[str] = []
    lost: list[str] = []
    for ref in request.leases:
        facts = core.ledger.get(ref.handoff)
        lease = core.leases.get(ref.handoff, ref.fence)
        held = facts is not None and facts.status == RUNNING and facts.fence == ref.fence and may_hold(facts, to.caller)
        if facts is None:
            if core.tombstones.position_of(ref.handoff) <= core.journal.durable:
                lost.append(ref.handoff)
        elif not held:
            # Invariant 7: what isn't on disk yet is left for a later beat to tell. A checkpoint of the next holder's,
            # which moves the anchor no further, changes nothing about the loss.
            if facts.anchor <= core.journal.durable:
                lost.append(ref.handoff)
        elif lease is not None and lease.live(now.lease_ms):
            core.renew(facts, now)
            renewed.append(ref.handoff)
        elif lease is not None and core.available:
            core.expire(facts, lease, now)
            core.seal_if_full(now)
    # So the answer shows nothing that could be taken back, and no renewal waits for the disk.
    core.reply(to, HeartbeatReply(renewed=renewed, lost=lost))


def drain(core: Settling, request: Drain, to: Address, now: Now) -> None:
    begin_drain(core)
    core.reply_of_all(to, DrainReply(leases=core.ledger.counts[RUNNING]))


def begin_drain(core: Settling) -> None:
    """Waiting claims hear of it, and so does every session; what is held goes on."""
    if core.draining:
        return
    core.draining = True
    for waiter in core.waiting.every_claim():
        core.waiting.remove(waiter)
        core.reply(waiter.address, draining())
    for connection in core.sessions.every_connection():
        session = core.sessions.of(connection)
        if session is not None and not session.anonymous:
            core.notify_connection(connection, DrainingEvent())
