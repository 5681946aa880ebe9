"""Watches: each record as an event, from a position on, missing none.

Owns the replay from the journal and its joining with what is committed meanwhile. A watcher is fed from the journal on
disk, page by page, as fast as it reads; so a slow one costs no memory, and one that comes back goes on where it was.
"""

import asyncio
import logging

import msgspec
from msgspec import UNSET, Raw

from dhp_protocol.messages import Watch
from dhp_protocol.replies import RecordEvent, WatchReply
from dhpd.engine.operations import Engine
from dhpd.engine.views import record_view
from dhpd.engine.waiting import Address
from dhpd.store.backend import DiskError, StoreBackend, StoredRecord

from .connection import Connection

PAGE_RECORDS = 256
READ_AGAIN_S = 0.5

_log = logging.getLogger(__name__)
encode = msgspec.json.Encoder().encode


class _Watcher:
    def __init__(self, request: Watch, position: int) -> None:
        self.handoff = None if request.handoff is UNSET else request.handoff
        self.kinds = None if request.kinds is UNSET else frozenset(request.kinds)
        self.position = position
        self.more = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Watches:
    def __init__(self, engine: Engine, store: StoreBackend, connections: dict[int, Connection]) -> None:
        self._engine = engine
        self._store = store
        self._connections = connections
        self._watchers: dict[int, _Watcher] = {}

    def begin(self, request: Watch, to: Address) -> None:
        """Follows the journal from `after`, or from its present end; replaces the connection's earlier watch."""
        self.end(to.connection)
        # What is on its way to the disk at this moment comes as an event, whether or not it was seen before.
        position = self._engine.journal.durable
        if request.after is not UNSET:
            position = min(request.after, position)
        watcher = self._watchers[to.connection] = _Watcher(request, position)
        self._engine.reply(to, WatchReply(position=position))
        watcher.more.set()
        watcher.task = asyncio.get_running_loop().create_task(self._feed(to.connection, watcher))

    def end(self, connection: int) -> None:
        """The connection watches no more."""
        watcher = self._watchers.pop(connection, None)
        if watcher is not None and watcher.task is not None:
            watcher.task.cancel()

    def committed(self) -> None:
        """Something is on disk."""
        for watcher in self._watchers.values():
            watcher.more.set()

    async def _feed(self, number: int, watcher: _Watcher) -> None:
        await asyncio.sleep(0)  # The reply goes first.
        while (connection := self._connections.get(number)) is not None and self._watchers.get(number) is watcher:
            await connection.writable.wait()
            watcher.more.clear()
            try:
                page = await self._store.records_after(watcher.position, PAGE_RECORDS)
            except DiskError as error:
                _log.error("a watch could not be read: %s", error)
                await asyncio.sleep(READ_AGAIN_S)
                continue
            for stored in page:
                if self._wanted(watcher, stored):
                    view = encode(record_view(stored.position, stored.record))
                    connection.send_event(encode(RecordEvent(handoff=stored.handoff, record=Raw(view))))
            connection.flush()
            if page:
                watcher.position = page[-1].position
            if len(page) < PAGE_RECORDS:
                await watcher.more.wait()

    def _wanted(self, watcher: _Watcher, stored: StoredRecord) -> bool:
        if watcher.handoff is not None and stored.handoff != watcher.handoff:
            return False
        return watcher.kinds is None or self._kind_of(stored) in watcher.kinds

    def _kind_of(self, stored: StoredRecord) -> str | None:
        facts = self._engine.ledger.get(stored.handoff)
        return facts.kind if facts is not None else stored.kind
