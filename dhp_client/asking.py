"""A person's word on what a worker is about to do, and putting work aside.

Owns asking, waiting under the lease, and freeing the worker while a person thinks. Who may decide, and what an approval is
good for, is the daemon's.
"""

from typing import Any

import msgspec
from msgspec import Raw

from dhp_protocol.errors import ApprovalExpired
from dhp_protocol.intent import canonical, parse_exact
from dhp_protocol.messages import ApprovalRequest, Suspend
from dhp_protocol.replies import ApprovalRequestReply, DecisionReply, SuspendReply

from . import payload
from .arguments import check_text, check_whole
from .calls import or_unset
from .exceptions import ApprovalDenied, ConnectionLost, NotConnected, Suspended
from .held import Held
from .results import Approval
from .writes import Write


class Approved(msgspec.Struct, frozen=True, kw_only=True):
    """A person said yes: `approval` is the id, which `Task.effect` takes; `by` is None without tokens, `at` RFC 3339."""

    approval: str
    by: str | None
    note: str | None
    at: str | None


class Asking(Held):
    """The part of a task that waits for people, and for better times."""

    async def approval(
        self, action: str, details: Any = None, *, timeout_ms: int, park: bool = False, again: bool = False
    ) -> Approved:
        """Asks a person for their word on exactly this action with these details, and returns once they said yes.

        Raises `ApprovalDenied` when they said no, and `ApprovalExpired` when nobody did within `timeout_ms`, which isn't
        a no. The same question on this handoff is the same approval, whoever asks. After it has expired it is a new
        one; with `park` only if `again` says so, since the work that comes back should hear of it first.

        The lease is kept meanwhile, and the worker with it; a budget's `stall_ms` goes on. With `park` the work is put
        aside instead until there is a decision: `Suspended` ends the block, which lets it go no further, and whoever
        claims the work next comes to this call again, and gets the answer.
        """
        check_text(action=action)
        check_whole(timeout_ms=timeout_ms)
        text = payload.encode(details, member="details")
        self.check()
        if park and not again:
            earlier = await self._hold.wait(self._last_asked(action, text))
            if earlier is not None and earlier.decision == "expired":
                raise _expired(earlier.approval)
        asked = await self._hold.write(
            Write(
                lambda: ApprovalRequest(
                    handoff=self.handoff, fence=self.fence, action=action, details=Raw(text), timeout_ms=timeout_ms
                ),
                ApprovalRequestReply,
            )
        )
        found = await self._hold.wait(self._decision(asked.approval, wait=not park))
        match found.decision:
            case "approved":
                return Approved(approval=asked.approval, by=found.by, note=found.note, at=found.at)
            case "denied":
                raise ApprovalDenied(asked.approval, action, found.by, found.note)
            case None:
                await self.suspend(approval=asked.approval, reason=f"waits for approval: {action}")
                raise Suspended(self.handoff, asked.approval)
            case _:
                raise _expired(asked.approval, found.decision)

    async def _decision(self, approval: str, *, wait: bool) -> DecisionReply:
        """What was decided; where it isn't yet and `wait`, what will be, however long the daemon is away meanwhile."""
        wait_ms = self._session.connection.limits.max_wait_ms if wait else 0
        while True:
            try:
                found = await self._client.approval_wait(approval, wait_ms)
            except (NotConnected, ConnectionLost):
                continue  # The lease decides for how long.
            if found.decision is not None or not wait:
                return found

    async def _last_asked(self, action: str, details: bytes) -> Approval | None:
        """The newest approval of exactly this."""
        wanted = canonical(parse_exact(details, member="details"), member="details")
        newest: Approval | None = None
        after: int | None = 0
        while after is not None:
            page = await self._client.approvals(handoff=self.handoff, after=after)
            for found in page.approvals:
                told = payload.encode(found.details, member="details")
                if (
                    found.action == action
                    and canonical(parse_exact(told, member="details"), member="details") == wanted
                ):
                    newest = found
            after = page.next
        return newest

    async def suspend(
        self, *, wake_ms: int | None = None, approval: str | None = None, reason: str | None = None
    ) -> SuspendReply:
        """Puts the work aside, which costs no attempt; it comes back by itself, for any worker of its kind.

        After `wake_ms`, a sleep that outlives reboots; when `approval` has been decided; whichever comes first; with
        neither, by `Client.resume`. Checkpoint first. Raises `InDoubt` when nobody answers within `retry_ms`.
        """
        if wake_ms is not None:
            check_whole(wake_ms=wake_ms)
        return await self._within_retry_time(
            Write(
                lambda: Suspend(
                    handoff=self.handoff,
                    fence=self.fence,
                    wake_ms=or_unset(wake_ms),
                    approval=or_unset(approval),
                    reason=or_unset(reason),
                ),
                SuspendReply,
                ending="suspended",
                already=lambda loss: SuspendReply(status=loss.status, duplicate=True),
            )
        )


def _expired(approval: str, decision: str = "expired") -> ApprovalExpired:
    return ApprovalExpired("Nobody decided in time, which isn't a no.", approval=approval, decision=decision)
