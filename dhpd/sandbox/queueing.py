"""Who asks the process when: one task at a time, connections in turn.

Owns fairness, the bound on what waits, and that the process is started when it is first needed and again after its end.
"""

import asyncio
from collections import OrderedDict, deque

from dhp_protocol.errors import DHPError, Overloaded

from .bounds import BeyondBounds, Bounds, Gone
from .process import Process

MAX_WAITING_JOBS = 16_384
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Of all connections together."""


class Job:
    """One task, and the future of its answer."""

    __slots__ = ("answer", "parts", "size", "task")

    def __init__(self, task: str, parts: tuple[bytes, ...], answer: "asyncio.Future[bytes]") -> None:
        self.task = task
        self.parts = parts
        self.answer = answer
        self.size = sum(len(part) for part in parts)


class Queue:
    """The line in front of one process."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._lines: OrderedDict[int, deque[Job]] = OrderedDict()
        self._waiting_jobs = 0
        self._waiting_bytes = 0
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def ask(self, connection: int, task: str, *parts: bytes) -> bytes:
        """As `Process.ask`, when the connection's turn comes; raises the task's `DHPError`, and `BeyondBounds`.

        Raises `Overloaded` where too much waits already, and where the process can't be started.
        """
        job = Job(task, parts, asyncio.get_running_loop().create_future())
        full = self._waiting_jobs >= MAX_WAITING_JOBS or self._waiting_bytes + job.size > MAX_WAITING_BYTES
        if self._closed or (full and self._waiting_jobs):
            raise Overloaded("Too much waits to be looked into: try again later.", after_ms=1_000)
        self._lines.setdefault(connection, deque()).append(job)
        self._waiting_jobs += 1
        self._waiting_bytes += job.size
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())
        return await job.answer

    async def close(self) -> None:
        """Ends the process; who waits hears `Overloaded`."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while self._lines:
            _refuse(self._next(), _unstarted())
        if self._process is not None:
            await self._process.end()
            self._process = None

    def _next(self) -> Job:
        """The first job of the connection whose turn it is; its next one waits until the others have had theirs."""
        connection, line = self._lines.popitem(last=False)
        job = line.popleft()
        if line:
            self._lines[connection] = line
        self._waiting_jobs -= 1
        self._waiting_bytes -= job.size
        return job

    async def _work(self) -> None:
        while self._lines:
            job = self._next()
            try:
                answer = await self._answer(job)
            except asyncio.CancelledError:
                _refuse(job, _unstarted())
                raise
            except Exception as error:
                _refuse(job, error)
            else:
                if not job.answer.done():
                    job.answer.set_result(answer)

    async def _answer(self, job: Job) -> bytes:
        started = False
        for _ in range(2):  # It may have been killed from outside: the second time, it is the job.
            try:
                if self._process is None:
                    self._process = await Process.start(self._bounds)
                return await self._process.ask(job.task, *job.parts)
            except (Gone, OSError):
                started = self._process is not None
                self._process = None
            except BeyondBounds:
                self._process = None
                raise
            except DHPError:
                raise
            except BaseException:  # In the middle of an answer, perhaps: the next one must not get the rest of it.
                process, self._process = self._process, None
                if process is not None:
                    await process.end()
                raise
        raise BeyondBounds if started else _unstarted()


def _refuse(job: Job, error: Exception) -> None:
    if not job.answer.done():
        job.answer.set_exception(error)


def _unstarted() -> DHPError:
    return Overloaded("This can't be looked into at this moment: try again later.", after_ms=1_000)
