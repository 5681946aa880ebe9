"""What a worker says of its progress: checkpoints, what they cost, and what it is doing.

Owns asking what is left before something is spent. The caps themselves are the daemon's: the write that would pass one is
refused there, whatever was asked before.
"""

from decimal import Decimal
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from dhp_protocol.errors import NotFound
from dhp_protocol.messages import Activity
from dhp_protocol.replies import ActivityReply, StatusReply

from . import keepable, payload
from .arguments import check_whole
from .held import Held
from .keepable import Checkpointed, Spent
from .money import Money, exact_usd, unspent_usd, usd_json
from .overseeing import new_nonce
from .spool_lines import KeptCheckpoint, KeptSpend
from .writes import Write


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """What is left under the caps of a handoff and of all its ancestors; false when what was asked about is more.

    `usd` (US dollars) and `steps` are the least that any of them has left, None where nobody has such a cap. `cap` and
    `whose` (a handoff's id) name what is in the way, None when nothing is.
    """

    usd: Decimal | None
    steps: int | None
    cap: str | None = None
    whose: str | None = None

    def __bool__(self) -> bool:
        return self.cap is None


class Spending(Held):
    """The part of a task that says how the work goes."""

    async def checkpoint(
        self, state: Any, *, steps: int = 1, usd: Money | None = None, activity: Any = None
    ) -> Checkpointed:
        """Stores `state`, from which a standby would go on; durable once this returns.

        `steps` and `usd` (US dollars, exactly) are what it took since the last one; `activity` is as in `activity`.
        `BudgetExceeded` when that would pass a cap: the handoff is dead then, and a redrive stores this very checkpoint first.

        While nobody answers this waits; where the client has a spool, `spooled` of what is given then tells that it was written
        there, and that no daemon has it yet. Raises `NotSpooled` where that can't be.
        """
        check_whole(steps=steps)
        text = payload.encode(state, member="state")
        entry = KeptCheckpoint(
            state=Raw(text),
            sha256=payload.sha256_hex(text),
            steps=steps,
            usd=UNSET if usd is None else usd_json(usd),
            activity=UNSET if activity is None else _digest(activity),
        )
        return await self._hold.write(keepable.checkpoint(self._hold, entry))

    async def spend(self, *, usd: Money = 0, steps: int = 0) -> Spent:
        """Counts what was used up beside checkpoints, here and with every ancestor; gives the handoff's sums.

        `BudgetExceeded` when that would pass a cap: the handoff is dead then, and a redrive counts this first. Say it right
        after the money is gone: what a worker that dies hasn't said isn't counted. Goes to a spool as `checkpoint` does.
        """
        check_whole(steps=steps)
        entry = KeptSpend(usd=usd_json(usd), steps=steps, nonce=new_nonce())
        return await self._hold.write(keepable.spend(self._hold, entry))

    async def afford(self, *, usd: Money = 0, steps: int = 0) -> Headroom:
        """Whether so much more fits under the caps, the handoff's own and every ancestor's: ask before you spend.

        `if not await task.afford(usd=0.25): …`. It is advice: siblings may spend meanwhile, and only the write decides.
        Time isn't looked at, nor an ancestor that is kept no more.
        """
        check_whole(steps=steps)
        self._check()
        amount = exact_usd(usd)
        usd_left: Decimal | None = None
        steps_left: int | None = None
        cap = whose = None
        account = await self._account_of(self.handoff)
        while True:
            left = _left(account)
            if left.usd is not None:
                usd_left = left.usd if usd_left is None else min(usd_left, left.usd)
            if left.steps is not None:
                steps_left = left.steps if steps_left is None else min(steps_left, left.steps)
            if cap is None and left.steps is not None and steps > left.steps:
                cap, whose = "max_steps", account.handoff
            if cap is None and left.usd is not None and amount > left.usd:
                cap, whose = "max_usd", account.handoff
            if account.parent is None:
                break
            try:
                account = await self._account_of(account.parent)
            except NotFound:
                break
        return Headroom(usd=usd_left, steps=steps_left, cap=cap, whose=whose)

    async def _account_of(self, handoff: str) -> StatusReply:
        return await self._hold.wait(lambda: self._client.status(handoff))

    async def activity(self, what: Any) -> int | None:
        """Says what the worker is doing, any text or JSON: something new moves the stall clock, the same again is a repeat.

        Gives how often in a row it was said before; the `max_repeats`-th time the work is taken back, and this raises
        `LeaseLost` (why `stalled`). None: the answer was lost, and isn't asked for again, since asking counts.
        """
        digest = _digest(what)
        said: Write[ActivityReply | None] = Write(
            lambda: Activity(handoff=self.handoff, fence=self.fence, digest=digest),
            ActivityReply,
            unanswered=lambda: None,
        )
        reply = await self._hold.write(said)
        return None if reply is None else reply.repeats


def _left(account: StatusReply) -> Headroom:
    """What one handoff has left of its own."""
    max_usd, max_steps = account.budget.get("max_usd"), account.budget.get("max_steps")
    return Headroom(
        usd=None if max_usd is None else unspent_usd(max_usd, account.usd),
        steps=None if max_steps is None else int(max_steps) - account.steps,
    )


def _digest(what: Any) -> str:
    return payload.sha256_hex(payload.encode(what, member="activity"))
