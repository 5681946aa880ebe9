"""The worker process as the daemon holds it: started, asked, and killed when it takes too long.

Owns one process and what its end means. Does not own who may ask it when (`queueing`).
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress

import msgspec

from dhp_protocol.errors import ResultInvalid, SchemaInvalid

from .verdicts import Bounds
from .worker import Ask, Told

START_WITHIN_S = 30.0

Refusal = SchemaInvalid | ResultInvalid

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Told).decode


class BeyondBounds(Exception):
    """It was ended because one verdict took more processor time, or more time, than one may."""


class Gone(Exception):
    """It ended for a reason that need not lie in what it was asked."""


class Helper:
    """A running worker. After `BeyondBounds` or `Gone` it is of no more use."""

    def __init__(self, process: asyncio.subprocess.Process, bounds: Bounds) -> None:
        self._process = process
        self._bounds = bounds

    @classmethod
    async def start(cls, bounds: Bounds) -> "Helper":
        """Raises `Gone` or `OSError` if it can't be started."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "dhpd.schemas.worker", _encode(bounds).decode()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": _module_path()},
            start_new_session=True,  # Signals for the daemon's group, such as Ctrl-C, are the daemon's business.
        )
        helper = cls(process, bounds)
        try:
            async with asyncio.timeout(START_WITHIN_S):
                await helper._answer()
        except TimeoutError:
            await helper.end()
            raise Gone from None
        except BaseException:
            await helper.end()
            raise
        return helper

    async def ask(self, schema: bytes, result: bytes | None) -> Refusal | None:
        """Without `result`: whether the schema can be enforced; else whether the result fits. None: yes."""
        stdin = self._process.stdin
        assert stdin is not None
        if stdin.is_closing():  # It has ended since it was last asked.
            await self.end()
            raise Gone
        ask = Ask(len(schema), None if result is None else len(result))
        try:
            async with asyncio.timeout(self._bounds.wall_s):
                with suppress(ConnectionError):  # It ends meanwhile: reading tells.
                    stdin.writelines((_encode(ask), b"\n", schema, result or b""))
                    await stdin.drain()
                told = await self._answer()
        except TimeoutError:
            await self.end()
            raise BeyondBounds from None
        if not told.code:
            return None
        refusal = SchemaInvalid if told.code == SchemaInvalid.code else ResultInvalid
        return refusal(told.message, path=told.path, rule=told.rule)

    async def end(self) -> None:
        """Kills it and waits until it is gone."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _answer(self) -> Told:
        stdout = self._process.stdout
        assert stdout is not None
        line = await stdout.readline()
        if line.endswith(b"\n"):
            return _decode(line)
        await self.end()
        raise BeyondBounds if self._process.returncode == -signal.SIGPROF else Gone


def _module_path() -> str:
    """With -P it makes the worker find exactly the modules that the daemon does, and none in the current directory."""
    return os.pathsep.join(os.path.abspath(each) for each in sys.path)
