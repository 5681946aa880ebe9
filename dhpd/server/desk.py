"""The desk: takes each request to the engine.

Owns what must happen before the engine can decide (naming a long intent, reading an ended handoff, checking a schema),
in such a way that requests about one handoff on one connection keep their order and nobody else waits. Does not own
what happens afterwards (`answers`). Knows no rules.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from dhp_protocol.errors import DHPError, InvalidRequest, Overloaded, ResultInvalid, SchemaInvalid, StoreUnavailable
from dhp_protocol.messages import (
    AnyRequest,
    ApprovalDecide,
    ApprovalRequest,
    ApprovalWait,
    CheckCapability,
    Claim,
    Complete,
    Dispatch,
    GetResult,
    Health,
    Recover,
    Redrive,
    Stats,
    Unwatch,
    Watch,
)
from dhp_protocol.replies import Empty
from dhpd.config import Config
from dhpd.engine.approvals import handoff_of
from dhpd.engine.capabilities import granted
from dhpd.engine.dispatching import PreparedDispatch, payload_bytes, prepare_dispatch
from dhpd.engine.facts import RUNNING, Handoff
from dhpd.engine.operations import Engine
from dhpd.engine.waiting import Address
from dhpd.sandbox.bounds import BeyondBounds, Bounds
from dhpd.sandbox.queueing import Queue
from dhpd.sandbox.tasks import decode_named
from dhpd.store.backend import DiskError, StoreBackend

from .answers import Answers, mistake, unreadable
from .capability_sets import CapabilitySets
from .claim_order import ClaimOrder
from .clock import Clock
from .connection import Connection
from .loading import Loader
from .output_schemas import NotHere, Schemas
from .reporting import Reporter
from .watching import Watches

LONG_INTENT_BYTES = 8 * 1024
"""Naming a longer one takes more than about a millisecond, so it is done off the loop."""

_log = logging.getLogger(__name__)


class Desk:
    def __init__(
        self,
        engine: Engine,
        store: StoreBackend,
        clock: Clock,
        config: Config,
        reporter: Reporter,
        poke: Callable[[], None],
    ) -> None:
        """`poke` is called when the engine may have something to write, or something new that will be due."""
        self.connections: dict[int, Connection] = {}
        self.watches = Watches(engine, store, self.connections)
        self.answers = Answers(engine, store, clock, config.max_frame_bytes, self.connections)
        self._engine = engine
        self._store = store
        self._clock = clock
        self._config = config
        self._max_details_bytes = config.limits().max_details_bytes
        self._reporter = reporter
        self._poke = poke
        self._loader = Loader(store)
        self._judging = Queue(Bounds())
        self._naming = Queue(Bounds())  # Of its own, since a name takes a moment, and a verdict may take seconds.
        self._schemas = Schemas(self._judging)
        self._capabilities = CapabilitySets()
        self._lanes: dict[tuple[int, str], deque[tuple[_Queued, Address]]] = {}
        self._lane_numbers = count(1)
        self._claim_order = ClaimOrder()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended_inputs: set[int] = set()

    # --- connections -------------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        if len(self.connections) >= self._config.max_connections:
            return False
        self.connections[connection.number] = connection
        self._engine.open(connection.number, local=connection.local)
        return True

    def input_ended(self, connection: Connection) -> None:
        if connection.number not in self.connections:  # It was refused.
            return
        self._ended_inputs.add(connection.number)
        if not any(number == connection.number for number, _ in self._lanes):
            self._close(connection)

    def closed(self, connection: Connection) -> None:
        if self.connections.pop(connection.number, None) is not None:
            self._ended_inputs.discard(connection.number)
            self.watches.end(connection.number)
            self._close(connection)
            self.worked()

    def _close(self, connection: Connection) -> None:
        self._engine.close(connection.number, local=connection.local, now=self._clock.now())

    def waiting(self, connection: Connection) -> int:
        return self._engine.waiting.count_of(connection.number)

    # --- requests ----------------------------------------------------------------------------------------------------

    def request(self, connection: Connection, request: AnyRequest, counted: bool) -> None:
        to = Address(connection.number, request.id, counted)
        match request:
            case Dispatch():
                self._claim_order.dispatch_came(to)
            case Claim() if request.handoff is UNSET and self._claim_order.holds_back(request, to):
                return
        self._enter(request, to)

    def _enter(self, request: "_Queued", to: Address, left: str = "") -> None:
        """Lines up behind an earlier request about the same handoff that is still being prepared, or begins.

        `left` is the lane that it has stood in so far.
        """
        lane = _lane_of(request)
        if self._lanes and lane:
            # A dispatch that isn't named yet may be about any handoff, so whoever comes stands behind it first; but to
            # who has stood in a handoff's own lane it came later.
            for name in (_ANY_HANDOFF, lane) if left in ("", _ANY_HANDOFF) else (lane,):
                if (line := self._lanes.get((to.connection, name))) is not None:
                    line.append((request, to))
                    return
        self._begin(request, to, lane)

    def worked(self) -> None:
        self.answers.deliver()
        self._poke()

    def _begin(self, request: "_Queued", to: Address, lane: str) -> None:
        """Hands the request to the engine; a mistake of our own costs one request, and nobody else anything."""
        try:
            self._hand_over(request, to, lane)
        except Exception:
            _log.exception("a request could not be carried out")
            self._refuse(to, mistake())

    def _refuse(self, to: Address, error: DHPError) -> None:
        self._engine.reply(to, error)
        self._decided(to)

    def _decided(self, to: Address) -> None:
        """If this was a dispatch, claims by kinds stood behind it."""
        for claim, address in self._claim_order.decided(to):
            self._enter(claim, address)

    def _hand_over(self, request: "_Queued", to: Address, lane: str) -> None:
        match request:
            case PreparedDispatch():
                self._begin_prepared(request, to)
            case Dispatch():
                self._begin_dispatch(request, to, lane or _ANY_HANDOFF)
            case Watch():
                self.watches.begin(request, to)
            case Unwatch():
                self.watches.end(to.connection)
                self._engine.reply(to, Empty())
            case Stats() if not self._engine.available:
                self._engine.reply(to, unreadable())
            case Stats():
                self._engine.reply_of_all(to, self._reporter.stats())
            case Health():
                self._engine.reply(to, self._reporter.health())
            case Complete():
                self._begin_complete(request, to, lane)
            case CheckCapability():
                self._begin_check(request, to, lane)
            case ApprovalRequest() if LONG_INTENT_BYTES < len(bytes(request.details)) <= self._max_details_bytes:
                self._later(lane, to, self._ask_at_length(request, to))
            case Redrive():
                self._begin_redrive(request, to, lane)
            case ApprovalWait() | Claim() | Recover() | GetResult() if request.wait_ms > 0 and self._waits_too_much(to):
                self._engine.reply(to, Overloaded("Too many requests wait on this connection already.", after_ms=1000))
            case _ if missing := self._engine.missing(request):
                lane = lane or f"#{next(self._lane_numbers)}"  # Nothing lines up behind it.
                self._later(lane, to, self._execute_loaded(missing, lambda: self._execute(request, to)))
            case _:
                self._execute(request, to)

    def _execute(self, request: AnyRequest, to: Address) -> None:
        self._engine.execute(request, to, self._clock.now())

    def _begin_dispatch(self, request: Dispatch, to: Address, lane: str) -> None:
        if LONG_INTENT_BYTES < payload_bytes(request) <= self._config.max_intent_bytes:
            self._later(lane, to, self._dispatch_long(request, to, lane))
            return
        try:
            prepared = prepare_dispatch(request, self._config.limits())
        except DHPError as error:
            self._refuse(to, error)
            return
        self._begin_prepared(prepared, to)

    def _begin_prepared(self, prepared: PreparedDispatch, to: Address) -> None:
        """Now that it is known which handoff this is about, lines up behind earlier requests about it, or begins."""
        line = self._lanes.get((to.connection, prepared.handoff))
        if line is not None:
            line.append((prepared, to))
            return
        try:
            checked = self._check_here(prepared)
        except SchemaInvalid as error:
            self._refuse(to, error)
            return
        if checked and not self._engine.missing(prepared):
            self._dispatch(prepared, to)
        else:
            self._later(prepared.handoff, to, self._dispatch_loaded(prepared, to, checked=checked))

    async def _dispatch_long(self, request: Dispatch, to: Address, lane: str) -> None:
        limits = msgspec.json.encode(self._config.limits())
        try:
            named = await self._naming.ask(to.connection, "name", msgspec.json.encode(request), limits)
        except BeyondBounds:
            raise InvalidRequest("This intent takes too long to be named: make it plainer.", member="inputs") from None
        prepared = PreparedDispatch(request, decode_named(named))
        if lane == prepared.handoff:  # It was named: what stands in this lane is behind it.
            await self._dispatch_loaded(prepared, to, checked=self._check_here(prepared))
        else:
            self._begin_prepared(prepared, to)

    async def _dispatch_loaded(self, prepared: PreparedDispatch, to: Address, *, checked: bool) -> None:
        if not checked:
            await self._schemas.check(prepared.handoff, output_schema_of(prepared.named.canonical), to.connection)
        # Only now, so that what the store said is still so when the engine decides.
        await self._execute_loaded(self._engine.missing(prepared), lambda: self._dispatch(prepared, to))

    def _check_here(self, prepared: PreparedDispatch) -> bool:
        """Whether the output schema is known to be good; raises `SchemaInvalid` where it is plain that it isn't."""
        if not prepared.named.has_schema or self._schemas.known(prepared.handoff):
            return True
        try:
            # In its canonical form, as a later start will read it: numbers are doubles there.
            self._schemas.check_here(prepared.handoff, output_schema_of(prepared.named.canonical))
        except NotHere:
            return False
        return True

    def _dispatch(self, prepared: PreparedDispatch, to: Address) -> None:
        self._engine.dispatch(prepared, to, self._clock.now())
        self._decided(to)

    def _begin_complete(self, request: Complete, to: Address, lane: str) -> None:
        facts = self._engine.ledger.get(request.handoff)
        try:
            if facts is None or (self._wants_verdict(facts, request) and not self._schemas.known(facts.id)):
                raise NotHere
            verdict = self._verdict_here(facts, request)
        except NotHere:
            self._later(lane, to, self._complete_loaded(request, to))
        else:
            self._engine.complete(request, verdict, to, self._clock.now())

    async def _complete_loaded(self, request: Complete, to: Address) -> None:
        await self._load(self._engine.missing(request))
        facts = self._engine.ledger.get(request.handoff)
        verdict = None
        if facts is not None and self._wants_verdict(facts, request):
            await self._take_up_schema(facts)
            try:
                verdict = self._verdict_here(facts, request)
            except NotHere:
                verdict = await self._schemas.judge(facts.id, bytes(request.result), to.connection)
        self._engine.complete(request, verdict, to, self._clock.now())

    async def _take_up_schema(self, facts: Handoff) -> None:
        if not self._schemas.known(facts.id):
            intent = await self._payload(facts.number)
            self._schemas.take_up(facts.id, output_schema_of(intent))

    def _verdict_here(self, facts: Handoff, request: Complete) -> ResultInvalid | None:
        """What the output schema, which is known, says of the result, as far as it counts; raises `NotHere`."""
        if not self._wants_verdict(facts, request):
            return None
        return self._schemas.judge_here(facts.id, bytes(request.result))

    def _wants_verdict(self, facts: Handoff, request: Complete) -> bool:
        """Whether the engine could accept the result: of any other, it decides without a verdict."""
        held = facts.status == RUNNING and facts.fence == request.fence
        return facts.has_schema and held and len(bytes(request.result)) <= self._config.max_result_bytes

    def _begin_check(self, request: CheckCapability, to: Address, lane: str) -> None:
        facts = self._engine.ledger.get(request.handoff)
        if facts is None or (_may_have(facts) and self._capabilities.get(facts.id) is None):
            self._later(lane, to, self._check_loaded(request, to))
        else:
            self._check(request, to)

    async def _check_loaded(self, request: CheckCapability, to: Address) -> None:
        await self._load(self._engine.missing(request))
        facts = self._engine.ledger.get(request.handoff)
        if facts is not None and _may_have(facts):
            await self._capabilities.take_up(facts.id, await self._payload(facts.number))
        self._check(request, to)

    def _check(self, request: CheckCapability, to: Address) -> None:
        known = self._capabilities.get(request.handoff)
        allowed = known is not None and granted(known, request.domain, request.resource)
        self._engine.check_capability(request, allowed, to, self._clock.now())

    async def _ask_at_length(self, request: ApprovalRequest, to: Address) -> None:
        """An approval_request whose details take a while to bring into canonical form."""
        details: bytes | DHPError
        try:
            details = await self._naming.ask(to.connection, "canonical", bytes(request.details), b"details")
        except BeyondBounds:
            details = InvalidRequest("These details take too long to be read: make them plainer.", member="details")
        except InvalidRequest as error:
            details = error
        await self._load(self._engine.missing(request))
        self._engine.approval_request(request, details, to, self._clock.now())

    def _begin_redrive(self, request: Redrive, to: Address, lane: str) -> None:
        facts = self._engine.ledger.get(request.handoff)
        if self._engine.missing(request) or (facts is not None and facts.kept is not None and facts.kept.seq):
            self._later(lane, to, self._redrive_loaded(request, to))
        else:
            self._engine.redrive(request, None, to, self._clock.now())

    async def _redrive_loaded(self, request: Redrive, to: Address) -> None:
        state, read_at = None, 0
        while True:
            while missing := self._engine.missing(request):  # The handoff first, then those whose caps count as well.
                if len(await self._load(missing)) < len(missing):
                    break
            # After each wait it is looked at anew: the handoff may have come back and died again meanwhile.
            handoff = self._engine.ledger.get(request.handoff)
            kept = None if handoff is None else handoff.kept
            if kept is None or not kept.seq:
                state = None
                break
            if kept.position == read_at:
                break
            state, read_at = await self._payload(kept.position), kept.position
        self._engine.redrive(request, state, to, self._clock.now())

    async def _payload(self, position: int) -> bytes:
        """What lies at a position; raises `StoreUnavailable` where it isn't on disk yet."""
        payloads = await self._store.payloads([position])
        if position not in payloads:
            raise StoreUnavailable("What this needs could not be read: send the same request again.")
        return payloads[position]

    def _waits_too_much(self, to: Address) -> bool:
        return self._engine.waiting.count_of(to.connection) >= self._config.max_waiting_requests

    # --- what has to be fetched first --------------------------------------------------------------------------------

    def _later(self, lane: str, to: Address, work: Coroutine[Any, Any, None]) -> None:
        """Does `work` off the spot; meanwhile requests of the same connection about the same handoff line up behind it."""
        key = (to.connection, lane)
        assert key not in self._lanes, "who finds a lane taken lines up in it"
        self._lanes[key] = deque()
        self._spawn(self._clear(key, to, work))

    async def _clear(self, key: tuple[int, str], to: Address, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except DHPError as error:
            self._refuse(to, error)
        except DiskError as error:
            _log.error("a read failed: %s", error)
            self._refuse(to, unreadable())
        except Exception:
            _log.exception("a request could not be carried out")
            self._refuse(to, mistake())
        for request, address in self._lanes.pop(key):  # In order: if one has to wait, those after it line up behind it.
            self._enter(request, address, left=key[1])
        connection = self.connections.get(key[0])
        if connection is not None and key[0] in self._ended_inputs:
            self.input_ended(connection)
        self.worked()

    async def _execute_loaded(self, missing: list[str], execute: Callable[[], None]) -> None:
        await self._load(missing)
        execute()

    async def _load(self, missing: list[str]) -> list[Handoff]:
        found = await self._loader.load(missing)
        for facts in found:
            self._engine.admit(facts, self._clock.now())
        return found

    async def stop(self) -> None:
        """The connections are gone: gives up what is still being read or prepared for them."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.answers.stop()
        await self._judging.close()
        await self._naming.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_ANY_HANDOFF = "*"
_Queued = AnyRequest | PreparedDispatch


def _may_have(facts: Handoff) -> bool:
    """Whether a capability could be granted: of any other handoff, none is."""
    return facts.capable and facts.status == RUNNING


def _lane_of(request: _Queued) -> str:
    """Which requests of one connection keep their order: those about the same handoff. `""`: this one is about none."""
    if isinstance(request, (ApprovalWait, ApprovalDecide)):
        return handoff_of(request.approval)
    handoff = getattr(request, "handoff", UNSET)
    if handoff is not UNSET and not isinstance(request, Watch):
        return str(handoff)
    return _ANY_HANDOFF if isinstance(request, Dispatch) else ""


class IntentMembers(Struct):
    """What the daemon looks at in an intent after its dispatch."""

    output_schema: Raw


members_of = msgspec.json.Decoder(IntentMembers).decode


def output_schema_of(intent: bytes) -> bytes:
    """The output schema in an intent's canonical bytes."""
    return bytes(members_of(intent).output_schema)
