"""One program at work on one claimed handoff.

Owns acting on what the program says, in order, each before the next is read: the pipe slows a program that says more than the
disk takes. Owns when the program is stopped, too. How its output is split is `lines`', what it ends with `outcome`'s.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from dhp_protocol.errors import DHPError, InvalidRequest, LeaseLost, ResultInvalid
from dhp_protocol.limits import MAX_ERROR_CHARS

from ..exceptions import ClientError, InDoubt, NotSpooled, TaskEnded
from ..task import Task
from .lines import Command, Lines, Misfit
from .outcome import Failure, Finish, How, Outcome, Said, ending, shells_code, signal_name
from .passing import Passing
from .process import NotRunnable, Program
from .stopping import Stop
from .waiting import first_of

END_WITHIN_MS = 5_000
"""What telling the daemon of the end may take once `dhp run` itself is to end."""
PAUSE_MS = 1_000
"""Between two times of asking what the client has asked for long enough, and the daemon refuses for now."""
LAST_WORDS_MS = 1_000
"""What acting on what a stopped program has still said may take."""

T = TypeVar("T")


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a program gets. `state` comes last, so that tools that know no JSON can cut it out."""

    handoff: str
    kind: str
    fence: int
    attempt: int
    seq: int
    inputs: Raw
    state: Raw


class _Spend(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    usd: float = 0
    steps: int = 0


class _Fail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: str
    retry: bool = True


class Attempt:
    """`task` was claimed with `lost.set` as what is called when its lease is lost."""

    def __init__(
        self,
        task: Task,
        lost: asyncio.Event,
        *,
        stop: Stop,
        passing: Passing,
        warn: Callable[[str], None],
        max_line_bytes: int,
        grace_ms: float,
        answers: bool,
    ) -> None:
        self._task = task
        self._lost = lost
        self._stop = stop
        self._passing = passing
        self._warn = warn
        self._max_line_bytes = max_line_bytes
        self._grace_ms = grace_ms
        self._answers = answers
        self._said = Said()
        self._refused: Exception | None = None
        """Why nothing that the program says counts any more."""
        self._hindered = asyncio.Event()
        self._warned = False

    async def run(self, command: Sequence[str], environment: Mapping[str, str]) -> Outcome:
        """Runs `command` to its end, and ends the work with it.

        Raises `NotRunnable`, and OSError where what it prints can't be written any more; the work is handed back then.
        """
        task = self._task
        if self._stop.asked.is_set():
            return await self._end(None, None)
        names = {
            "DHP_HANDOFF": task.handoff,
            "DHP_KIND": task.kind,
            "DHP_FENCE": str(task.fence),
            "DHP_ATTEMPT": str(task.attempt),
        }
        try:
            program = await Program.start(command, {**environment, **names}, first_line(task), more=self._answers)
        except NotRunnable as error:
            await self._end(None, None)
            raise NotRunnable(f"{command[0]} can't be run: {error}") from None
        exit_code, told_to_end = await self._until_over(program)
        if isinstance(self._refused, OSError):
            await self._end(None, exit_code)
            raise self._refused
        return await self._end(self._last_word(exit_code, told_to_end=told_to_end), exit_code)

    # The program at work.

    async def _until_over(self, program: Program) -> tuple[int, bool]:
        """The exit code, and whether the program was told to end because `dhp run` is to."""
        listening = asyncio.ensure_future(self._listen(program))
        told_to_end = False
        try:
            await first_of(listening, self._lost.wait(), self._stop.asked.wait(), self._hindered.wait())
            if not listening.done():
                told_to_end = self._stop.asked.is_set()
                await program.signal(signal.SIGTERM)
                await first_of(listening, asyncio.sleep(self._grace_ms / 1000), self._stop.at_once.wait())
                await program.end()
                await asyncio.wait([listening], timeout=LAST_WORDS_MS / 1000)
            if listening.done():
                listening.result()
            return await program.exit_code(), told_to_end
        finally:
            listening.cancel()
            await program.end()

    async def _listen(self, program: Program) -> None:
        lines = Lines(self._max_line_bytes)
        async for piece in program.pieces():
            for found in lines.feed(piece):
                await self._take(found, program)
        for found in lines.end():
            await self._take(found, program)
        await program.exit_code()

    async def _take(self, found: bytes | Command | Misfit, program: Program) -> None:
        try:
            if isinstance(found, bytes):
                if not isinstance(self._refused, OSError):
                    await self._passing.write(found)
            elif isinstance(found, Misfit):
                self._tell_misfit(found)
            elif self._refused is None:
                await self._obey(found, program)
        except (DHPError, ClientError, OSError) as error:
            self._refused = error
            self._hindered.set()

    async def _obey(self, command: Command, program: Program) -> None:
        """Raises why it can't be, unless the program is told so and may mend it."""
        try:
            told = await _sayable(command.name, self._act(command))
            answer: dict[str, Any] = {"ok": True, **told}
        except DHPError as error:
            if not self._answers or self._task.ended == "dead" or isinstance(error, LeaseLost):
                raise
            refusal = {"code": error.code, "message": error.message, "details": error.details}
            answer = {"ok": False, "error": refusal}
        if self._answers:
            await program.say(msgspec.json.encode(answer) + b"\n")

    async def _act(self, command: Command) -> dict[str, Any]:
        """Does what the program says, and gives what is to be told of it."""
        task, value = self._task, command.value
        match command.name:
            case "checkpoint":
                stored = await _decided(lambda: task.checkpoint(value))
                return {"seq": stored.seq}
            case "spend":
                amounts = msgspec.convert(value, _Spend)
                spent = await _decided(lambda: task.spend(usd=amounts.usd, steps=amounts.steps))
                return {"usd": spent.usd, "steps": spent.steps}
            case "activity":
                return {"repeats": await _decided(lambda: task.activity(value))}
            case "fail":
                told = msgspec.convert({"reason": value} if isinstance(value, str) else value, _Fail)
                self._said.failure = Failure(reason=told.reason, retry=told.retry)
            case "result" if self._answers:
                await _decided(lambda: task.complete(value))
            case "result":
                self._said.finish = Finish(value)
        return {}

    def _tell_misfit(self, misfit: Misfit) -> None:
        if not self._warned:
            self._warned = True  # Once: another program may mean something else by such lines.
            self._warn(f'a line that begins with {{"{misfit.name}": was passed through, not acted on: {misfit.why}.')

    # The end.

    def _last_word(self, exit_code: int, *, told_to_end: bool) -> Finish | Failure | None:
        refused = self._refused
        if refused is None:
            return ending(exit_code, self._said, told_to_end=told_to_end)
        return Failure(type=type(refused).__name__, reason=str(refused) or type(refused).__name__)

    async def _end(self, word: Finish | Failure | None, exit_code: int | None) -> Outcome:
        """Tells the daemon, and gives what came of it."""
        if self._task.ended == "completed":
            return self._outcome("completed", exit_code, "completed")
        if self._task.ended == "dead":
            return self._outcome("dead", exit_code, "dead", str(self._refused))
        try:
            return await self._in_time(self._told(word, exit_code))
        except (LeaseLost, InDoubt, TaskEnded, NotSpooled) as error:
            return self._outcome("lost", exit_code, None, str(error))

    async def _told(self, word: Finish | Failure | None, exit_code: int | None) -> Outcome:
        task = self._task
        if isinstance(word, Finish):
            try:
                result = word.result
                await _sayable("result", _decided(lambda: task.complete(result)))
                return self._outcome("completed", exit_code, "completed")
            except ResultInvalid as refused:
                if task.ended is not None:
                    return self._outcome("dead", exit_code, "dead", str(refused))
                word = Failure(type="ResultInvalid", reason=str(refused))
            except DHPError as refused:
                if isinstance(refused, LeaseLost):
                    raise
                word = Failure(type=type(refused).__name__, reason=str(refused))
        if isinstance(word, Failure):
            reason = word.reason[:MAX_ERROR_CHARS]
            failure = word
            reply = await _decided(lambda: task.fail(failure.type, reason, retry=failure.retry))
            return self._outcome("failed", exit_code, reply.status, reason)
        number = self._stop.number
        reason = "its program can't be run" if number is None else f"dhp run was ended by {signal_name(number)}"
        await task.release(reason)
        return self._outcome("released", exit_code, "pending", reason)

    async def _in_time(self, telling: Awaitable[T]) -> T:
        """What `telling` comes to. Once `dhp run` is to end, it has only so long. Raises `InDoubt`."""
        told = asyncio.ensure_future(telling)
        try:
            await first_of(told, self._stop.asked.wait())
            if not told.done():
                await asyncio.wait([told], timeout=END_WITHIN_MS / 1000)
            if not told.done():
                raise InDoubt("Nobody has answered: the lease ends by itself, and then the work is taken up again.")
            return told.result()
        finally:
            told.cancel()

    def _outcome(
        self, how: How, exit_code: int | None, status: str | None = None, reason: str | None = None
    ) -> Outcome:
        task = self._task
        return Outcome(
            handoff=task.handoff,
            kind=task.kind,
            fence=task.fence,
            attempt=task.attempt,
            seq=task.seq,
            outcome=how,
            status=status,
            reason=reason,
            exit_code=None if exit_code is None else shells_code(exit_code),
        )


def first_line(task: Task) -> bytes:
    """What a program gets on its standard input: one line of JSON."""
    given = _Given(
        handoff=task.handoff,
        kind=task.kind,
        fence=task.fence,
        attempt=task.attempt,
        seq=task.seq,
        inputs=Raw(task.inputs_text),
        state=Raw(task.state_text),
    )
    # Between the parts of JSON a line's end means no more than a blank, and inside of them there is none.
    return msgspec.json.encode(given).replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"


async def _sayable(name: str, saying: Awaitable[T]) -> T:
    """What `saying` comes to; what the client itself doesn't send is refused as the daemon would refuse it."""
    try:
        return await saying
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"{name}: {error}", member=name) from None


async def _decided(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer, once the daemon is able to give one: a disk that is full for an hour is no reason to lose what was done."""
    while True:
        try:
            return await ask()
        except DHPError as error:
            if error.retry == "no":
                raise
        await asyncio.sleep(PAUSE_MS / 1000)
