"""A worker in a process of its own, which a test speaks through and may kill or stop.

Owns the process; what the worker says is the test's (`client`). Its connection to the daemon is the process's own, so
the system closes it when the process is killed, and not before.
"""

import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from .own_process import OwnProcess
from .wire_client import WireClient

ROOT = Path(__file__).parents[2]
LINE = ("-S", "-m", "tests.support.proxy")
"""Without site, since it imports nothing but the standard library: so that it starts fast."""


class WorkerProcess(OwnProcess):
    """`with WorkerProcess(daemon.tcp) as worker:`; `worker.client` is its connection.

    `wrapper` is a command that becomes the one that follows it.
    """

    def __init__(self, address: str, *, wrapper: Sequence[str] = ()) -> None:
        near, far = socket.socketpair()
        with far:
            self._process = subprocess.Popen([*wrapper, sys.executable, *LINE, address], stdin=far, cwd=ROOT)
        self.client = WireClient(near)

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self.client.close()
