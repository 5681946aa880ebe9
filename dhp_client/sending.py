"""How one write under a lease gets through to the daemon.

Owns sending again what was not answered, waiting while in doubt, and telling a write's own doing from somebody else's. Base of
`hold`, which owns the order of the writes and the lease.
"""

import asyncio
from typing import Any, TypeVar

from dhp_protocol.errors import DHPError, LeaseLost
from dhp_protocol.messages import Request

from .backoff import Patience
from .clock import monotonic_ms
from .connection import may_pass
from .exceptions import ClientClosed, ConnectionLost, InDoubt, TaskEnded
from .leases import Lease, Loss, Phase, loss_from_error
from .own_doing import refused_before
from .session import Session
from .writes import OutOfTouch, Write, makes_it_dead

T = TypeVar("T")

_ENDED = {"dead": "A cap has ended this work, which is dead: a redrive brings it back."}


class Sending:
    """One lease, and one write at a time under it. `phase` and `lost` may be read anywhere, the rest on the session's loop."""

    def __init__(self, session: Session, lease: Lease) -> None:
        self.session = session
        self.lease = lease
        self.ended: str | None = None
        self._abandoned = False
        self._changed = asyncio.Event()
        self._doubted: asyncio.Future[None] | None = None
        """Done once the lease is held no more, while a write that gives way then waits for its answer."""

    def abandon(self) -> None:
        """Nothing more is written."""
        raise NotImplementedError

    def look(self) -> None:
        """What has become of the lease is to be looked at."""
        raise NotImplementedError

    @property
    def void(self) -> dict[str, Any]:
        """What a loss has made void of what was kept; empty where nothing was."""
        raise NotImplementedError

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

    def loss_error(self) -> Exception:
        loss = self.lease.lost
        assert loss is not None
        if loss.why == "closed":
            return ClientClosed("The client was closed, which released the lease.")
        return loss.error(self.void)

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
                now_ms = monotonic_ms()
                pause_ms = patience.pause_ms(now_ms, at_least_ms=error.after_ms or 0)
                if not may_pass(error) or pause_ms is None:
                    raise
                if write.unanswered is not None:
                    return write.unanswered()
                connection.note_refused(error, patience.borne_ms(now_ms), now_ms)
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

    def _give_way(self) -> None:
        """A write that gives way to doubt waits no longer."""
        if self._doubted is not None and not self._doubted.done():
            self._doubted.set_result(None)
