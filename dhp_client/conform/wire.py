"""One connection to a daemon, as bytes and frames, with nothing of the client's own code in between.

Owns reading and writing frames, the limit on waiting for one, and taking note of what was made on the way. What is said is
others'.
"""

import socket
import ssl
from types import TracebackType

from ..addresses import SocketAddress
from ..blocking import connect_blocking
from ..clock import monotonic_ms
from .judging import Members, Unlike, read_json

MAX_RECEIVED_BYTES = 16 * 1024 * 1024
"""On one connection, where a good daemon says some KB: whoever goes on without an end is stopped there."""
LIVES_MS = 120_000.0
"""A connection is one check's, and hardly a check takes more than a few seconds."""
ANSWER_WITHIN_MS = 20_000.0
PIECE_BYTES = 64 * 1024


class Notes:
    """What connections saw that somebody asks for later."""

    def __init__(self) -> None:
        self.made: list[str] = []
        """Ids of handoffs that weren't there before."""
        self.codes: set[str] = set()
        """Of errors that were answered."""
        self.roles: set[str] = set()
        """Those that `forbidden` named as wanted."""
        self.unanswered = False
        """Whether an answer was waited for in vain."""

    def take(self, body: Members) -> None:
        """Looks at one reply."""
        handoff = body.get("handoff")
        if body.get("created") is True and isinstance(handoff, str):
            self.made.append(handoff)
        error = body.get("error")
        if isinstance(error, dict) and isinstance(error.get("code"), str):
            self.codes.add(error["code"])
            details = error.get("details")
            if error["code"] == "forbidden" and isinstance(details, dict) and isinstance(details.get("role"), str):
                self.roles.add(details["role"])


class Line:
    """One received frame: its form, its body as text, and as JSON. Raises `Unlike` where it is none."""

    def __init__(self, raw: bytes) -> None:
        head, space, rest = raw.partition(b" ")
        self.counted = head.isdigit() and space == b" "
        body = rest if self.counted else raw
        if self.counted and head != str(len(body)).encode():
            raise Unlike(f"a frame of {len(body)} bytes to say so", repr(raw[:100]))
        try:
            self.text = body.decode()
            value = read_json(self.text)
        except (ValueError, RecursionError) as error:
            raise Unlike("a frame whose body is JSON in UTF-8", f"{raw[:200]!r} ({error})") from None
        if not isinstance(value, Members) or b"\r" in body:
            raise Unlike("a frame whose body is one JSON object on one line", repr(raw[:200]))
        self.value: Members = value


class Wire:
    """One connection. Gives what comes as lines, each of which must be a frame."""

    def __init__(
        self, address: SocketAddress, notes: Notes | None = None, *, answer_within_ms: float = ANSWER_WITHIN_MS
    ) -> None:
        self._notes = notes or Notes()
        self._answer_within_ms = answer_within_ms
        self.socket = connect_blocking(address, answer_within_ms)
        self.encrypted = isinstance(self.socket, ssl.SSLSocket)
        self._ends_ms = monotonic_ms() + LIVES_MS
        self._buffer = bytearray()
        self._received_bytes = 0

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.settimeout(self._answer_within_ms / 1000)
        self.socket.sendall(data)

    def end_input(self) -> None:
        """Says that nothing more comes."""
        self.socket.shutdown(socket.SHUT_WR)

    def receive(self) -> Line | None:
        """The next frame; None at the end."""
        end = self._receive_line()
        if end < 0:
            if self._buffer:
                raise Unlike("whole frames", f"the connection ended within one: {bytes(self._buffer[:200])!r}")
            return None
        line = Line(bytes(self._buffer[:end]))
        del self._buffer[: end + 1]
        self._notes.take(line.value)
        return line

    def close(self) -> None:
        self.socket.close()

    def _receive_line(self) -> int:
        """Where the first line in the buffer ends, once it is whole; -1 at the end of what comes."""
        until_ms = min(monotonic_ms() + self._answer_within_ms, self._ends_ms)
        looked_at = 0
        while (end := self._buffer.find(b"\n", looked_at)) < 0:
            looked_at = len(self._buffer)
            piece = self._receive_piece(until_ms)
            if not piece:
                return -1
            self._buffer += piece
            self._received_bytes += len(piece)
            if self._received_bytes > MAX_RECEIVED_BYTES:
                raise self._given_up("answers that come to an end", f"{MAX_RECEIVED_BYTES} bytes, and more")
        return end

    def _receive_piece(self, until_ms: float) -> bytes:
        left_ms = until_ms - monotonic_ms()
        try:
            if left_ms > 0:
                self.socket.settimeout(left_ms / 1000)
                return self.socket.recv(PIECE_BYTES)
        except TimeoutError:
            pass
        except (ConnectionError, ssl.SSLError):
            return b""
        raise self._given_up("an answer", f"none within {self._answer_within_ms / 1000:g} s")

    def _given_up(self, expected: str, came: str) -> Unlike:
        self._notes.unanswered = True
        return Unlike(expected, came)


def framed(body: bytes, *, counted: bool) -> bytes:
    """The bytes of one frame."""
    return b"%d %b\n" % (len(body), body) if counted else body + b"\n"
