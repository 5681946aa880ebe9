"""Who asks the worker process when: one job at a time, connections in turn.

Owns fairness, the bound on what waits, and that the process is started when it is first needed and again after its end.
"""

import asyncio
from collections import OrderedDict, deque

from dhp_protocol.errors import Overloaded, ResultInvalid, SchemaInvalid

from .helper import BeyondBounds, Gone, Helper, Refusal
from .verdicts import Bounds, beyond_bounds

MAX_WAITING_JOBS = 16_384
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Schemas and results that wait, all connections together."""


class Job:
    """One question, and the future of its answer."""

    __slots__ = ("answer", "result", "schema")

    def __init__(self, schema: bytes, result: bytes | None, answer: "asyncio.Future[Refusal | None]") -> None:
        self.schema = schema
        self.result = result
        self.answer = answer

    @property
    def size(self) -> int:
        return len(self.schema) + len(self.result or b"")


class Queue:
    """The line in front of one worker."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._lines: OrderedDict[int, deque[Job]] = OrderedDict()
        self._waiting_jobs = 0
        self._waiting_bytes = 0
        self._helper: Helper | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def ask(self, connection: int, schema: bytes, result: bytes | None) -> Refusal | None:
        """As `Helper.ask`, when the connection's turn comes; a verdict beyond the bounds is a refusal with the rule `limit`.

        Raises `Overloaded` where too much waits already, and where the worker can't be started.
        """
        job = Job(schema, result, asyncio.get_running_loop().create_future())
        full = self._waiting_jobs >= MAX_WAITING_JOBS or self._waiting_bytes + job.size > MAX_WAITING_BYTES
        if self._closed or (full and self._waiting_jobs):
            raise Overloaded("Too many schemas and results wait to be checked: try again later.", after_ms=1_000)
        self._lines.setdefault(connection, deque()).append(job)
        self._waiting_jobs += 1
        self._waiting_bytes += job.size
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())
        return await job.answer

    async def close(self) -> None:
        """Ends the worker; who waits hears `Overloaded`."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while self._lines:
            _settle(self._next(), _unstarted())
        if self._helper is not None:
            await self._helper.end()
            self._helper = None

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
                _settle(job, await self._answer(job))
            except asyncio.CancelledError:
                _settle(job, _unstarted())
                raise
            except Exception as error:
                _settle(job, error)

    async def _answer(self, job: Job) -> Refusal | None:
        started = False
        for _ in range(2):  # It may have been killed from outside: the second time, it is the job.
            try:
                if self._helper is None:
                    self._helper = await Helper.start(self._bounds)
                return await self._helper.ask(job.schema, job.result)
            except (Gone, OSError):
                started = self._helper is not None
                self._helper = None
            except BeyondBounds:
                self._helper = None
                break
        else:
            if not started:
                raise _unstarted()
        return _schema_beyond_bounds() if job.result is None else beyond_bounds()


def _settle(job: Job, answer: Refusal | Exception | None) -> None:
    if job.answer.done():
        return
    if answer is None or isinstance(answer, (SchemaInvalid, ResultInvalid)):
        job.answer.set_result(answer)
    else:
        job.answer.set_exception(answer)


def _schema_beyond_bounds() -> SchemaInvalid:
    sentence = (
        "Whether the output schema can be enforced could not be decided within the daemon's bounds: make it plainer."
    )
    return SchemaInvalid(sentence, path="", rule="limit")


def _unstarted() -> Overloaded:
    return Overloaded("Schemas and results can't be checked at this moment: try again later.", after_ms=1_000)
