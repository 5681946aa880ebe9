"""Writing under a lease, through whatever happens to the lease and the connection.

Owns the order of one task's writes, who waits for them, looking after the lease, and giving up. Does not own how one write gets
through (`sending`), what the writes say (`task`), claiming again (`reclaiming`), renewing (`keepalive`), nor what is kept meanwhile
(`spooling`).
"""

import asyncio
import logging
import math
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .callers import Callers
from .clock import monotonic_ms
from .leases import Lease, Loss, Phase
from .reclaiming import reclaim
from .sending import Sending
from .session import Session
from .spooling import Spooling
from .writes import Write

log = logging.getLogger("dhp_client")

T = TypeVar("T")


class Hold(Sending):
    """One lease and the writes under it. Lives on the session's loop, but `phase` and `lost` may be read anywhere.

    `on_lost` refers, weakly, to what is called once when the lease is lost: with the asyncio tasks that were waiting for
    a write and so have been told already.
    """

    def __init__(self, session: Session, lease: Lease, kind: str, worker: str) -> None:
        super().__init__(session, lease)
        self.kind = kind
        self.worker = worker
        self.seq = 0
        self.sha256: str | None = None
        """Of the last stored checkpoint."""
        self.state: Any = None
        """Of the last stored checkpoint, decoded, unless `state_text` holds a newer one that isn't yet."""
        self.state_text: bytes | None = None
        self.unanswered: dict[str, bytes] = {}
        """States, by hash, that were sent as checkpoint `seq` + 1: any one of them may be stored."""
        self.on_lost: Callable[[], Callable[[set[Any]], None] | None] = lambda: None
        self.finalizer: weakref.finalize[..., Any] | None = None
        """Has the lease forgotten when nobody holds the task any more."""
        self.attempt = 0
        self._told_lost = False
        self._reclaiming = False
        self.in_turn = asyncio.Lock()
        self._callers = Callers(session.loop)
        self._timer: asyncio.TimerHandle | None = None
        self.spooling = None if session.spool is None else Spooling(self, session.spool)
        lease.notify = _notifier(session.loop, weakref.ref(self))

    def begin(self) -> None:
        """The lease counts from now on: it is renewed and looked after."""
        self.session.leases.add(self.lease)
        self.session.keep_alive()
        self._look_later()

    @property
    def kept(self) -> int:
        """How many writes wait in the spool."""
        return 0 if self.spooling is None else self.spooling.kept

    @property
    def void(self) -> dict[str, Any]:
        return {} if self.spooling is None else self.spooling.void

    def stored(self, seq: int, sha256: str, text: bytes) -> None:
        """That checkpoint is the last stored one now."""
        self.seq, self.sha256, self.state_text = seq, sha256, text
        self.unanswered.clear()

    def abandon(self) -> None:
        """Renews it no more: it ends by itself, and whoever still waits gives up."""
        self._abandoned = True
        self._changed.set()
        if self.spooling is not None:
            self.spooling.let_go()
        over = self._over()
        if over is not None:
            self._callers.tell_readers(over)
        if self.finalizer is not None:
            self.finalizer.detach()
        self.session.leases.drop(self.lease)
        if self._timer is not None:
            self._timer.cancel()

    # Writes.

    async def write(self, write: Write[T]) -> T:
        """Has a write carried through, after those before it.

        It goes on when the caller is cancelled, unless nothing has left yet: what is written next must know what it
        comes after. A loss is raised at once, whatever may still be under way.
        """
        self.check()
        self.session.check_usable()
        under_way = self.session.loop.create_task(self._carry_through(write))
        return await self._callers.answer(under_way, writes=True, given_up=lambda: not write.sent and not write.insists)

    async def wait(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `begin` comes to, which writes nothing; a loss, or the end of the work, is raised at once."""
        self.check()
        self.session.check_usable()
        under_way = self.session.loop.create_task(begin())
        return await self._callers.answer(under_way, writes=False, given_up=lambda: True)

    async def _carry_through(self, write: Write[T]) -> T:
        async with self.in_turn:
            self.check()
            return await (self.send(write) if self.spooling is None else self.spooling.carry_through(write))

    # What becomes of the lease.

    def look(self) -> None:
        """The lease's phase may have changed. On the loop."""
        if self.ended is not None:
            return
        self._changed.set()
        now_ms = monotonic_ms()
        phase = self.lease.phase(now_ms)
        if phase is not Phase.HELD and self.lease.told is None:
            self._give_way()
        if phase in (Phase.IN_DOUBT, Phase.ENDED) and now_ms >= self.lease.give_up_at_ms:
            self.session.leases.give_up(self.lease, Loss("in_doubt", self.lease.fence, ""))
            phase = Phase.LOST
        if phase is Phase.LOST:
            self._tell_lost()
        elif not self.session.closed:
            if phase is Phase.ENDED and not self._reclaiming:
                self._reclaiming = True
                self.session.run_in_background(self._reclaim())
            if self.spooling is not None and (self.in_touch or self.lease.told is not None):
                self.spooling.go_on()
            self._look_later()

    def _look_later(self) -> None:
        """Looks again when the phase changes by itself; a renewal that comes meanwhile makes that look a vain one."""
        if self._timer is not None:
            self._timer.cancel()
        now_ms = monotonic_ms()
        delay_ms = max(1.0, self.lease.next_look_ms(now_ms) - now_ms + 1)
        if delay_ms == math.inf:
            return  # With a spool doubt may last as long as it likes.
        self._timer = self.session.loop.call_later(delay_ms / 1000, _look_at, weakref.ref(self))

    def _tell_lost(self) -> None:
        if self._told_lost:
            return
        self._told_lost = True
        if self.spooling is not None and self.lease.lost is not None:
            self.spooling.lost(self.lease.lost)
        error = self.loss_error()
        # Not a warning: the work's own call, or its block, raises the same.
        log.info("%s (fence %d): %s", self.lease.handoff, self.lease.fence, error)
        told = self._callers.tell_all(error)
        self.abandon()
        tell = self.on_lost()
        if tell is not None:
            tell(told)

    async def _reclaim(self) -> None:
        try:
            await reclaim(self)
        finally:
            self._reclaiming = False
            self.look()

    def lose(self, loss: Loss) -> None:
        """The lease can't be had back."""
        self.session.leases.give_up(self.lease, loss)
        self.look()


def _notifier(loop: asyncio.AbstractEventLoop, hold: "weakref.ref[Hold]") -> Callable[[], None]:
    def notify() -> None:
        try:
            loop.call_soon_threadsafe(_look_at, hold)
        except RuntimeError:
            log.debug("a lease has changed after its loop was closed")

    return notify


def _look_at(hold: "weakref.ref[Hold]") -> None:
    found = hold()
    if found is not None:
        found.look()
