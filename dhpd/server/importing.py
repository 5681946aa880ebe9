"""Bundles on their way in: taken in part by part, checked off the loop, applied as a whole.

Owns which connection is in the middle of which bundle, and that a plan is of the moment in which the engine gets it. Does not
own what may stand in a bundle, nor what becomes of it (`dhpd.engine.porting`).
"""

import asyncio
from collections.abc import Container

import msgspec
from msgspec import Struct

from dhp_protocol.bundle import line_fault
from dhp_protocol.errors import Overloaded
from dhp_protocol.limits import Limits
from dhp_protocol.messages import HandoffId, Import
from dhp_protocol.replies import Empty
from dhpd.engine.arriving import Arrival
from dhpd.engine.facts import Handoff
from dhpd.engine.operations import Engine
from dhpd.engine.porting import Plan, plan_extension, plan_new
from dhpd.engine.records import AnyRecord
from dhpd.engine.waiting import Address
from dhpd.store.backend import StoreBackend

from .clock import Clock
from .loading import Loader
from .output_schemas import Schemas

MAX_OPEN = 8
"""Of all connections: each may hold a whole bundle in memory."""
RECORDS_AT_ONCE = 1_000
PLANNED_AT_MOST = 5
"""How often a plan is made anew because the handoff has changed meanwhile."""
ANY_BUNDLE = "import"


class _Head(Struct):
    handoff: HandoffId


_decode_head = msgspec.json.Decoder(_Head).decode


class _Opened:
    __slots__ = ("arrival", "lane")

    def __init__(self, lane: str, limits: Limits) -> None:
        self.lane = lane
        self.arrival = Arrival(limits)


class Imports:
    def __init__(
        self,
        engine: Engine,
        store: StoreBackend,
        loader: Loader,
        schemas: Schemas,
        clock: Clock,
        limits: Limits,
        connections: Container[int],
    ) -> None:
        """`connections` are the numbers of the open ones."""
        self._engine = engine
        self._store = store
        self._loader = loader
        self._schemas = schemas
        self._clock = clock
        self._limits = limits
        self._connections = connections
        self._opened: dict[int, _Opened] = {}

    def lane(self, connection: int, request: Import) -> str:
        """Which handoff this part of a bundle is about: what its connection asks about that stands behind it."""
        opened = self._opened.get(connection)
        if opened is None:
            opened = self._opened[connection] = _Opened(_named_in(request), self._limits)
        return opened.lane

    def drop(self, connection: int) -> None:
        """The connection is gone, or its bundle is done with."""
        self._opened.pop(connection, None)

    async def take(self, request: Import, to: Address) -> None:
        """Takes the next lines, and with the last one what all came to. Whatever is refused is the end of that bundle."""
        self.lane(to.connection, request)
        try:
            arrival = self._opened[to.connection].arrival
            if not arrival.line and len(self._opened) > MAX_OPEN:
                raise Overloaded("Too many bundles are on their way in: try again later.", after_ms=1_000)
            await asyncio.to_thread(arrival.take, [bytes(line) for line in request.records])
            if not arrival.whole and to.connection in self._connections:
                self._engine.reply(to, Empty())
                return
            if arrival.whole:
                await self._check_schema(arrival, to.connection)
                await self._apply(arrival, request, to)
        except BaseException:
            self.drop(to.connection)
            raise
        self.drop(to.connection)

    async def _check_schema(self, arrival: Arrival, connection: int) -> None:
        """As at a dispatch, and as at a complete: nothing comes in this way that would be refused there."""
        named, intent = arrival.named, arrival.intent
        assert named is not None
        assert intent is not None
        if not named.has_schema:
            return
        await self._schemas.check(named.handoff, bytes(intent.output_schema), connection)
        if arrival.result is not None:
            line, result = arrival.result
            verdict = await self._schemas.judge(named.handoff, result, connection)
            if verdict is not None:
                raise line_fault(line, f"holds a result that doesn't fit the output schema: {verdict}")

    async def _apply(self, arrival: Arrival, request: Import, to: Address) -> None:
        assert arrival.named is not None
        handoff = arrival.named.handoff
        for _ in range(PLANNED_AT_MOST):
            await self._loader.load([handoff])
            present = self._engine.ledger.get(handoff)
            plan = await self._plan(arrival, present)
            if self._engine.ledger.get(handoff) is present:
                self._engine.import_(request, handoff, plan, to, self._clock.now())
                return
        raise Overloaded("The handoff changes all the time: try again when it is at rest.", after_ms=1_000)

    async def _plan(self, arrival: Arrival, present: Handoff | None) -> Plan | None:
        if present is None:
            return plan_new(arrival)
        own = await self._records_of(present)
        return await asyncio.to_thread(plan_extension, arrival, present, own)

    async def _records_of(self, present: Handoff) -> list[AnyRecord]:
        """All its records: those on disk, and those that are on their way there."""
        pending = [entry for entry in self._engine.journal.pending_of(present.id) if entry.position >= present.number]
        head = pending[0].prev if pending else present.position
        newest_n = pending[0].record.n - 1 if pending else present.n
        records: list[AnyRecord] = []
        while head and (not records or records[-1].n < newest_n):
            after = records[-1].n if records else 0
            page = await self._store.records_of(head, after, RECORDS_AT_ONCE)
            if not page:
                break
            records += (stored.record for stored in page)
        return [*records, *(entry.record for entry in pending)]


def _named_in(request: Import) -> str:
    """The handoff that the first line names, if it is an envelope."""
    try:
        return _decode_head(bytes(request.records[0])).handoff
    except (msgspec.DecodeError, RecursionError):
        return ANY_BUNDLE
