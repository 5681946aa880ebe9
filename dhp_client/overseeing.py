"""The client's word from outside: what dispatchers, approvers and admins do to work that they don't hold.

Owns ending, putting aside, waking, giving more budget, deciding and forgetting. Holding work is `task`'s.
"""

import secrets
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from msgspec import UNSET

from dhp_protocol.errors import DHPError, NotFound, WrongState
from dhp_protocol.messages import Ack, ApprovalDecide, BudgetAdd, Cancel, Drain, Forget, Redrive, Resume, Suspend
from dhp_protocol.replies import BudgetReply, DecisionReply, DrainReply, Empty, StatusAfter, SuspendReply

from .arguments import check_id, check_text, check_whole
from .budgets import Budget, budget_json
from .calls import Calls, or_unset
from .own_doing import is_suspended_by, newest_record

T = TypeVar("T")


class Overseeing(Calls):
    """The part of the client that changes work from outside."""

    async def cancel(self, handoff: str, reason: str | None = None, children: bool = False) -> StatusAfter:
        """Ends the work from outside. A final one stays as it is, and `status` tells how that is."""
        check_id(handoff)
        return await self._call(Cancel(handoff=handoff, reason=or_unset(reason), children=children), StatusAfter)

    async def ack(self, handoff: str) -> None:
        """Takes note of a final handoff, so that it need not be kept for ever."""
        check_id(handoff)
        await self._call(Ack(handoff=handoff), Empty)

    async def forget(self, handoff: str) -> None:
        """Removes a final handoff and all that it holds, now. `WrongState` while it is live, or has children that are."""
        check_id(handoff)
        await self._status(handoff)  # Only what is there now can be gone by this.
        await self._call(Forget(handoff=handoff), Empty, already=_forgotten)

    async def suspend(
        self,
        handoff: str,
        *,
        wake_ms: int | None = None,
        approval: str | None = None,
        reason: str | None = None,
    ) -> SuspendReply:
        """Puts the work aside from outside; whoever holds it loses it, which costs no attempt.

        It becomes pending again by `resume`, after `wake_ms`, or when `approval` has been decided, whichever comes first.
        """
        check_id(handoff)
        if wake_ms is not None:
            check_whole(wake_ms=wake_ms)
        request = Suspend(
            handoff=handoff, wake_ms=or_unset(wake_ms), approval=or_unset(approval), reason=or_unset(reason)
        )
        before = await self._status(handoff)

        async def suspended(error: DHPError) -> SuspendReply | None:
            if not isinstance(error, WrongState) or error.details.get("status") != "suspended":
                return None
            newest = await newest_record(self._session.connection, handoff, "suspended", after=before.position)
            ours = newest is not None and is_suspended_by(request, newest)
            return SuspendReply(status="suspended", duplicate=True) if ours else None

        return await self._call(request, SuspendReply, already=suspended)

    async def resume(self, handoff: str, *, force: bool = False) -> StatusAfter:
        """Makes suspended work pending again. `force` takes back work that was exported, and may run elsewhere.

        Where the answer has to be asked for twice, the status told may be what came of it since.
        """
        check_id(handoff)
        before = await self._status(handoff)

        async def resumed(error: DHPError) -> StatusAfter | None:
            if not isinstance(error, WrongState):
                return None
            newest = await newest_record(self._session.connection, handoff, "resumed", after=before.position)
            ours = newest is not None and newest["why"] == "resume"
            return StatusAfter(status=str(error.details.get("status"))) if ours else None

        return await self._call(Resume(handoff=handoff, force=force), StatusAfter, already=resumed)

    async def redrive(self, handoff: str, budget_add: Budget | Mapping[str, Any] | None = None) -> StatusAfter:
        """Brings dead work back with all that it has, `budget_add` added to its caps.

        What a cap refused is applied first; where it still doesn't fit, `BudgetExceeded`, and the work stays dead. Failures,
        stalls, repeats and invalid results start anew; what was spent doesn't.
        """
        check_id(handoff)
        add = UNSET if budget_add is None else budget_json(budget_add, member="budget_add")
        request = Redrive(handoff=handoff, budget_add=add, nonce=new_nonce())
        return await self._call(request, StatusAfter)

    async def budget_add(self, handoff: str, add: Budget | Mapping[str, Any]) -> BudgetReply:
        """Adds positive amounts to caps that are set, while the work isn't completed or cancelled; gives those in force."""
        check_id(handoff)
        request = BudgetAdd(handoff=handoff, add=budget_json(add, member="add"), nonce=new_nonce())
        return await self._call(request, BudgetReply)

    async def approve(self, approval: str, note: str | None = None) -> DecisionReply:
        """Says yes. `Forbidden` to whoever asked; `AlreadyDecided` after a no, `ApprovalExpired` when it is too late."""
        return await self._decide(approval, "approve", note)

    async def deny(self, approval: str, note: str | None = None) -> DecisionReply:
        """Says no; refused as `approve` is."""
        return await self._decide(approval, "deny", note)

    async def _decide(self, approval: str, decision: Literal["approve", "deny"], note: str | None) -> DecisionReply:
        check_text(approval=approval)
        return await self._call(
            ApprovalDecide(approval=approval, decision=decision, note=or_unset(note)), DecisionReply
        )

    async def drain(self) -> DrainReply:
        """Stops new claims and dispatches at the daemon; held leases go on, and are counted."""
        return await self._call(Drain(), DrainReply)


def new_nonce() -> str:
    """Tells one call, however often it is sent, from the next one."""
    return secrets.token_urlsafe(12)


async def _forgotten(error: DHPError) -> Empty | None:
    return Empty() if isinstance(error, NotFound) else None
