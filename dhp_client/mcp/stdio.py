"""Serving one agent over standard input and output.

Owns reading the input so that the program can end whatever that does, and that a line which is no message is answered: the SDK would drop it,
and whoever sent it would wait for ever. Standard output is the SDK's, which keeps stray prints off it.
"""

import asyncio
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, RequestId, jsonrpc_message_adapter
from pydantic import ValidationError

from .server import Server

log = logging.getLogger("dhp_client")

Refuse = Callable[[JSONRPCError], Awaitable[None]]

MAX_LINES_AHEAD = 4
"""So many are read before somebody takes them."""


async def serve_stdio(server: Server, *, until: asyncio.Event | None = None) -> None:
    """Serves until the input ends, or until `until` is set."""
    lines, writing = Lines(0), asyncio.get_running_loop().create_future()

    async def refuse(error: JSONRPCError) -> None:
        await (await writing).send(SessionMessage(message=error))

    messages = cast("anyio.AsyncFile[str]", lines.messages(refuse))  # Which is only ever gone through.
    ending = asyncio.create_task(_end(lines, until)) if until is not None else None
    try:
        async with stdio_server(stdin=messages) as (read, write):
            writing.set_result(write)
            await server.run_over(read, write)
    except* BrokenPipeError:
        log.warning("nobody reads the answers any more, so this ends")
    finally:
        if ending is not None:
            ending.cancel()


async def _end(lines: "Lines", until: asyncio.Event) -> None:
    await until.wait()
    lines.end()


class Lines:
    """The lines of a descriptor, read by a thread of their own: a read can't be broken off, and mustn't hold up the program's end."""

    def __init__(self, descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(MAX_LINES_AHEAD)
        self._over = asyncio.Event()
        # Not sys.stdin, which the interpreter would wait for at its end.
        self._file = os.fdopen(os.dup(descriptor), "rb")
        threading.Thread(target=self._read, name="dhp-mcp-input", daemon=True).start()

    def end(self) -> None:
        """As if the input had ended."""
        self._over.set()

    async def messages(self, refuse: Refuse) -> AsyncIterator[str]:
        """Every line that is a message; the others are refused."""
        while line := await self._next():
            self._room.release()
            if not line.strip():
                continue
            error = refusal(line)
            if error is None:
                yield line.decode()
            else:
                await refuse(error)

    async def _next(self) -> bytes:
        """The next line; empty at the end."""
        line = asyncio.ensure_future(self._lines.get())
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait((line, over), return_when=asyncio.FIRST_COMPLETED)
            return line.result() if line.done() and not self._over.is_set() else b""
        finally:
            line.cancel()
            over.cancel()

    def _read(self) -> None:
        line = b"?"
        while line:
            self._room.acquire()
            try:
                line = self._file.readline()
            except OSError:
                line = b""
            try:
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
            except RuntimeError:  # The loop is closed.
                return


def refusal(line: bytes) -> JSONRPCError | None:
    """What to answer to a line that is no message of JSON-RPC; None: it is one. Pure."""
    try:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        request_id, is_json = _id_of(line)
        sentence = (
            "That can't be taken: it is no message of JSON-RPC, is nested too deep, or holds text that is no Unicode."
        )
        error = ErrorData(code=INVALID_REQUEST if is_json else PARSE_ERROR, message=sentence)
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
    return None


def _id_of(line: bytes) -> tuple[RequestId | None, bool]:
    """The id of the request that it was meant to be, and whether it is JSON at all."""
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None, False
    request_id = found.get("id") if isinstance(found, dict) else None
    return (request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None), True
