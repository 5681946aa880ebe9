"""A line between a client and a real daemon that changes what the daemon says: so a faulty daemon is made of a good one.

Owns passing bytes on, knowing which request a reply answers, and frames that aren't touched staying as they are, byte for byte.
"""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tests.support.wire_client import open_socket

Message = dict[str, Any]
Rewrite = Callable[[Message, Message], "Message | list[Message] | bytes | None"]
"""From a request (empty: an event, or no request is known) and what the daemon says to what is said instead: a message, several,
bytes as they are, or None: just that."""


class Middleman:
    """`with Middleman(daemon.tcp, rewrite) as line:`; clients connect to `line.address`."""

    def __init__(self, target: str, rewrite: Rewrite, *, closes_after: str | None = None) -> None:
        self._target = target
        self._rewrite = rewrite
        self._closes_after = closes_after
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._sockets: list[socket.socket] = []
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Middleman":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                far = open_socket(self._target)
                far.settimeout(None)
                self._sockets += [near, far]
                asked: dict[str, Message] = {}
                threading.Thread(target=self._pass_requests, args=(near, far, asked), daemon=True).start()
                threading.Thread(target=self._pass_answers, args=(far, near, asked), daemon=True).start()

    def _pass_requests(self, near: socket.socket, far: socket.socket, asked: dict[str, Message]) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := near.recv(65_536):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    request = _body(line)
                    if request is not None and "id" in request:
                        asked[json.dumps(request["id"])] = request
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)

    def _pass_answers(self, far: socket.socket, near: socket.socket, asked: dict[str, Message]) -> None:
        with contextlib.suppress(OSError), far.makefile("rb") as lines:
            for line in lines:
                near.sendall(self._said(line, asked))
                if self._closes_after is not None and self._closes_after.encode() in line:
                    break
            near.shutdown(socket.SHUT_WR)

    def _said(self, line: bytes, asked: dict[str, Message]) -> bytes:
        message = _body(line)
        assert message is not None, "the daemon speaks in frames"
        said = self._rewrite(asked.get(json.dumps(message.get("id")), {}), message)
        if said is None:
            return line
        if isinstance(said, bytes):
            return said
        is_counted = line[:1].isdigit()
        return b"".join(framed(one, counted=is_counted) for one in (said if isinstance(said, list) else [said]))


def framed(message: Message, *, counted: bool) -> bytes:
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    return b"%d %b\n" % (len(body), body) if counted else body + b"\n"


def _body(line: bytes) -> Message | None:
    text = line[line.find(b"{") :]
    try:
        body = json.loads(text)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
