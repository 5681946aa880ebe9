"""What must be had before the engine can decide: facts and payloads from the store, names, verdicts.

Owns, for each kind of request, whether it can be carried out at once, and else the work that leads there. Each method does
the former and gives None, or gives the work. Does not own the order of requests (`lanes`). Knows no rules.
"""

from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Raw, Struct

from dhp_protocol.decoding import RequestFault
from dhp_protocol.errors import (
    ERROR_BY_CODE,
    BadJson,
    DHPError,
    InvalidRequest,
    Overloaded,
    ResultInvalid,
    StoreUnavailable,
)
from dhp_protocol.limits import Limits
from dhp_protocol.messages import AnyRequest, ApprovalRequest, CheckCapability, Complete, Dispatch, Redrive
from dhpd.engine.capabilities import granted
from dhpd.engine.dispatching import PreparedDispatch
from dhpd.engine.facts import RUNNING, Handoff
from dhpd.engine.operations import Engine
from dhpd.engine.roles import may_hold
from dhpd.engine.waiting import Address
from dhpd.sandbox.bounds import BeyondBounds, Bounds
from dhpd.sandbox.queueing import Queue
from dhpd.sandbox.tasks import decode_explanation, decode_named
from dhpd.store.backend import StoreBackend

from .capability_sets import CapabilitySets
from .clock import Clock
from .lanes import Work
from .loading import Loader
from .output_schemas import NotHere, Schemas

LONG_TEXT_BYTES = 8 * 1024
"""The canonical form of a longer one takes more than about a millisecond, so it is made in the sandbox."""


class Preparing:
    def __init__(self, engine: Engine, store: StoreBackend, clock: Clock, limits: Limits) -> None:
        self.loader = Loader(engine, store, clock)
        self._judging = Queue(Bounds())
        self._naming = Queue(Bounds())  # Of its own, since a name takes a moment, and a verdict may take seconds.
        self.schemas = Schemas(self._judging)
        self._capabilities = CapabilitySets()
        self._engine = engine
        self._store = store
        self._clock = clock
        self._limits = limits

    async def close(self) -> None:
        """Ends the sandbox; who still waits for it hears `Overloaded`."""
        await self._judging.close()
        await self._naming.close()

    # --- any request --------------------------------------------------------------------------------------------------

    def execute(self, request: AnyRequest, to: Address) -> Work | None:
        """Any request that needs no more than the handoffs that it is about."""
        missing = partial(self._engine.missing, request, to.caller)
        if missing():
            return self.execute_loaded(missing, lambda: self._execute(request, to))
        self._execute(request, to)
        return None

    def _execute(self, request: AnyRequest, to: Address) -> None:
        self._engine.execute(request, to, self._clock.now())

    async def execute_loaded(self, missing: Callable[[], list[str]], execute: Callable[[], None]) -> None:
        """Reads what `missing` names, until that is nothing but what the store doesn't have: some may leave meanwhile."""
        lacking: list[str] = []
        while (wanted := missing()) and wanted != lacking:
            await self.loader.load(wanted)
            lacking = wanted
        execute()

    async def explain(self, connection: int, body: bytes, max_depth: int) -> RequestFault | None:
        """What is wrong with a long request; None: nothing is."""
        try:
            depth, limits = str(max_depth).encode(), msgspec.json.encode(self._limits)
            answer = await self._judging.ask(connection, "explain", body, depth, limits)
        except BeyondBounds:
            return RequestFault(BadJson("The body takes too long to be read: send a plainer one."))
        except Overloaded as error:
            return RequestFault(error)
        told = decode_explanation(answer)
        return None if not told.code else RequestFault(ERROR_BY_CODE[told.code](told.message, **told.details), told.id)

    # --- dispatch -----------------------------------------------------------------------------------------------------

    async def name(self, request: Dispatch, connection: int) -> PreparedDispatch:
        """Names a long intent."""
        limits = msgspec.json.encode(self._limits)
        try:
            named = await self._naming.ask(connection, "name", msgspec.json.encode(request), limits)
        except BeyondBounds:
            raise InvalidRequest("This intent takes too long to be named: make it plainer.", member="inputs") from None
        return PreparedDispatch(request, decode_named(named))

    def check_here(self, prepared: PreparedDispatch) -> bool:
        """Whether the output schema is known to be good; raises `SchemaInvalid` where it is plain that it isn't."""
        if not prepared.named.has_schema or self.schemas.known(prepared.handoff):
            return True
        try:
            # In its canonical form, as a later start will read it: numbers are doubles there.
            self.schemas.check_here(prepared.handoff, _output_schema_of(prepared.named.canonical))
        except NotHere:
            return False
        return True

    async def check(self, prepared: PreparedDispatch, connection: int) -> None:
        """As `check_here`, whatever it takes; raises `SchemaInvalid`."""
        await self.schemas.check(prepared.handoff, _output_schema_of(prepared.named.canonical), connection)

    # --- complete -----------------------------------------------------------------------------------------------------

    def complete(self, request: Complete, to: Address) -> Work | None:
        """A result, with what its schema says of it."""
        facts = self._engine.ledger.get(request.handoff)
        try:
            if facts is None or (self._wants_verdict(facts, request, to) and not self.schemas.known(facts.id)):
                raise NotHere
            verdict = self._verdict_here(facts, request, to)
        except NotHere:
            return self._complete_loaded(request, to)
        self._engine.complete(request, verdict, to, self._clock.now())
        return None

    async def _complete_loaded(self, request: Complete, to: Address) -> None:
        await self.loader.load(self._engine.missing(request))
        facts = self._engine.ledger.get(request.handoff)
        verdict = None
        if facts is not None and self._wants_verdict(facts, request, to):
            if not self.schemas.known(facts.id):
                self.schemas.take_up(facts.id, _output_schema_of(await self._payload(facts.number)))
            try:
                verdict = self._verdict_here(facts, request, to)
            except NotHere:
                verdict = await self.schemas.judge(facts.id, bytes(request.result), to.connection)
        self._engine.complete(request, verdict, to, self._clock.now())

    def _verdict_here(self, facts: Handoff, request: Complete, to: Address) -> ResultInvalid | None:
        """What the output schema, which is known, says of the result, as far as it counts; raises `NotHere`."""
        if not self._wants_verdict(facts, request, to):
            return None
        return self.schemas.judge_here(facts.id, bytes(request.result))

    def _wants_verdict(self, facts: Handoff, request: Complete, to: Address) -> bool:
        """Whether the engine could accept the result: of any other, it decides without a verdict."""
        held = facts.status == RUNNING and facts.fence == request.fence and may_hold(facts, to.caller)
        return facts.has_schema and held and len(bytes(request.result)) <= self._limits.max_result_bytes

    # --- capabilities, approvals, redrive -----------------------------------------------------------------------------

    def check_capability(self, request: CheckCapability, to: Address) -> Work | None:
        """A capability check, with what the intent grants."""
        facts = self._engine.ledger.get(request.handoff)
        if facts is None or (_may_have(facts) and self._capabilities.get(facts.id) is None):
            return self._check_loaded(request, to)
        self._check(request, to)
        return None

    async def _check_loaded(self, request: CheckCapability, to: Address) -> None:
        await self.loader.load(self._engine.missing(request))
        facts = self._engine.ledger.get(request.handoff)
        if facts is not None and _may_have(facts):
            await self._capabilities.take_up(facts.id, await self._payload(facts.number))
        self._check(request, to)

    def _check(self, request: CheckCapability, to: Address) -> None:
        known = self._capabilities.get(request.handoff)
        allowed = known is not None and granted(known, request.domain, request.resource)
        self._engine.check_capability(request, allowed, to, self._clock.now())

    def approval_request(self, request: ApprovalRequest, to: Address) -> Work | None:
        """A question to a person, with the canonical form of its details."""
        if LONG_TEXT_BYTES < len(bytes(request.details)) <= self._limits.max_details_bytes:
            return self._ask_at_length(request, to)
        return self.execute(request, to)

    async def _ask_at_length(self, request: ApprovalRequest, to: Address) -> None:
        details: bytes | DHPError
        try:
            details = await self._naming.ask(to.connection, "canonical", bytes(request.details), b"details")
        except BeyondBounds:
            details = InvalidRequest("These details take too long to be read: make them plainer.", member="details")
        except InvalidRequest as error:
            details = error
        await self.loader.load(self._engine.missing(request))
        self._engine.approval_request(request, details, to, self._clock.now())

    def redrive(self, request: Redrive, to: Address) -> Work | None:
        """A redrive, with the state that a cap had refused."""
        facts = self._engine.ledger.get(request.handoff)
        if self._engine.missing(request) or (facts is not None and facts.kept is not None and facts.kept.seq):
            return self._redrive_loaded(request, to)
        self._engine.redrive(request, None, to, self._clock.now())
        return None

    async def _redrive_loaded(self, request: Redrive, to: Address) -> None:
        state, read_at = None, 0
        while True:
            while missing := self._engine.missing(request):  # The handoff first, then those whose caps count as well.
                if len(await self.loader.load(missing)) < len(missing):
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


def _may_have(facts: Handoff) -> bool:
    """Whether a capability could be granted: of any other handoff, none is."""
    return facts.capable and facts.status == RUNNING


class _Members(Struct):
    output_schema: Raw


_members_of = msgspec.json.Decoder(_Members).decode


def _output_schema_of(intent: bytes) -> bytes:
    """The output schema in an intent's canonical bytes."""
    return bytes(_members_of(intent).output_schema)
