"""A connection that sends bytes made before and looks only at whether each answer is good.

For measuring single calls from Python, where making and reading JSON would be most of the time.
"""

import json
from types import TracebackType
from typing import Any

from tests.support.wire_client import open_socket

GOOD = b'"ok":true'


def framed(op: str, **members: Any) -> bytes:
    """A request's bytes, in counted form."""
    body = json.dumps({"op": op, "id": 1, **members}, separators=(",", ":")).encode()
    return b"%d %b\n" % (len(body), body)


class RawLine:
    """`exchange` sends and waits for so many answers; raises `AssertionError` where one of them is a refusal."""

    def __init__(self, address: str) -> None:
        self._socket = open_socket(address)

    def __enter__(self) -> "RawLine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def exchange(self, data: bytes, answers: int = 1) -> None:
        self._socket.sendall(data)
        answered, good, rest = 0, 0, b""
        while answered < answers:
            piece = self._socket.recv(262_144)
            if not piece:
                raise EOFError("the daemon has closed the connection")
            whole, end, rest = (rest + piece).rpartition(b"\n")
            if end:
                answered += whole.count(b"\n") + 1
                good += whole.count(GOOD)
        assert good == answers, f"{answers - good} of {answers} requests were refused"
