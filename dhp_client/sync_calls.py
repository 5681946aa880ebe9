"""What the sync client asks a daemon, one thing at a time: `looking` and `overseeing` without `await`."""

from collections.abc import Iterable, Mapping
from typing import Any

from dhp_protocol.replies import (
    BudgetReply,
    DecisionReply,
    DrainReply,
    EffectsReply,
    HealthReply,
    HistoryReply,
    ImportReply,
    ListReply,
    StatsReply,
    StatusAfter,
    StatusReply,
    SuspendReply,
)

from . import client as asynchronous
from .budgets import Budget
from .loop_thread import document, loop_thread
from .results import ApprovalPage, CheckpointPage, Result, StateAt


class Calls:
    """Base of `sync.Client`."""

    def __init__(self, inner: asynchronous.Client) -> None:
        self._inner = inner

    # Looking.

    def status(self, handoff: str) -> StatusReply:
        return loop_thread.run(self._inner.status(handoff))

    def last_checkpoint(self, handoff: str) -> StateAt | None:
        return loop_thread.run(self._inner.last_checkpoint(handoff))

    def checkpoints(self, handoff: str, after: int = 0, limit: int = 100) -> CheckpointPage:
        return loop_thread.run(self._inner.checkpoints(handoff, after, limit))

    def history(self, handoff: str, after: int = 0, limit: int = 100) -> HistoryReply:
        return loop_thread.run(self._inner.history(handoff, after, limit))

    def list(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        worker: str | None = None,
        label: str | None = None,
        prefix: str | None = None,
        newest_first: bool = False,
        after: int = 0,
        limit: int = 100,
    ) -> ListReply:
        return loop_thread.run(
            self._inner.list(
                status=status,
                kind=kind,
                worker=worker,
                label=label,
                prefix=prefix,
                newest_first=newest_first,
                after=after,
                limit=limit,
            )
        )

    def result(self, handoff: str, wait_ms: int = 0) -> Result:
        return loop_thread.run(self._inner.result(handoff, wait_ms))

    def effects(self, handoff: str, after: int = 0, limit: int = 1_000) -> EffectsReply:
        return loop_thread.run(self._inner.effects(handoff, after, limit))

    def approvals(
        self, *, status: str | None = None, handoff: str | None = None, after: int = 0, limit: int = 100
    ) -> ApprovalPage:
        return loop_thread.run(self._inner.approvals(status=status, handoff=handoff, after=after, limit=limit))

    def approval_wait(self, approval: str, wait_ms: int = 0) -> DecisionReply:
        return loop_thread.run(self._inner.approval_wait(approval, wait_ms))

    def stats(self) -> StatsReply:
        return loop_thread.run(self._inner.stats())

    def health(self) -> HealthReply:
        return loop_thread.run(self._inner.health())

    def ping(self) -> None:
        loop_thread.run(self._inner.ping())

    # Overseeing.

    def cancel(self, handoff: str, reason: str | None = None, children: bool = False) -> StatusAfter:
        return loop_thread.run(self._inner.cancel(handoff, reason, children))

    def ack(self, handoff: str) -> None:
        loop_thread.run(self._inner.ack(handoff))

    def forget(self, handoff: str) -> None:
        loop_thread.run(self._inner.forget(handoff))

    def suspend(
        self,
        handoff: str,
        *,
        wake_ms: int | None = None,
        approval: str | None = None,
        reason: str | None = None,
    ) -> SuspendReply:
        return loop_thread.run(self._inner.suspend(handoff, wake_ms=wake_ms, approval=approval, reason=reason))

    def resume(self, handoff: str, *, force: bool = False) -> StatusAfter:
        return loop_thread.run(self._inner.resume(handoff, force=force))

    def redrive(self, handoff: str, budget_add: Budget | Mapping[str, Any] | None = None) -> StatusAfter:
        return loop_thread.run(self._inner.redrive(handoff, budget_add))

    def budget_add(self, handoff: str, add: Budget | Mapping[str, Any]) -> BudgetReply:
        return loop_thread.run(self._inner.budget_add(handoff, add))

    def approve(self, approval: str, note: str | None = None) -> DecisionReply:
        return loop_thread.run(self._inner.approve(approval, note))

    def deny(self, approval: str, note: str | None = None) -> DecisionReply:
        return loop_thread.run(self._inner.deny(approval, note))

    def drain(self) -> DrainReply:
        return loop_thread.run(self._inner.drain())

    # Bundles.

    def export(self, handoff: str) -> bytes:
        return loop_thread.run(self._inner.export(handoff))

    def import_(self, bundle: bytes | Iterable[bytes | str]) -> ImportReply:
        return loop_thread.run(self._inner.import_(bundle))


document(Calls, asynchronous.Client)
