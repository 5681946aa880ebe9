"""Watches: each record as an event, from a position on, missing none.

Owns the replay from the journal and its joining with what is committed meanwhile. A watcher that has seen all sleeps until
something comes that it wants, and gets that from memory (`tail`). One that is further behind, because it began there or
reads slowly, is fed from the journal on disk, page by page, as fast as it reads; so a slow one costs no memory, and one
that comes back goes on where it was. Where something has gone from the journal before it came there, it is told (`lagged`). However many wake at once, they come one after the other (`turns`), and others in between.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from msgspec import UNSET

from dhp_protocol.messages import Watch
from dhp_protocol.replies import LaggedEvent, LimitsHit, WatchReply
from dhpd.engine.journal import Batch
from dhpd.engine.operations import Engine
from dhpd.engine.waiting import Address
from dhpd.store.backend import DiskError, StoreBackend

from .clock import monotonic_s
from .connection import Connection
from .tail import Shown, Tail, encode
from .turns import Turns

PAGE_RECORDS = 128
"""So many make about half a millisecond's work; then the others have their turn."""
FLUSH_BYTES = 64 * 1024
READ_AGAIN_S = 0.5

_log = logging.getLogger(__name__)

_Topic = tuple[str, str | None]
_ANYTHING: _Topic = ("anything", None)


class _Watcher:
    """Has seen what it wants of the records up to `position`. `feed` is called when its turn has come."""

    def __init__(self, request: Watch, connection: int, position: int, feed: "Callable[[_Watcher], None]") -> None:
        self.handoff = None if request.handoff is UNSET else request.handoff
        self.kinds = None if request.kinds is UNSET else frozenset(request.kinds)
        self.connection = connection
        self.position = position
        self.last_shown = position
        """Of the handoff, where it wants one alone: nothing that it wants lies between this and `position`."""
        self.asleep = False
        self.task: asyncio.Task[None] | None = None
        self._feed = feed
        self.topics: list[_Topic] = [_ANYTHING]
        if self.handoff is not None:
            self.topics = [("handoff", self.handoff)]
        elif self.kinds is not None:
            self.topics = [("kind", kind) for kind in self.kinds]

    def take_turn(self, _: Callable[[], bool]) -> None:
        """A page of records, which takes about as long as a turn."""
        self._feed(self)

    def wants(self, shown: Shown) -> bool:
        if self.handoff is not None and shown.handoff != self.handoff:
            return False
        return self.kinds is None or shown.kind in self.kinds


class Watches:
    def __init__(
        self, engine: Engine, store: StoreBackend, connections: dict[int, Connection], hits: LimitsHit
    ) -> None:
        self._engine = engine
        self._hits = hits
        self._store = store
        self._connections = connections
        self._watchers: dict[int, _Watcher] = {}
        self._asleep: dict[_Topic, dict[_Watcher, None]] = {}
        self._tail = Tail(engine.journal.durable)
        self._turns = Turns(monotonic_s, lambda callback: asyncio.get_running_loop().call_soon(callback))
        # Those who are to be woken, and the position up to which each of them wanted nothing since it fell asleep.
        self._to_wake: deque[tuple[int, dict[_Watcher, None]]] = deque()

    def begin(self, request: Watch, to: Address) -> None:
        """Follows the journal from `after`, or from its present end; replaces the connection's earlier watch."""
        self.end(to.connection)
        # What is on its way to the disk at this moment comes as an event, whether or not it was seen before.
        position = self._engine.journal.durable
        if request.after is not UNSET:
            position = min(request.after, position)
        watcher = _Watcher(request, to.connection, position, self._feed)
        self._watchers[to.connection] = watcher
        self._engine.reply(to, WatchReply(position=position))
        self._turns.line_up(watcher)  # The reply goes first: it leaves before anybody's next turn.

    def has(self, connection: int) -> bool:
        """Whether the connection watches."""
        return connection in self._watchers

    def end(self, connection: int) -> None:
        """The connection watches no more."""
        watcher = self._watchers.pop(connection, None)
        if watcher is not None:
            self._rouse(watcher)
            self._turns.leave(watcher)
            if watcher.task is not None:
                watcher.task.cancel()

    def committed(self, batch: Batch) -> None:
        """The batch is on disk, with the entries that it still has."""
        if not self._watchers:
            self._tail.clear(batch.last_position)
            return
        records = self._shown(batch)
        self._tail.add(records)
        for shown in records if self._asleep else ():
            for topic in (("handoff", shown.handoff), ("kind", shown.kind), _ANYTHING):
                asleep = self._asleep.pop(topic, None)
                if asleep is not None:
                    self._to_wake.append((shown.position - 1, asleep))
        if self._to_wake:
            self._turns.line_up(self)

    def take_turn(self, is_over: Callable[[], bool]) -> None:
        """Wakes those for whom something has come: they line up as well."""
        while self._to_wake:
            position, watchers = self._to_wake[0]
            while watchers:
                watcher, _ = watchers.popitem()
                if watcher.asleep:  # If it was woken meanwhile, it has lined up, or has seen this and sleeps again.
                    self._rouse(watcher)
                    watcher.position = max(watcher.position, position)
                    self._turns.line_up(watcher)
                if is_over():
                    self._turns.line_up(self)
                    return
            self._to_wake.popleft()

    def _shown(self, batch: Batch) -> list[Shown]:
        # What ends may have left memory by the very commit that took its facts to the table.
        leaving = {facts.id: facts for facts in batch.facts}
        records = []
        for entry in batch.entries:
            name = entry.handoff
            facts = self._engine.ledger.get(name) or leaving.get(name) or batch.before.get(name)
            records.append(
                Shown(entry.position, entry.handoff, entry.record, facts.kind if facts is not None else None)
            )
        return records

    def _feed(self, watcher: _Watcher) -> None:
        connection = self._connections.get(watcher.connection)
        if connection is None:
            return
        durable = self._engine.journal.durable
        if watcher.position >= durable:
            self._sleep(watcher)
        elif watcher.position < self._tail.after or not connection.outbox.writable.is_set():
            watcher.task = asyncio.get_running_loop().create_task(self._catch_up(connection, watcher))
        else:
            self._show(connection, watcher, self._tail.page(watcher.position, PAGE_RECORDS), durable)

    async def _catch_up(self, connection: Connection, watcher: _Watcher) -> None:
        """Once it reads again, gets a page from the disk, if it lacks what isn't in memory any more."""
        await connection.outbox.writable.wait()
        durable = self._engine.journal.durable
        if watcher.position >= self._tail.after:
            self._turns.line_up(watcher)
            return
        try:
            page = await self._read(watcher.position)
            gone = await self._gone(watcher, page, durable)
        except DiskError as error:
            _log.error("a watch could not be read: %s", error)
            await asyncio.sleep(READ_AGAIN_S)
            self._turns.line_up(watcher)
        else:
            if gone:
                self._hits.lagged += 1
            self._show(connection, watcher, page, durable, gone)

    def _show(self, connection: Connection, watcher: _Watcher, page: list[Shown], durable: int, gone: int = 0) -> None:
        """`page` holds the next records; if it isn't full, there was no more up to `durable`."""
        if _send(connection, watcher, page, gone) and len(page) < PAGE_RECORDS:
            watcher.position = max(watcher.position, durable)
        self._turns.line_up(watcher)

    async def _read(self, position: int) -> list[Shown]:
        page = []
        for stored in await self._store.records_after(position, PAGE_RECORDS):
            facts = self._engine.ledger.get(stored.handoff)
            kind = facts.kind if facts is not None else stored.kind
            page.append(Shown(stored.position, stored.handoff, stored.record, kind, stored.before))
        return page

    async def _gone(self, watcher: _Watcher, page: list[Shown], durable: int) -> int:
        """Up to which position something that it may have wanted has gone from the journal; 0: nothing has.

        A position that is missing tells that a record has gone, but not whose it was. Of one handoff it is known, unless that
        has gone itself.
        """
        missing = _missing(page, watcher.position, durable)
        if not missing or watcher.handoff is None:
            return missing
        if self._engine.ledger.get(watcher.handoff) is None and not await self._store.facts_of([watcher.handoff]):
            return missing
        return _missing_before(watcher, page)

    def _sleep(self, watcher: _Watcher) -> None:
        """Until something comes that it wants."""
        watcher.asleep = True
        for topic in watcher.topics:
            self._asleep.setdefault(topic, {})[watcher] = None

    def _rouse(self, watcher: _Watcher) -> None:
        watcher.asleep = False
        for topic in watcher.topics:
            asleep = self._asleep.get(topic)
            if asleep is not None:
                asleep.pop(watcher, None)
                if not asleep:
                    del self._asleep[topic]


def _missing(page: list[Shown], position: int, durable: int) -> int:
    """The last position after `position` that is missing among those in the page; 0: none is."""
    missing = 0
    for shown in page:
        missing = shown.position - 1 if shown.position > position + 1 else missing
        position = shown.position
    return durable if len(page) < PAGE_RECORDS and position < durable else missing


def _missing_before(watcher: _Watcher, page: list[Shown]) -> int:
    """As `_missing`, of the records of the one handoff that it wants: each tells what was before it."""
    missing, last = 0, watcher.last_shown
    for shown in page:
        if watcher.wants(shown):
            missing = shown.position - 1 if shown.before > last else missing
            last = shown.position
    return missing


def _send(connection: Connection, watcher: _Watcher, page: Iterable[Shown], gone: int) -> bool:
    """Sends what the watcher wants of the page, for as long as the connection takes it; tells whether that was all.

    Something has gone from the journal up to the position `gone` (0: nothing), which is said in its place.
    """
    gathered_bytes = 0
    for shown in page:
        if 0 < gone < shown.position:
            connection.send_event(encode(LaggedEvent(after=gone)))
            gone = 0
        if gathered_bytes >= FLUSH_BYTES:
            connection.flush()
            gathered_bytes = 0
            if not connection.outbox.writable.is_set():
                return False
        watcher.position = shown.position
        if watcher.wants(shown):
            watcher.last_shown = shown.position
            connection.send_event(shown.event)
            gathered_bytes += len(shown.event)
    if gone:
        connection.send_event(encode(LaggedEvent(after=gone)))
    connection.flush()
    return True
