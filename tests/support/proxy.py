"""A network that can be hurt: a TCP proxy between clients and a daemon.

Owns the faults of a line: slow, byte by byte, held up, cut in good order or reset, cut in the middle of a frame, gone on one
side only, a black hole in one direction or both, everything delivered twice. Runs in threads, so that a blocked event loop
doesn't stop it. As a program it is one plain line between its standard input, a socket, and an address (`worker_process`).
"""

import contextlib
import json
import socket
import struct
import sys
import threading
import time
from collections import deque
from types import TracebackType

from .wire_client import open_socket


class Proxy:
    """`with Proxy(daemon.tcp) as proxy:`; clients connect to `proxy.address`. What is set holds for all lines, old and new."""

    def __init__(self, target: str) -> None:
        self.delay_ms = 0
        """How long each piece takes, in either direction."""
        self.piece_bytes: int | None = None
        """So many bytes are passed on at once; None: as they come."""
        self.doubles = False
        """Whether all that a new connection sends arrives once more, over a second one whose answers nobody hears: after the
        daemon has answered something, and so perhaps after what the client says next."""
        self.said_again = 0
        """How many pieces have arrived once more."""
        self.swallowed = False
        """Whether bytes were, since the last `silence`."""
        self.lost = 0
        """How many frames were cut or lost as it was asked for."""
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._lines: list[_Line] = []
        self._refusing = False
        self._passes = threading.Event()
        self._passes.set()
        self._silent: frozenset[str] = frozenset()
        self._to_cut: _Cut | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._refusing = True
        self._passes.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._lines)

    def drop(self, *, reset: bool = False) -> None:
        """Ends every connection on both sides, in good order or with a reset; new ones are welcome."""
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            line.end(reset=reset)

    def cut(self) -> None:
        """As `drop`, and new ones are refused until `mend`."""
        self._refusing = True
        self.drop()

    def hold(self) -> None:
        """Nothing gets through, and nobody is told; at `mend` all of it arrives."""
        self._passes.clear()

    def silence(self, *directions: str) -> None:
        """Swallows all bytes and ends on their way "up" to the daemon, or "down" from it, or both, until `mend`.

        A connection of which something was swallowed is of no use any more and stays so, as in a real black hole: what one
        side then ends the other isn't told.
        """
        self.swallowed = False
        self._silent = frozenset(directions or ("up", "down"))

    def lose_answer_to(self, op: str, *, then_cut: bool = False) -> None:
        """The next such request arrives, but its connection ends before the answer does; new connections are welcome.

        With `then_cut` all connections end with it, and there are no new ones until `mend`.
        """
        self._to_cut = _Cut(op, 0, reset=False, answer=True, all_lines=then_cut)

    def cut_answer_to(self, op: str, *, after_bytes: int, reset: bool = False) -> None:
        """Of the answer to the next such request so many bytes arrive before its connection ends."""
        self._to_cut = _Cut(op, after_bytes, reset=reset, answer=True)

    def cut_request(self, op: str, *, after_bytes: int, reset: bool = False) -> None:
        """Of the next such request so many bytes arrive before its connection ends."""
        self._to_cut = _Cut(op, after_bytes, reset=reset, answer=False)

    def mend(self) -> None:
        """No fault of the line any more: new connections are welcome, what is held gets through, nothing is swallowed."""
        self._refusing = False
        self._silent = frozenset()
        self._passes.set()

    # What a line asks.

    def takes(self, direction: str) -> bool:
        """Whether what comes now is passed on, once nothing is held up any more."""
        self._passes.wait()
        time.sleep(self.delay_ms / 1000)
        if direction in self._silent:
            self.swallowed = True
            return False
        return True

    def cut_for(self, data: bytes) -> "_Cut | None":
        """The cut that was asked for, if `data` holds its request: each is made once."""
        with self._lock:
            cut = self._to_cut
            if cut is None or cut.mark not in data:
                return None
            self._to_cut = None
            return cut

    def was_cut(self, line: "_Line", cut: "_Cut") -> None:
        if cut.all_lines:
            self.cut()
        self.lost += 1
        self.forget(line)
        line.end(reset=cut.reset)

    def forget(self, line: "_Line") -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._lines.remove(line)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self._refusing:
                    self._join(near)
                else:
                    near.close()

    def _join(self, near: socket.socket) -> None:
        try:
            far = _without_limit(open_socket(self._target))
            echo = _without_limit(open_socket(self._target)) if self.doubles else None
        except OSError:
            near.close()
            return
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = _Line(self, near, far, echo)
        with self._lock:
            self._lines.append(line)
        line.start()
        if self._refusing:  # It was cut meanwhile.
            self.drop()


class _Cut:
    """Where a frame is to be cut."""

    def __init__(self, op: str, after_bytes: int, *, reset: bool, answer: bool, all_lines: bool = False) -> None:
        self.mark = b'"op":"%b"' % op.encode()
        self.after_bytes = after_bytes
        self.reset = reset
        self.answer = answer
        self.all_lines = all_lines

    def end_of_request(self, data: bytes) -> int:
        """How much of `data` arrives where the request is to be cut."""
        return data.rfind(b"\n", 0, data.index(self.mark)) + 1 + self.after_bytes

    def mark_of_answer(self, data: bytes) -> bytes:
        """How the answer to the request in `data` is known: by its id."""
        start = data.rfind(b"\n", 0, data.index(self.mark)) + 1
        body = data[start : data.index(b"\n", start)]
        return b'"id":%b,' % json.dumps(json.loads(body[body.index(b"{") :])["id"]).encode()


class _Line:
    """One client's connection, and the proxy's own to the daemon."""

    def __init__(self, proxy: Proxy, near: socket.socket, far: socket.socket, echo: socket.socket | None) -> None:
        self._proxy = proxy
        self._near = near
        self._far = far
        self._echo = echo
        self._unechoed: deque[bytes] = deque()
        self._dead = False
        """Something was swallowed."""
        self._answer: tuple[bytes, _Cut] | None = None
        """The answer that is to be cut, and how it is known."""

    def start(self) -> None:
        threading.Thread(target=self._pass_on, args=("up", self._near, self._far), daemon=True).start()
        threading.Thread(target=self._pass_on, args=("down", self._far, self._near), daemon=True).start()
        if self._echo is not None:
            threading.Thread(target=_read_away, args=(self._echo,), daemon=True).start()

    def end(self, *, reset: bool = False) -> None:
        for one in (self._near, self._far, self._echo):
            if one is not None:
                _end(one, reset=reset)

    def _pass_on(self, direction: str, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if not self._proxy.takes(direction) or self._dead:
                    self._dead = True
                elif not self._cuts(direction, data):
                    self._send(sink, data)
                    self._say_again(direction, data)
        # One direction ends by itself, so that half-closed works.
        if self._proxy.takes(direction) and not self._dead:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
            if direction == "down":
                self._proxy.forget(self)
                self.end()

    def _say_again(self, direction: str, data: bytes) -> None:
        if self._echo is not None and direction == "up":
            self._unechoed.append(data)
        while self._echo is not None and direction == "down" and self._unechoed:
            self._send(self._echo, self._unechoed.popleft())
            self._proxy.said_again += 1

    def _cuts(self, direction: str, data: bytes) -> bool:
        """Whether the line was ended in the middle of `data`."""
        if direction == "up":
            cut = self._proxy.cut_for(data)
            if cut is not None and cut.answer:
                self._answer = cut.mark_of_answer(data), cut
            elif cut is not None:
                self._send(self._far, data[: cut.end_of_request(data)])
                self._proxy.was_cut(self, cut)
                return True
        elif self._answer is not None and self._answer[0] in data:
            mark, cut = self._answer
            start = data.rfind(b"\n", 0, data.index(mark)) + 1
            self._send(self._near, data[: start + cut.after_bytes])
            self._proxy.was_cut(self, cut)
            return True
        return False

    def _send(self, sink: socket.socket, data: bytes) -> None:
        step = self._proxy.piece_bytes or max(1, len(data))
        for start in range(0, len(data), step):
            sink.sendall(data[start : start + step])


def _without_limit(opened: socket.socket) -> socket.socket:
    opened.settimeout(None)
    return opened


def _end(one: socket.socket, *, reset: bool) -> None:
    with contextlib.suppress(OSError):
        if reset:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # A thread that reads is woken; what says nothing on the wire leaves the reset to the closing.
        one.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
    one.close()


def _read_away(source: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while source.recv(65_536):
            pass


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def main(address: str) -> None:
    """One line, which ends with the daemon's side."""
    near, far = socket.socket(fileno=0), _without_limit(open_socket(address))
    threading.Thread(target=_copy, args=(near, far), daemon=True).start()
    _copy(far, near)


if __name__ == "__main__":
    main(sys.argv[1])
