"""A daemon in a thread of the test's own process, on real sockets, over a store that a test can make fail."""

import asyncio
import contextlib
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import uvloop

from dhpd.config import Config
from dhpd.server.daemon import Daemon
from dhpd.server.desk import Desk
from dhpd.store.sqlite import SqliteStore

from .unreliable_store import UnreliableStore

READY_WITHIN_S = 20.0


class InProcessDaemon:
    """`with InProcessDaemon(tmp_path) as daemon:` has it ready; `daemon.store` is its store; `settings` are `Config`'s."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self.store: UnreliableStore
        self.address = ""
        self._data = data
        self._settings = settings
        self._daemon: Daemon
        self._loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="daemon")

    def __enter__(self) -> "InProcessDaemon":
        self._thread.start()
        assert self._ready.wait(READY_WITHIN_S), "the daemon isn't ready"
        assert self.address, "the daemon could not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.held = self.store.away = False
        self.store.failure = None
        self._loop.call_soon_threadsafe(self._daemon.ending.stopping.set)
        self._thread.join()
        assert kind is not None or self._daemon.failure is None, "the daemon could not go on"

    @property
    def connections(self) -> int:
        """How many are open, as the daemon sees it."""
        return len(self.desk.connections)

    @property
    def desk(self) -> Desk:
        """Who takes the requests; what a test looks at there changes under its eyes."""
        return self._daemon._desk

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._ready.set)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.store = UnreliableStore(await SqliteStore.open(self._data / "dhpd.sqlite"))
        self._daemon = Daemon(Config(listen=["127.0.0.1:0"], **self._settings), self.store)
        await self._daemon.start(self._data)
        self.address = self._daemon.addresses[0]
        self._ready.set()
        await self._daemon.ending.stopping.wait()
        await self._daemon.stop()
