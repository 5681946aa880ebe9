"""The operations: for each request, what is looked at, decided and answered.

Owns the table from request to handler, and the refusal of what can't be taken now. `Engine` is the engine as its users see
it: requests and time go in, `journal.ready` and batches come out. Pure.
"""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from dhp_protocol import PROTOCOL
from dhp_protocol.errors import DHPError, Draining, InvalidRequest, Overloaded, ResultInvalid, StoreUnavailable
from dhp_protocol.messages import (
    Ack,
    Cancel,
    Checkpoint,
    Checkpoints,
    Claim,
    Complete,
    Dispatch,
    Drain,
    Fail,
    GetResult,
    GetStatus,
    Goodbye,
    Heartbeat,
    Hello,
    History,
    LastCheckpoint,
    ListHandoffs,
    Ping,
    Recover,
    Release,
    Request,
)
from dhp_protocol.replies import (
    CancelledEvent,
    CancelReply,
    CheckpointsReply,
    CompleteReply,
    DispatchReply,
    DrainingEvent,
    DrainReply,
    Empty,
    FailReply,
    HeartbeatReply,
    HelloReply,
    HistoryReply,
    LastCheckpointReply,
    NothingToClaim,
    ReleaseReply,
)

from .core import Core, claim_lookup, result_of
from .dispatching import PreparedDispatch, decide_ack, decide_cancel, decide_dispatch
from .facts import ORPHANED, RUNNING, Handoff
from .fencing import ended_by, lease_lost
from .holding import claimable, decide_fail, decide_goodbye, decide_release, not_claimable, not_recoverable
from .lookups import CheckpointsLookup, HistoryLookup, LastCheckpointLookup, ListLookup
from .moments import Now
from .sessions import disconnect_grace_ms
from .views import rfc3339, status_reply
from .waiting import Address, ClaimWaiter, ResultWaiter
from .writing import decide_checkpoint, decide_complete

_WITHOUT_STORE = (Hello, Ping, Heartbeat)
_ADDS_BYTES = (Dispatch, Claim, Recover, Checkpoint, Complete)
FEATURES = ("bare", "checkpoints", "watch", "embedded")


class Engine(Core):
    """The engine, whole. After each call, `journal.ready` holds what may leave at once."""

    def execute(self, request: Request, to: Address, now: Now) -> None:
        """Carries out any request but `dispatch` and `complete`, whose handoffs and parents are in memory (`missing`)."""
        self._guarded(_OPERATIONS[type(request)], request, to, now)

    def dispatch(self, prepared: PreparedDispatch, to: Address, now: Now) -> None:
        """Carries out a dispatch whose intent has been named."""
        self._guarded(_dispatch, prepared, to, now)

    def complete(self, request: Complete, verdict: ResultInvalid | None, to: Address, now: Now) -> None:
        """Carries out a complete; `verdict` is what the output schema says of the result (None: it fits)."""
        self._guarded(lambda core, r, address, at: _complete(core, r, verdict, address, at), request, to, now)

    def missing(self, request: Request | PreparedDispatch) -> list[str]:
        """Which handoffs have to be read from the store before `request`, as far as it has them."""
        if isinstance(request, PreparedDispatch):
            wanted = [request.handoff]
            if request.request.parent is not UNSET:
                wanted.append(request.request.parent)
        elif isinstance(request, (Claim, Recover)) and request.nonce is not UNSET:
            held = self.ledger.nonce(request.worker, request.nonce)
            wanted = [held[0]] if held is not None else [] if request.handoff is UNSET else [request.handoff]
        else:
            handoff = getattr(request, "handoff", UNSET)
            wanted = [] if handoff is UNSET else [handoff]
        return [handoff for handoff in wanted if self.ledger.get(handoff) is None]

    def admit(self, facts: Handoff, now: Now) -> None:
        """Takes up facts that were read for `missing`."""
        if self.ledger.get(facts.id) is None:
            self.ledger.admit(facts, now.wall_ms)

    def open(self, connection: int) -> None:
        """A connection has come."""
        self.sessions.open(connection)

    def close(self, connection: int, *, local: bool, now: Now) -> None:
        """A connection's input has ended: what waits on it ends empty, and its session may be gone."""
        for waiter in self.waiting.of_connection(connection):
            self.end_wait(waiter)
        closed = self.sessions.close(connection)
        if closed is not None and closed[1]:
            for lease in closed[0].leases.values():
                self.leases.shorten(lease, now.lease_ms, disconnect_grace_ms(lease.ttl_ms, local=local))

    def drain(self) -> None:
        """No new claims and dispatches from now on; waiting claims hear of it, and so does every session."""
        if self.draining:
            return
        self.draining = True
        for waiter in self.waiting.every_claim():
            self.waiting.remove(waiter)
            self.reply(waiter.address, _draining())
        for connection in self.sessions.every_connection():
            session = self.sessions.of(connection)
            if session is not None and not session.anonymous:
                self.notify_connection(connection, DrainingEvent())

    def _guarded(
        self, handler: "Callable[[Engine, Any, Address, Now], None]", request: Any, to: Address, now: Now
    ) -> None:
        kind = type(request.request) if isinstance(request, PreparedDispatch) else type(request)
        self.looked_at = None
        try:
            if not self.available and kind not in _WITHOUT_STORE:
                raise StoreUnavailable("The store can't be reached: try again.", after_ms=200)
            if kind in _ADDS_BYTES and self.journal.queued_bytes > self.settings.max_queued_bytes:
                raise _overloaded()
            handler(self, request, to, now)
        except DHPError as error:
            self.reply(to, error, self.looked_at)
        if self.ledger.freed:
            self.serve(now)
        self.seal_if_full(now)


def _overloaded() -> Overloaded:
    return Overloaded("More is waiting for the disk than may be: send this again a little later.", after_ms=100)


def _draining() -> Draining:
    return Draining("The daemon is draining and takes no new work: use another one, or try again later.")


def _hello(core: Engine, request: Hello, to: Address, now: Now) -> None:
    name = None if request.session is UNSET else request.session
    session, leases = core.sessions.hello(to.connection, name)
    for lease in leases:
        core.leases.restore(lease)
    reply = HelloReply(
        server=core.settings.server,
        protocol=PROTOCOL,
        session=session.name,
        roles=["admin"],
        limits=core.settings.limits,
        lease=core.settings.terms,
        features=list(FEATURES),
        time=rfc3339(now.wall_ms),
    )
    core.reply(to, reply)
    if core.draining:
        core.notify_connection(to.connection, DrainingEvent())


def _ping(core: Engine, request: Ping, to: Address, now: Now) -> None:
    core.reply(to, Empty())


def _goodbye(core: Engine, request: Goodbye, to: Address, now: Now) -> None:
    session = core.sessions.of(to.connection)
    for lease in list(session.leases.values()) if session is not None else ():
        facts = core.ledger.get(lease.handoff)
        if facts is not None and facts.status == RUNNING and facts.fence == lease.fence:
            facts = core.look(lease.handoff, now)
            if facts.status == RUNNING:
                core.change(facts.id, facts, decide_goodbye(facts, now), now)
    core.reply_of_all(to, Empty())


def _dispatch(core: Engine, prepared: PreparedDispatch, to: Address, now: Now) -> None:
    facts = core.ledger.get(prepared.handoff)
    if facts is not None:
        facts = core.look(prepared.handoff, now)
        core.reply(to, DispatchReply(handoff=facts.id, created=False, status=facts.status), facts)
        return
    if core.draining:
        raise _draining()
    parent = None
    if prepared.request.parent is not UNSET and core.ledger.get(prepared.request.parent) is not None:
        parent = core.look(prepared.request.parent, now)
    changes = decide_dispatch(prepared, parent, core.purged_fence, now)
    facts = core.change(prepared.handoff, None, changes, now)
    core.reply(to, DispatchReply(handoff=facts.id, created=True, status=facts.status), facts)


def _claim(core: Engine, request: Claim, to: Address, now: Now) -> None:
    handoff = None if request.handoff is UNSET else request.handoff
    kinds = () if request.kinds is UNSET else tuple(dict.fromkeys(request.kinds))
    if (handoff is None) == (not kinds):
        raise InvalidRequest("A claim names either a handoff or kinds: give one of them.", member="kinds")
    _take(core, request, handoff, kinds, False, to, now)


def _recover(core: Engine, request: Recover, to: Address, now: Now) -> None:
    _take(core, request, request.handoff, (), True, to, now)


def _take(
    core: Engine,
    request: Claim | Recover,
    handoff: str | None,
    kinds: tuple[str, ...],
    only_orphaned: bool,
    to: Address,
    now: Now,
) -> None:
    terms = core.settings.terms
    ttl_ms = terms.ttl_ms if request.ttl_ms is UNSET else min(max(request.ttl_ms, terms.min_ttl_ms), terms.max_ttl_ms)
    nonce = None if request.nonce is UNSET else request.nonce
    wait_ms = min(max(request.wait_ms, 0), core.settings.limits.max_wait_ms)
    place = 0
    if nonce is not None:
        if _taken_before(core, request.worker, nonce, to, now):
            return
        waiting = core.waiting.claim_with_nonce(request.worker, nonce)
        if waiting is not None:
            place = waiting.number
            core.end_wait(waiting)
    if core.draining:
        raise _draining()
    facts = core.look(handoff, now) if handoff is not None else core.ledger.queue.first(kinds)
    core.looked_at = facts
    if facts is not None and claimable(facts, now.wall_ms) and (not only_orphaned or facts.status == ORPHANED):
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


def _taken_before(core: Engine, worker: str, nonce: str, to: Address, now: Now) -> bool:
    """Whether this is a claim sent again that was granted already: answered as then while its lease lives."""
    grant = core.ledger.nonce(worker, nonce)
    if grant is None or core.ledger.get(grant[0]) is None:
        return False
    facts = core.look(grant[0], now)
    hold = facts.hold
    if hold is None or hold.fence < grant[1]:
        return False  # That grant was undone.
    if hold.fence == grant[1] and (hold.worker, hold.nonce) != (worker, nonce):
        return False  # It was undone, and another claim got its fence.
    if facts.status != RUNNING or hold.fence != grant[1]:
        core.looked_at = facts
        raise lease_lost(facts, grant[1])
    core.renew(facts, now)
    core.reply(to, claim_lookup(facts), facts)
    return True


def _heartbeat(core: Engine, request: Heartbeat, to: Address, now: Now) -> None:
    renewed: list[str] = []
    lost: list[str] = []
    for ref in request.leases:
        facts = core.ledger.get(ref.handoff)
        lease = core.leases.get(ref.handoff, ref.fence)
        held = facts is not None and facts.status == RUNNING and facts.fence == ref.fence
        if held and facts is not None and lease is not None and lease.live(now.lease_ms):
            core.renew(facts, now)
            renewed.append(ref.handoff)
        else:
            lost.append(ref.handoff)
    reply = HeartbeatReply(renewed=renewed, lost=lost)
    if lost and core.available:
        core.reply_of_all(to, reply)  # That a lease is lost may be taken back by a crash; that one is renewed, not.
    else:
        core.reply(to, reply)


def _checkpoint(core: Engine, request: Checkpoint, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    decision = decide_checkpoint(facts, request, core.settings.limits, now)
    if decision.changes:
        facts = core.change(facts.id, facts, decision.changes, now)
    core.renew(facts, now)
    core.reply(to, decision.answer, facts)


def _complete(core: Engine, request: Complete, verdict: ResultInvalid | None, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    decision = decide_complete(facts, request, verdict, core.settings.limits, now)
    if decision.changes:
        facts = core.change(facts.id, facts, decision.changes, now)
    core.reply(to, CompleteReply(duplicate=decision.duplicate), facts)


def _fail(core: Engine, request: Fail, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    duplicate = facts.status != RUNNING and ended_by(facts, request.fence, "failed")
    if not duplicate:
        facts = core.change(facts.id, facts, decide_fail(facts, request, now), now)
    core.reply(to, FailReply(status=facts.status, duplicate=duplicate), facts)


def _release(core: Engine, request: Release, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    duplicate = facts.status != RUNNING and ended_by(facts, request.fence, "released")
    if not duplicate:
        facts = core.change(facts.id, facts, decide_release(facts, request, now), now)
    core.reply(to, ReleaseReply(duplicate=duplicate), facts)


def _cancel(core: Engine, request: Cancel, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    reason = None if request.reason is UNSET else request.reason
    facts = _cancel_one(core, facts, reason, now)
    if request.children:
        line = [facts.id]
        while line:
            for child in core.ledger.children(line.pop()):
                line.append(child.id)
                _cancel_one(core, core.look(child.id, now), reason, now)
        core.reply_of_all(to, CancelReply(status=facts.status))
    else:
        core.reply(to, CancelReply(status=facts.status), facts)


def _cancel_one(core: Engine, facts: Handoff, reason: str | None, now: Now) -> Handoff:
    lease = core.leases.get(facts.id, facts.fence) if facts.status == RUNNING else None
    changes = decide_cancel(facts, reason, now)
    if not changes:
        return facts
    after = core.change(facts.id, facts, changes, now)
    if lease is not None and not lease.detached:
        event = CancelledEvent(handoff=facts.id, fence=lease.fence, reason=reason)
        core.notify(lease.session, event, after)
    return after


def _status(core: Engine, request: GetStatus, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    lease = core.leases.get(facts.id, facts.fence) if facts.status == RUNNING else None
    left_ms = None if lease is None or lease.deadline_ms is None else max(0, lease.deadline_ms - now.lease_ms)
    core.reply(to, status_reply(facts, left_ms), facts)


def _last_checkpoint(core: Engine, request: LastCheckpoint, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    newest = facts.checkpoint
    answer = LastCheckpointReply(checkpoint=None) if newest is None else LastCheckpointLookup(newest)
    core.reply(to, answer, facts)


def _checkpoints(core: Engine, request: Checkpoints, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    if facts.seq <= request.after:
        core.reply(to, CheckpointsReply(checkpoints=[], next=None), facts)
    else:
        limit = _page(core, request.limit)
        core.reply(to, CheckpointsLookup(facts.position, facts.checkpoint, request.after, limit), facts)


def _history(core: Engine, request: History, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    if facts.n <= request.after:
        core.reply(to, HistoryReply(records=[], next=None), facts)
    else:
        core.reply(to, HistoryLookup(facts.position, facts.n, request.after, _page(core, request.limit)), facts)


def _result(core: Engine, request: GetResult, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    wait_ms = min(max(request.wait_ms, 0), core.settings.limits.max_wait_ms)
    if facts.final or not wait_ms:
        core.reply(to, result_of(facts), facts)
    else:
        core.waiting.add(ResultWaiter(to, now.lease_ms + wait_ms, facts.id))


def _ack(core: Engine, request: Ack, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    changes = decide_ack(facts, now)
    if changes:
        facts = core.change(facts.id, facts, changes, now)
    core.reply(to, Empty(), facts)


def _list(core: Engine, request: ListHandoffs, to: Address, now: Now) -> None:
    lookup = ListLookup(
        core.journal.position,
        request.after,
        _page(core, request.limit),
        request.status,
        request.kind,
        request.worker,
        request.label,
    )
    core.reply_of_all(to, lookup, covered=True)


def _drain(core: Engine, request: Drain, to: Address, now: Now) -> None:
    core.drain()
    core.reply_of_all(to, DrainReply(leases=core.ledger.counts[RUNNING]))


def _page(core: Engine, limit: int) -> int:
    return min(max(limit, 1), core.settings.limits.max_page)


_OPERATIONS: dict[type[Request], Callable[[Engine, Any, Address, Now], None]] = {
    Hello: _hello,
    Ping: _ping,
    Goodbye: _goodbye,
    Claim: _claim,
    Recover: _recover,
    Heartbeat: _heartbeat,
    Checkpoint: _checkpoint,
    Fail: _fail,
    Release: _release,
    Cancel: _cancel,
    GetStatus: _status,
    LastCheckpoint: _last_checkpoint,
    Checkpoints: _checkpoints,
    History: _history,
    GetResult: _result,
    Ack: _ack,
    ListHandoffs: _list,
    Drain: _drain,
}
"""What the engine carries out; `dispatch` and `complete` come in by methods of their own, `watch`, `stats` and `health` are the server's."""
