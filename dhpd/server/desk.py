"""The desk: takes each request to the engine.

Owns the way there: who may ask, the order of one connection's requests (`lanes`), what is answered by the server itself.
Does not own what must be had first (`preparing`), nor what happens afterwards (`answers`). Knows no rules.
"""

import logging
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from dhp_protocol.decoding import RequestFault
from dhp_protocol.errors import DHPError, Overloaded, SchemaInvalid
from dhp_protocol.messages import (
    AnyRequest,
    ApprovalRequest,
    ApprovalWait,
    CheckCapability,
    Claim,
    Complete,
    Dispatch,
    GetResult,
    Health,
    Hello,
    Import,
    Recover,
    Redrive,
    Stats,
    Unwatch,
    Watch,
)
from dhp_protocol.replies import Empty, LaggedEvent
from dhpd.config import Config
from dhpd.engine.dispatching import PreparedDispatch, prepare_dispatch
from dhpd.engine.operations import Engine
from dhpd.engine.roles import Caller, check_role
from dhpd.engine.waiting import Address
from dhpd.sandbox.fairness import asker_of
from dhpd.store.backend import StoreBackend

from .admission import STRANGER, Admission, unauthenticated
from .answers import Answers, mistake, unreadable
from .claim_order import ClaimOrder
from .clock import Clock
from .commons import Commons
from .connection import Connection
from .costs import is_cheap
from .importing import Imports
from .lanes import MAX_TAKEN, Lanes, Queued, Work, lane_of
from .preparing import Preparing
from .reporting import Reporter
from .tail import encode
from .tokens import Tokens
from .watching import Watches

_log = logging.getLogger(__name__)


class Desk:
    max_prepared = MAX_TAKEN

    def __init__(
        self,
        engine: Engine,
        store: StoreBackend,
        clock: Clock,
        config: Config,
        reporter: Reporter,
        poke: Callable[[], None],
        commons: Commons,
        tokens: Tokens | None = None,
    ) -> None:
        """`poke` is called when the engine may have something to write, or something new that will be due.

        `tokens` are those that whoever comes over TCP must have one of (None: nobody needs any).
        """
        self.connections: dict[int, Connection] = {}
        self.watches = Watches(engine, store, self.connections, commons.hits)
        self.answers = Answers(engine, store, clock, config.max_frame_bytes, self.connections)
        self._engine = engine
        self._clock = clock
        self._config = config
        self._commons = commons
        self._limits = config.limits()
        self._reporter = reporter
        self._poke = poke
        self._preparing = Preparing(engine, store, clock, self._limits)
        self._imports = Imports(
            engine, store, self._preparing.loader, self._preparing.schemas, clock, self._limits, self.connections
        )
        self._admission = Admission(tokens, config)
        self.lanes = Lanes(self, self._lane_cleared)
        self._ways = self._ways_of_their_own()
        self._claim_order = ClaimOrder()
        self._ended_inputs: set[int] = set()

    # --- connections -------------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        if not self._admission.has_room(connection):
            return False
        silence = self._commons.silence
        full = len(self.connections) - silence.leaving >= self._config.max_connections
        if full and not silence.make_room():
            return False
        silence.came(connection)
        self.connections[connection.number] = connection
        self._engine.open(connection.number, local=connection.local)
        self._admission.opened(connection)
        return True

    def input_ended(self, connection: Connection) -> None:
        if connection.number not in self.connections:  # It was refused.
            return
        self._ended_inputs.add(connection.number)
        if not self.lanes.busy(connection.number):
            self._close(connection)

    def closed(self, connection: Connection) -> None:
        if self.connections.pop(connection.number, None) is not None:
            self._ended_inputs.discard(connection.number)
            self._commons.silence.went(connection)
            self.watches.end(connection.number)
            self._admission.closed(connection.number)
            self._close(connection)
            self.worked()

    def tokens_changed(self) -> None:
        """Some callers may do less than before, and those whose token is gone nothing: their connections end."""
        self._engine.roles_changed()
        for connection in list(self.connections.values()):
            if self._admission.gone(connection.number):
                self.watches.end(connection.number)
                connection.end_soon()
        self.worked()

    def waiting(self, connection: Connection) -> int:
        return self._engine.waiting.count_of(connection.number)

    def is_idle(self, connection: Connection) -> bool:
        number = connection.number
        session = self._engine.sessions.of(number)
        holds = session is not None and session.leases
        return not (holds or connection.owes_answers or self.watches.has(number) or self._imports.has(number))

    def has_said_hello(self, connection: Connection) -> bool:
        session = self._engine.sessions.of(connection.number)
        return session is not None and not session.anonymous

    def reads_again(self, connection: Connection) -> None:
        self._commons.hits.lagged += 1
        connection.send_event(encode(LaggedEvent(after=self._engine.journal.durable, lost="events")))
        connection.flush()

    def is_full(self, connection: Connection) -> bool:
        return self.lanes.full(connection.number)

    def worked(self) -> None:
        self.answers.deliver()
        self._poke()

    async def explain(self, connection: Connection, body: bytes) -> RequestFault | None:
        caller = self._admission.caller(connection.number)
        return await self._preparing.explain(asker_of(connection.number, caller), body, self._config.max_depth)

    async def stop(self) -> None:
        """The connections are gone: gives up what is still being read or prepared for them."""
        await self.lanes.stop()
        await self.answers.stop()
        await self._preparing.close()

    def _close(self, connection: Connection) -> None:
        self._imports.drop(connection.number)
        self._engine.close(connection.number, local=connection.local, now=self._clock.now())

    def _lane_cleared(self, number: int) -> None:
        connection = self.connections.get(number)
        if connection is not None and number in self._ended_inputs:
            self.input_ended(connection)
        self.worked()
        if connection is not None:
            connection.flush()

    # --- requests ----------------------------------------------------------------------------------------------------

    def request(self, connection: Connection, request: AnyRequest, counted: bool) -> None:
        if isinstance(request, Hello):
            self._greet(connection, request, counted)
            return
        to = Address(connection.number, request.id, counted, self._admission.caller(connection.number))
        try:
            _check_caller(request, to.caller)  # Here too, so that nothing is prepared for whoever may not ask for it.
        except DHPError as error:
            self._engine.reply(to, error)
            return
        if isinstance(request, Dispatch):
            self._claim_order.dispatch_came(to)
        elif isinstance(request, Claim) and request.handoff is UNSET and self._claim_order.holds_back(request, to):
            return
        if self.lanes.idle and type(request) not in self._ways:
            self.begin(request, to)
        else:
            self.enter(request, to)

    def enter(self, request: Queued, to: Address, left: str = "") -> None:
        """Lines up behind an earlier request about the same handoff that is still being prepared, or begins."""
        lane = self._imports.lane(to.connection, request) if isinstance(request, Import) else lane_of(request)
        self.lanes.enter(request, to, lane, left)

    def begin(self, request: Queued, to: Address, lane: str | None = None) -> None:
        """Hands the request to the engine; a mistake of our own costs one request, and nobody else anything."""
        try:
            way = self._ways.get(type(request))
            work = self._preparing.execute(request, to) if way is None else way(request, to, lane or "")
        except DHPError as error:
            self.refuse(to, error)
        except Exception:
            _log.exception("a request could not be carried out")
            self.refuse(to, mistake())
        else:
            if work is not None:
                self.lanes.later(lane_of(request) if lane is None else lane, to, work)

    def refuse(self, to: Address, error: DHPError) -> None:
        """Answers with a refusal that depends on nothing."""
        self._engine.reply(to, error)
        self._decided(to)

    def _decided(self, to: Address) -> None:
        """If this was a dispatch, claims by kinds stood behind it."""
        for claim, address in self._claim_order.decided(to):
            self.enter(claim, address)

    def _greet(self, connection: Connection, hello: Hello, counted: bool) -> None:
        try:
            caller = self._admission.proven(connection, hello)
        except DHPError as error:
            self._engine.reply(Address(connection.number, hello.id, counted), error)
            self._admission.refused(connection)
            return
        if self._engine.execute(hello, Address(connection.number, hello.id, counted, caller), self._clock.now()):
            self._admission.accepted(connection, caller)
        else:
            self._admission.refused(connection)

    def _ways_of_their_own(self) -> dict[type[Queued], Callable[[Any, Address, str], Work | None]]:
        """How requests are carried out that aren't just taken to the engine once the handoffs they name are in memory; each gives
        the work that leads there, if it takes any.
        """
        preparing = self._preparing
        return {
            Dispatch: self._begin_dispatch,
            PreparedDispatch: lambda request, to, _: self._begin_prepared(request, to),
            Watch: lambda request, to, _: self.watches.begin(request, to),
            Unwatch: lambda _, to, __: self._unwatch(to),
            Stats: lambda _, to, __: self._stats(to),
            Health: lambda _, to, __: self._engine.reply(to, self._reporter.health()),
            Complete: lambda request, to, _: preparing.complete(request, to),
            CheckCapability: lambda request, to, _: preparing.check_capability(request, to),
            ApprovalRequest: lambda request, to, _: preparing.approval_request(request, to),
            Redrive: lambda request, to, _: preparing.redrive(request, to),
            Import: lambda request, to, _: self._imports.take(request, to),
            **dict.fromkeys((ApprovalWait, Claim, Recover, GetResult), self._begin_wait),
        }

    def _begin_wait(self, request: ApprovalWait | Claim | Recover | GetResult, to: Address, _: str) -> Work | None:
        if request.wait_ms > 0:
            self._check_waiting(to)
        return self._preparing.execute(request, to)

    def _unwatch(self, to: Address) -> None:
        self.watches.end(to.connection)
        self._engine.reply(to, Empty())

    def _stats(self, to: Address) -> None:
        if self._engine.available:
            self._engine.reply_of_all(to, self._reporter.stats())
        else:
            self._engine.reply(to, unreadable())

    def _check_waiting(self, to: Address) -> None:
        waiting = self._engine.waiting
        if waiting.count_of(to.connection) >= self._config.max_waiting_requests:
            sentence = "Too many requests wait on this connection already."
        elif waiting.places() >= self._config.max_waiting_in_all:
            sentence = "Too many requests wait already, of all connections together."
        else:
            return
        self._commons.hits.waits_refused += 1
        raise Overloaded(sentence, after_ms=1000)

    # --- dispatch ----------------------------------------------------------------------------------------------------

    def _begin_dispatch(self, request: Dispatch, to: Address, lane: str) -> Work | None:
        members = (request.inputs, request.output_schema, request.budget, request.capabilities)
        texts = [bytes(member) for member in members if member is not UNSET]
        if sum(map(len, texts)) <= self._limits.max_intent_bytes and not is_cheap(texts):
            return self._dispatch_long(request, to, lane)
        self._begin_prepared(prepare_dispatch(request, self._limits), to)
        return None

    def _begin_prepared(self, prepared: PreparedDispatch, to: Address) -> None:
        """Now that it is known which handoff this is about, lines up behind earlier requests about it, or begins."""
        if self.lanes.line_up(prepared, to, prepared.handoff):
            return
        try:
            work = self._preparing.dispatch(prepared, to)
        except SchemaInvalid as error:
            self.refuse(to, error)
            return
        if work is None:
            self._decided(to)
        else:
            self.lanes.later(prepared.handoff, to, self._dispatch_later(work, to))

    async def _dispatch_long(self, request: Dispatch, to: Address, lane: str) -> None:
        prepared = await self._preparing.name(request, to)
        if lane != prepared.handoff:
            self._begin_prepared(prepared, to)
        else:  # It was named: what stands in this lane is behind it.
            await self._dispatch_later(self._preparing.dispatch(prepared, to), to)

    async def _dispatch_later(self, work: Work | None, to: Address) -> None:
        if work is not None:
            await work
        self._decided(to)


def _check_caller(request: AnyRequest, caller: Caller) -> None:
    if caller is STRANGER:
        raise unauthenticated()
    check_role(request, caller)
