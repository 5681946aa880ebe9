"""What one client has with a daemon: a connection for requests, the leases, and the thread that renews them.

Owns draining, and the end of it all, whichever way it comes. Does not own claiming (`grants`), nor what is done under a lease
(`hold`, `task`).
"""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from msgspec import UNSET

from dhp_protocol.messages import Hello
from dhp_protocol.replies import (
    AnyEvent,
    DrainingEvent,
    LaggedEvent,
)

from . import forking
from .addresses import Address
from .clock import monotonic_ms
from .connection import Connection
from .draining import program
from .exceptions import ClientClosed, WrongLoop
from .grants import Claims
from .heartbeats import tell_table
from .leases import LeaseTable, Loss

if TYPE_CHECKING:
    from .keepalive import KeepAlive
    from .spool import Spool

log = logging.getLogger("dhp_client")

STOP_TIMEOUT_MS = 3_000


class Session(Claims):
    """Made on the event loop that it will be used on."""

    def __init__(
        self,
        addresses: list[Address],
        *,
        name: str,
        session: str,
        retry_ms: float,
        in_doubt_ms: float,
        token: str | None = None,
        spool: "Spool | None" = None,
        blocked_loop_ms: float | None = None,
    ) -> None:
        self.spool = spool
        self.in_doubt_ms = in_doubt_ms
        self.loop = asyncio.get_running_loop()
        self.leases = LeaseTable()
        hello = Hello(client=name, session=session, token=UNSET if token is None else token)
        connection = Connection(
            addresses,
            hello=hello,
            retry_ms=retry_ms,
            on_event=self._take_in,
            on_ready=self._is_back,
            shortest_ttl_ms=self.leases.shortest_ttl_ms,
        )
        super().__init__(connection)
        self.keepalive: KeepAlive | None = None
        self._hello = hello
        self._addresses = addresses
        self._blocked_loop_ms = blocked_loop_ms
        self._drains = asyncio.Event()
        self._closed: str | None = None
        program.add(self)
        forking.on_fork_in_child(self)

    def check_open(self) -> None:
        """Raises `ClientClosed`."""
        if self._closed is not None:
            raise ClientClosed(self._closed)

    def check_usable(self) -> None:
        """Raises `ClientClosed`; `WrongLoop` on another event loop than the client's own."""
        self.check_open()
        if asyncio.get_running_loop() is not self.loop:
            raise WrongLoop("This client belongs to another event loop: connect on the one that uses it.")

    @property
    def closed(self) -> bool:
        return self._closed is not None

    # The leases' renewals.

    def keep_alive(self) -> None:
        """There is a lease to be renewed. What only asks never has one, and pays for no keep-alive."""
        if self.keepalive is None:
            from .keepalive import KeepAlive

            self.keepalive = KeepAlive(
                self._addresses,
                self.leases,
                hello=self._hello,
                loop=self.loop,
                on_back=self.connection.ask_peer,
                blocked_loop_ms=self._blocked_loop_ms,
            )
        if self._closed is None:
            self.keepalive.start()

    def look_again(self) -> None:
        """Something has changed that the next heartbeat may tell, or is told by."""
        if self.keepalive is not None:
            self.keepalive.poke()

    # Draining.

    @property
    def draining(self) -> bool:
        """Whether the program or the daemon takes on no more work. May be read from any thread."""
        return program.draining or self.connection.draining

    async def until_draining(self) -> None:
        """Returns once that is so."""
        while not self.draining:
            self._drains.clear()
            await self._drains.wait()

    @property
    def busy(self) -> bool:
        """Whether work is under way. May be read from any thread."""
        return not self.closed and bool(self.at_work or self.leases.held(monotonic_ms()))

    def wind_down(self) -> None:
        """The program drains. Any thread."""
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self.loop.call_soon_threadsafe(self._end_claims)

    def _end_claims(self) -> None:
        self._drains.set()
        self.end_waits()

    # The end.

    async def close(self) -> None:
        """Says goodbye, which releases the leases, and ends. Again, it does nothing. Raises `WrongLoop`."""
        if self._closed is not None:
            return
        if self.loop.is_closed():
            self.let_go()
            return
        self.check_usable()
        self._closed = "The client is closed: connect again."
        # Whoever closes may be at work under one of the leases that end by it, and is cancelled for that.
        await asyncio.shield(self.loop.create_task(self._close()))

    async def _close(self) -> None:
        keepalive = self.keepalive
        if keepalive is not None:
            keepalive.stop(release=False)  # Goodbye does it.
        for lease in self.leases.all():
            self.leases.give_up(lease, Loss("closed", lease.fence, ""))
        if keepalive is not None and keepalive.running:
            await asyncio.to_thread(keepalive.join, STOP_TIMEOUT_MS)
        await self.connection.close()

    def let_go(self) -> None:
        """Ends from any thread, without waiting: the client was collected, or its loop is closed."""
        if self._closed is not None:
            return
        self._closed = "The client is closed: connect again."
        if self.keepalive is not None:
            self.keepalive.stop(release=True)
        with contextlib.suppress(RuntimeError):  # The loop is closed, and its connections with it.
            self.loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        self._over.set()
        self.connection.abort()

    def after_fork_in_child(self) -> None:
        self._closed = "The client belongs to the process that this one was forked from: connect again."

    def _take_in(self, event: AnyEvent) -> None:
        tell_table(self.leases, event)
        if isinstance(event, DrainingEvent):
            self._drains.set()
        if isinstance(event, LaggedEvent):  # What was missed, a heartbeat tells.
            self.look_again()

    def _is_back(self) -> None:
        self.look_again()
        self.leases.wake_all()
