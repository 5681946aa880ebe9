"""A daemon that does as it is told, for what a real one can't be made to say.

Owns a listener that speaks frames; by default it welcomes, renews every lease and grants nothing. A test replaces what
it answers, by operation.
"""

import asyncio
import hashlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Raw

from dhp_protocol import PROTOCOL
from dhp_protocol.decoding import decode_request
from dhp_protocol.errors import DHPError, UnknownOp
from dhp_protocol.framing import Frame, Framer, encode_frame
from dhp_protocol.intent import Intent, canonical_intent
from dhp_protocol.limits import Limits
from dhp_protocol.messages import Request
from dhp_protocol.replies import (
    AnyEvent,
    ClaimLease,
    ClaimReply,
    Empty,
    HeartbeatReply,
    HelloReply,
    LeaseTerms,
    NothingToClaim,
    ReleaseReply,
    StoredCheckpoint,
    error_reply_body,
    reply_body,
)

Answer = Callable[["Connection", Any], Awaitable[Any]]

INTENT = canonical_intent(Intent(kind="fetch", inputs=Raw(b'{"n":1}')))
HANDOFF = hashlib.sha256(INTENT).hexdigest()


def grant(
    *, fence: int = 1, intent: bytes = INTENT, ttl_ms: int = 6_000, checkpoint: StoredCheckpoint | None = None
) -> ClaimReply:
    return ClaimReply(
        handoff=HANDOFF,
        fence=fence,
        attempt=(fence + 1) // 2,
        lease=ClaimLease(ttl_ms=ttl_ms, heartbeat_ms=ttl_ms // 3),
        intent=Raw(intent),
        checkpoint=checkpoint,
        was="pending" if fence == 1 else "orphaned",
    )


class Connection:
    """One client's connection, as the fake sees it."""

    def __init__(self, fake: "FakeDaemon", writer: asyncio.StreamWriter) -> None:
        self.session: str | None = None
        self._fake = fake
        self._writer = writer

    def event(self, event: AnyEvent) -> None:
        self.raw(encode_frame(msgspec.json.encode(event), counted=True))

    def raw(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    def drop(self) -> None:
        self._writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        framer = Framer(8 * 1024 * 1024)
        try:
            while data := await reader.read(65_536):
                for frame in framer.feed(data):
                    assert isinstance(frame, Frame), f"the client sent no frame: {frame}"
                    assert frame.counted
                    request = decode_request(frame.body, 128)
                    self._fake.received.append(request)
                    if self._fake.in_turn:
                        await self._answer(request)
                        await self._writer.drain()
                    else:
                        self._fake.begin(self._answer(request))
        except ConnectionError:
            pass
        finally:
            self._fake.connections.remove(self)
            self._writer.close()

    async def _answer(self, request: Request) -> None:
        op = str(request.__struct_config__.tag)
        answer = self._fake.answers.get(op)
        try:
            if answer is None:
                raise UnknownOp(f"The fake knows no {op}.", op=op)
            reply = await answer(self, request)
        except DHPError as error:
            body = error_reply_body(request.id, error)
        else:
            if reply is None:
                return  # It says nothing.
            body = reply if isinstance(reply, bytes) else reply_body(request.id, reply)
        self.raw(encode_frame(body, counted=True))


class FakeDaemon:
    """`async with FakeDaemon() as fake:`; `fake.answers["claim"] = coroutine(connection, request)` scripts it."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.connections: list[Connection] = []
        self.limits = Limits()
        self.in_turn = False
        """Whether it reads a request only when the answer to the one before is on its way, whole."""
        self.answers: dict[str, Answer] = {
            "hello": self._hello,
            "ping": self._empty,
            "goodbye": self._empty,
            "heartbeat": self._renew_all,
            "claim": self._nothing,
            "release": self._released,
        }
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "FakeDaemon":
        await self.listen(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.vanish()
        for task in self._answering:
            task.cancel()

    async def listen(self, port: int) -> None:
        listener = socket.create_server(("127.0.0.1", port))
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # Fixed: else they grow with what is sent.
            listener.setsockopt(socket.SOL_SOCKET, buffer, 65_536)
        self._server = await asyncio.start_server(self._serve, sock=listener)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self.address = f"tcp://127.0.0.1:{self.port}"

    async def vanish(self) -> None:
        """Ends every connection and listens no more; `listen(fake.port)` brings it back."""
        if self._server is not None:
            self._server.close()
        self._server = None
        for connection in list(self.connections):
            connection.drop()

    def of(self, *ops: str) -> list[Any]:
        """The requests received so far with those operations."""
        return [request for request in self.received if request.__struct_config__.tag in ops]

    def begin(self, answering: Any) -> None:
        task = asyncio.get_running_loop().create_task(answering)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, writer)
        writer.transport.set_write_buffer_limits(0)
        self.connections.append(connection)
        await connection.serve(reader)

    async def _hello(self, connection: Connection, request: Any) -> HelloReply:
        connection.session = request.session
        return HelloReply(
            server="fake",
            protocol=PROTOCOL,
            session=str(request.session),
            roles=["admin"],
            limits=self.limits,
            lease=LeaseTerms(
                ttl_ms=6_000, heartbeat_ms=2_000, min_ttl_ms=500, max_ttl_ms=3_600_000, disconnect_grace_ms=250
            ),
            features=[],
            time="2026-01-01T00:00:00.000Z",
        )

    async def _empty(self, connection: Connection, request: Any) -> Empty:
        return Empty()

    async def _nothing(self, connection: Connection, request: Any) -> NothingToClaim:
        return NothingToClaim()

    async def _renew_all(self, connection: Connection, request: Any) -> HeartbeatReply:
        return HeartbeatReply(renewed=[lease.handoff for lease in request.leases], lost=[])

    async def _released(self, connection: Connection, request: Any) -> ReleaseReply:
        return ReleaseReply()
