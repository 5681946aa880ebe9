"""Who asks the processes when: a quick one, which leaves what takes longer than a slice, and a slow one for that.

Owns how long anybody waits at most, the bound on what waits, and that a process is started when it is first needed and again
after its end. Does not own whose turn it is (`fairness`).

So what takes a moment waits for slices of those who have used less, and what takes longer for the one task that is being done.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from dhp_protocol.errors import DHPError, Overloaded

from .bounds import BeyondBounds, Bounds, Gone, Unfinished
from .fairness import Asker, Room, Turns, Uses
from .process import Process

SLICE_S = 0.1
"""Of processor time: most of what is asked takes a few milliseconds."""
ANSWERED_WITHIN_S = 90.0
"""A task waits for its turns and is done in this time, or its asker hears `Overloaded`."""
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Of all askers together."""
JOB_BYTES = 4 * 1024
"""What a job counts beside its parts, so that the number of jobs is bounded too."""

Start = Callable[[Bounds], Awaitable[Process]]


class Job:
    """One task, and the future of its answer."""

    __slots__ = ("answer", "asker", "number", "parts", "size", "task")

    def __init__(self, asker: Asker, number: int, task: str, parts: tuple[bytes, ...]) -> None:
        self.asker = asker
        self.number = number
        self.task = task
        self.parts = parts
        self.size = JOB_BYTES + sum(len(part) for part in parts)
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def refuse(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Queue:
    """The lines in front of both processes."""

    def __init__(self, bounds: Bounds, start: Start = Process.start) -> None:
        self._uses = Uses()
        self._room = Room()
        self._slow = _Station(bounds, start, Turns(self._uses, self._room), self._uses, Job.refuse)
        self._quick = _Station(bounds.quick(SLICE_S), start, Turns(self._uses, self._room), self._uses, self._move)
        self._numbers = count(1)
        self._closed = False

    async def ask(self, asker: Asker, task: str, *parts: bytes) -> bytes:
        """As `Process.ask`, when the asker's turn comes; raises the task's `DHPError`, and `BeyondBounds`.

        Raises `Overloaded` where too much of the asker's waits already, where this has waited too long, and where no process
        can be started.
        """
        if self._closed:
            raise _unstarted()
        job = Job(asker, next(self._numbers), task, parts)
        self._make_room(job)
        self._quick.enter(job)
        try:
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                return await job.answer
        except TimeoutError:
            raise _overloaded() from None
        finally:
            _ = self._quick.turns.remove(job) or self._slow.turns.remove(job)

    async def close(self) -> None:
        """Ends the processes; who waits hears `Overloaded`."""
        self._closed = True
        await self._quick.close()
        await self._slow.close()

    def _make_room(self, job: Job) -> None:
        """Where there is none, whoever has the most waiting gives way; raises `Overloaded` where that is the asker."""
        while self._room.taken and self._room.taken + job.size > MAX_WAITING_BYTES:
            fullest = self._room.fullest()
            if self._room.of(fullest) <= self._room.of(job.asker) + job.size:
                raise _overloaded()
            for turns in (self._slow.turns, self._quick.turns):
                last = turns.last(fullest)
                if last is not None:
                    turns.remove(last)
                    last.refuse(_overloaded())
                    break

    def _move(self, job: Job, error: Exception) -> None:
        """It takes longer than a slice, or is nothing that a process survives: begins anew where it has time."""
        if not job.answer.done():
            self._slow.enter(job)


class _Station:
    """One process, what it is at, and what waits for it."""

    def __init__(
        self, bounds: Bounds, start: Start, turns: Turns[Job], uses: Uses, beyond: Callable[[Job, Exception], None]
    ) -> None:
        """`beyond` is called with a job that got no answer within the bounds, and why."""
        self.turns = turns
        self._bounds = bounds
        self._start = start
        self._uses = uses
        self._beyond = beyond
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    def enter(self, job: Job) -> None:
        """It is done when its turn comes."""
        self.turns.add(job)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Ends the process; who waits hears `Overloaded`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while (job := self._next()) is not None:
            job.refuse(_unstarted())
        if self._process is not None:
            await self._process.end()
            self._process = None

    def _next(self) -> Job | None:
        return self.turns.next(asyncio.get_running_loop().time())

    async def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                answer = await self._answer(job)
            except asyncio.CancelledError:
                job.refuse(_unstarted())
                raise
            except (Unfinished, BeyondBounds) as error:
                self._beyond(job, error)
            except Exception as error:
                job.refuse(error)
            else:
                if not job.answer.done():
                    job.answer.set_result(answer)

    async def _answer(self, job: Job) -> bytes:
        started = False
        for _ in range(2):  # It may have been killed from outside: the second time, it is the job.
            try:
                if self._process is None:
                    self._process = await self._start(self._bounds)
                started = True
                return await self._ask(self._process, job)
            except (Gone, OSError):
                self._process = None
            except (Unfinished, DHPError):
                raise
            except BeyondBounds:
                self._process = None
                raise
            except BaseException:  # In the middle of an answer, perhaps: the next one must not get the rest of it.
                process, self._process = self._process, None
                if process is not None:
                    await process.end()
                raise
        raise BeyondBounds if started else _unstarted()

    async def _ask(self, process: Process, job: Job) -> bytes:
        before_s = process.used_s
        try:
            return await process.ask(job.task, *job.parts)
        finally:
            self._uses.add(job.asker, process.used_s - before_s, asyncio.get_running_loop().time())


def _overloaded() -> DHPError:
    return Overloaded("Too much waits to be looked into: try again later.", after_ms=1_000)


def _unstarted() -> DHPError:
    return Overloaded("This can't be looked into at this moment: try again later.", after_ms=1_000)
