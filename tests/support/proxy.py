"""A network that can be hurt: a TCP proxy between a client and the daemon.

Owns delay, byte-wise delivery, a cut (both ends see it), and a half-open line (nobody sees anything).
"""

import contextlib
import socket
import threading
import time
from types import TracebackType

from .wire_client import open_socket


class Proxy:
    """`with Proxy(daemon.tcp) as proxy:`; clients connect to `proxy.address`."""

    def __init__(self, target: str) -> None:
        self.delay_ms = 0
        self.piece_bytes: int | None = None
        """So many bytes are passed on at once; None: as they come."""
        self._target = target
        self._passes = threading.Event()
        self._passes.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        self.address = f"tcp://{host}:{port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.heal()
        self.cut()

    def cut(self) -> None:
        """Ends all connections; new ones are taken."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def swallow(self) -> None:
        """From now on nothing gets through, in either direction, and nobody is told."""
        self._passes.clear()

    def heal(self) -> None:
        """What was held back gets through."""
        self._passes.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = open_socket(self._target)
                far.settimeout(None)
                near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                time.sleep(self.delay_ms / 1000)
                self._passes.wait()
                step = self.piece_bytes or len(data)
                for start in range(0, len(data), step):
                    sink.sendall(data[start : start + step])
            self._passes.wait()
            sink.shutdown(socket.SHUT_WR)
