"""What must be had before the engine can decide: facts and payloads from the store, names, verdicts.

Owns, for each kind of request, whether it can be carried out at once, and else the work that leads there. Does not own the
order of requests (`lanes`). Knows no rules.

There is one way: each kind of request has a `Find`, which says what the engine needs beside the request, or how that is got;
and `execute` looks anew after each wait, until all that is needed is at hand in the same moment in which the engine decides.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

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
from dhpd.engine.leases import Lease
from dhpd.engine.operations import Engine, Prepared
from dhpd.engine.roles import may_hold
from dhpd.engine.waiting import Address
from dhpd.sandbox.bounds import BeyondBounds, Bounds
from dhpd.sandbox.fairness import Asker, asker_of
from dhpd.sandbox.queueing import ANSWERED_WITHIN_S, Queue
from dhpd.sandbox.tasks import decode_explanation, decode_named
from dhpd.store.backend import StoreBackend

from .capability_sets import CapabilitySets
from .clock import Clock
from .costs import is_cheap
from .intent_members import output_schema_of
from .lanes import Work
from .loading import Loader
from .output_schemas import NotHere, Schemas

HELD_FOR_VERDICT_MS = int(ANSWERED_WITHIN_S * 1000) + 10_000
"""A lease doesn't end by itself while a result is judged: for as long as that may take, and reading the schema before."""


class ToGet(NamedTuple):
    """Something isn't at hand: `get` brings it there, or raises what the request is refused with."""

    get: Callable[[], Awaitable[None]]


Find = Callable[[], Prepared | UnsetType | ToGet]
"""What the engine needs beside the request, as things are now (UNSET: nothing)."""


def _nothing() -> UnsetType:
    return UNSET


class Preparing:
    def __init__(self, engine: Engine, store: StoreBackend, clock: Clock, limits: Limits) -> None:
        self.loader = Loader(engine, store, clock)
        self._sandbox = Queue(Bounds())
        self.schemas = Schemas(self._sandbox)
        self._capabilities = CapabilitySets()
        self._engine = engine
        self._store = store
        self._clock = clock
        self._limits = limits

    async def close(self) -> None:
        """Ends the sandbox; who still waits for it hears `Overloaded`."""
        await self._sandbox.close()

    # --- any request --------------------------------------------------------------------------------------------------

    def execute(self, request: AnyRequest | PreparedDispatch, to: Address, find: Find = _nothing) -> Work | None:
        """Carries out a request, or gives the work that does; raises what it is refused with."""
        if self._engine.missing(request, to.caller) or isinstance(found := find(), ToGet):
            return self._execute_later(request, to, find)
        self._engine.execute(request, to, self._clock.now(), found)
        return None

    async def _execute_later(self, request: AnyRequest | PreparedDispatch, to: Address, find: Find) -> None:
        lacking: list[str] = []
        while True:
            missing = self._engine.missing(request, to.caller)
            if missing and missing != lacking:  # The store doesn't have what is lacking still.
                await self.loader.load(missing)
                lacking = missing
            elif isinstance(found := find(), ToGet):
                await found.get()
                lacking = []  # Meanwhile some may have left memory.
            else:
                break
        self._engine.execute(request, to, self._clock.now(), found)

    async def explain(self, asker: Asker, body: bytes, max_depth: int) -> RequestFault | None:
        """What is wrong with a long request; None: nothing is."""
        try:
            depth, limits = str(max_depth).encode(), msgspec.json.encode(self._limits)
            answer = await self._sandbox.ask(asker, "explain", body, depth, limits)
        except BeyondBounds:
            return RequestFault(BadJson("The body takes too long to be read: send a plainer one."))
        except Overloaded as error:
            return RequestFault(error)
        told = decode_explanation(answer)
        return None if not told.code else RequestFault(ERROR_BY_CODE[told.code](told.message, **told.details), told.id)

    # --- dispatch -----------------------------------------------------------------------------------------------------

    async def name(self, request: Dispatch, to: Address) -> PreparedDispatch:
        """Names a long intent."""
        limits = msgspec.json.encode(self._limits)
        try:
            named = await self._sandbox.ask(_asker(to), "name", msgspec.json.encode(request), limits)
        except BeyondBounds:
            raise InvalidRequest("This intent takes too long to be named: make it plainer.", member="inputs") from None
        return PreparedDispatch(request, decode_named(named))

    def dispatch(self, prepared: PreparedDispatch, to: Address) -> Work | None:
        """A dispatch whose intent is named, once its output schema is known to be good."""
        good = not prepared.named.has_schema or self.schemas.known(prepared.handoff)

        async def check() -> None:
            nonlocal good
            await self.schemas.check(prepared.handoff, output_schema_of(prepared.named.canonical), _asker(to))
            good = True

        def find() -> UnsetType | ToGet:
            nonlocal good
            if not good:
                try:  # In its canonical form, as a later start will read it: numbers are doubles there.
                    self.schemas.check_here(prepared.handoff, output_schema_of(prepared.named.canonical))
                except NotHere:
                    return ToGet(check)
                good = True
            return UNSET

        return self.execute(prepared, to, find)

    # --- complete -----------------------------------------------------------------------------------------------------

    def complete(self, request: Complete, to: Address) -> Work | None:
        """A result, with what its schema says of it."""
        judged: list[ResultInvalid | None] = []
        result = bytes(request.result)

        async def read_schema(facts: Handoff) -> None:
            self.schemas.take_up(facts.id, output_schema_of(await self._payload(facts.number)))

        async def judge() -> None:
            judged.append(await self.schemas.judge(request.handoff, result, _asker(to)))

        def find() -> ResultInvalid | ToGet | None:
            facts = self._engine.ledger.get(request.handoff)
            if facts is None or not self._wants_verdict(facts, request, to):
                return None
            if judged:  # The schema is part of the handoff's name, so what it says stays true.
                return judged[0]
            if not self.schemas.known(facts.id):
                return ToGet(partial(read_schema, facts))
            try:
                return self.schemas.judge_here(facts.id, result)
            except NotHere:
                return ToGet(judge)

        work = self.execute(request, to, find)
        if work is None:
            return None
        return self._hold(work, self._engine.await_verdict(request, to, self._clock.now(), HELD_FOR_VERDICT_MS))

    async def _hold(self, work: Work, lease: Lease | None) -> None:
        """The lease, which the request came under, doesn't end while our own work is what its holder waits for."""
        try:
            await work
        finally:
            if lease is not None:
                self._engine.verdict_came(lease, self._clock.now())

    def _wants_verdict(self, facts: Handoff, request: Complete, to: Address) -> bool:
        """Whether the engine could accept the result: of any other, it decides without a verdict."""
        held = facts.status == RUNNING and facts.fence == request.fence and may_hold(facts, to.caller)
        return facts.has_schema and held and len(bytes(request.result)) <= self._limits.max_result_bytes

    # --- capabilities, approvals, redrive -----------------------------------------------------------------------------

    def check_capability(self, request: CheckCapability, to: Address) -> Work | None:
        """A capability check, with what the intent grants."""

        async def read(facts: Handoff) -> None:
            await self._capabilities.take_up(facts.id, await self._payload(facts.number))

        def find() -> bool | ToGet:
            facts = self._engine.ledger.get(request.handoff)
            if facts is None or not facts.capable or facts.status != RUNNING:
                return False
            known = self._capabilities.get(facts.id)
            return ToGet(partial(read, facts)) if known is None else granted(known, request.domain, request.resource)

        return self.execute(request, to, find)

    def approval_request(self, request: ApprovalRequest, to: Address) -> Work | None:
        """A question to a person, with the canonical form of its details."""
        details = bytes(request.details)
        here = len(details) > self._limits.max_details_bytes or is_cheap((details,))
        canonical: list[bytes | DHPError] = []

        async def make_canonical() -> None:
            try:
                canonical.append(await self._sandbox.ask(_asker(to), "canonical", details, b"details"))
            except BeyondBounds:
                sentence = "These details take too long to be read: make them plainer."
                canonical.append(InvalidRequest(sentence, member="details"))
            except InvalidRequest as error:
                canonical.append(error)

        def find() -> bytes | DHPError | ToGet | None:
            if here:
                return None
            return canonical[0] if canonical else ToGet(make_canonical)

        return self.execute(request, to, find)

    def redrive(self, request: Redrive, to: Address) -> Work | None:
        """A redrive, with the state that a cap had refused."""
        states: dict[int, bytes] = {}

        async def read(position: int) -> None:
            states[position] = await self._payload(position)

        def find() -> bytes | ToGet | None:
            facts = self._engine.ledger.get(request.handoff)
            if facts is None or facts.kept is None or not facts.kept.seq:
                return None
            position = facts.kept.position  # Another one, where it came back and died again meanwhile.
            return states[position] if position in states else ToGet(partial(read, position))

        return self.execute(request, to, find)

    async def _payload(self, position: int) -> bytes:
        """What lies at a position; raises `StoreUnavailable` where it isn't on disk yet."""
        payloads = await self._store.payloads([position])
        if position not in payloads:
            raise StoreUnavailable("What this needs could not be read: send the same request again.")
        return payloads[position]


def _asker(to: Address) -> Asker:
    return asker_of(to.connection, to.caller)
