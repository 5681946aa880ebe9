"""Claiming: grants are checked before they are handed out, and one that nobody waits for any more is given back.

Owns how a claim is asked for until there is an answer. Does not own what is done under the lease that comes of it (`hold`, `task`).
"""

import asyncio
import contextlib
import logging
import secrets
from typing import Any

import msgspec

from dhp_protocol.errors import DHPError, LeaseLost
from dhp_protocol.messages import Claim, Heartbeat, LeaseRef, Recover, Release
from dhp_protocol.replies import ClaimReply, HeartbeatReply, ReleaseReply, StoredCheckpoint

from .clock import monotonic_ms
from .connection import Connection
from .draining import program
from .exceptions import ClientError, IntegrityError
from .payload import sha256_hex
from .wire import decode_reply

log = logging.getLogger("dhp_client")


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


class Claims:
    """What one client claims over `connection`. Base of `session.Session`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.at_work: set[object] = set()
        """What keeps the program busy beside leases: tasks whose blocks are under way, and claims that are being given back."""
        self._waiting: set[asyncio.Timeout] = set()
        self._over = asyncio.Event()

    def check_open(self) -> None:
        """Raises `ClientClosed`."""
        raise NotImplementedError

    def run_in_background(self, work: Any) -> None:
        self.connection.run_in_background(work)

    def end_waits(self) -> None:
        """Claims that wait end as empty."""
        for waiting in self._waiting:
            waiting.reschedule(asyncio.get_running_loop().time())

    async def claim(self, request: Claim | Recover) -> Grant | None:
        """A granted claim, or None when the wait ended empty. Cancelled, it gives back what was granted meanwhile.

        Where the program drains, a wait that has begun ends, and from then on it is as if there were no work.
        """
        if program.draining:
            await self._wait_for_nothing(request.wait_ms)
            return None
        try:
            async with asyncio.timeout(None) as waiting:
                self._waiting.add(waiting)
                return await self.claim_again(request)
        except TimeoutError:
            if not waiting.expired():
                raise
            return None
        finally:
            self._waiting.discard(waiting)

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


def _verified(reply: ClaimReply) -> bytes:
    """The intent's bytes. Raises `IntegrityError` unless they and the checkpoint's have the hashes that name them."""
    intent = bytes(reply.intent)
    if sha256_hex(intent) != reply.handoff:
        raise IntegrityError(f"The intent of {reply.handoff} isn't the one that it was dispatched with.")
    checkpoint = reply.checkpoint
    if checkpoint is not None and sha256_hex(checkpoint.state) != checkpoint.sha256:
        raise IntegrityError(f"Checkpoint {checkpoint.seq} of {reply.handoff} isn't the one that was stored.")
    return intent
