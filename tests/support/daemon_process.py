"""A real `dhpd` in a process of its own, for tests.

Owns starting it, telling when it is ready, and hurting it: kill -9, SIGTERM, SIGSTOP and SIGCONT, a restart on the same
data and the same addresses. Blocking and free of asyncio, so that it serves async and sync tests alike.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from .own_process import stop

READY_WITHIN_S = 20.0
ENDED_WITHIN_S = 10.0


class DaemonProcess:
    """One daemon on `data`. `with DaemonProcess(tmp_path) as daemon:` has it ready, and gone afterwards.

    `listen` holds what `--listen` takes: "127.0.0.1:0" (a free port, kept over restarts) or "unix:/path". `wrapper` is a command
    that becomes the one that follows it.
    """

    def __init__(
        self,
        data: Path,
        *,
        listen: Sequence[str] = ("127.0.0.1:0",),
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
        ready_within_s: float = READY_WITHIN_S,
    ) -> None:
        self.data = data
        self.addresses: list[str] = []
        self.stderr_path = data.parent / f"{data.name}.stderr"
        self._listen = list(listen)
        self._arguments = list(arguments)
        self._wrapper = list(wrapper)
        self._ready_within_s = ready_within_s
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "DaemonProcess":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def address(self) -> str:
        """The first address, as clients take it."""
        return self.addresses[0]

    @property
    def tcp(self) -> str:
        return next(address for address in self.addresses if address.startswith("tcp://"))

    @property
    def unix(self) -> str:
        return next(address for address in self.addresses if address.startswith("unix:"))

    @property
    def port(self) -> int:
        return int(self.tcp.rpartition(":")[2])

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def rss_bytes(self) -> int:
        """How much memory it holds at this moment."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def stderr(self) -> str:
        """What all starts so far have written to standard error."""
        return self.stderr_path.read_text(errors="replace") if self.stderr_path.exists() else ""

    def start(self) -> None:
        """Starts it and returns when it is ready; AssertionError, with its standard error, when it ends instead."""
        assert not self.alive, "this daemon runs already"
        command = [*self._wrapper, sys.executable, "-m", "dhpd", "--data", str(self.data)]
        for listen in self._listen:
            command += ["--listen", listen]
        with self.stderr_path.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*command, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self._env,
            )
        self.addresses = self._await_ready()
        # A port that was free is asked for by name from now on, so that a restart comes back where clients look.
        self._listen = [address.removeprefix("tcp://") for address in self.addresses]

    def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM, and waits until it is gone; its exit code."""
        return self._end(signal.SIGTERM)

    def wait(self) -> int:
        """Waits until it has ended by itself; its exit code."""
        process = self._running()
        code = process.wait(ENDED_WITHIN_S)
        self._forget(process)
        return code

    def pause(self) -> None:
        """SIGSTOP, and waits until it has stopped."""
        stop(self._running())

    def resume(self) -> None:
        """SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """kill -9 if it runs, then a start on the same data and addresses."""
        if self.alive:
            self.kill()
        self.start()

    def close(self) -> None:
        """Makes sure that it is gone."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(ENDED_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._forget(process)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "this daemon isn't running"
        return self._process

    def _end(self, number: signal.Signals) -> int:
        process = self._running()
        process.send_signal(number)
        code = process.wait(ENDED_WITHIN_S)
        self._forget(process)
        return code

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is not None:
            process.stdout.close()
        self._process = None

    def _await_ready(self) -> list[str]:
        process = self._running()
        assert process.stdout is not None
        line = b""
        until = time.monotonic() + self._ready_within_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    self.close()
                    raise AssertionError(f"dhpd wasn't ready within {self._ready_within_s} s: {self.stderr}")
                piece = os.read(process.stdout.fileno(), 4096)
                if not piece:
                    code = process.wait()
                    self._forget(process)
                    raise AssertionError(f"dhpd ended with {code} before it was ready: {self.stderr}")
                line += piece
        words = line.decode().split()
        assert words[:2] == ["dhpd", "ready"], f"not a ready line: {line!r}"
        return words[2:]
