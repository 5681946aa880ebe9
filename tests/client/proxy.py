"""A line between client and daemon that can be cut, or go silent. Runs in a thread, so that a blocked loop doesn't stop it."""

import contextlib
import select
import socket
import threading


class Proxy:
    """Listens on a port of its own and passes everything on to `host:port`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._refusing = False
        self._silent = threading.Event()
        self.swallowed = False
        """Whether bytes were, since the last `silence`."""
        self._losing: bytes | None = None
        self._cuts_then = False
        self.lost = 0
        """How many answers were."""
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._pairs)

    def cut(self) -> None:
        """Ends every connection and refuses new ones, until `mend`."""
        self._refusing = True
        self.drop()

    def drop(self) -> None:
        """Ends every connection; new ones are welcome."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _end(pair)

    def silence(self) -> None:
        """Swallows every byte from now on, both ways, without ending anything, until `mend`."""
        self.swallowed = False
        self._silent.set()

    def lose_answer_to(self, op: str, *, then_cut: bool = False) -> None:
        """The next such request arrives, but its connection ends before the answer does; new connections are welcome.

        With `then_cut` all connections end with it, and there are no new ones until `mend`.
        """
        self._cuts_then, self._losing = then_cut, b'"op":"%s"' % op.encode()

    def mend(self) -> None:
        self._refusing = False
        self._silent.clear()

    def close(self) -> None:
        self._closed = True
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                accepted.close()
                continue
            try:
                onward = socket.create_connection(self._target, timeout=5)
            except OSError:
                accepted.close()
                continue
            with self._lock:
                cut_meanwhile = self._refusing
                if not cut_meanwhile:
                    self._pairs.append((accepted, onward))
            if cut_meanwhile:
                _end((accepted, onward))
                continue
            threading.Thread(target=self._pass_on, args=(accepted, onward), daemon=True).start()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        # What this connection swallowed once makes it useless for good, as a real black hole does.
        swallowed = loses = False
        try:
            while True:
                readable, _, _ = select.select([near, far], [], [])
                for source in readable:
                    data = source.recv(65_536)
                    if not data:
                        return
                    if source is near and self._losing is not None and self._losing in data:
                        loses, self._losing = True, None
                    elif source is far and loses:
                        if self._cuts_then:
                            self.cut()
                        self.lost += 1
                        return
                    swallowed = swallowed or self._silent.is_set()
                    self.swallowed = self.swallowed or swallowed
                    if not swallowed:
                        (far if source is near else near).sendall(data)
        except (OSError, ValueError):
            return
        finally:
            with self._lock:
                if (near, far) in self._pairs:
                    self._pairs.remove((near, far))
            _end((near, far))


def _end(pair: tuple[socket.socket, socket.socket]) -> None:
    for end in pair:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
