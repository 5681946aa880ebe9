"""One connection to a daemon, on an event loop.

Owns matching replies to requests, handing on events, and noticing a dead peer. It lives once: reconnecting and sending
again is the `connection`'s.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from dhp_protocol.errors import DHPError
from dhp_protocol.messages import RequestId
from dhp_protocol.replies import AnyEvent

from . import forking
from .addresses import SocketAddress, TcpAddress, TlsAddress
from .clock import monotonic_ms
from .exceptions import BadReply, ConnectionLost
from .trust import HANDSHAKE_WITHIN_MS
from .wire import Inbox, Reply

if TYPE_CHECKING:
    from asyncio import Transport

log = logging.getLogger("dhp_client")

CONNECT_TIMEOUT_MS = 2_000
SILENCE_MS = 5_000
"""A peer from which nothing came for so long is asked; after as long again it is given up."""


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
        self._reading_paused = False
        self._ping: Callable[[], bytes] = bytes
        self._ping_idle = False
        self._watchdog: asyncio.TimerHandle | None = None
        self._asked_ms: float | None = None
        """When the peer was asked whether it is there, until that has come to something."""
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
                self.received_at_ms = monotonic_ms()  # The silence until now was of our own making.
                self._transport.resume_reading()
            self._reading_paused = paused

    def watch_over(self, ping: Callable[[], bytes], *, idle: bool) -> None:
        """Ends the connection when its peer has vanished without a word.

        Asked with the frame that `ping` gives is a peer that was silent for `SILENCE_MS` while it owes an answer, or,
        with `idle`, in any case; one that doesn't answer for as long again is given up.
        """
        self._ping, self._ping_idle = ping, idle
        self._look_over(SILENCE_MS)

    def ask(self, within_ms: float) -> None:
        """Asks the peer whether it is there, unless it is being asked; one that says nothing within that time is given up."""
        if self._asked_ms is None and not self._reading_paused and not self._ended:
            self._asked_ms = monotonic_ms()
            self.send(self._ping())
            self._look_over(within_ms)

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
        if isinstance(
            error, ssl.SSLError
        ):  # In TLS 1.3 a client's certificate is refused when it counts itself connected.
            self._why = self._why or ConnectionLost("TLS was ended by the daemon.")
            self._why.__cause__ = self._why.__cause__ or error
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
        log.info("the daemon says: %s", error)  # Where nobody waits it ends this connection, and says why.
        for waiter in list(self._pending.values()):
            if not waiter.done():
                waiter.set_exception(error)

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._watchdog is not None:
            self._watchdog.cancel()
        for waiter in list(self._pending.values()):
            if not waiter.done():
                waiter.set_exception(self._why or ConnectionLost("The connection ended before the answer came."))
        self._on_end(self)

    def _look_over(self, delay_ms: float) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        if not self._ended:
            loop, due_ms = asyncio.get_running_loop(), monotonic_ms() + delay_ms
            self._watchdog = loop.call_later(delay_ms / 1000, self._check_peer, due_ms)

    def _check_peer(self, due_ms: float) -> None:
        now_ms = monotonic_ms()
        silent_ms = now_ms - self.received_at_ms
        if now_ms - due_ms > SILENCE_MS / 5:
            # The loop was held up, and on some loops a timer runs before what has arrived meanwhile is read.
            self._look_over(SILENCE_MS / 5)
            return
        asked_ms, self._asked_ms = self._asked_ms, None
        if asked_ms is not None and self.received_at_ms < asked_ms and not self._reading_paused:
            log.warning("the daemon has been silent for %d ms: connecting anew", silent_ms)
            self.abort()
        elif (self._ping_idle or self.waiting > 0) and silent_ms >= SILENCE_MS and not self._reading_paused:
            self.ask(SILENCE_MS)
        else:
            self._look_over(SILENCE_MS)


def _resolve(waiter: "asyncio.Future[bytes]", body: bytes, error: DHPError | None) -> None:
    if error is None:
        waiter.set_result(body)
    else:
        waiter.set_exception(error)


async def open_link(address: SocketAddress, make: Callable[[], Link]) -> Link:
    """Connects to `address`, soon or not at all: there may be others to try. Raises OSError, such as TimeoutError or an
    SSLError; `BadAddress` where the files that TLS needs can't be used.
    """
    loop = asyncio.get_running_loop()
    opened: tuple[Any, Link]
    within_ms = HANDSHAKE_WITHIN_MS if isinstance(address, TlsAddress) else CONNECT_TIMEOUT_MS
    async with asyncio.timeout(within_ms / 1000):
        if isinstance(address, TlsAddress):
            context = await asyncio.to_thread(address.trust.context)
            opened = await loop.create_connection(
                make, address.host, address.port, ssl=context, server_hostname=address.server_name
            )
        elif isinstance(address, TcpAddress):
            opened = await loop.create_connection(make, address.host, address.port)
        else:
            opened = await loop.create_unix_connection(make, address.path)
    return opened[1]
