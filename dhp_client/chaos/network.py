"""The network between a worker and the daemon, which can be hurt: a small TCP proxy for each worker.

Owns what happens to bytes on their way. What is held back isn't lost, as TCP loses nothing: it arrives when the network heals,
late, or its connection is reset and it never does.
"""

import asyncio
import contextlib

from .plan import CUT, DELAY, HOLD_ANSWERS, HOLD_REQUESTS, TRICKLE

DELAY_MS = 200
PIECE_BYTES = 65_536


class _Way:
    """One direction of a line."""

    def __init__(self) -> None:
        self.flows = asyncio.Event()
        self.flows.set()
        self.delay_ms = 0
        self.trickles = False

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the sender has ended its side, which is passed on as well."""
        while data := await reader.read(PIECE_BYTES):
            await self.flows.wait()
            if self.delay_ms:
                await asyncio.sleep(self.delay_ms / 1000)
            while self.trickles and data:
                writer.write(data[:1])
                data = data[1:]
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(data)
            await writer.drain()
        await self.flows.wait()
        writer.write_eof()


class Line:
    """`address` is where a worker connects; all that it says goes on to the unix socket `target`, as long as nothing hurts."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self._target = target
        self._out, self._back = _Way(), _Way()
        self._refuses = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listens on a free port of 127.0.0.1."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Ends everything."""
        if self._server is not None:
            self._server.close()
        self._reset()

    def hurt(self, kind: str) -> None:
        """Begins one of `plan.NETWORK`."""
        if kind == CUT:
            self._refuses = True
            self._reset()
        elif kind == HOLD_REQUESTS:
            self._out.flows.clear()
        elif kind == HOLD_ANSWERS:
            self._back.flows.clear()
        elif kind == TRICKLE:
            self._out.trickles = self._back.trickles = True
        elif kind == DELAY:
            self._out.delay_ms = self._back.delay_ms = DELAY_MS

    def heal(self, kind: str, *, releases: bool) -> None:
        """Ends it; what was held back arrives if it `releases`, else its connections are reset."""
        if kind == CUT:
            self._refuses = False
        elif kind in (HOLD_REQUESTS, HOLD_ANSWERS):
            if not releases:
                self._reset()
            (self._out if kind == HOLD_REQUESTS else self._back).flows.set()
        elif kind == TRICKLE:
            self._out.trickles = self._back.trickles = False
        elif kind == DELAY:
            self._out.delay_ms = self._back.delay_ms = 0

    def _reset(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        self._writers.add(writer)
        try:
            if self._refuses:
                return
            far_reader, far_writer = await asyncio.open_unix_connection(self._target)
            ends.append(far_writer)
            self._writers.add(far_writer)
            if self._refuses:  # Cut while it was being connected.
                return
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._out.pass_on(reader, far_writer))
                ways.create_task(self._back.pass_on(far_reader, writer))
        except* OSError:
            pass  # One end is gone, and so is the line.
        finally:
            for end in ends:
                self._writers.discard(end)
                with contextlib.suppress(OSError):
                    end.transport.abort()
