"""The socket that a service manager listens on, for tests: what a daemon tells it, one datagram at a time."""

import socket
from pathlib import Path
from types import TracebackType

TOLD_WITHIN_S = 30.0


class ManagerSocket:
    """`env` is what the daemon is started with; its watchdog wants to be fed within `watchdog_ms`."""

    def __init__(self, path: Path, watchdog_ms: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(TOLD_WITHIN_S)
        self.env = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(watchdog_ms * 1000)}

    def __enter__(self) -> "ManagerSocket":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def next(self) -> dict[str, str]:
        """What was told next, by name; fails when that takes too long."""
        lines = self._socket.recv(65536).decode().splitlines()
        return {name: value for name, _, value in (line.partition("=") for line in lines)}

    def until(self, name: str) -> dict[str, str]:
        """The next that tells `name`; what comes before is passed over."""
        while name not in (told := self.next()):
            pass
        return told

    def waiting(self) -> list[dict[str, str]]:
        """All that was told and not taken yet."""
        found = []
        self._socket.setblocking(False)
        try:
            while True:
                found.append(self.next())
        except BlockingIOError:
            return found
        finally:
            self._socket.settimeout(TOLD_WITHIN_S)
