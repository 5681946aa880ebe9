"""The process as the daemon holds it: started, asked, and killed when it takes too long.

Owns one process and what its end means. Does not own who may ask it when (`queueing`).
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress

import msgspec

from dhp_protocol.errors import ERROR_BY_CODE

from .bounds import BeyondBounds, Bounds, Gone, Unfinished
from .worker import Ask, Refusal, Told

START_WITHIN_S = 30.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Told).decode
_decode_refusal = msgspec.json.Decoder(Refusal).decode


class Process:
    """A running one. After `BeyondBounds` or `Gone` it is of no more use.

    `used_s` is the processor time that what it was asked has taken so far.
    """

    def __init__(self, process: asyncio.subprocess.Process, bounds: Bounds) -> None:
        self._process = process
        self._bounds = bounds
        self._number = 0
        self.used_s = 0.0

    @classmethod
    async def start(cls, bounds: Bounds) -> "Process":
        """Raises `Gone` or `OSError` if it can't be started."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "dhpd.sandbox.worker", _encode(bounds).decode()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": _module_path()},
            start_new_session=True,  # Signals for the daemon's group, such as Ctrl-C, are the daemon's business.
        )
        started = cls(process, bounds)
        try:
            async with asyncio.timeout(START_WITHIN_S):
                await started._told()
        except TimeoutError:
            await started.end()
            raise Gone from None
        except BaseException:
            await started.end()
            raise
        return started

    async def ask(self, task: str, *parts: bytes) -> bytes:
        """What the task answers; raises the `DHPError` that it refuses with, `Unfinished`, `BeyondBounds`, and `Gone`."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        if stdin.is_closing():  # It has ended since it was last asked.
            await self.end()
            raise Gone
        self._number += 1
        ask = Ask(self._number, task, [len(part) for part in parts])
        try:
            async with asyncio.timeout(self._bounds.wall_s):
                with suppress(ConnectionError):  # It ends meanwhile: reading tells.
                    stdin.writelines((_encode(ask), b"\n", *parts))
                    await stdin.drain()
                told = await self._told()
                body = await stdout.readexactly(told.answer + told.refusal)
        except TimeoutError:
            await self.end()
            raise BeyondBounds from None
        except asyncio.IncompleteReadError:
            await self.end()
            raise Gone from None
        finally:
            if self._process.returncode is not None:  # Nobody tells how much it took: no more than this.
                self.used_s += min(loop.time() - began_s, self._bounds.cpu_s)
        self.used_s += told.used_s
        if told.unfinished:
            raise Unfinished
        if told.refusal:
            refusal = _decode_refusal(body)
            raise ERROR_BY_CODE[refusal.code](refusal.message, **refusal.details)
        return body

    async def end(self) -> None:
        """Kills it and waits until it is gone."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _told(self) -> Told:
        stdout = self._process.stdout
        assert stdout is not None
        line = await stdout.readline()
        if line.endswith(b"\n"):
            told = _decode(line)
            if told.number == self._number:
                return told
        await self.end()
        raise BeyondBounds if self._process.returncode == -signal.SIGPROF else Gone


def _module_path() -> str:
    """With -P it makes the worker find exactly the modules that the daemon does, and none in the current directory."""
    return os.pathsep.join(os.path.abspath(each) for each in sys.path)
