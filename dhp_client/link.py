"""One connection to a daemon, on an event loop.

Owns matching replies to requests and handing on events. It lives once: reconnecting and sending again is the
`connection`'s.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from dhp_protocol.errors import DHPError
from dhp_protocol.messages import RequestId
from dhp_protocol.replies import AnyEvent

from . import forking
from .addresses import SocketAddress, TcpAddress
from .clock import monotonic_ms
from .exceptions import BadReply, ConnectionLost
from .wire import Inbox, Reply

if TYPE_CHECKING:
    from asyncio import Transport

log = logging.getLogger("dhp_client")


class Link(asyncio.Protocol):
    """Requests out, replies and events in. The callbacks run on the loop; `on_end` once, after every waiter knows."""

    def __init__(
        self,
        on_event: Callable[[AnyEvent], None],
        on_end: Callable[["Link"], None] = lambda link: None,
        on_writable: Callable[[], None] = lambda: None,
    ) -> None:
        self.writable = True
        self.received_at_ms = monotonic_ms()
        self._on_event = on_event
        self._on_end = on_end
        self._on_writable = on_writable
        self._inbox = Inbox()
        self._pending: dict[RequestId, asyncio.Future[bytes]] = {}
        self._transport: Transport | None = None
        self._descriptor = -1
        self._ended = False
        self._why: Exception | None = None

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        return len(self._pending)

    def exchange(self, request_id: RequestId, frame: bytes) -> "asyncio.Future[bytes]":
        """Sends a frame at once; the future gives the reply's body, the daemon's error, or `ConnectionLost`."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self._ended or self._transport is None:
            future.set_exception(ConnectionLost("The connection has ended."))
            return future
        self._pending[request_id] = future
        future.add_done_callback(lambda _: self._pending.pop(request_id, None))
        self._transport.write(frame)
        return future

    def send(self, frame: bytes) -> None:
        """Sends a frame whose answer nobody waits for."""
        if not self._ended and self._transport is not None:
            self._transport.write(frame)

    def pause_reading(self, paused: bool) -> None:
        """Holds back the daemon, or lets it go on."""
        if not self._ended and self._transport is not None:
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def abort(self, why: Exception | None = None) -> None:
        """Ends the connection at once; waiters get `ConnectionLost`, or `why`."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def after_fork_in_child(self) -> None:
        self._ended = True
        if self._descriptor >= 0:
            forking.close_raw(self._descriptor)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._descriptor = transport.get_extra_info("socket").fileno()
        forking.on_fork_in_child(self)

    def data_received(self, data: bytes) -> None:
        self.received_at_ms = monotonic_ms()
        try:
            for item in self._inbox.feed(data):
                if isinstance(item, Reply):
                    self._answer(item)
                else:
                    self._on_event(item)
        except BadReply as error:
            log.error("%s The connection is given up.", error)
            self.abort(error)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._on_writable()

    def connection_lost(self, error: Exception | None) -> None:
        self._descriptor = -1
        self._end()

    def _answer(self, reply: Reply) -> None:
        if isinstance(reply.id, str | int):
            waiter = self._pending.pop(reply.id, None)
            if waiter is not None and not waiter.done():
                _resolve(waiter, reply.body, reply.error)
            return
        # Which request it was can't be told. What would cause this is refused before it is sent, so it is a fault of
        # one side; better every waiter hears of it than one waits for ever.
        error = reply.error or BadReply("The daemon answered without an id.")
        log.error("The daemon refused what was sent, without saying which request: %s", error)
        for waiter in list(self._pending.values()):
            if not waiter.done():
                waiter.set_exception(error)

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        for waiter in list(self._pending.values()):
            if not waiter.done():
                waiter.set_exception(self._why or ConnectionLost("The connection ended before the answer came."))
        self._on_end(self)


def _resolve(waiter: "asyncio.Future[bytes]", body: bytes, error: DHPError | None) -> None:
    if error is None:
        waiter.set_result(body)
    else:
        waiter.set_exception(error)


async def open_link(address: SocketAddress, make: Callable[[], Link]) -> Link:
    """Connects to `address`. Raises OSError."""
    loop = asyncio.get_running_loop()
    opened: tuple[Any, Link]
    if isinstance(address, TcpAddress):
        opened = await loop.create_connection(make, address.host, address.port)
    else:
        opened = await loop.create_unix_connection(make, address.path)
    return opened[1]
