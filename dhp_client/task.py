"""A claimed handoff in the hands of its worker.

Owns what a worker may do with it and the block around the work. How writes get through is `hold`'s.
"""

import asyncio
import logging
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, Raw

from dhp_protocol.errors import CheckpointConflict, DHPError, LeaseLost
from dhp_protocol.limits import MAX_ERROR_CHARS, MAX_NAME_CHARS
from dhp_protocol.messages import Checkpoint, Complete, Fail, Release, Request, WorkError
from dhp_protocol.replies import CheckpointReply, CompleteReply, DispatchReply, FailReply, ReleaseReply

from . import payload
from .arguments import check_text, check_whole
from .exceptions import ClientClosed, ClientError, InDoubt, IntegrityError
from .hold import Hold, Write
from .leases import Lease, Phase
from .session import Grant, Session

if TYPE_CHECKING:
    from .client import Client

log = logging.getLogger("dhp_client")

END_TIMEOUT_MS = 5_000
"""How long leaving a block may take to tell the daemon."""

T = TypeVar("T")
OnLost = Callable[["Task"], object]
"""Called with the task once its lease is lost, on the event loop's thread."""


class _Intent(msgspec.Struct, frozen=True):
    kind: str
    inputs: Raw


class Task:
    """A claimed handoff; `async with task:` runs the work as `Client.claim` tells.

    `inputs` is decoded JSON, `intent` the canonical bytes whose SHA-256 is `handoff`. `was` tells where it came from:
    "pending" or "orphaned". The daemon's errors are raised as they are; every call raises `LeaseLost` once the lease is
    lost, and `TaskEnded` once the work has ended.
    """

    def __init__(
        self,
        client: "Client",
        session: Session,
        grant: Grant,
        worker: str,
        *,
        detached: bool = False,
        on_lost: OnLost | None = None,
    ) -> None:
        reply = grant.reply
        intent = msgspec.json.decode(grant.intent, type=_Intent)
        self.handoff: str = reply.handoff
        self.kind: str = intent.kind
        self.inputs: Any = payload.decode(intent.inputs)
        self.intent: bytes = grant.intent
        self.was: str = reply.was
        self._session = session
        self._client = client  # A client isn't collected while somebody works with one of its tasks.
        self._on_lost = on_lost
        self._state: Any = None
        self._state_text: bytes | None = None
        self._body: asyncio.Task[Any] | None = None
        self._body_cancelling = 0
        self._body_cancelled = False
        lease = Lease(
            handoff=reply.handoff,
            fence=reply.fence,
            ttl_ms=reply.lease.ttl_ms,
            heartbeat_ms=reply.lease.heartbeat_ms,
            in_doubt_ms=session.in_doubt_ms,
            deadline_ms=grant.renewed_ms + reply.lease.ttl_ms,
            detached=detached,
        )
        hold = self._hold = Hold(session, lease, worker, detached=detached)
        hold.attempt = reply.attempt
        if (stored := grant.checkpoint) is not None:
            hold.seq, hold.sha256, self._state_text = stored.seq, stored.sha256, bytes(stored.state)
        hold.on_lost = weakref.WeakMethod(self._lease_lost)
        hold.finalizer = weakref.finalize(self, session.leases.forget, lease)
        hold.finalizer.atexit = False
        hold.begin()

    def __repr__(self) -> str:
        return f"<Task {self.kind} {self.handoff[:12]}, fence {self.fence}, {self.ended or self._hold.phase.value}>"

    @property
    def state(self) -> Any:
        """The last stored checkpoint's state, decoded; None if there is none."""
        if self._state_text is not None:
            self._state, self._state_text = payload.decode(self._state_text), None
        return self._state

    @property
    def seq(self) -> int:
        """The last stored checkpoint's number; 0 if there is none."""
        return self._hold.seq

    @property
    def fence(self) -> int:
        """The credential of every write. It changes when a lease that ended unclaimed was claimed again."""
        return self._hold.lease.fence

    @property
    def attempt(self) -> int:
        """How often the handoff has been claimed, this time included."""
        return self._hold.attempt

    @property
    def worker(self) -> str:
        """Who has claimed it, as status and history show."""
        return self._hold.worker

    @property
    def lost(self) -> bool:
        """Whether the lease is lost: somebody else may be at work. May be read from any thread."""
        return self._hold.lost

    @property
    def in_doubt(self) -> bool:
        """Whether it isn't known that the lease lives; writes wait meanwhile. May be read from any thread."""
        return self._hold.phase in (Phase.IN_DOUBT, Phase.ENDED)

    @property
    def ended(self) -> str | None:
        """`completed`, `failed` or `released` once this worker is through with it."""
        return self._hold.ended

    # What a worker says.

    async def checkpoint(self, state: Any, *, steps: int = 1) -> CheckpointReply:
        """Stores `state`, from which a standby would go on; durable once this returns. `steps` adds to the work's sum."""
        check_whole(steps=steps)
        text = payload.encode(state, member="state")
        sha256 = payload.sha256_hex(text)
        hold = self._hold

        def request() -> Request:
            hold.unanswered[sha256] = text
            return Checkpoint(
                handoff=self.handoff, fence=self.fence, state=Raw(text), seq=hold.seq + 1, sha256=sha256, steps=steps
            )

        def stored(reply: CheckpointReply) -> None:
            if reply.sha256 != sha256:
                raise IntegrityError(f"Checkpoint {reply.seq} was stored under another hash than it was sent with.")
            self._stored(reply.seq, sha256, text)

        def corrects(error: DHPError) -> bool:
            # Its number is taken by one that was given up, on an error that left open whether it counts.
            if not isinstance(error, CheckpointConflict) or error.details.get("seq") != hold.seq + 1:
                return False
            found = str(error.details.get("expected"))
            given_up = hold.unanswered.get(found)
            if given_up is None or found == sha256:
                return False
            self._stored(hold.seq + 1, found, given_up)
            return True

        return await self._hold.write(Write(request, CheckpointReply, stored, corrects=corrects))

    async def complete(self, result: Any) -> CompleteReply:
        """Ends the work with its result. `ResultInvalid` leaves it running: mend the result and call again."""
        text = payload.encode(result, member="result")
        return await self._hold.write(
            Write(
                lambda: Complete(handoff=self.handoff, fence=self.fence, result=Raw(text)),
                CompleteReply,
                ending="completed",
            )
        )

    async def fail(self, type: str, message: str = "", *, retry: bool = True, delay_ms: int = 0) -> FailReply:
        """Ends this attempt. With `retry` others try again, after `delay_ms`, until the failures are used up.

        Raises `InDoubt` when nobody answers within the client's `retry_ms`.
        """
        check_text(type=type, message=message)
        check_whole(delay_ms=delay_ms)
        error = WorkError(type=type, message=message)
        return await self._within_retry_time(
            Write(
                lambda: Fail(handoff=self.handoff, fence=self.fence, error=error, retry=retry, delay_ms=delay_ms),
                FailReply,
                ending="failed",
                already=lambda loss: FailReply(status=loss.status, duplicate=True),
            )
        )

    async def release(self, reason: str | None = None, delay_ms: int = 0) -> ReleaseReply:
        """Hands the work back, which costs no attempt. Raises `InDoubt` when nobody answers within `retry_ms`."""
        check_whole(delay_ms=delay_ms)
        told = UNSET if reason is None else reason
        return await self._within_retry_time(
            Write(
                lambda: Release(handoff=self.handoff, fence=self.fence, reason=told, delay_ms=delay_ms),
                ReleaseReply,
                ending="released",
                already=lambda loss: ReleaseReply(duplicate=True),
            )
        )

    async def dispatch(
        self,
        kind: str,
        inputs: Mapping[str, Any],
        *,
        output_schema: Mapping[str, Any] | bool | None = None,
        budget: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        key: str | None = None,
        priority: int = 5,
        delay_ms: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> DispatchReply:
        """Dispatches a child of this handoff. Its key is this handoff's id unless given: asked again, the same child."""
        self.check()
        return await self._client.dispatch(
            kind,
            inputs,
            output_schema=output_schema,
            budget=budget,
            capabilities=capabilities,
            key=self.handoff if key is None else key,
            priority=priority,
            delay_ms=delay_ms,
            parent=self.handoff,
            labels=labels,
        )

    def _stored(self, seq: int, sha256: str, text: bytes) -> None:
        self._hold.seq, self._hold.sha256, self._state_text = seq, sha256, text
        self._hold.unanswered.clear()

    async def _within_retry_time(self, write: Write[T]) -> T:
        retry_ms = self._session.connection.retry_ms
        try:
            async with asyncio.timeout(retry_ms / 1000):
                return await self._hold.write(write)
        except TimeoutError:
            raise InDoubt(f"Nobody has answered for {retry_ms:.0f} ms: whether this counts isn't known.") from None

    # The block around the work.

    async def __aenter__(self) -> "Task":
        self.check()
        self._session.check_usable()
        body = asyncio.current_task()
        assert body is not None
        self._body, self._body_cancelling, self._body_cancelled = body, body.cancelling(), False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        assert body is not None
        by_us = self._body_cancelled and body.uncancel() <= self._body_cancelling
        if isinstance(error, asyncio.CancelledError) and by_us:
            raise self._hold.loss_error() from error
        loss = self.loss_on_leaving(error)
        if loss is not None:
            raise loss from error
        if isinstance(error, GeneratorExit):  # Nothing can be awaited any more.
            self._session.run_in_background(self.leave(error))
        else:
            await self.leave(error)

    def check(self) -> None:
        """Raises what every call raises once there is nothing more to do with this task."""
        self._hold.check()

    def loss_on_leaving(self, error: BaseException | None) -> Exception | None:
        """What a block that is left with `error` raises instead because its lease is lost; None if it isn't."""
        if not self.lost or self.ended is not None or isinstance(error, LeaseLost | ClientClosed):
            return None
        return self._hold.loss_error() if error is None or isinstance(error, Exception) else None

    async def leave(self, error: BaseException | None) -> None:
        """Ends the work as a block that is left with `error` does, within `END_TIMEOUT_MS`; what goes wrong is logged."""
        if self.ended is not None or self.lost or self._session.closed:
            return
        if isinstance(error, Exception):
            ending: Any = self.fail(type(error).__name__[:MAX_NAME_CHARS], _message_of(error))
        else:
            ending = self.release()
        try:
            async with asyncio.timeout(END_TIMEOUT_MS / 1000):
                await ending
        except (DHPError, ClientError, TimeoutError) as problem:
            log.warning("%r couldn't be given back, its lease ends by itself: %s", self, problem)
        finally:
            self._hold.abandon()

    def _lease_lost(self, told: set[Any]) -> None:
        body = self._body
        # One that has been told by its own call, or is just making it, needs no cancelling.
        if body is not None and body not in told and asyncio.current_task() is not body:
            self._body_cancelled = body.cancel("the lease is lost")
        if self._on_lost is not None:
            try:
                self._on_lost(self)
            except Exception:
                log.exception("on_lost of %r failed", self)


def _message_of(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:
        text = "(the exception has no text)"
    return text.encode(errors="replace").decode()[:MAX_ERROR_CHARS]
