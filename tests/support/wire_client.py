"""A client made of bytes and a socket, for tests: what it sends is what the test says, frame by frame.

Owns framing (written here once more, so that a fault of the daemon's own framer can't hide), matching replies to
requests, and keeping events apart. Blocking, and every read has a limit, so that a missing answer fails a test.
"""

import contextlib
import json
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

ANSWER_WITHIN_S = 30.0


class Refused(Exception):
    """The daemon answered with an error; `error` is its body."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']} {error.get('details')}")
        self.error = error
        self.code: str = error["code"]
        self.details: dict[str, Any] = error.get("details", {})


class WireClient:
    """One connection. `with WireClient("tcp://127.0.0.1:8471") as client:` or a connected socket instead of an address."""

    def __init__(self, where: str | socket.socket, *, counted: bool = True) -> None:
        self.counted = counted
        self.events: deque[dict[str, Any]] = deque()
        self.stray: list[dict[str, Any]] = []
        """Answers to nothing that has an id."""
        self._socket = where if isinstance(where, socket.socket) else open_socket(where)
        self._socket.settimeout(ANSWER_WITHIN_S)
        self._buffer = bytearray()
        self._replies: dict[int | str, dict[str, Any]] = {}
        self._last_id = 0

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- requests ----------------------------------------------------------------------------------------------------

    def send(self, op: str, **members: Any) -> int:
        """Sends a request and gives its id; the answer is had with `reply`."""
        request_id, data = self.framed(op, **members)
        self.send_bytes(data)
        return request_id

    def framed(self, op: str, **members: Any) -> tuple[int, bytes]:
        """A request's id and bytes, not sent: to be put together with others."""
        self._last_id += 1
        return self._last_id, frame({"op": op, "id": self._last_id, **members}, counted=self.counted)

    def reply(self, request_id: int | str) -> dict[str, Any]:
        """The whole reply to that request, good or not."""
        while request_id not in self._replies:
            self._sort(self.receive())
        return self._replies.pop(request_id)

    def answered(self, request_id: int) -> bool:
        """Whether the reply has been received already (`pump` receives)."""
        return request_id in self._replies

    def result(self, request_id: int) -> dict[str, Any]:
        """The reply to that request; raises `Refused` where it says no."""
        reply = self.reply(request_id)
        if not reply["ok"]:
            raise Refused(reply["error"])
        return reply

    def call(self, op: str, **members: Any) -> dict[str, Any]:
        """Sends a request and gives its reply; raises `Refused` where it says no."""
        return self.result(self.send(op, **members))

    def refused(self, op: str, **members: Any) -> Refused:
        """Sends a request that must be refused."""
        reply = self.reply(self.send(op, **members))
        assert not reply["ok"], f"{op} was accepted: {reply}"
        return Refused(reply["error"])

    def event(self) -> dict[str, Any]:
        """The next event."""
        while not self.events:
            self._sort(self.receive())
        return self.events.popleft()

    def await_record(self, record_type: str) -> dict[str, Any]:
        """The next event of a watch that shows a record of that type; other events are dropped."""
        while True:
            event = self.event()
            if event["event"] == "record" and event["record"]["type"] == record_type:
                return event

    def pump(self) -> None:
        """A round trip: all that the daemon had sent before is received afterwards."""
        self.call("ping")

    # --- handoffs ----------------------------------------------------------------------------------------------------

    def dispatch(self, kind: str = "work", **members: Any) -> str:
        """Dispatches and gives the handoff's id."""
        handoff: str = self.call("dispatch", kind=kind, **{"inputs": {}, **members})["handoff"]
        return handoff

    def claim(self, kind: str = "work", *, worker: str = "w", **members: Any) -> dict[str, Any]:
        """Claims the first of `kind`, or the one named by `handoff`."""
        target = {} if "handoff" in members else {"kinds": [kind]}
        return self.call("claim", worker=worker, **target, **members)

    def status(self, handoff: str) -> dict[str, Any]:
        """How it stands, without what belongs to the reply alone."""
        return {name: value for name, value in self.call("status", handoff=handoff).items() if name not in ("id", "ok")}

    def history(self, handoff: str) -> list[dict[str, Any]]:
        """All its records."""
        records: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = self.call("history", handoff=handoff, after=after, limit=1000)
            records += page["records"]
            after = page["next"]
        return records

    # --- bytes -------------------------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> dict[str, Any]:
        """The next frame, in either form; raises `EOFError` where the daemon has closed."""
        head = self._line()
        if head[:1].isdigit():
            digits, _, rest = head.partition(b" ")
            body = rest[:-1]
            assert len(body) == int(digits), f"a frame's length is wrong: {head[:100]!r}"
        else:
            body = head[:-1]
        message = json.loads(body)
        assert isinstance(message, dict)
        return message

    def receive_line(self) -> bytes:
        """The next line as it came, its LF included."""
        return self._line()

    def receive_until_closed(self) -> bytes:
        """All that still comes, up to the daemon's closing."""
        while self._fill():
            pass
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def messages_until_closed(self) -> list[dict[str, Any]]:
        """As `receive_until_closed`, taken apart."""
        messages = []
        with contextlib.suppress(EOFError):
            while True:
                messages.append(self.receive())
        return messages

    def half_close(self) -> None:
        """Says that nothing more will be sent, as `nc -N` does."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Breaks the connection off, as a killed host would: the peer gets no end of input but an error."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    @property
    def socket(self) -> socket.socket:
        return self._socket

    def _line(self) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if not self._fill():
                assert not self._buffer, f"closed in the middle of a frame: {bytes(self._buffer[:100])!r}"
                raise EOFError("the daemon has closed the connection")
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line

    def _fill(self) -> bool:
        data = self._socket.recv(262_144)
        self._buffer += data
        return bool(data)

    def _sort(self, message: dict[str, Any]) -> None:
        if "event" in message:
            self.events.append(message)
        elif "id" in message:
            self._replies[message["id"]] = message
        else:
            self.stray.append(message)


def frame(message: dict[str, Any], *, counted: bool = True) -> bytes:
    """The bytes of a request."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return b"%d %b\n" % (len(body), body) if counted else body + b"\n"


@contextlib.contextmanager
def connections(address: Callable[[], str]) -> Iterator[Callable[..., WireClient]]:
    """Gives what opens connections, to `address()` unless told another, with a `hello` where it is told a session; all are
    closed at the end.
    """
    with contextlib.ExitStack() as opened:

        def open_one(where: str | None = None, *, session: str | None = None, **options: Any) -> WireClient:
            client = opened.enter_context(WireClient(where or address(), **options))
            if session is not None:
                client.call("hello", session=session)
            return client

        yield open_one


def open_socket(address: str) -> socket.socket:
    """A socket connected to an address as `dhpd ready` prints it."""
    if address.startswith("unix:"):
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.settimeout(ANSWER_WITHIN_S)
        connected.connect(address.removeprefix("unix:"))
        return connected
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    connected = socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_WITHIN_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected
