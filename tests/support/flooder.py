"""Sends the same line to a daemon without end and reads whatever comes back: `flooder.py ADDRESS LINE`.

Run as a process of its own (`Flooder`), so that it costs a test nothing but the daemon's attention.
"""

import contextlib
import socket
import subprocess
import sys
import threading
from types import TracebackType

PIECE_BYTES = 1024 * 1024


class Flooder:
    """`with Flooder(daemon.tcp, '{"op":"ping"}'):` floods until the end of the block."""

    def __init__(self, address: str, line: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, address, line], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> "Flooder":
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"flooding\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def main(address: str, line: str) -> None:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    data = line.encode() + b"\n"
    piece = data * (PIECE_BYTES // len(data) + 1)
    told = False
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port))) as sock:
            threading.Thread(target=_read, args=(sock,), daemon=True).start()
            while True:
                sock.sendall(piece)
                if not told:
                    print("flooding", flush=True)
                    told = True


def _read(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(PIECE_BYTES):
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
