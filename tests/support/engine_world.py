"""The pure engine in a world of its own: time stands still unless a test moves it, and a commit happens when it says so.

Owns a clock, connections, a disk in memory and who heard what. `run` is for tests of rules: it commits at once and gives the
answer. `send`, `take` and `finish` are for tests of what may leave when.
"""

from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dhp_protocol.errors import DHPError, ResultInvalid, StoreUnavailable
from dhp_protocol.limits import Limits
from dhp_protocol.messages import (
    ApprovalRequest,
    CheckCapability,
    Claim,
    Complete,
    Dispatch,
    GetStatus,
    Hello,
    Import,
    Redrive,
    Request,
)
from dhp_protocol.replies import Event, LeaseTerms
from dhpd.engine.arriving import Arrival
from dhpd.engine.capabilities import capabilities_of, granted
from dhpd.engine.claim_queue import order
from dhpd.engine.core import Settings
from dhpd.engine.dispatching import prepare_dispatch
from dhpd.engine.facts import RUNNING, Handoff
from dhpd.engine.journal import Batch
from dhpd.engine.leases import Lease
from dhpd.engine.lookups import Lookup
from dhpd.engine.moments import Now
from dhpd.engine.operations import Engine, Prepared
from dhpd.engine.outputs import Notice
from dhpd.engine.porting import Plan, plan_extension, plan_new
from dhpd.engine.porting_operations import Arrived
from dhpd.engine.roles import ADMIN, Caller
from dhpd.engine.views import NO_LEASE
from dhpd.engine.waiting import Address
from dhpd.store.backend import DiskError
from dhpd.store.reading import resolve
from tests.simulation.daemon import now_of
from tests.simulation.store_model import ModelStore, Outcome

START = Now(lease_ms=5_000_000, wall_ms=1_800_000_000_000)
TTL_MS = 6_000
LIMITS = Limits(max_state_bytes=1_000, max_result_bytes=1_000, max_intent_bytes=4_000, max_page=10)
TERMS = LeaseTerms(ttl_ms=TTL_MS, heartbeat_ms=2_000, min_ttl_ms=500, max_ttl_ms=3_600_000, disconnect_grace_ms=250)


class Call:
    """One request, and what was answered so far; a second answer would be a fault."""

    def __init__(self, request: Request, on: int) -> None:
        self.request = request
        self.on = on
        self.answer: Any = None

    @property
    def answered(self) -> bool:
        return self.answer is not None

    def result(self) -> Any:
        """The reply, raised if it is a refusal; None while there is none."""
        if isinstance(self.answer, DHPError):
            raise self.answer
        return self.answer


class World:
    """`disk` outlives `restart`; `heard` holds the events that each connection got."""

    def __init__(
        self,
        *,
        limits: Limits = LIMITS,
        max_queued_bytes: int = 1 << 26,
        purged_fence: int = 0,
        steps_at_once: int = 32,
    ) -> None:
        self.settings = Settings(
            limits=limits, terms=TERMS, max_queued_bytes=max_queued_bytes, steps_at_once=steps_at_once
        )
        self.now = START
        self.disk = ModelStore()
        self.max_frame_bytes = 1 << 20
        self.heard: dict[int, list[Event]] = {}
        self.callers: dict[int, Caller] = {}
        self._purged_fence = purged_fence
        self._numbers = count(1)
        self._connections = count(1)
        self._calls: dict[int, Call] = {}
        self._in_flight: Batch | None = None
        self._head = 0
        self.start()

    # --- time --------------------------------------------------------------------------------------------------------

    def jump(self, ms: int, *, wall_ms: int | None = None) -> None:
        """Time goes by, and no tick has come yet. `wall_ms` is by how much the wall clock moves, if by another time."""
        self.now = Now(self.now.lease_ms + ms, self.now.wall_ms + (ms if wall_ms is None else wall_ms))

    def tick(self) -> None:
        self.engine.tick(self.now)
        self._deliver()

    def advance(self, ms: int) -> None:
        """Time goes by, with each tick at its moment and what it came to committed."""
        end_ms = self.now.lease_ms + ms
        while (next_ms := self.engine.next_tick_ms(self.now)) <= end_ms:
            self.jump(next_ms - self.now.lease_ms)
            self.tick()
            self.commit()
        self.jump(end_ms - self.now.lease_ms)

    # --- connections -------------------------------------------------------------------------------------------------

    def connect(self, session: str | None = None, *, local: bool = True, caller: Caller = ADMIN) -> int:
        """A new connection; with `session` it has said hello. `caller` is who speaks there."""
        connection = next(self._connections)
        self.callers[connection] = caller
        self.heard[connection] = []
        self.engine.open(connection, local=local)
        if session is not None:
            self.run(Hello(session=session), on=connection)
        return connection

    def disconnect(self, connection: int, *, local: bool = True) -> None:
        self.engine.close(connection, local=local, now=self.now)
        self._deliver()

    # --- requests ----------------------------------------------------------------------------------------------------

    def send(self, request: Request, *, on: int | None = None, verdict: ResultInvalid | None = None) -> Call:
        """Has the engine decide; the call has its answer once that may leave. `verdict` is the output schema's."""
        on = self.home if on is None else on
        number = next(self._numbers)
        call = self._calls[number] = Call(request, on)
        to = Address(on, number, False, self.callers.get(on, ADMIN))
        try:
            asked = prepare_dispatch(request, self.settings.limits) if isinstance(request, Dispatch) else request
            self._admit(self.engine.missing(asked, to.caller))
            prepared = self._prepared(request, verdict)
        except DHPError as error:
            call.answer = error
            return call
        self.engine.execute(asked, to, self.now, prepared)
        self._deliver()
        return call

    def _prepared(self, request: Request, verdict: ResultInvalid | None) -> Prepared | UnsetType:
        """What the engine needs beside the request."""
        match request:
            case Complete():
                return verdict
            case CheckCapability():
                return self._granted(request)
            case Redrive():
                return self._kept_state(request.handoff)
            case ApprovalRequest():
                return None
            case Import():
                return Arrived(*self._planned(request))
        return UNSET

    def run(self, request: Request, *, on: int | None = None, verdict: ResultInvalid | None = None) -> Any:
        """Sends, commits, and gives the reply (None: it waits); raises what was refused."""
        call = self.send(request, on=on, verdict=verdict)
        self.commit()
        return call.result()

    def dispatch(self, kind: str = "work", *, on: int | None = None, **members: Any) -> str:
        """Dispatches a handoff like no other; gives its id."""
        members.setdefault("inputs", Raw(b'{"number":%d}' % next(self._numbers)))
        handoff: str = self.run(Dispatch(kind=kind, **members), on=on).handoff
        return handoff

    def claim(self, handoff: str, worker: str = "ada", *, on: int | None = None, **members: Any) -> int:
        """Claims it; gives the fence."""
        fence: int = self.run(Claim(worker=worker, handoff=handoff, **members), on=on).fence
        return fence

    def held(self, **members: Any) -> tuple[str, int]:
        """A fresh handoff that runs under the given fence."""
        handoff = self.dispatch(**members)
        return handoff, self.claim(handoff)

    def orphaned(self, **members: Any) -> tuple[str, int]:
        """A fresh handoff whose lease ended; gives the fence that it had."""
        handoff, fence = self.held(**members)
        self.advance(TTL_MS)
        assert self.facts(handoff).status == "orphaned"
        return handoff, fence

    def status(self, handoff: str) -> Any:
        return self.run(GetStatus(handoff=handoff))

    def facts(self, handoff: str) -> Handoff:
        """What memory says now, committed or not."""
        facts = self.engine.ledger.get(handoff)
        assert facts is not None, "it isn't in memory"
        return facts

    def deadline_ms(self, handoff: str) -> int:
        """When the present lease ends, in milliseconds from now."""
        lease = self.engine.leases.get(handoff, self.facts(handoff).fence)
        assert lease is not None
        assert lease.deadline_ms is not None
        return lease.deadline_ms - self.now.lease_ms

    # --- the disk ----------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Writes all that there is to write."""
        while self.engine.available and self.engine.wants_commit(self.now):
            self.take()
            self.finish()

    def take(self) -> Batch:
        """The next batch is on its way."""
        self._in_flight = self.engine.take_batch(self.now)
        return self._in_flight

    def finish(self, outcome: Outcome = Outcome.KEPT) -> None:
        """It has arrived, or failed in one of the ways in which a commit can."""
        self.lose_or_keep(outcome)
        if not self.engine.available:
            self.find_out()

    def lose_or_keep(self, outcome: Outcome) -> None:
        """As `finish`, but what a failed commit came to isn't found out yet."""
        batch = self._in_flight
        assert batch is not None
        self.disk.outcome = outcome
        try:
            appended = now_of(self.disk.append(batch, self._head))
        except DiskError:
            self.engine.lost_touch()
        else:
            self._in_flight = None
            self._head = appended.head
            self.engine.committed(self.now, appended.failed)
        self._deliver()

    def find_out(self) -> None:
        """The store has been opened again and says how far it is."""
        batch, self._in_flight = self._in_flight, None
        assert batch is not None
        before, self._head = self._head, now_of(self.disk.settle())
        if batch.entries and self._head != before:
            self.engine.committed(self.now)
        else:
            self.engine.rolled_back(self.now)
        self._deliver()
        self.engine.back_in_touch(self.now)
        self._deliver()

    def fail_commit(self) -> None:
        """The next batch fails, and nothing of it is on disk."""
        self.take()
        self.finish(Outcome.FAILS)

    def restart(self, *, after_ms: int = 0, wall_ms: int | None = None) -> None:
        """As after kill -9: memory and connections are gone, the disk is what it was."""
        self.jump(after_ms, wall_ms=wall_ms)
        self.start()
        self.commit()

    def start(self) -> None:
        """The daemon has loaded the disk; nothing has been written yet."""
        names = (f"fresh-{number}" for number in self._numbers)
        loaded = now_of(self.disk.load())
        purged_fence = max(self._purged_fence, loaded.purged_fence)
        self.engine = Engine(self.settings, lambda: next(names), purged_fence=purged_fence)
        self._in_flight = None
        self._calls.clear()
        self._head = loaded.head
        self.engine.load(
            loaded.facts,
            loaded.tail,
            loaded.extensions,
            loaded.counts,
            loaded.dead_children,
            head=loaded.head,
            covered=loaded.covered,
            now=self.now,
        )
        self.home = self.connect()

    def _payload(self, position: int) -> bytes:
        return now_of(self.disk.payloads([position]))[position]

    def _granted(self, request: CheckCapability) -> bool:
        facts = self.engine.ledger.get(request.handoff)
        if facts is None or not facts.capable:
            return False
        intent = msgspec.json.decode(self._payload(facts.number), type=dict[str, Raw])
        return granted(capabilities_of(intent["capabilities"]), request.domain, request.resource)

    def _kept_state(self, handoff: str) -> bytes | None:
        facts = self.engine.ledger.get(handoff)
        if facts is None or facts.kept is None or not facts.kept.seq:
            return None
        return self._payload(facts.kept.position)

    def _planned(self, request: Import) -> tuple[str, Plan | None]:
        """What a whole bundle comes to, beside what is here."""
        arrival = Arrival(self.settings.limits)
        arrival.take([bytes(line) for line in request.records])
        assert arrival.named is not None
        handoff = arrival.named.handoff
        self._admit([handoff])
        present = self.engine.ledger.get(handoff)
        if present is None:
            return handoff, plan_new(arrival)
        own = now_of(self.disk.records_of(present.position, 0, 1_000_000))
        return handoff, plan_extension(arrival, present, [stored.record for stored in own])

    def _admit(self, missing: list[str]) -> None:
        for facts in now_of(self.disk.facts_of(missing)):
            self.engine.admit(facts, self.now)

    def _deliver(self) -> None:
        ready = self.engine.journal.ready
        while ready:
            output = ready.popleft()
            if isinstance(output, Notice):
                self.heard[output.connection].append(output.event)
                continue
            number = output.to.request_id
            assert isinstance(number, int)
            call = self._calls[number]
            assert not call.answered, f"a second answer to {call.request}: {call.answer}, then {output.answer}"
            call.answer = self._resolved(output.answer) if isinstance(output.answer, Lookup) else output.answer

    def _resolved(self, lookup: Any) -> Struct | DHPError:
        try:
            return now_of(resolve(lookup, self.disk, self.max_frame_bytes, lambda handoff, fence: NO_LEASE))
        except DHPError as error:
            return error
        except DiskError:
            return StoreUnavailable("The disk can't be read.")


def memory(engine: Engine) -> dict[str, Any]:
    """All that an undo has to bring back, as values that can be compared. Deadlines lie outside of it (`deadlines`)."""
    handoffs = list(engine.ledger)
    kinds = sorted({facts.kind for facts in handoffs})
    first = {kind: engine.ledger.queue.first([kind]) for kind in kinds}
    return {
        "facts": {facts.id: msgspec.to_builtins(facts) for facts in handoffs},
        "counts": dict(engine.ledger.counts),
        "claimable": [facts.id for facts in sorted(handoffs, key=order) if engine.ledger.queue.holds(facts)],
        "first": {kind: facts and facts.id for kind, facts in first.items()},
        "descendants": {facts.id: sorted(engine.ledger.descendants(facts.id)) for facts in handoffs},
        "waiting": [(waiter.number, waiter.address, waiter.worker) for waiter in engine.waiting.every_claim()],
        "results": {facts.id: [w.address for w in engine.waiting.results_of(facts.id)] for facts in handoffs},
        "leases": {handoff: lease.session for handoff, lease in _leases(engine).items()},
        "position": engine.journal.position,
    }


def deadlines(engine: Engine) -> dict[str, int | None]:
    """When each present lease ends, in lease time."""
    return {handoff: lease.deadline_ms for handoff, lease in _leases(engine).items()}


def _leases(engine: Engine) -> dict[str, Lease]:
    found = {}
    for facts in engine.ledger:
        if facts.status == RUNNING:
            lease = engine.leases.get(facts.id, facts.fence)
            assert lease is not None, "what runs has a lease"
            found[facts.id] = lease
    return found
