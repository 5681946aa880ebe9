"""The server behind `http_serving`: uvicorn on this program's own loop, as it should treat strangers and end.

Owns how many connections there are, for how long they may be silent, what is noted of them, and that streams are cut at the end rather than
waited for. uvicorn is imported here alone.
"""

import contextlib
import logging
import socket
from collections.abc import Generator
from typing import Any

import uvicorn

from ..clock import monotonic_ms
from ..http_guard import Guard

MAX_CONNECTIONS = 400
"""Where a process may open 1,024 files, as many do, and each stream also has a connection to the daemon."""
REQUEST_WITHIN_MS = 30_000
"""Who has connected and asks for nothing so long holds a place that others want; uvicorn waits for a request's head for ever."""
TICKS_PER_LOOK = 10
NOTED_EVERY_MS = 10_000
GRACE_S = 1.0
"""What runs at the end may take so long to finish."""


def server_of(guard: Guard) -> uvicorn.Server:
    """A server of what `guard` guards. It leaves signals to the program, and ends when `should_exit` is set."""
    log = logging.getLogger("uvicorn.error")
    for earlier in [each for each in log.filters if isinstance(each, _NowAndThen)]:
        log.removeFilter(earlier)
    log.addFilter(_NowAndThen())
    config = uvicorn.Config(
        guard,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
    return _Embedded(config, guard)


class _Embedded(uvicorn.Server):
    """Leaves signals to the program, and ends streams before it waits for anything."""

    def __init__(self, config: uvicorn.Config, guard: Guard) -> None:
        super().__init__(config)
        self._guard = guard
        self._silent_since_ms: dict[Any, float] = {}
        """When each connection on which nothing is asked was first seen so."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_LOOK == 0:
            self._end_silent(monotonic_ms())
        return await super().on_tick(counter)

    def _end_silent(self, now_ms: float) -> None:
        silent = [connection for connection in self.server_state.connections if not _is_answering(connection)]
        self._silent_since_ms = {each: self._silent_since_ms.get(each, now_ms) for each in silent}
        for connection, since_ms in self._silent_since_ms.items():
            if now_ms - since_ms > REQUEST_WITHIN_MS:
                connection.transport.abort()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in self.servers:
            listening.close()
        for connection in list(self.server_state.connections):
            answer: Any = getattr(connection, "cycle", None)
            if _is_answering(connection) and answer.response_started:
                connection.transport.close()
        await self._guard.idle(GRACE_S)
        for connection in list(self.server_state.connections):
            if connection.transport.is_closing():  # It waits for a peer that doesn't read.
                connection.transport.abort()
        await self._guard.end(GRACE_S)
        await super().shutdown(sockets)


def _is_answering(connection: Any) -> bool:
    """Whether a request has been read that isn't answered to its end."""
    return connection.cycle is not None and not connection.cycle.response_complete


class _NowAndThen(logging.Filter):
    """What uvicorn notes of strangers' requests comes with each of them: the same is let through now and then, errors always."""

    def __init__(self) -> None:
        super().__init__()
        self._next_ms: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now_ms = monotonic_ms()
        if record.levelno < logging.ERROR and now_ms < self._next_ms.get(record.msg, now_ms):
            return False
        self._next_ms[record.msg] = now_ms + NOTED_EVERY_MS  # Its words are uvicorn's own, so there are few of them.
        return True
