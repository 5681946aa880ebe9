"""Answers: whatever the engine lets out, on its way to who asked.

Owns the reading of what an answer shows: pages and small answers of a connection one after the other, each kind by itself,
and no faster than the peer reads. Does not own when something may leave (`dhpd.engine.journal`).
"""

import asyncio
import logging
from collections import Counter, deque
from typing import Any

from msgspec import Struct

from dhp_protocol.errors import DHPError, Internal, StoreUnavailable
from dhp_protocol.replies import error_reply_body, reply_body
from dhpd.engine.facts import RUNNING
from dhpd.engine.lookups import ExportLookup, Lookup, first_seq_shown
from dhpd.engine.operations import Engine
from dhpd.engine.outputs import Notice, Reply
from dhpd.engine.views import NO_LEASE, LeaseView, lease_view
from dhpd.engine.waiting import Address
from dhpd.store.backend import DiskError, StoreBackend
from dhpd.store.reading import PAGES, resolve

from .clock import Clock
from .connection import Connection
from .tail import encode

PAGES_AT_ONCE = 4
SMALL_AT_ONCE = 16
"""Of all connections: so many answers are in the making at most, each of which is held whole."""

_log = logging.getLogger(__name__)


class Answers:
    def __init__(
        self,
        engine: Engine,
        store: StoreBackend,
        clock: Clock,
        max_frame_bytes: int,
        connections: dict[int, Connection],
    ) -> None:
        """`connections` are the open ones, by number."""
        self._engine = engine
        self._store = store
        self._clock = clock
        self._max_frame_bytes = max_frame_bytes
        self._connections = connections
        self._seqs_in_use: dict[str, Counter[int]] = {}
        self._reads: dict[tuple[int, bool], deque[Reply]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Making a page takes the loop many steps: one at a time, whoever asks.
        self._exporting = asyncio.Semaphore(1)
        self._at_once = {True: asyncio.Semaphore(PAGES_AT_ONCE), False: asyncio.Semaphore(SMALL_AT_ONCE)}

    async def stop(self) -> None:
        """The connections are gone: gives up what is still being read for them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def deliver(self) -> None:
        """Sends whatever may leave."""
        ready = self._engine.journal.ready
        touched: dict[int, Connection] = {}
        while ready:
            output = ready.popleft()
            number = output.connection if isinstance(output, Notice) else output.to.connection
            connection = self._connections.get(number)
            if connection is None:
                continue
            touched[number] = connection
            if isinstance(output, Notice):
                connection.send_hint(encode(output.event))
            elif isinstance(output.answer, Lookup):
                self._read_later(output, output.answer)
            else:
                self._send(connection, output.to, output.answer)
        for connection in touched.values():
            connection.flush()

    def _send(self, connection: Connection, to: Address, answer: Struct | DHPError) -> None:
        if isinstance(answer, DHPError):
            body = error_reply_body(to.request_id, answer)
        else:
            body = reply_body(to.request_id, answer)
        connection.send_reply(body, to.counted)

    def _read_later(self, reply: Reply, lookup: Lookup) -> None:
        """Pages and small answers of a connection are read one after the other, each kind by itself."""
        self._use(reply, 1)
        key = (reply.to.connection, isinstance(lookup, PAGES))
        line = self._reads.get(key)
        if line is not None:
            line.append(reply)
            return
        self._reads[key] = deque([reply])
        task = asyncio.get_running_loop().create_task(self._read(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, key: tuple[int, bool]) -> None:
        line = self._reads[key]
        while line:
            reply = line.popleft()
            connection = self._connections.get(key[0])
            if connection is not None:
                await connection.outbox.writable.wait()
                is_export = isinstance(reply.answer, ExportLookup)
                async with self._exporting if is_export else self._at_once[key[1]]:
                    answer = await self._resolve(reply)
                    if self._connections.get(key[0]) is connection:
                        self._send(connection, reply.to, answer)
                        connection.flush()
            self._use(reply, -1)
        del self._reads[key]

    def first_in_use(self, handoff: str) -> int | None:
        """From which seq on its checkpoints are still to be read for answers (None: from none)."""
        return min(self._seqs_in_use[handoff]) if handoff in self._seqs_in_use else None

    def _use(self, reply: Reply, change: int) -> None:
        lookup: Any = reply.answer
        seq = first_seq_shown(lookup)
        if seq is None or reply.handoff is None:
            return
        in_use = self._seqs_in_use.setdefault(reply.handoff, Counter())
        in_use[seq] += change
        if not in_use[seq]:
            del in_use[seq]
        if not in_use:
            del self._seqs_in_use[reply.handoff]

    async def _resolve(self, reply: Reply) -> Struct | DHPError:
        try:
            lookup: Any = reply.answer
            return await resolve(lookup, self._store, self._max_frame_bytes, self._lease_of)
        except DHPError as error:
            return error
        except DiskError as error:
            _log.error("a read failed: %s", error)
            return unreadable()
        except Exception:
            _log.exception("an answer could not be read")
            return mistake()

    def _lease_of(self, handoff: str, fence: int) -> LeaseView:
        facts = self._engine.ledger.get(handoff)
        lease = self._engine.leases.get(handoff, fence)
        if facts is None or facts.status != RUNNING or lease is None:
            return NO_LEASE
        return lease_view(lease, self._clock.now().lease_ms)


def unreadable() -> StoreUnavailable:
    """The store could not be read."""
    return StoreUnavailable("The store could not be read: send the same request again.", after_ms=200)


def mistake() -> Internal:
    """The daemon's own fault."""
    return Internal("The daemon could not carry this out; its log says more.")
