"""Writing under a lease, through whatever happens to the lease and the connection.

Owns the order of one task's writes, sending again what was not answered, waiting while in doubt, and giving up. Does not
own what the writes say (`task`), claiming again (`reclaiming`), renewing (`keepalive`), nor what is kept meanwhile (`spooling`).
"""

import asyncio
import logging
import math
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from dhp_protocol.errors import DHPError, LeaseLost
from dhp_protocol.messages import Request

from .backoff import Patience
from .callers import Callers
from .clock import monotonic_ms
from .connection import may_pass
from .exceptions import ClientClosed, ConnectionLost, InDoubt, TaskEnded
from .leases import Lease, Loss, Phase, loss_from_error
from .own_doing import refused_before
from .reclaiming import reclaim
from .session import Session
from .spooling import Spooling
from .writes import OutOfTouch, Write, makes_it_dead

log = logging.getLogger("dhp_client")

T = TypeVar("T")

_ENDED = {"dead": "A cap has ended this work, which is dead: a redrive brings it back."}


class Hold:
    """One lease and the writes under it. Lives on the session's loop, but `phase` and `lost` may be read anywhere.

    `on_lost` refers, weakly, to what is called once when the lease is lost: with the asyncio tasks that were waiting for
    a write and so have been told already.
    """

    def __init__(self, session: Session, lease: Lease, kind: str, worker: str) -> None:
        self.session = session
        self.lease = lease
        self.kind = kind
        self.worker = worker
        self.ended: str | None = None
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
        self._abandoned = False
        self._told_lost = False
        self._reclaiming = False
        self.in_turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._callers = Callers(session.loop)
        self._timer: asyncio.TimerHandle | None = None
        self._doubted: asyncio.Future[None] | None = None
        """Done once the lease is held no more, while a write that gives way then waits for its answer."""
        self.spooling = None if session.spool is None else Spooling(self, session.spool)
        lease.notify = _notifier(session.loop, weakref.ref(self))

    def begin(self) -> None:
        """The lease counts from now on: it is renewed and looked after."""
        self.session.leases.add(self.lease)
        self.session.keepalive.start()
        self._look_later()

    @property
    def phase(self) -> Phase:
        return self.lease.phase(monotonic_ms())

    @property
    def lost(self) -> bool:
        return self.lease.lost is not None

    @property
    def in_touch(self) -> bool:
        """Whether a write would leave at once."""
        return self.session.connection.writable and self.phase is Phase.HELD

    @property
    def kept(self) -> int:
        """How many writes wait in the spool."""
        return 0 if self.spooling is None else self.spooling.kept

    def stored(self, seq: int, sha256: str, text: bytes) -> None:
        """That checkpoint is the last stored one now."""
        self.seq, self.sha256, self.state_text = seq, sha256, text
        self.unanswered.clear()

    def loss_error(self) -> Exception:
        loss = self.lease.lost
        assert loss is not None
        if loss.why == "closed":
            return ClientClosed("The client was closed, which released the lease.")
        return loss.error({} if self.spooling is None else self.spooling.void)

    def check(self) -> None:
        """Raises what every call raises once there is nothing more to write."""
        over = self._over()
        if over is not None:
            raise over
        self.session.check_open()

    def _over(self) -> Exception | None:
        """Why there is nothing more to write; None while there may be."""
        if self.ended is not None:
            return TaskEnded(_ENDED.get(self.ended, f"This task was {self.ended} already."), self.lease.handoff)
        if self.lost:
            return self.loss_error()
        if self._abandoned:
            sentence = "This task was left while nobody answered: its lease ends by itself."
            return TaskEnded(sentence, self.lease.handoff)
        return None

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

    async def send(self, write: Write[T]) -> T:
        """Sends `write` until it is answered, and takes in what follows from that. Whoever calls this has the turn."""
        left_open = False
        try:
            reply = await self._sent_until_answered(write)
            write.took_effect(reply)
            if write.ending is not None:
                self._end(write.ending)
            return reply
        except OutOfTouch:
            left_open = True  # It will be sent again, so what is told until then may still be its doing.
            raise
        finally:
            if not left_open:
                self._settled()

    def _end(self, how: str) -> None:
        self.ended = how
        self.abandon()

    def _settled(self) -> None:
        """What was told while a write was under way that may have caused it: it wasn't that write's doing."""
        told = self.session.leases.settled(self.lease)
        if told is not None and self.ended is None:
            self.session.leases.report(self.lease.handoff, self.lease.fence, told)

    async def _sent_until_answered(self, write: Write[T]) -> T:
        leases, lease, connection = self.session.leases, self.lease, self.session.connection
        patience = Patience(connection.retry_ms)
        while True:
            await self._until_it_may_leave(write)
            if write.settles != ():
                leases.settle(lease, only=write.settles)
            sent_ms, fence, request = monotonic_ms(), lease.fence, write.request()
            again, write.sent = write.sent, True
            try:
                reply = await self._answer_to(write, request)
            except ConnectionLost:
                if write.unanswered is not None:
                    return write.unanswered()
                continue
            except LeaseLost as error:
                loss = loss_from_error(error)
                refusal = await refused_before(connection, request, loss, fence) if again else None
                if refusal is not None:
                    self._end("dead")
                    raise refusal from None
                leases.settled(lease)
                already = write.already(loss) if again and not loss.leaves_it_free(fence) else None
                if already is not None:
                    return already
                write.sent = False
                self._take_loss(fence, loss)
                continue
            except DHPError as error:
                if makes_it_dead(error):
                    self._end("dead")
                    raise
                if write.corrects(error):
                    continue
                pause_ms = patience.pause_ms(monotonic_ms(), at_least_ms=error.after_ms or 0)
                if not may_pass(error) or pause_ms is None:
                    raise
                if write.unanswered is not None:
                    return write.unanswered()
                await asyncio.sleep(pause_ms / 1000)
                continue
            leases.renewed(lease.handoff, fence, sent_ms, monotonic_ms())
            return reply

    async def _answer_to(self, write: Write[T], request: Request) -> T:
        """What the daemon says. Raises `OutOfTouch` where the lease falls into doubt first, and `write` gives way to that."""
        asking = self.session.connection.call_once(request, write.shape)
        if write.gives_way_ms is None:
            return await asking
        doubted = self._doubted = self.session.loop.create_future()
        under_way = self.session.loop.create_task(asking)
        try:
            await asyncio.wait((under_way, doubted), return_when=asyncio.FIRST_COMPLETED)
            if under_way.done():
                return under_way.result()
            raise OutOfTouch
        finally:
            self._doubted = None
            under_way.cancel()

    async def _until_it_may_leave(self, write: Write[T]) -> None:
        if write.gives_way_ms is None:
            await self.until_writable(write)
            return
        try:
            async with asyncio.timeout(write.gives_way_ms / 1000):
                await self.until_writable(write)
        except TimeoutError:
            raise OutOfTouch from None

    async def until_in_touch(self) -> None:
        """Waits until a write would leave at once. Raises what `check` does."""
        while not self.in_touch:
            self.check()
            self._changed.clear()
            await self._changed.wait()

    async def until_writable(self, write: Write[T]) -> None:
        """Waits until `write` may leave: there is a connection, and the lease is held as far as anybody knows.

        Or, where it was sent and may end the work, the daemon says that the lease is gone: then the same bytes are sent
        once more, under the same fence, to learn whether they were what ended it.
        """
        while True:
            if self.lost:
                raise self.loss_error()
            if self._abandoned:
                raise InDoubt("The task was left while nobody answered: whether this write counts isn't known.")
            self.session.check_open()
            settles = write.sent and write.settles != () and self.lease.told is not None
            if self.session.connection.writable and (self.phase is Phase.HELD or settles):
                return
            if write.begins and self.phase is Phase.IN_DOUBT:
                raise InDoubt("Whether the lease lives isn't known, so nothing is begun under it: try again later.")
            self._changed.clear()
            await self._changed.wait()

    def _take_loss(self, fence: int, loss: Loss) -> None:
        """A write was refused: the lease is gone, and it isn't the write's own doing."""
        self.session.leases.report(self.lease.handoff, fence, loss)
        if self.lease.fence == fence and self.lease.ended is None:
            self.session.leases.give_up(self.lease, loss)
        self.look()

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

    def _give_way(self) -> None:
        """A write that gives way to doubt waits no longer."""
        if self._doubted is not None and not self._doubted.done():
            self._doubted.set_result(None)

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
