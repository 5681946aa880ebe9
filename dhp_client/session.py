"""What one client has with a daemon: a connection for requests, the leases, and the thread that renews them.

Owns claiming (grants are checked before they are handed out, and one that nobody waits for any more is given back) and
the end of it all, whichever way it comes. Does not own what is done under a lease (`hold`, `task`).
"""

import asyncio
import contextlib
import logging
import secrets
from typing import Any

import msgspec
from msgspec import UNSET

from dhp_protocol.errors import DHPError, LeaseLost
from dhp_protocol.messages import Claim, Heartbeat, Hello, LeaseRef, Recover, Release
from dhp_protocol.replies import (
    AnyEvent,
    ClaimReply,
    DrainingEvent,
    HeartbeatReply,
    LaggedEvent,
    ReleaseReply,
    StoredCheckpoint,
)

from . import forking
from .addresses import Address
from .clock import monotonic_ms
from .connection import Connection
from .draining import program
from .exceptions import ClientClosed, ClientError, IntegrityError, WrongLoop
from .heartbeats import tell_table
from .keepalive import KeepAlive
from .leases import LeaseTable, Loss
from .payload import sha256_hex
from .spool import Spool
from .wire import decode_reply

log = logging.getLogger("dhp_client")

STOP_TIMEOUT_MS = 3_000


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that was granted, its hashes checked. `renewed_ms`: the lease counts from there on the client's clock."""

    reply: ClaimReply
    intent: bytes
    renewed_ms: float

    @property
    def checkpoint(self) -> StoredCheckpoint | None:
        return self.reply.checkpoint


class _WhichHandoff(msgspec.Struct, frozen=True):
    handoff: str | None


class Session:
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
        spool: Spool | None = None,
        blocked_loop_ms: float | None = None,
    ) -> None:
        self.spool = spool
        self.in_doubt_ms = in_doubt_ms
        self.loop = asyncio.get_running_loop()
        self.leases = LeaseTable()
        hello = Hello(client=name, session=session, token=UNSET if token is None else token)
        self.keepalive = KeepAlive(
            addresses,
            self.leases,
            hello=hello,
            loop=self.loop,
            on_back=lambda: self.connection.ask_peer(),
            blocked_loop_ms=blocked_loop_ms,
        )
        self.connection = Connection(
            addresses,
            hello=hello,
            retry_ms=retry_ms,
            on_event=self._take_in,
            on_ready=self._is_back,
            shortest_ttl_ms=self.leases.shortest_ttl_ms,
        )
        self.at_work: set[object] = set()
        """What keeps the program busy beside leases: tasks whose blocks are under way, and claims that are being given back."""
        self._claims: set[asyncio.Timeout] = set()
        self._drains = asyncio.Event()
        self._over = asyncio.Event()
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

    # Claiming.

    async def claim(self, request: Claim | Recover) -> Grant | None:
        """A granted claim, or None when the wait ended empty. Cancelled, it gives back what was granted meanwhile.

        Where the program drains, a wait that has begun ends, and from then on it is as if there were no work.
        """
        if program.draining:
            await self._wait_for_nothing(request.wait_ms)
            return None
        try:
            async with asyncio.timeout(None) as waiting:
                self._claims.add(waiting)
                return await self.claim_again(request)
        except TimeoutError:
            if not waiting.expired():
                raise
            return None
        finally:
            self._claims.discard(waiting)

    async def _wait_for_nothing(self, wait_ms: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._over.wait()
        self.check_open()

    async def claim_again(self, request: Claim | Recover) -> Grant | None:
        """As `claim`, but also while the program drains: for what was at work already."""
        until_ms = monotonic_ms() + request.wait_ms
        while True:
            nonce = secrets.token_urlsafe(12)
            sent: list[float] = []

            def ask(nonce: str = nonce, sent: list[float] = sent) -> Claim | Recover:
                # Sent again after an outage, it waits for what is left of its time.
                sent.append(monotonic_ms())
                left_ms = max(0, int(until_ms - sent[-1]))
                return msgspec.structs.replace(request, nonce=nonce, wait_ms=left_ms)

            try:
                body = await self.connection.call(ask, msgspec.Raw)
                grant = await self._checked(bytes(body), sent[-1])
            except LeaseLost:
                continue  # Granted to this nonce, and ended before the answer got here: ask for another lease.
            except asyncio.CancelledError:
                if sent:
                    self.run_in_background(self._withdraw(msgspec.structs.replace(request, nonce=nonce, wait_ms=0)))
                raise
            # The daemon bounds how long one request may wait.
            if grant is not None or until_ms - monotonic_ms() <= 0 or not self._was_cut(request):
                return grant

    async def hand_back(self, handoff: str, fence: int, reason: str) -> None:
        """Releases a lease that nobody here wants."""
        request = Release(handoff=handoff, fence=fence, reason=reason)
        with contextlib.suppress(LeaseLost):
            await self.connection.call(lambda: request, ReleaseReply)

    def _was_cut(self, request: Claim | Recover) -> bool:
        return request.wait_ms > self.connection.limits.max_wait_ms

    async def _checked(self, body: bytes, sent_ms: float) -> Grant | None:
        if decode_reply(body, _WhichHandoff).handoff is None:
            return None
        reply = decode_reply(body, ClaimReply)
        try:
            grant = Grant(reply=reply, intent=_verified(reply), renewed_ms=sent_ms)
        except IntegrityError as error:
            await self.hand_back(reply.handoff, reply.fence, "what was stored has another hash")
            raise error
        if monotonic_ms() - sent_ms < reply.lease.heartbeat_ms:
            return grant
        # It has waited, so when the lease began isn't known: a renewal tells from when it counts at least.
        renewed_ms = monotonic_ms()
        beat = Heartbeat(leases=[LeaseRef(reply.handoff, reply.fence)])
        answer = await self.connection.call(lambda: beat, HeartbeatReply)
        if reply.handoff in answer.renewed:
            return msgspec.structs.replace(grant, renewed_ms=renewed_ms)
        raise LeaseLost("The lease ended before it could be handed out.", why="expired", fence=reply.fence, status="")

    async def _withdraw(self, request: Claim | Recover) -> None:
        """Takes the place of a claim that was cancelled, without waiting, and gives back what it got."""
        withdrawing = object()
        self.at_work.add(withdrawing)
        try:
            body = await self.connection.call(lambda: request, msgspec.Raw)
            reply = decode_reply(bytes(body), _WhichHandoff)
            if reply.handoff is not None:
                await self.hand_back(reply.handoff, decode_reply(bytes(body), ClaimReply).fence, "claim withdrawn")
        except (DHPError, ClientError) as error:
            log.debug("nothing to give back of a cancelled claim: %s", error)
        finally:
            self.at_work.discard(withdrawing)

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
        for waiting in self._claims:
            waiting.reschedule(self.loop.time())

    # Background work and the end.

    def run_in_background(self, work: Any) -> None:
        self.connection.run_in_background(work)

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
        self.keepalive.stop(release=False)  # Goodbye does it.
        for lease in self.leases.all():
            self.leases.give_up(lease, Loss("closed", lease.fence, ""))
        if self.keepalive.running:
            await asyncio.to_thread(self.keepalive.join, STOP_TIMEOUT_MS)
        await self.connection.close()

    def let_go(self) -> None:
        """Ends from any thread, without waiting: the client was collected, or its loop is closed."""
        if self._closed is not None:
            return
        self._closed = "The client is closed: connect again."
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
            self.keepalive.poke()

    def _is_back(self) -> None:
        self.keepalive.poke()
        self.leases.wake_all()


def _verified(reply: ClaimReply) -> bytes:
    """The intent's bytes. Raises `IntegrityError` unless they and the checkpoint's have the hashes that name them."""
    intent = bytes(reply.intent)
    if sha256_hex(intent) != reply.handoff:
        raise IntegrityError(f"The intent of {reply.handoff} isn't the one that it was dispatched with.")
    checkpoint = reply.checkpoint
    if checkpoint is not None and sha256_hex(checkpoint.state) != checkpoint.sha256:
        raise IntegrityError(f"Checkpoint {checkpoint.seq} of {reply.handoff} isn't the one that was stored.")
    return intent
