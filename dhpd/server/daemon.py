"""The daemon, assembled: all of its parts, on one loop.

Owns the order of start and stop, but not the process that it runs in (`running`). At start nothing is answered before the store is loaded and the leases' extensions are on
disk; at the end what was decided is written, and leases live on for the next start.
"""

import asyncio
import contextlib
import gc
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from dhp_protocol.replies import LeaseTerms
from dhpd import __version__
from dhpd.config import Config
from dhpd.engine.core import Settings
from dhpd.engine.journal import Batch
from dhpd.engine.leases import heartbeat_ms
from dhpd.engine.operations import Engine
from dhpd.engine.sessions import disconnect_grace_ms
from dhpd.store.backend import DiskError, StoreBackend
from dhpd.store.group_commit import GroupCommit
from dhpd.systemd.manager import Manager
from dhpd.systemd.watchdog import feed

from .certificates import Certificates
from .clock import Clock, monotonic_s
from .commons import Commons
from .connection import Connection
from .desk import Desk
from .directory import STORE_NAME
from .ending import Ending
from .handed import HandedSocket, serve_on, still_to_open
from .handshakes import Handshakes
from .lateness import Lateness
from .listeners import SocketFile, UnixAddress, addresses_of, listen, socket_files
from .passes import Passes
from .pruner import Pruner
from .reporting import Reporter
from .ticker import Ticker
from .tls import TlsTransport
from .tokens import Tokens

STOP_WITHIN_S = 4.0

_log = logging.getLogger(__name__)


class Daemon:
    """One running daemon; `store` may be another backend than SQLite in DIR."""

    def __init__(
        self,
        config: Config,
        store: StoreBackend,
        directory_lost: Callable[[], bool] = lambda: False,
        tokens: Tokens | None = None,
        certificates: Certificates | None = None,
        handed: Sequence[HandedSocket] = (),
    ) -> None:
        self._config = config
        self._handed = handed
        self._store = store
        self._directory_lost = directory_lost
        self._tokens = tokens
        self._certificates = certificates
        self._follower: asyncio.Task[None] | None = None
        self._pruning: asyncio.Task[None] | None = None
        self._clock = Clock()
        self._lateness = Lateness()
        self._numbers = count(1)
        self._servers: list[asyncio.Server] = []
        self._socket_files: list[SocketFile] = []
        self._reconsidering = False
        self.addresses: list[str] = []
        self.ending = Ending(config, self._clock)
        self.failure: BaseException | None = None

    async def start(self, data: Path) -> None:
        """Loads the store and listens."""
        config = self._config
        terms = LeaseTerms(
            ttl_ms=config.ttl_ms,
            heartbeat_ms=heartbeat_ms(config.ttl_ms),
            min_ttl_ms=config.min_ttl_ms,
            max_ttl_ms=config.max_ttl_ms,
            disconnect_grace_ms=disconnect_grace_ms(config.ttl_ms, local=True),
        )
        settings = Settings(
            limits=config.limits(),
            terms=terms,
            max_queued_bytes=config.max_queued_bytes,
            server=f"dhpd/{__version__}",
        )
        gc.disable()  # Loading makes millions of objects and no garbage.
        loaded = await self._store.load()
        engine = self._engine = Engine(
            settings,
            _fresh_name,
            purged_fence=loaded.purged_fence,
            fence_floor=loaded.fence_floor,
            chance=random.random,
        )
        engine.load(
            loaded.facts,
            loaded.tail,
            loaded.extensions,
            loaded.counts,
            loaded.dead_children,
            head=loaded.head,
            covered=loaded.covered,
            now=self._clock.now(),
        )
        self._commits = GroupCommit(engine, self._store, loaded.head, self._clock.now, self._committed)
        commons = self._commons = Commons(config, monotonic_s, asyncio.get_running_loop().call_soon)
        self._reporter = reporter = Reporter(
            engine,
            self._clock,
            self._store.durability,
            self._commits,
            commons,
            self._lateness,
            data / f"{STORE_NAME}-wal",
        )
        self._ticker = Ticker(engine, self._clock, commons.turns, self._ticked, self._fail)
        self._desk = Desk(engine, self._store, self._clock, config, reporter, self._poke, commons, self._tokens)
        self._writer = asyncio.create_task(self._commits.run())
        self._writer.add_done_callback(self._task_ended)
        del loaded
        await self._commits.flushed()
        gc.freeze()  # What was loaded lives long: the collector never looks at it.
        gc.enable()
        self._ticker.start()
        self._lateness.start()
        self._silence = commons.silence.start(self._desk)
        self._silence.add_done_callback(self._task_ended)
        if self._tokens is not None:
            self._follower = asyncio.create_task(self._tokens.follow(self._desk.tokens_changed))
            self._follower.add_done_callback(self._task_ended)
        try:
            await self._open_addresses(config, data)
        except BaseException:
            self._ticker.stop()  # A tick beside the end would find the store closed, and call it lost.
            raise
        pruner = Pruner(
            engine, self._store, self._clock, config.retention_ms, self._desk.answers.first_in_use, self._commits.poke
        )
        self._pruning = asyncio.create_task(pruner.run())
        self.ending.serves(engine, self._desk.connections, self._desk.worked)

    async def _open_addresses(self, config: Config, data: Path) -> None:
        """Those of the settings, and the sockets that were handed over."""
        tls = self._certificates is not None
        way_in = self._connection if self._certificates is None else self._encrypted_by(self._certificates)
        for address in still_to_open(addresses_of(config, data), self._handed, config):
            if isinstance(address, UnixAddress):  # File modes guard it, and nobody listens in there.
                server, written = await listen(address, self._connection)
            else:
                server, written = await listen(address, way_in, tls=tls)
            self._servers.append(server)
            self.addresses.extend(written)
        self._socket_files = socket_files(self.addresses)
        for handed in self._handed:
            local = isinstance(handed.address, UnixAddress)
            server, text = await serve_on(handed, self._connection if local else way_in, tls=tls)
            self._servers.append(server)
            self.addresses.append(text)

    def attended(self, manager: Manager, notes: Callable[[], Sequence[str]]) -> asyncio.Task[None]:
        """Tells the service manager, until cancelled, that it gets on, and how it is; `notes` are sentences for that."""

        async def probe() -> None:
            with contextlib.suppress(DiskError):
                await self._store.records_after(self._engine.journal.durable, 1)

        feeding = feed(manager, (self._commits, self._ticker), probe, lambda: " ".join([*notes(), self.described()]))
        attending = asyncio.create_task(feeding)
        attending.add_done_callback(self._task_ended)  # Better an end that says why than a watchdog that nobody feeds.
        return attending

    def described(self) -> str:
        """How it is, in a line."""
        counts = self._engine.ledger.counts
        work = ", ".join(f"{counts[status]} {status}" for status in ("running", "pending", "dead"))
        connections = f"{len(self._desk.connections)} connections"
        return f"{self._reporter.health().status}: {work}; {connections}; {' '.join(self.addresses)}"

    async def stop(self) -> None:
        """Ends: waiting claims hear of it, what is under way goes on to its end for a while, what was decided is written, leases live on."""
        for server in self._servers:
            server.close()
        for file in self._socket_files:
            file.remove()
        self._ticker.stop()
        self._lateness.stop()
        self._silence.remove_done_callback(self._task_ended)
        self._silence.cancel()
        if self._follower is not None:
            self._follower.remove_done_callback(self._task_ended)
            self._follower.cancel()
        if self._pruning is not None:
            self._pruning.cancel()
            await asyncio.gather(self._pruning, return_exceptions=True)
        self._engine.drain(self._clock.now())
        self._desk.answers.deliver()
        if self.failure is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_WITHIN_S):
                    await self._ticker.finish()
                    await self._commits.flushed()
        self._desk.answers.deliver()
        for connection in list(self._desk.connections.values()):
            connection.shut()
        await asyncio.sleep(0.05)  # What was written to the sockets goes out.
        for connection in list(self._desk.connections.values()):
            connection.abort()
        await self._desk.stop()
        self._writer.remove_done_callback(self._task_ended)
        self._writer.cancel()
        await asyncio.gather(self._writer, return_exceptions=True)  # What became of it is in `failure`.
        with contextlib.suppress(DiskError):
            await self._store.close()

    def _connection(self) -> Connection:
        return Connection(next(self._numbers), self._desk, self._commons)

    def _encrypted_by(self, certificates: Certificates) -> Callable[[], asyncio.BaseProtocol]:
        """Makes what a TCP connection meets first where TLS is spoken."""
        config, loop = self._config, asyncio.get_running_loop()

        def most() -> int:
            """Who isn't known yet takes half of the places at most, and none that is taken."""
            return min(config.max_connections // 2, config.max_connections - len(self._desk.connections))

        handshakes = Handshakes(most, config.handshake_within_ms, monotonic_s, loop.call_soon, loop.call_later)
        passes = Passes(monotonic_s, loop.call_soon)
        return lambda: TlsTransport(certificates.context, self._connection, handshakes, passes)

    def _poke(self) -> None:
        self._commits.poke()
        if not self._reconsidering:  # Once for all that one pass of the loop brings.
            self._reconsidering = True
            asyncio.get_running_loop().call_soon(self._reconsider)

    def _reconsider(self) -> None:
        self._reconsidering = False
        self._ticker.reconsider()

    def _committed(self, batch: Batch | None) -> None:
        journal = self._engine.journal
        if journal.gathering.empty and not journal.sealed:
            self._tell()
        else:  # The next batch is on its way before the answers go out: the disk doesn't wait for that.
            asyncio.get_running_loop().call_soon(self._tell)
        if batch is not None:
            self._desk.watches.committed(batch)

    def _tell(self) -> None:
        self._desk.answers.deliver()
        self.ending.consider()
        self._ticker.reconsider()

    def _ticked(self) -> None:
        self._desk.answers.deliver()
        self._commits.poke()
        self.ending.consider()
        if self._directory_lost():
            self._fail(OSError("its directory was removed or replaced, so what it writes is lost"))

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Without its writer or its ticks a daemon is no use: better a new start from the disk than answers never sent."""
        _log.critical("the daemon can't go on", exc_info=error)
        self.failure = error
        self.ending.stopping.set()


def _fresh_name() -> str:
    return secrets.token_urlsafe(24)
