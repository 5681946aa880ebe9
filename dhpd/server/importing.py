"""Bundles on their way in: taken in part by part, checked off the loop, applied as a whole.

Owns which connection is in the middle of which bundle, for how long it may be silent, and that a plan is of the moment in which
the engine gets it. Does not own what may stand in a bundle, nor what becomes of it (`dhpd.engine.porting`).
"""

import asyncio
from collections.abc import Container

import msgspec
from msgspec import Struct

from dhp_protocol.bundle import line_fault
from dhp_protocol.errors import InvalidRequest, Overloaded
from dhp_protocol.limits import Limits
from dhp_protocol.messages import HandoffId, Import
from dhp_protocol.replies import Empty
from dhpd.engine.arriving import Arrival
from dhpd.engine.facts import Handoff
from dhpd.engine.operations import Engine
from dhpd.engine.porting import Plan, plan_extension, plan_new
from dhpd.engine.porting_operations import Arrived
from dhpd.engine.records import AnyRecord
from dhpd.engine.waiting import Address
from dhpd.sandbox.fairness import Asker, asker_of
from dhpd.store.backend import StoreBackend

from .clock import Clock
from .loading import Loader
from .output_schemas import Schemas

MAX_OPEN = 8
"""Of all connections: each may hold a whole bundle in memory."""
WHOLE_AT_ONCE = 2
"""All of them together are no longer than so many of the longest."""
RECORDS_AT_ONCE = 1_000
PLANNED_AT_MOST = 5
"""How often a plan is made anew because the handoff has changed meanwhile."""
SILENT_AT_MOST_S = 60.0
"""So long a bundle waits for its next part; then its place is free for another."""
ANY_BUNDLE = "import"


class _Head(Struct):
    handoff: HandoffId


_decode_head = msgspec.json.Decoder(_Head).decode


class _Opened:
    __slots__ = ("arrival", "lane", "silence")

    def __init__(self, lane: str, limits: Limits) -> None:
        self.lane = lane
        self.arrival = Arrival(limits)
        self.silence: asyncio.TimerHandle | None = None  # Runs while the next part is awaited.

    def stop_waiting(self) -> None:
        if self.silence is not None:
            self.silence.cancel()
            self.silence = None


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
        self._given_up: dict[int, int] = {}  # By connection: how far its bundle had come.

    def lane(self, connection: int, request: Import) -> str:
        """Which handoff this part of a bundle is about: what its connection asks about that stands behind it."""
        opened = self._opened.get(connection)
        if opened is None:
            opened = self._opened[connection] = _Opened(_named_in(request), self._limits)
        opened.stop_waiting()
        return opened.lane

    def has(self, connection: int) -> bool:
        """Whether a bundle is on its way in there."""
        return connection in self._opened

    def drop(self, connection: int) -> None:
        """The connection is gone, or its bundle is done with."""
        opened = self._opened.pop(connection, None)
        if opened is not None:
            opened.stop_waiting()
        self._given_up.pop(connection, None)

    def _give_up(self, connection: int) -> None:
        """Whoever says nothing for long keeps no place that others want."""
        self._given_up[connection] = self._opened.pop(connection).arrival.line

    async def take(self, request: Import, to: Address) -> None:
        """Takes the next lines, and with the last one what all came to. Whatever is refused is the end of that bundle."""
        lane = self.lane(to.connection, request)
        opened = self._opened[to.connection]
        arrival = opened.arrival
        try:
            given_up = self._given_up.pop(to.connection, 0)
            if given_up and lane == ANY_BUNDLE:
                raise _too_late(given_up + 1)
            if not arrival.line and len(self._opened) > MAX_OPEN:
                raise Overloaded("Too many bundles are on their way in: try again later.", after_ms=1_000)
            lines = [bytes(line) for line in request.records]
            held_bytes = sum(each.arrival.size_bytes for each in self._opened.values())
            if held_bytes + sum(map(len, lines)) > WHOLE_AT_ONCE * self._limits.max_bundle_bytes and held_bytes:
                raise Overloaded("The bundles on their way in are as long as may be: try again later.", after_ms=1_000)
            await asyncio.to_thread(arrival.take, lines)
            if not arrival.whole and to.connection in self._connections:
                self._engine.reply(to, Empty())
                loop = asyncio.get_running_loop()
                opened.silence = loop.call_later(SILENT_AT_MOST_S, self._give_up, to.connection)
                return
            if arrival.whole:
                await self._check_schema(arrival, asker_of(to.connection, to.caller))
                await self._apply(arrival, request, to)
        except BaseException:
            self.drop(to.connection)
            raise
        self.drop(to.connection)

    async def _check_schema(self, arrival: Arrival, asker: Asker) -> None:
        """As at a dispatch, and as at a complete: nothing comes in this way that would be refused there."""
        named, intent = arrival.named, arrival.intent
        assert named is not None
        assert intent is not None
        if not named.has_schema:
            return
        await self._schemas.check(named.handoff, bytes(intent.output_schema), asker)
        if arrival.result is not None:
            line, result = arrival.result
            verdict = await self._schemas.judge(named.handoff, result, asker)
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
                self._engine.execute(request, to, self._clock.now(), Arrived(handoff, plan))
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


def _too_late(line: int) -> InvalidRequest:
    return line_fault(
        line, f"came more than {SILENT_AT_MOST_S:.0f} s after the one before: send the bundle again from its first line"
    )


def _named_in(request: Import) -> str:
    """The handoff that the first line names, if it is an envelope."""
    try:
        return _decode_head(bytes(request.records[0])).handoff
    except (msgspec.DecodeError, RecursionError):
        return ANY_BUNDLE
