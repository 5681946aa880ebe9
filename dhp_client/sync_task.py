"""A claimed handoff in the hands of a worker without an event loop: `task.Task` without `await`.

Owns where a worker's own code runs: in the caller's thread. Nothing about leases, retries or the protocol is decided here.
"""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from dhp_protocol.limits import DEFAULT_KEEP_CHECKPOINTS, DEFAULT_PRIORITY
from dhp_protocol.replies import (
    CompleteReply,
    DispatchReply,
    FailReply,
    ReleaseReply,
    SuspendReply,
)

from . import task as asynchronous
from .asking import Approved
from .budgets import Budget
from .effects import EffectBegun
from .keepable import Checkpointed, Spent
from .loop_thread import document, loop_thread
from .money import Money
from .spending import Headroom


class Task:
    """A claimed handoff, as `dhp_client.task.Task` without `await`; `with task:` runs the work.

    Nothing interrupts the body when the lease is lost: `lost` is set, `on_lost` is called on another thread, and the
    next call, or the end of the block, raises `LeaseLost`.
    """

    def __init__(self, inner: asynchronous.Task) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def handoff(self) -> str:
        """The handoff's id, the SHA-256 of `intent`."""
        return self._inner.handoff

    @property
    def kind(self) -> str:
        """What kind of work it is."""
        return self._inner.kind

    @property
    def inputs(self) -> Any:
        """What it was dispatched with, decoded."""
        return self._inner.inputs

    @property
    def intent(self) -> bytes:
        """The canonical bytes whose SHA-256 is `handoff`."""
        return self._inner.intent

    @property
    def state(self) -> Any:
        return self._inner.state

    @property
    def seq(self) -> int:
        return self._inner.seq

    @property
    def fence(self) -> int:
        return self._inner.fence

    @property
    def attempt(self) -> int:
        return self._inner.attempt

    @property
    def was(self) -> str:
        """Where it came from: "pending" or "orphaned"."""
        return self._inner.was

    @property
    def worker(self) -> str:
        return self._inner.worker

    @property
    def lost(self) -> bool:
        return self._inner.lost

    @property
    def in_doubt(self) -> bool:
        return self._inner.in_doubt

    @property
    def spooled(self) -> int:
        return self._inner.spooled

    @property
    def draining(self) -> bool:
        return self._inner.draining

    @property
    def ended(self) -> str | None:
        return self._inner.ended

    def checkpoint(self, state: Any, *, steps: int = 1, usd: Money | None = None, activity: Any = None) -> Checkpointed:
        return loop_thread.run(self._inner.checkpoint(state, steps=steps, usd=usd, activity=activity))

    def spend(self, *, usd: Money = 0, steps: int = 0) -> Spent:
        return loop_thread.run(self._inner.spend(usd=usd, steps=steps))

    def afford(self, *, usd: Money = 0, steps: int = 0) -> Headroom:
        return loop_thread.run(self._inner.afford(usd=usd, steps=steps))

    def activity(self, what: Any) -> int | None:
        return loop_thread.run(self._inner.activity(what))

    def effect(
        self,
        step: str,
        call: Callable[[str], Any],
        *,
        approval: str | Approved | None = None,
        in_doubt: Callable[[str], Any] | None = None,
    ) -> Any:
        passage = self._inner._passage(step, call, in_doubt, approval)
        try:
            loop_thread.run(passage.__aenter__())
            if passage.done:
                return passage.result
            making = passage.call_for(call, in_doubt)
            with passage.calling():
                result = making()
            return loop_thread.run(passage.finish(result))
        finally:
            loop_thread.run(passage.__aexit__())

    def begin_effect(self, step: str, *, approval: str | Approved | None = None) -> EffectBegun:
        return loop_thread.run(self._inner.begin_effect(step, approval=approval))

    def end_effect(self, step: str, result: Any = None) -> Any:
        return loop_thread.run(self._inner.end_effect(step, result))

    def ask(self, action: str, details: Any = None, *, timeout_ms: int) -> str:
        return loop_thread.run(self._inner.ask(action, details, timeout_ms=timeout_ms))

    def approval(
        self, action: str, details: Any = None, *, timeout_ms: int, park: bool = False, again: bool = False
    ) -> Approved:
        return loop_thread.run(self._inner.approval(action, details, timeout_ms=timeout_ms, park=park, again=again))

    def suspend(
        self, *, wake_ms: int | None = None, approval: str | None = None, reason: str | None = None
    ) -> SuspendReply:
        return loop_thread.run(self._inner.suspend(wake_ms=wake_ms, approval=approval, reason=reason))

    def check_capability(self, domain: str, resource: str) -> bool:
        return loop_thread.run(self._inner.check_capability(domain, resource))

    def require(self, domain: str, resource: str) -> None:
        loop_thread.run(self._inner.require(domain, resource))

    def complete(self, result: Any) -> CompleteReply:
        return loop_thread.run(self._inner.complete(result))

    def fail(self, type: str, message: str = "", *, retry: bool = True, delay_ms: int | None = None) -> FailReply:
        return loop_thread.run(self._inner.fail(type, message, retry=retry, delay_ms=delay_ms))

    def release(self, reason: str | None = None, delay_ms: int = 0) -> ReleaseReply:
        return loop_thread.run(self._inner.release(reason, delay_ms))

    def abandon(self) -> None:
        async def on_the_loop() -> None:
            self._inner.abandon()

        loop_thread.run(on_the_loop())

    def dispatch(
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
        return loop_thread.run(
            self._inner.dispatch(
                kind,
                inputs,
                output_schema=output_schema,
                budget=budget,
                capabilities=capabilities,
                key=key,
                priority=priority,
                delay_ms=delay_ms,
                labels=labels,
                keep_checkpoints=keep_checkpoints,
            )
        )

    def __enter__(self) -> "Task":
        self._inner._check()
        self._inner._session.at_work.add(self._inner._hold)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            loss = self._inner._loss_on_leaving(error)
            if loss is not None:
                raise loss from error
            loop_thread.run(self._inner._leave(error))
            return self._inner._ends_the_block(error)
        finally:
            self._inner._session.at_work.discard(self._inner._hold)


document(Task, asynchronous.Task)
