"""Operations of a session: hello, ping, goodbye, heartbeat, drain."""

from msgspec import UNSET
from msgspec.structs import replace

from dhp_protocol import PROTOCOL
from dhp_protocol.messages import Drain, Goodbye, Heartbeat, Hello, Ping
from dhp_protocol.replies import DrainingEvent, DrainReply, Empty, HeartbeatReply, HelloReply, NothingToClaim

from .backlog import Steps
from .facts import RUNNING
from .moments import Now
from .roles import may_hold
from .sessions import Session, disconnect_grace_ms
from .settling import SETTLED_AT_ONCE, Settling
from .telling import draining
from .views import rfc3339
from .waiting import Address

FEATURES = ("bare", "checkpoints", "watch", "embedded")


def hello(core: Settling, request: Hello, to: Address, now: Now) -> None:
    name = None if request.session is UNSET else request.session
    local = core.sessions.is_local(to.connection)
    session, left = core.sessions.hello(to.connection, name, to.caller.token, to.caller.worker)
    core.sessions.introduce(to.connection, None if request.client is UNSET else request.client)
    if session.away:
        session.away = False
        for lease in session.leases:
            core.leases.restore(lease, now.lease_ms)
    if left is not None:
        core.backlog.begin(core.part(left, now.lease_ms, local=local), now)
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
        worker=UNSET if to.caller.worker is None else to.caller.worker,
    )
    core.reply(to, reply)
    if core.draining:
        core.notify_connection(to.connection, _draining_event(core, now))


def ping(core: Settling, request: Ping, to: Address, now: Now) -> None:
    core.reply(to, Empty())


def goodbye(core: Settling, request: Goodbye, to: Address, now: Now) -> None:
    session = core.sessions.of(to.connection)
    if session is None:
        core.reply_of_all(to, Empty())
    else:
        core.backlog.begin(_end_session(core, session, to), now, to)


def _end_session(core: Settling, session: Session, to: Address) -> Steps:
    """What it holds isn't its own from the beginning on: whoever looks at one of these leases meanwhile finds it released."""
    leases = list(session.leases)
    for lease in leases:
        lease.given_up = True
    try:
        now = yield
        for connection in sorted(session.connections):  # First, so that nothing comes back to it.
            for waiter in core.waiting.claims_on(connection):
                if core.waiting.remove(waiter):
                    core.reply_of_all(waiter.address, NothingToClaim(), waiter=waiter)
                    now = yield
        for lease in leases:
            facts = core.ledger.get(lease.handoff)
            if facts is not None and facts.status == RUNNING and facts.fence == lease.fence:
                core.look(lease.handoff, now)
                core.seal_if_full(now)
                now = yield
        core.reply_of_all(to, Empty())
    finally:  # Where it couldn't be done, or is undone, its holder may go on.
        for lease in leases:
            lease.given_up = False


def heartbeat(core: Settling, request: Heartbeat, to: Address, now: Now) -> None:
    renewed: list[str] = []
    lost: list[str] = []
    ended = 0
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
        elif lease is not None and core.available and ended < SETTLED_AT_ONCE:  # The tick ends the others.
            core.expire(facts, lease, now)
            core.seal_if_full(now)
            ended += 1
    # So the answer shows nothing that could be taken back, and no renewal waits for the disk.
    core.reply(to, HeartbeatReply(renewed=renewed, lost=lost))


def drain(core: Settling, request: Drain, to: Address, now: Now) -> None:
    begin_drain(core, now)
    core.reply_of_all(to, DrainReply(leases=core.ledger.counts[RUNNING]))


def begin_drain(core: Settling, now: Now, stops_in_ms: int | None = None) -> None:
    """Waiting claims hear of it, and so does every session; what is held goes on, for so long if that is known.

    Where the daemon drains already, sessions hear of it again only if its end is new to them.
    """
    if core.draining and stops_in_ms is None:
        return
    if stops_in_ms is not None:
        core.stops_at_ms = now.lease_ms + stops_in_ms
    if not core.draining:
        core.draining = True
        core.backlog.begin(_refuse_claims(core), now)
    event = _draining_event(core, now)
    for connection in core.sessions.every_connection():
        session = core.sessions.of(connection)
        if session is not None and not session.anonymous:
            core.notify_connection(connection, event)


def _draining_event(core: Settling, now: Now) -> DrainingEvent:
    left_ms = 0 if core.stops_at_ms is None else core.stops_at_ms - now.lease_ms
    return DrainingEvent(after_ms=max(0, left_ms))


def _refuse_claims(core: Settling) -> Steps:
    yield
    for connection in core.waiting.connections():
        for waiter in core.waiting.claims_on(connection):
            if core.waiting.remove(waiter, gone=True):
                core.reply(waiter.address, draining())
                yield
