"""A peer's server program: started on a free port of 127.0.0.1, waited for, and ended whatever happens.

Owns the process. Does not own which program it is (`debian`), how it is set, or what it is asked (each peer's module).
"""

import ctypes
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.debian import Program
from bench.setting import Unavailable

START_TIMEOUT_S = 10
ASK_TIMEOUT_S = 1
PAUSE_S = 0.01
ATTEMPTS = 3

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


@contextmanager
def serving(
    program: Program, arguments: Callable[[int], list[str]], question: bytes, answer: bytes, folder: Path
) -> Iterator[str]:
    """The address of a server that has answered `question` with what begins with `answer`.

    `arguments` gives the program's arguments for a port. What the server says goes to `folder/server.log`. It is killed at
    the end: nothing of its data is looked at afterwards. Raises `Unavailable` where it doesn't come to serve.
    """
    log = folder / "server.log"
    for _ in range(ATTEMPTS):
        # Another process may take the free port before the server does: then it ends, and the next port is tried.
        port = _free_port()
        with log.open("wb") as said:
            process = subprocess.Popen(
                [program.path, *arguments(port)],
                cwd=folder,
                env=program.environment(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                preexec_fn=_end_with_parent,
            )
        try:
            if _answers(process, port, question, answer):
                yield f"tcp://127.0.0.1:{port}"
                return
        finally:
            process.kill()
            process.wait()
    raise Unavailable(f"{program.path.name} doesn't serve: {_last_line(log)}")


def _answers(process: "subprocess.Popen[bytes]", port: int, question: bytes, answer: bytes) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=ASK_TIMEOUT_S) as asked:
                asked.sendall(question)
                if asked.recv(1024).startswith(answer):
                    return process.poll() is None
        except OSError:
            pass
        time.sleep(PAUSE_S)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _end_with_parent() -> None:
    """The kernel kills the server when whoever started it dies, so that none is left behind by a kill -9."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _last_line(log: Path) -> str:
    return (log.read_text(errors="replace").strip().splitlines() or ["it gave no reason"])[-1]
