"""The connection that a client's requests go over: it comes back by itself.

Owns connecting, `hello`, reconnecting with back-off, and sending again what was not answered.
That sending again is safe is the protocol's promise (SPEC.md, "Retries are safe"). Does not own leases.
"""

import asyncio
import itertools
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from dhp_protocol import PROTOCOL
from dhp_protocol.errors import DHPError, Forbidden, Unauthenticated
from dhp_protocol.limits import Limits
from dhp_protocol.messages import Goodbye, Hello, Ping, Request
from dhp_protocol.replies import AnyEvent, DrainingEvent, HelloReply

from .addresses import Address, DirectoryAddress, SocketAddress, unusable
from .backoff import SHARE_OF_TTL, Backoff, Patience
from .clock import monotonic_ms
from .exceptions import BadAddress, BadReply, ClientClosed, ConnectionLost, DaemonNotStarted, NotConnected
from .link import Link, open_link
from .wire import decode_reply, encode_request

log = logging.getLogger("dhp_client")

HELLO_TIMEOUT_MS = 5_000
GOODBYE_TIMEOUT_MS = 2_000
FIRST_PAUSE_MS = 50
MOST_PAUSE_MS = 2_000
NOTED_AFTER_MS, NOTED_EVERY_MS = 1_000, 10_000
"""How long a refusal is borne in silence, and how often it is told then."""
ANSWER_WITHIN_MS = 1_000
"""A daemon that answers on another connection has so long to answer here too."""

TOKEN_NEEDED = "A token is required: give token=, $DHP_TOKEN, or --token-file on the command line."
"""What the wire's own sentence, which speaks of `hello`, comes to for a person."""

RAISED_AT_ONCE = frozenset(("draining", "already_claimed", "not_claimable", "not_primary"))
"""Codes that say "later" but are for the caller to decide on."""

T = TypeVar("T")


def may_pass(error: DHPError) -> bool:
    """Whether the same request is sent again after `error` without asking the caller."""
    return error.retry != "no" and error.code not in RAISED_AT_ONCE


def _may_come_up(error: Exception) -> bool:
    """Whether a first attempt to connect is worth another one."""
    if isinstance(error, DHPError):
        return may_pass(error)
    return isinstance(error, OSError | ConnectionLost | NotConnected) and not isinstance(error, DaemonNotStarted)


class Connection:
    """Talks to the first of `addresses` that answers, in one session, and goes on with another connection when one ends.

    `on_event` gets the daemon's events, `on_ready` is called when requests can leave (again). `shortest_ttl_ms` tells that of
    the leases that wait for it.
    """

    def __init__(
        self,
        addresses: list[Address],
        *,
        hello: Hello,
        retry_ms: float,
        on_event: Callable[[AnyEvent], None],
        on_ready: Callable[[], None],
        shortest_ttl_ms: Callable[[], float],
    ) -> None:
        self.session = str(hello.session)
        self.retry_ms = retry_ms
        self.limits = Limits()
        self.worker: str | None = None
        """The name in this client's certificate, where the daemon asks for one: the only one to claim under."""
        self.roles: tuple[str, ...] = ()
        """What the token may do, as the last `hello` was told."""
        self.background: set[asyncio.Task[Any]] = set()
        self._addresses = addresses
        self._greeting = hello
        self._on_event = on_event
        self._on_ready = on_ready
        self._shortest_ttl_ms = shortest_ttl_ms
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count(1)
        self._link: Link | None = None
        self._ready: asyncio.Future[Link] = self._loop.create_future()
        self._closed = False
        self._problem: Exception | None = None
        self._refusal: DHPError | None = None
        self._next_note_ms = -math.inf
        self.draining = False
        """Whether the daemon has said that it takes no more work."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def writable(self) -> bool:
        """Whether a request would leave at once."""
        return self._link is not None and self._link.writable

    async def start(self, timeout_ms: float) -> None:
        """Connects for the first time. Raises `NotConnected`, or what the daemon answers to `hello`."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connect(first=True)
        except TimeoutError:
            raise self._not_connected(timeout_ms) from self._problem

    async def call(self, make: Callable[[], Request], shape: type[T]) -> T:
        """One answer to a request, sent again until there is one; `make` gives it anew for each sending.

        Raises the daemon's error, at once where it takes this client's token no more; `NotConnected` or `ConnectionLost` after `retry_ms` without an answer.
        """
        patience = Patience(self.retry_ms)
        while True:
            link = await self._connected()
            sent_ms = monotonic_ms()
            try:
                return await self._exchange(link, make(), shape)
            except (ConnectionLost, DHPError) as error:
                now_ms = monotonic_ms()
                if isinstance(error, DHPError) and not may_pass(error):
                    raise
                if now_ms - sent_ms > self.retry_ms:
                    patience.restart()  # It had waited well until now, as a waiting claim does.
                after_ms = error.after_ms or 0 if isinstance(error, DHPError) else 0
                pause_ms = patience.pause_ms(now_ms, at_least_ms=after_ms)
                if pause_ms is None:
                    raise
                self.note_refused(error, patience.borne_ms(now_ms), now_ms)
            if self._link is not None:
                await asyncio.sleep(pause_ms / 1000)

    def note_refused(self, error: Exception, borne_ms: float, now_ms: float) -> None:
        """A program that only waits shouldn't be silent about why: tells what the daemon has refused with for so long, now and then."""
        if isinstance(error, DHPError) and borne_ms > NOTED_AFTER_MS and now_ms > self._next_note_ms:
            self._next_note_ms = now_ms + NOTED_EVERY_MS
            log.warning("%s (Trying again, for %.0f s at most.)", error, self.retry_ms / 1000)

    async def call_once(self, request: Request, shape: type[T]) -> T:
        """Sends at once, or raises `ConnectionLost`; the caller sends again."""
        if self._link is None:
            raise ConnectionLost("There is no connection.")
        return await self._exchange(self._link, request, shape)

    async def open_side_link(self, on_event: Callable[[AnyEvent], None], on_end: Callable[[Link], None]) -> Link:
        """A connection of its own, in a session of its own. Raises OSError, `ConnectionLost`, or what `hello` is told."""
        problem: Exception = OSError("no address")
        for address in self._addresses:
            try:
                link = await open_link(await self._locate(address), lambda: Link(on_event, on_end))
                try:
                    await self._hello(link, msgspec.structs.replace(self._greeting, session=msgspec.UNSET))
                except BaseException:
                    link.abort()
                    raise
                link.watch_over(self._ping, idle=True)  # It lives by events, so it owes no answer.
                return link
            except (OSError, ConnectionLost, NotConnected, TimeoutError) as error:
                problem = error
        raise problem

    async def exchange_on(self, link: Link, request: Request, shape: type[T]) -> T:
        """One request on a side link."""
        return await self._exchange(link, request, shape)

    def ask_peer(self) -> None:
        """Another connection had to be made anew, and the daemon is there: finds out whether this one leads anywhere. On the loop."""
        if self._link is not None:
            self._link.ask(ANSWER_WITHIN_MS)

    def run_in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs `work` beside everything else, until the connection is closed; its errors are logged."""
        task = self._loop.create_task(work)
        self.background.add(task)
        task.add_done_callback(self._background_done)

    def check_open(self) -> None:
        if self._closed:
            raise ClientClosed("The client is closed: connect again.")

    async def close(self) -> None:
        """Says goodbye, if there is somebody to say it to, and ends."""
        link, request = self._link, Goodbye()
        if link is not None and not self._closed:
            try:
                async with asyncio.timeout(GOODBYE_TIMEOUT_MS / 1000):
                    await self._exchange(link, request, msgspec.Raw)
            except (ConnectionLost, DHPError, BadReply, TimeoutError) as error:
                log.debug("goodbye wasn't answered: %s", error)
        self.abort()

    def abort(self) -> None:
        """Ends at once, on the loop."""
        if self._closed:
            return
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            link.abort(ClientClosed("The client was closed."))
        if not self._ready.done():
            self._ready.set_exception(ClientClosed("The client was closed."))
        self._ready.exception()  # Looked at, so that nobody is told that nobody looked.
        current = asyncio.current_task(self._loop) if self._loop.is_running() else None
        for task in self.background:
            if task is not current:
                task.cancel()

    # Connecting.

    async def _connected(self) -> Link:
        self.check_open()
        if self._link is not None:
            return self._link
        try:
            async with asyncio.timeout(self.retry_ms / 1000):
                while True:
                    ready = self._ready
                    await asyncio.wait((ready,))
                    if self._refusal is not None:
                        raise type(self._refusal)(self._refusal.message, **self._refusal.details)
                    if ready is self._ready:  # Else that link has ended before this call's turn came.
                        return ready.result()
        except TimeoutError:
            raise self._not_connected(self.retry_ms) from self._problem

    async def _connect(self, *, first: bool = False) -> None:
        backoff = Backoff(FIRST_PAUSE_MS, MOST_PAUSE_MS)
        if not first:
            await self._pause(backoff)  # Others may have lost theirs at the same moment.
        while not self._closed:
            hopeless: list[BadAddress] = []
            refusals: list[DHPError] = []
            for address in list(self._addresses):
                try:
                    await self._open(address)
                except Exception as error:
                    told = unusable(address, error)
                    if told is not None:
                        hopeless.append(told)
                    elif first and not _may_come_up(error):
                        raise
                    elif isinstance(error, Unauthenticated | Forbidden):
                        refusals.append(error)
                    self._problem = told or error
                else:
                    # The next search begins where the daemon was last seen.
                    self._addresses.sort(key=lambda other, best=address: other != best)  # type: ignore[misc]
                    return
            if first and len(hopeless) == len(self._addresses):
                raise hopeless[0]
            if refusals and len(hopeless) + len(refusals) == len(self._addresses):
                self._give_up(refusals[0])
                return
            await self._pause(backoff)

    async def _pause(self, backoff: Backoff) -> None:
        await asyncio.sleep(backoff.next_ms(at_most_ms=self._shortest_ttl_ms() * SHARE_OF_TTL) / 1000)

    def _give_up(self, refusal: DHPError) -> None:
        """Nobody takes this client any more, and asking again won't change it: every call hears so."""
        log.error("the daemon refuses this client: %s", refusal)
        self._refusal = refusal
        if not self._ready.done():
            self._ready.set_exception(refusal)
        self._ready.exception()  # Looked at, so that nobody is told that nobody looked.
        self._on_ready()

    async def _open(self, address: Address) -> None:
        self.draining = False
        link = await open_link(
            await self._locate(address), lambda: Link(self._take_in, self._link_ended, self._link_ready)
        )
        try:
            welcome = await self._hello(link, self._greeting)
            self.check_open()
        except BaseException:
            link.abort()
            raise
        if link.ended:
            raise ConnectionLost("The connection ended right after hello.")
        self.limits = welcome.limits
        self.worker = None if welcome.worker is msgspec.UNSET else welcome.worker
        self.roles = tuple(welcome.roles)
        self._link = link
        self._problem = None
        link.watch_over(self._ping, idle=False)
        self._link_ready()

    async def _locate(self, address: Address) -> SocketAddress:
        if isinstance(address, DirectoryAddress):
            from . import embedded

            return await asyncio.to_thread(embedded.ensure_running, address.directory)
        return address

    async def _hello(self, link: Link, hello: Hello) -> HelloReply:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_MS / 1000):
                welcome = await self._exchange(link, hello, HelloReply)
        except Unauthenticated as error:
            if hello.token is msgspec.UNSET:
                raise Unauthenticated(TOKEN_NEEDED, **error.details) from None
            raise
        if welcome.protocol != PROTOCOL:
            raise BadReply(f"The daemon speaks {welcome.protocol}, this client {PROTOCOL}.")
        return welcome

    async def _exchange(self, link: Link, request: Request, shape: type[T]) -> T:
        request_id = next(self._ids)
        frame = encode_request(msgspec.structs.replace(request, id=request_id), self.limits)
        return decode_reply(await link.exchange(request_id, frame), shape)

    def _link_ready(self) -> None:
        if self._link is not None and not self._ready.done():
            self._ready.set_result(self._link)
        self._on_ready()

    def _take_in(self, event: AnyEvent) -> None:
        if isinstance(event, DrainingEvent):
            self.draining = True
        self._on_event(event)

    def _link_ended(self, link: Link) -> None:
        if link is not self._link or self._closed:
            return
        self._link = None
        if self._ready.done():
            self._ready = self._loop.create_future()
        self.run_in_background(self._connect())

    def _ping(self) -> bytes:
        return encode_request(Ping(id=next(self._ids)), self.limits)

    def _background_done(self, task: asyncio.Task[Any]) -> None:
        self.background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work of a client failed", exc_info=task.exception())

    def _not_connected(self, after_ms: float) -> NotConnected:
        where = ", ".join(str(address) for address in self._addresses)
        why = "" if self._problem is None else f": {str(self._problem) or 'it says nothing'}".removesuffix(".")
        if all(isinstance(address, DirectoryAddress) for address in self._addresses):
            remedy = "Its dhpd.log may say more."
        else:
            remedy = "Start dhpd there, or say where it is."
        return NotConnected(f"No daemon answered at {where} within {after_ms:.0f} ms{why}. {remedy}")
