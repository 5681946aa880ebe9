"""A claimed handoff in the hands of its worker.

Owns how it ends, children, capabilities, and the block around the work. What else a worker says is `spending`'s,
`effects`' and `asking`'s; how writes get through is `hold`'s.
"""

import asyncio
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from dhp_protocol.errors import DHPError, LeaseLost
from dhp_protocol.limits import DEFAULT_KEEP_CHECKPOINTS, DEFAULT_PRIORITY, MAX_ERROR_CHARS, MAX_NAME_CHARS
from dhp_protocol.messages import CheckCapability, Fail, Release, WorkError
from dhp_protocol.replies import CapabilityReply, CompleteReply, DispatchReply, FailReply, ReleaseReply

from . import keepable, payload
from .arguments import check_text, check_whole
from .asking import Asking
from .budgets import Budget
from .calls import or_unset
from .effects import Effects
from .exceptions import ApprovalDenied, CapabilityDenied, ClientClosed, ClientError, Suspended, TaskEnded
from .grants import Grant
from .session import Session
from .spending import Spending
from .spool import Spool
from .spool_lines import KeptResult
from .spooling import Spooling
from .writes import Write

if TYPE_CHECKING:
    from .client import Client

log = logging.getLogger("dhp_client")

END_TIMEOUT_MS = 5_000
"""How long leaving a block may take to tell the daemon."""

OnLost = Callable[["Task"], object]
"""Called with the task once its lease is lost, on the event loop's thread."""


class Task(Spending, Effects, Asking):
    """A claimed handoff; `async with task:` runs the work as `Client.claim` tells.

    `inputs` is decoded JSON, `intent` the canonical bytes whose SHA-256 is `handoff`. `was` tells where it came from:
    "pending" or "orphaned". The daemon's errors are raised as they are; every call raises `LeaseLost` once the lease is
    lost, and `TaskEnded` once the work has ended. `BudgetExceeded` ends it: the handoff is dead, with all that it has. Time
    that is used up (`max_wallclock_ms`) takes the lease away: `LeaseLost`, why `dead`.
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
        super().__init__(client, session, grant, worker, detached=detached)
        self._on_lost = on_lost
        self._body: asyncio.Task[Any] | None = None
        self._body_cancelling = 0
        self._body_cancelled = False
        self._hold.on_lost = weakref.WeakMethod(self._lease_lost)
        self._hold.begin()

    async def _adopts(self, spool: Spool, grant: Grant) -> bool:
        """Sends what a dead process kept of this handoff, as `grant` gives it; false where that has ended it already."""
        if self._hold.spooling is None:
            self._hold.spooling = Spooling(self._hold, spool)
        try:
            await self._hold.spooling.adopt(grant.checkpoint)
        except LeaseLost:
            return False
        except BaseException:
            self._session.run_in_background(self._leave(None))
            raise
        return self.ended is None

    # What a worker says.

    async def complete(self, result: Any) -> CompleteReply:
        """Ends the work with its result.

        `ResultInvalid` leaves it running: mend the result as `path` and `rule` of its details say, and call again. Its
        `left` tells how many tries there are; with the last one gone the handoff is dead.

        This returns once the result is accepted. While nobody answers it waits; a spool, where the client has one, holds the
        result meanwhile, whether anybody still waits or not.
        """
        text = payload.encode(result, member="result")
        return await self._hold.write(keepable.complete(self._hold, KeptResult(result=Raw(text))))

    async def fail(self, type: str, message: str = "", *, retry: bool = True, delay_ms: int | None = None) -> FailReply:
        """Ends this attempt. With `retry` others try again, until the failures are used up; without, the handoff is dead.

        They try after `delay_ms`, or (None) after a pause that doubles with each failure. Raises `InDoubt` when nobody
        answers within the client's `retry_ms`.
        """
        check_text(type=type, message=message)
        if delay_ms is not None:
            check_whole(delay_ms=delay_ms)
        error = WorkError(type=type, message=message)
        return await self._within_retry_time(
            Write(
                lambda: Fail(
                    handoff=self.handoff, fence=self.fence, error=error, retry=retry, delay_ms=or_unset(delay_ms)
                ),
                FailReply,
                ending="failed",
                already=lambda loss: FailReply(status=loss.status, duplicate=True),
            )
        )

    async def release(self, reason: str | None = None, delay_ms: int = 0) -> ReleaseReply:
        """Hands the work back, which costs no attempt. Raises `InDoubt` when nobody answers within `retry_ms`."""
        check_whole(delay_ms=delay_ms)
        return await self._within_retry_time(
            Write(
                lambda: Release(handoff=self.handoff, fence=self.fence, reason=or_unset(reason), delay_ms=delay_ms),
                ReleaseReply,
                ending="released",
                already=lambda loss: ReleaseReply(duplicate=True),
            )
        )

    def abandon(self) -> None:
        """Renews the lease no more: it ends at its deadline as if this worker had died, which costs an attempt.

        For a worker that nobody hears of any more; one that knows what it does releases. Every later call raises `TaskEnded`.
        """
        self._hold.abandon()

    async def dispatch(
        self,
        kind: str,
        inputs: Mapping[str, Any],
        *,
        output_schema: Mapping[str, Any] | bool | None = None,
        budget: Budget | Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Sequence[str]] | None = None,
        key: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        delay_ms: int = 0,
        labels: Mapping[str, str] | None = None,
        keep_checkpoints: int = DEFAULT_KEEP_CHECKPOINTS,
    ) -> DispatchReply:
        """Dispatches a child of this handoff, whose spending counts against this one's caps too.

        Its key is this handoff's id unless given: asked again, the same child.
        """
        self._check()
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
            keep_checkpoints=keep_checkpoints,
        )

    async def check_capability(self, domain: str, resource: str) -> bool:
        """Whether the intent grants this resource. A refusal is on record."""
        check_text(domain=domain, resource=resource)
        reply = await self._hold.write(
            Write(
                lambda: CheckCapability(handoff=self.handoff, fence=self.fence, domain=domain, resource=resource),
                CapabilityReply,
            )
        )
        return reply.granted

    async def require(self, domain: str, resource: str) -> None:
        """Raises `CapabilityDenied` unless the intent grants this resource: ask before you touch it."""
        if not await self.check_capability(domain, resource):
            raise CapabilityDenied(domain, resource)

    # The block around the work.

    async def __aenter__(self) -> "Task":
        self._check()
        self._session.check_usable()
        body = asyncio.current_task()
        assert body is not None
        self._body, self._body_cancelling, self._body_cancelled = body, body.cancelling(), False
        self._session.at_work.add(self._hold)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        body, self._body = self._body, None
        assert body is not None
        try:
            return await self._left(body, error)
        finally:
            self._session.at_work.discard(self._hold)

    async def _left(self, body: asyncio.Task[Any], error: BaseException | None) -> bool:
        by_us = self._body_cancelled and body.uncancel() <= self._body_cancelling
        if isinstance(error, asyncio.CancelledError) and by_us:
            raise self._hold.loss_error() from error
        loss = self._loss_on_leaving(error)
        if loss is not None:
            raise loss from error
        if isinstance(error, GeneratorExit):  # Nothing can be awaited any more.
            self._session.run_in_background(self._leave(error))
        else:
            await self._leave(error)
        return self._ends_the_block(error)

    def _loss_on_leaving(self, error: BaseException | None) -> Exception | None:
        """What a block that is left with `error` raises instead because its lease is lost; None if it isn't."""
        if not self.lost or self.ended is not None or isinstance(error, LeaseLost | ClientClosed):
            return None
        return self._hold.loss_error() if error is None or isinstance(error, Exception) else None

    def _ends_the_block(self, error: BaseException | None) -> bool:
        """Whether `error` only led out of the block: this work was put aside by `approval`, perhaps in one of a group of tasks."""
        if isinstance(error, ExceptionGroup):
            return error.split(lambda each: self._put_aside(each))[1] is None
        return self._put_aside(error)

    def _put_aside(self, error: BaseException | None) -> bool:
        if not isinstance(error, Suspended | TaskEnded) or error.handoff != self.handoff:
            return False
        # Whoever else is at work under this task may hear of the end first.
        return isinstance(error, Suspended) or (self._parked and self.ended == "suspended")

    async def _leave(self, error: BaseException | None) -> None:
        """Ends the work as a block that is left with `error` does, within `END_TIMEOUT_MS`; what goes wrong is logged."""
        if self.ended is not None or self.lost or self._session.closed:
            return
        if isinstance(error, Exception):
            retry = not isinstance(error, ApprovalDenied)  # Another attempt would only be told the same.
            ending: Any = self.fail(type(error).__name__[:MAX_NAME_CHARS], _message_of(error), retry=retry)
        else:
            ending = self.release()
        try:
            async with asyncio.timeout(END_TIMEOUT_MS / 1000):
                await ending
        except TaskEnded:
            log.debug("%r has ended by a write that nobody waited for any more", self)
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
