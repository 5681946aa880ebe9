"""One running program: its input, its output, and its end.

Owns starting it in a session of its own, under a guard (`guard`), and that nothing of it is left. What it says is `lines`',
what comes of that `attempt`'s.
"""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from . import guard
from .waiting import first_of

PIECE_BYTES = 64 * 1024
LINGER_MS = 1_000
"""What a program has started may write on for so long once it has ended itself."""
QUIET_MS = 100
"""What was written before the end is in the pipe, and comes at once."""


class NotRunnable(Exception):
    """The program can't be started; the message says why."""


class _Input(asyncio.BaseProtocol):
    """Whether the program takes what is written to it."""

    def __init__(self) -> None:
        self._may_go_on = asyncio.Event()
        self._may_go_on.set()

    def pause_writing(self) -> None:
        self._may_go_on.clear()

    def resume_writing(self) -> None:
        self._may_go_on.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._may_go_on.set()

    async def taken(self) -> None:
        await self._may_go_on.wait()


class Program:
    """A process, and all that it starts without giving it a session of its own. Made by `start`; `end` must be called."""

    def __init__(self, process: "subprocess.Popen[bytes]", lifeline: int) -> None:
        self._process = process
        self._lifeline: int | None = lifeline
        self._output = asyncio.StreamReader(PIECE_BYTES)
        self._reading: asyncio.ReadTransport | None = None
        self._input = _Input()
        self._writing: asyncio.WriteTransport | None = None
        self._drained = asyncio.Event()
        self._swept = asyncio.Event()
        self._exiting = asyncio.ensure_future(asyncio.to_thread(self._wait))
        self._sweeping = asyncio.ensure_future(self._sweep())

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], line: bytes, *, more: bool = False
    ) -> "Program":
        """Starts `command`, and gives it `line` on its standard input, which ends there unless there is `more` to `say`.

        Raises `NotRunnable`.
        """
        try:
            process, lifeline, told = _spawn(command, environment)
        except OSError as error:  # No more processes, no memory, too long a list of arguments.
            raise NotRunnable(_why(error.errno or 0)) from None
        program = cls(process, lifeline)
        try:
            await program._connect(line, more=more)
            await program._check(told)
        except BaseException:
            await program.end()
            raise
        return program

    async def _connect(self, line: bytes, *, more: bool) -> None:
        loop, process = asyncio.get_running_loop(), self._process
        output = asyncio.StreamReaderProtocol(self._output)
        self._reading, _ = await loop.connect_read_pipe(lambda: output, process.stdout)
        self._writing, _ = await loop.connect_write_pipe(lambda: self._input, process.stdin)
        self._writing.write(line)
        if not more:
            self._writing.write_eof()

    async def _check(self, told: int) -> None:
        number = await asyncio.to_thread(_all_of, told)
        if number:
            raise NotRunnable(_why(int(number)))

    @property
    def ended(self) -> bool:
        """Whether the program itself has ended."""
        return self._exiting.done()

    async def pieces(self) -> AsyncIterator[bytes]:
        """What it writes, as it comes, to its end and that of all it has started."""
        while True:
            reading = asyncio.ensure_future(self._output.read(PIECE_BYTES))
            await first_of(reading, self._swept.wait())
            if not reading.done():  # A daemon that it has left behind may hold the pipe.
                await asyncio.wait([reading], timeout=QUIET_MS / 1000)
            if not reading.done():
                reading.cancel()
                break
            if not (piece := reading.result()):
                break
            yield piece
        self._drained.set()

    async def say(self, line: bytes) -> None:
        """Writes a line to its standard input, when it has taken those before; nothing happens where it doesn't listen any more."""
        assert self._writing is not None
        if not self._writing.is_closing():
            self._writing.write(line)
            await self._input.taken()

    async def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the program and all it has started; nothing happens once it has ended."""
        if not self.ended:
            await asyncio.to_thread(guard.signal_session, self._process.pid, number)

    async def exit_code(self) -> int:
        """Waits until it has ended and nothing it has started is left; negative for a signal."""
        await self._swept.wait()
        return self._process.wait()

    async def end(self) -> None:
        """Kills what there still is of it."""
        if not self.ended:
            await asyncio.to_thread(guard.end_session, self._process.pid)
        self._drained.set()
        await self._sweeping
        self._process.wait()
        _reap_adopted()
        if self._reading is not None:
            self._reading.close()
        if self._writing is not None and (self._writing.get_write_buffer_size() or not self._writing.is_closing()):
            self._writing.abort()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _wait(self) -> None:
        """Returns when it has ended. It isn't waited for yet: until then, nobody else can have its number."""
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    async def _sweep(self) -> None:
        await self._exiting
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drained.wait(), LINGER_MS / 1000)
        await asyncio.to_thread(guard.end_session, self._process.pid)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        self._swept.set()


def _spawn(command: Sequence[str], environment: Mapping[str, str]) -> tuple["subprocess.Popen[bytes]", int, int]:
    """The process, which is the guard first; our end of its lifeline; and where it tells why it can't become `command`."""
    watched, lifeline = os.pipe()
    told, refusal = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard.__file__)), str(watched), str(refusal), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
            pass_fds=(watched, refusal),
            start_new_session=True,
        )
    except BaseException:
        os.close(lifeline)
        os.close(told)
        raise
    finally:
        os.close(watched)
        os.close(refusal)
    return process, lifeline, told


def _reap_adopted() -> None:
    """The first process of a container is given everybody's orphans, the guard's watcher among them, and is to ask after them."""
    with contextlib.suppress(ChildProcessError):
        while os.getpid() == 1 and os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _all_of(told: int) -> bytes:
    """Read to its end, which comes when the program begins."""
    with open(told, "rb", buffering=0) as pipe:
        return pipe.read(16)


def _why(number: int) -> str:
    hint = "; a script's first line must name its interpreter, as in #!/bin/sh" if number == errno.ENOEXEC else ""
    return f"{os.strerror(number)}{hint}"
