"""One task's writes during a partition: kept while nobody answers, sent in order once somebody does.

Owns when a write is kept, in what order what was kept leaves, and what becomes of it when the lease is lost. The files are
`spool`'s, sending and the lease `hold`'s. Nothing here makes a late writer harmless: the fence does.
"""

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, TypeVar

from dhp_protocol.errors import DHPError, LeaseLost
from dhp_protocol.replies import StoredCheckpoint

from .backoff import Backoff
from .clock import wall_time
from .connection import may_pass
from .exceptions import ClientError, NotSpooled
from .keepable import write_of
from .leases import Loss, Phase
from .spool import Spool
from .spool_file import SpoolFile
from .spool_lines import Answered, Head, Reclaimed, Void
from .standing_in import may_stand_for
from .wire import check_payloads
from .writes import OutOfTouch, Write

if TYPE_CHECKING:
    from .hold import Hold

log = logging.getLogger("dhp_client")

SPOOL_AFTER_MS = 500
"""A write waits so long to be in touch before it is kept; none does while others are kept already, or in doubt."""
FIRST_PAUSE_MS = 100
MOST_PAUSE_MS = 5_000

_MAY_STILL_COUNT = ("closed", "unauthenticated", "forbidden", "in_doubt", "expired", "stalled", "released")
"""Losses by which nobody else has come to the work: whoever claims it next may send what was kept."""

T = TypeVar("T")


class Spooling:
    """What `hold` keeps in `spool`. Lives on the session's loop; `kept` may be read anywhere."""

    def __init__(self, hold: "Hold", spool: Spool) -> None:
        self.void: dict[str, Any] = {}
        """What a loss made void: `path`, and how many `writes` and `checkpoints`."""
        self._hold = hold
        self._spool = spool
        self._file: SpoolFile | None = None
        self._maybe_sent = False
        """Whether the oldest that waits was sent before, without an answer."""
        self._refusal: DHPError | None = None
        self._backoff = Backoff(FIRST_PAUSE_MS, MOST_PAUSE_MS)
        self._going_on = False

    @property
    def kept(self) -> int:
        file = self._file
        return 0 if file is None else len(file.contents.waiting)

    # The worker's own writes. Whoever calls has the turn.

    async def carry_through(self, write: Write[T]) -> T:
        """Sends `write` behind what is kept, or keeps it, too. Raises, once, what came of one that was kept and refused."""
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        keepable = write.entry is not None or write.unanswered is not None
        if not keepable and write.ending is None:
            write.begins = True
        while True:
            try:
                await self._send_kept()
                self._hold.check()
                if keepable:
                    at_once = self.kept or self._hold.phase is Phase.IN_DOUBT
                    write.gives_way_ms = 0 if at_once else SPOOL_AFTER_MS
                return await self._hold.send(write)
            except OutOfTouch:
                if write.entry is not None:
                    return await self._keep(write)
                if write.unanswered is not None:
                    return write.unanswered()
                await self._hold.until_writable(write)

    async def _keep(self, write: Write[T]) -> T:
        hold, entry = self._hold, write.entry
        assert entry is not None
        write.insists = True  # What is written down counts, whoever still waits for it.
        check_payloads(entry, hold.session.connection.limits)
        if not self.kept:
            self._maybe_sent = write.sent
        file = self._file = await asyncio.to_thread(self._spool.keep, self._file, self._head(), entry)
        if self.kept == 1:
            log.warning("%s: nobody answers, so its writes go to %s", hold.lease.handoff, file.path)
        if hold.lease.lost is not None:  # Meanwhile.
            self.lost(hold.lease.lost)
        hold.check()
        if write.kept is not None:
            return write.kept(file.contents)
        while True:
            try:
                return await self._send_kept(own=write)  # type: ignore[no-any-return]
            except OutOfTouch:
                await hold.until_writable(write)

    async def _send_kept(self, *, own: Write[Any] | None = None) -> Any:
        """Sends what is kept, oldest first; gives the last one's answer. `own` is the last one, where it is there already.

        Raises `OutOfTouch` at once where that can't be, and what the daemon says to one of them, which is kept no longer then.
        """
        hold, reply = self._hold, None
        while (file := self._file) is not None and self.kept:
            entry = await self._read(file)
            write = own if own is not None and self.kept == 1 else write_of(hold, entry)
            write.gives_way_ms, write.sent = 0, write.sent or self._maybe_sent
            refusal: DHPError | None = None
            try:
                reply = await hold.send(write)  # type: ignore[arg-type]
            except OutOfTouch:
                self._maybe_sent = write.sent
                raise
            except LeaseLost:
                raise
            except DHPError as error:
                self._maybe_sent = write.sent
                if may_pass(error):
                    await asyncio.sleep(self._backoff.next_ms() / 1000)
                    raise OutOfTouch from error
                refusal = error
            self._maybe_sent = False
            await self._answered(file, refusal)
            if refusal is not None:
                raise refusal
        return reply

    async def _answered(self, file: SpoolFile, refusal: DHPError | None) -> None:
        """The oldest that waited has its answer."""
        hold = self._hold
        told = None if refusal is None else f"{refusal.code}: {refusal.message}"
        self._backoff.reset()
        if refusal is not None:
            log.error("%s: a write that was kept is refused: %s", hold.lease.handoff, refusal)
        await asyncio.to_thread(file.answered, Answered(seq=hold.seq, sha256=hold.sha256, error=told))
        if not file.contents.waiting:
            if self._file is file:
                self._file = None
        elif hold.ended == "dead":
            self._put_aside(Void(why="dead", fence=hold.lease.fence + 1, status="dead"))

    async def _read(self, file: SpoolFile) -> Any:
        try:
            return await asyncio.to_thread(file.first)
        except OSError as error:
            self._hold.check()  # It was let go of meanwhile.
            self._file = None
            raise NotSpooled(f"{file.path} can't be read, so what it keeps isn't sent: {error}.") from error

    def _head(self) -> Head:
        hold = self._hold
        return Head(
            handoff=hold.lease.handoff,
            kind=hold.kind,
            worker=hold.worker,
            fence=hold.lease.fence,
            seq=hold.seq,
            sha256=hold.sha256,
            unanswered=sorted(hold.unanswered),
            at=wall_time(),
            pid=os.getpid(),
        )

    # What happens to the lease.

    def go_on(self) -> None:
        """Somebody answers again: what is kept leaves beside whatever the worker does."""
        if self.kept and not self._going_on:
            self._going_on = True
            self._hold.session.run_in_background(self._send_beside())

    async def _send_beside(self) -> None:
        hold = self._hold
        try:
            async with hold.in_turn:
                hold.check()
                sent = self.kept
                await self._send_kept()
                if sent:  # Else the worker's own call has sent them meanwhile.
                    log.warning("%s: %d writes that were kept are with the daemon now", hold.lease.handoff, sent)
        except (LeaseLost, ClientError) as error:
            log.debug("%s: %s", hold.lease.handoff, error)  # The worker's next call hears of it.
            return
        except OutOfTouch:
            pass
        except DHPError as error:
            self._refusal = error
        finally:
            self._going_on = False
        hold.look()  # More may be kept by now, and somebody answer.

    async def reclaimed(self, fence: int) -> None:
        """The handoff was claimed again, with nobody in between; before anything is sent under the new fence."""
        if self._file is not None:
            await asyncio.to_thread(self._file.mark, Reclaimed(fence=fence))

    def lost(self, loss: Loss) -> None:
        """The lease is lost: nothing more is sent. What is kept stays where it is, for a person or for the next worker."""
        if not self.kept or loss.why in _MAY_STILL_COUNT:
            self.let_go()
        else:
            self._put_aside(Void(why=loss.why, fence=loss.fence, status=loss.status))

    def let_go(self) -> None:
        """This worker sends no more, but whoever claims the handoff next may."""
        if self._hold.ended is None:  # Else the write that ended it was the last, and whoever sent it sees to the file.
            file, self._file = self._file, None
            if file is not None:
                self._hold.session.loop.run_in_executor(None, file.close)

    def _put_aside(self, void: Void) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        contents = file.contents
        self.void = {"path": str(file.path), "writes": len(contents.waiting), "checkpoints": contents.checkpoints}
        _warn_of(file, void)
        self._hold.session.loop.run_in_executor(None, put_aside, file, void)

    # What another process has left.

    async def adopt(self, stored: StoredCheckpoint | None) -> None:
        """Sends what a dead process kept for this handoff, which was just claimed; `stored` is its last checkpoint.

        Only if this lease may stand for that process's (`standing_in`), and its writes come right after what is stored.
        """
        hold = self._hold
        for file in await asyncio.to_thread(self._spool.left_of, hold.lease.handoff):
            sent = await self._sent_of(file, stored)
            if sent is None:
                void = Void(why="superseded", fence=hold.lease.fence, status="running")
                _warn_of(file, void)
                await asyncio.to_thread(put_aside, file, void)
                continue
            await asyncio.to_thread(file.mark, Reclaimed(fence=hold.lease.fence))
            self._file = file
            for _ in range(sent):
                await self._answered(file, None)
        while self.kept:
            log.warning("%s: %d writes that a dead process kept are sent", hold.lease.handoff, self.kept)
            try:
                async with hold.in_turn:
                    hold.check()
                    await self._send_kept()
            except OutOfTouch:
                await hold.until_in_touch()
            except LeaseLost:
                raise
            except DHPError as error:
                log.debug("%s: %s", hold.lease.handoff, error)  # Told already, and its author is gone.

    async def _sent_of(self, file: SpoolFile, stored: StoredCheckpoint | None) -> int | None:
        """How many of the writes in `file` are with the daemon already; None: they mustn't be sent."""
        lease, sent = self._hold.lease, file.contents.sent_up_to(stored)
        if sent is None or self._file is not None:
            return None
        connection = self._hold.session.connection
        return sent if await may_stand_for(connection, lease.handoff, file.contents.fence, lease.fence) else None


def put_aside(file: SpoolFile, void: Void) -> None:
    """Notes that what waits in `file` will never be sent, and lets go of it."""
    file.mark(void)
    file.close()


def _warn_of(file: SpoolFile, void: Void) -> None:
    contents = file.contents
    log.warning(
        "%s (%s): %d writes of a partition, %d of them checkpoints, are void, and kept in %s",
        contents.head.handoff,
        void.why,
        len(contents.waiting),
        contents.checkpoints,
        file.path,
    )
