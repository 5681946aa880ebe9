"""The client's questions: what only looks.

Owns reading how work stands and what happened to it. Changing any of it is `overseeing`'s and `task`'s.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from dhp_protocol.messages import (
    FINAL,
    Approvals,
    ApprovalWait,
    Checkpoints,
    Effects,
    GetResult,
    GetStatus,
    Health,
    History,
    LastCheckpoint,
    ListHandoffs,
    Ping,
    Request,
    Stats,
)
from dhp_protocol.replies import (
    ApprovalsReply,
    CheckpointsReply,
    DecisionReply,
    EffectsReply,
    Empty,
    HealthReply,
    HistoryReply,
    LastCheckpointReply,
    ListReply,
    ResultReply,
    StatsReply,
    StatusReply,
)

from .arguments import check_id, check_text, check_whole
from .calls import Calls, or_unset
from .clock import monotonic_ms
from .results import (
    ApprovalPage,
    CheckpointPage,
    Result,
    StateAt,
    decoded_approval,
    decoded_checkpoint,
    decoded_result,
)
from .watching import Watch

T = TypeVar("T")


class Looking(Calls):
    """The part of the client that only looks."""

    async def status(self, handoff: str) -> StatusReply:
        """How one handoff stands."""
        check_id(handoff)
        return await self._call(GetStatus(handoff=handoff), StatusReply)

    async def last_checkpoint(self, handoff: str) -> StateAt | None:
        """The newest checkpoint."""
        check_id(handoff)
        reply = await self._call(LastCheckpoint(handoff=handoff), LastCheckpointReply)
        return None if reply.checkpoint is None else decoded_checkpoint(reply.checkpoint)

    async def checkpoints(self, handoff: str, after: int = 0, limit: int = 100) -> CheckpointPage:
        """A page of the checkpoints that are kept, oldest first; `after` is a seq."""
        check_id(handoff)
        check_whole(after=after, limit=limit)
        reply = await self._call(Checkpoints(handoff=handoff, after=after, limit=limit), CheckpointsReply)
        return CheckpointPage(checkpoints=[decoded_checkpoint(stored) for stored in reply.checkpoints], next=reply.next)

    async def history(self, handoff: str, after: int = 0, limit: int = 100) -> HistoryReply:
        """A page of what happened, oldest first; `after` is a record's `n`."""
        check_id(handoff)
        check_whole(after=after, limit=limit)
        return await self._call(History(handoff=handoff, after=after, limit=limit), HistoryReply)

    async def list(
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
        """A page of statuses in the order of dispatch, or the newest first; `label` is `name=value`, `prefix` what the id
        begins with (4 hex digits at least), `after` what `next` gave.
        """
        check_whole(after=after, limit=limit)
        wanted: Any = or_unset(status)  # A word that is no status is refused by the daemon, by name.
        request = ListHandoffs(
            status=wanted,
            kind=or_unset(kind),
            worker=or_unset(worker),
            label=or_unset(label),
            prefix=or_unset(prefix),
            newest_first=newest_first,
            after=after,
            limit=limit,
        )
        return await self._call(request, ListReply)

    async def effects(self, handoff: str, after: int = 0, limit: int = 1_000) -> EffectsReply:
        """A page of the handoff's effects, in the order in which they were begun; `after` is what `next` gave."""
        check_id(handoff)
        check_whole(after=after, limit=limit)
        return await self._call(Effects(handoff=handoff, after=after, limit=limit), EffectsReply)

    async def approvals(
        self, *, status: str | None = None, handoff: str | None = None, after: int = 0, limit: int = 100
    ) -> ApprovalPage:
        """A page of what people were asked, oldest first: about live work, or about the handoff named, ended or not.

        `status` is `open`, `approved`, `denied`, `expired` or `cancelled`; `after` is what `next` gave.
        """
        check_whole(after=after, limit=limit)
        if handoff is not None:
            check_id(handoff)
        wanted: Any = or_unset(status)
        request = Approvals(status=wanted, handoff=or_unset(handoff), after=after, limit=limit)
        reply = await self._call(request, ApprovalsReply)
        return ApprovalPage(approvals=[decoded_approval(view) for view in reply.approvals], next=reply.next)

    async def approval_wait(self, approval: str, wait_ms: int = 0) -> DecisionReply:
        """The decision, waited for up to `wait_ms` while it is open (`decision` is None then)."""
        check_text(approval=approval)
        check_whole(wait_ms=wait_ms)
        return await self._waited(
            lambda left_ms: ApprovalWait(approval=approval, wait_ms=left_ms),
            DecisionReply,
            wait_ms,
            over=lambda reply: reply.decision is not None,
        )

    async def result(self, handoff: str, wait_ms: int = 0) -> Result:
        """The result, or the answer that was refused last, waited for up to `wait_ms` while the work isn't final."""
        check_id(handoff)
        check_whole(wait_ms=wait_ms)
        reply = await self._waited(
            lambda left_ms: GetResult(handoff=handoff, wait_ms=left_ms),
            ResultReply,
            wait_ms,
            over=lambda reply: reply.status in FINAL,
        )
        return decoded_result(reply)

    def watch(
        self, handoff: str | None = None, kinds: str | Iterable[str] | None = None, after: int | None = None
    ) -> Watch:
        """`async for event in client.watch(...)`: each record from now on, or from the position `after`; none is missed.

        The first record asked for raises `NotFound` when there is no such handoff.
        """
        if handoff is not None:
            check_id(handoff, hint="; for a kind write kinds=…")
        if after is not None:
            check_whole(after=after)
        names = [kinds] if isinstance(kinds, str) else kinds
        return Watch(self._session, handoff=handoff, kinds=None if names is None else list(names), after=after)

    async def stats(self) -> StatsReply:
        """Counts and rates."""
        return await self._call(Stats(), StatsReply)

    async def health(self) -> HealthReply:
        """Whether the daemon and its store are well."""
        return await self._call(Health(), HealthReply)

    async def ping(self) -> None:
        """Returns when the daemon has answered."""
        await self._call(Ping(), Empty)

    async def _waited(
        self, ask: Callable[[int], Request], shape: type[T], wait_ms: int, *, over: Callable[[T], bool]
    ) -> T:
        """The answer to what may wait so many milliseconds; the daemon bounds how long one request does."""
        until_ms = monotonic_ms() + wait_ms
        while True:
            self._session.check_usable()
            connection = self._session.connection
            reply = await connection.call(lambda: ask(max(0, int(until_ms - monotonic_ms()))), shape)
            if over(reply) or monotonic_ms() >= until_ms or wait_ms <= connection.limits.max_wait_ms:
                return reply
