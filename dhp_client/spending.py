"""What a worker says of its progress: checkpoints, what they cost, and what it is doing.

Owns asking what is left before something is spent. The caps themselves are the daemon's: the write that would pass one is
refused there, whatever was asked before.
"""

from decimal import Decimal
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from dhp_protocol.errors import CheckpointConflict, DHPError, NotFound
from dhp_protocol.messages import Activity, Checkpoint, Request, Spend
from dhp_protocol.replies import ActivityReply, CheckpointReply, SpendReply, StatusReply

from . import payload
from .arguments import check_whole
from .exceptions import IntegrityError
from .held import Held
from .money import Money, exact_usd, unspent_usd, usd_json
from .overseeing import new_nonce
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
    ) -> CheckpointReply:
        """Stores `state`, from which a standby would go on; durable once this returns.

        `steps` and `usd` (US dollars, exactly) are what it took since the last one; `activity` is as in `activity`.
        `BudgetExceeded` when that would pass a cap: the handoff is dead then, and a redrive stores this very checkpoint first.
        """
        check_whole(steps=steps)
        text = payload.encode(state, member="state")
        sha256 = payload.sha256_hex(text)
        money = UNSET if usd is None else usd_json(usd)
        digest = UNSET if activity is None else _digest(activity)
        hold = self._hold

        def request() -> Request:
            hold.unanswered[sha256] = text
            return Checkpoint(
                handoff=self.handoff,
                fence=self.fence,
                state=Raw(text),
                seq=hold.seq + 1,
                sha256=sha256,
                steps=steps,
                usd=money,
                activity=digest,
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

        return await hold.write(Write(request, CheckpointReply, stored, corrects=corrects, spends=True))

    def _stored(self, seq: int, sha256: str, text: bytes) -> None:
        self._hold.seq, self._hold.sha256, self._state_text = seq, sha256, text
        self._hold.unanswered.clear()

    async def spend(self, *, usd: Money = 0, steps: int = 0) -> SpendReply:
        """Counts what was used up beside checkpoints, here and with every ancestor; gives the handoff's sums.

        `BudgetExceeded` when that would pass a cap: the handoff is dead then, and a redrive counts this first. Say it right
        after the money is gone: what a worker that dies hasn't said isn't counted.
        """
        check_whole(steps=steps)
        money, nonce = usd_json(usd), new_nonce()
        return await self._hold.write(
            Write(
                lambda: Spend(handoff=self.handoff, fence=self.fence, usd=money, steps=steps, nonce=nonce),
                SpendReply,
                spends=True,
            )
        )

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
