"""A person's word on what a worker is about to do, and putting work aside.

Owns asking, waiting under the lease, and freeing the worker while a person thinks. Who may decide, and what an approval is
good for, is the daemon's.
"""

import asyncio
from typing import Any

import msgspec
from msgspec import Raw

from dhp_protocol.errors import ApprovalExpired, DHPError
from dhp_protocol.intent import canonical, parse_exact
from dhp_protocol.messages import ApprovalRequest, Suspend
from dhp_protocol.replies import ApprovalRequestReply, DecisionReply, SuspendReply

from . import payload
from .arguments import check_text, check_whole
from .backoff import Backoff
from .calls import or_unset
from .connection import may_pass
from .exceptions import ApprovalDenied, ConnectionLost, NotConnected, Suspended
from .held import Held
from .leases import Loss
from .results import Approval
from .writes import Write

FIRST_PAUSE_MS = 20
MOST_PAUSE_MS = 1_000


class Approved(msgspec.Struct, frozen=True, kw_only=True):
    """A person said yes: `approval` is the id, which `Task.effect` takes; `at` is RFC 3339.

    `by` is the decider's token; without tokens what their client calls itself, which proves nothing.
    """

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
        a no; `TaskEnded` when the work ends meanwhile. The same question on this handoff is the same approval, whoever asks.
        After it has expired it is a new one; with `park` only if `again` says so, since the work that comes back should hear
        of it first.

        The lease is kept meanwhile, and the worker with it; a budget's `stall_ms` stands still. With `park` the work is put
        aside instead until there is a decision: `Suspended` ends the block, which lets it go no further, and whoever
        claims the work next comes to this call again, and gets the answer.
        """
        check_text(action=action)
        check_whole(timeout_ms=timeout_ms)
        text = payload.encode(details, member="details")
        self._check()
        if park and not again:
            earlier = await self._hold.wait(lambda: self._last_asked(action, text))
            if earlier is not None and earlier.decision == "expired":
                raise _expired(earlier.approval)
        asked = await self._asked(action, text, timeout_ms)
        found = await self._hold.wait(lambda: self._decision(asked, wait=not park))
        match found.decision:
            case "approved":
                return Approved(approval=asked, by=found.by, note=found.note, at=found.at)
            case "denied":
                raise ApprovalDenied(asked, action, found.by, found.note)
            case None:
                self._parked = True
                await self.suspend(approval=asked, reason=f"waits for approval: {action}")
                raise Suspended(self.handoff, asked)
            case _:
                raise _expired(asked, found.decision)

    async def ask(self, action: str, details: Any = None, *, timeout_ms: int) -> str:
        """Asks as `approval` does, and gives the question's id at once; `Client.approval_wait` tells what was decided."""
        check_text(action=action)
        check_whole(timeout_ms=timeout_ms)
        return await self._asked(action, payload.encode(details, member="details"), timeout_ms)

    async def _asked(self, action: str, details: bytes, timeout_ms: int) -> str:
        asking = Write(
            lambda: ApprovalRequest(
                handoff=self.handoff, fence=self.fence, action=action, details=Raw(details), timeout_ms=timeout_ms
            ),
            ApprovalRequestReply,
        )
        return (await self._hold.write(asking)).approval

    async def _decision(self, approval: str, *, wait: bool) -> DecisionReply:
        """What was decided; where it isn't yet and `wait`, what will be, however long the daemon can't say so meanwhile."""
        wait_ms = self._session.connection.limits.max_wait_ms if wait else 0
        backoff = Backoff(FIRST_PAUSE_MS, MOST_PAUSE_MS)
        while True:
            try:
                found = await self._client.approval_wait(approval, wait_ms)
            except (NotConnected, ConnectionLost, DHPError) as error:
                if isinstance(error, DHPError) and not may_pass(error):
                    raise
                await asyncio.sleep(backoff.next_ms() / 1000)  # The lease decides how often.
                continue
            if found.decision is not None or not wait:
                return found
            backoff.reset()

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
                already=_suspended_before,
            )
        )


def _suspended_before(loss: Loss) -> SuspendReply | None:
    """A hold that was suspended is told so until the next claim, so that any other end wasn't this one."""
    return SuspendReply(status=loss.status, duplicate=True) if loss.why == "superseded" else None


def _expired(approval: str, decision: str = "expired") -> ApprovalExpired:
    nobody = "Nobody decided in time, which isn't a no."
    sentence = "The work has ended, and with it what it asked for." if decision == "cancelled" else nobody
    return ApprovalExpired(sentence, approval=approval, decision=decision)
