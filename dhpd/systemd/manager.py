"""The service manager: what it is told, in datagrams to the socket that it named.

Owns the form of what is told, and that nothing of it holds the daemon up or ends it.
"""

import logging
import os
import socket
from collections.abc import MutableMapping

WAITS_S = 1.0
"""So long at most what must arrive waits for room in the manager's queue. What comes again by itself doesn't wait at all."""

_log = logging.getLogger(__name__)


class Manager:
    """The one that `taken_from` found; one without an address hears nothing."""

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        """`watchdog_s`: when it has heard no `alive` for so long, it takes this process for stuck and ends it; None: never."""
        self._address = None if address is None else _socket_address(address)
        self.watchdog_s = None if self._address is None else watchdog_s

    @property
    def listens(self) -> bool:
        """Whether there is one."""
        return self._address is not None

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> "Manager":
        """The manager that started this process. Its variables are taken out: they aren't meant for children."""
        address = environment.pop("NOTIFY_SOCKET", None)
        watchdog_us, watched_pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        watched = watched_pid in ("", str(os.getpid())) and watchdog_us.isdecimal() and int(watchdog_us) > 0
        return cls(address, int(watchdog_us) / 1e6 if watched else None)

    def ready(self, status: str) -> None:
        """It answers, after a start or a reload."""
        self._tell("READY=1", _status(status), wait=True)

    def doing(self, status: str) -> None:
        """One line on what it does just now, which `systemctl status` shows."""
        self._tell(_status(status))

    def reloading(self, monotonic_us: int) -> None:
        """It reads its files again since so many microseconds of the monotonic clock; `ready` says when that is done."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={monotonic_us}", wait=True)

    def stopping(self, within_ms: int, status: str) -> None:
        """It ends, and that takes no longer than so: until then it isn't to be killed."""
        self._tell("STOPPING=1", f"EXTEND_TIMEOUT_USEC={within_ms * 1000}", _status(status), wait=True)

    def not_done(self, more_s: float) -> None:
        """A start or an end gets so much more time from now on, and then needs another word."""
        self._tell(f"EXTEND_TIMEOUT_USEC={round(more_s * 1e6)}")

    def alive(self) -> None:
        """Feeds the watchdog."""
        self._tell("WATCHDOG=1")

    def _tell(self, *lines: str, wait: bool = False) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(WAITS_S if wait else 0)
                sock.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if wait:
                _log.warning("the service manager can't be told %s: %s", lines[0], error)


NOBODY = Manager()
"""No manager asked for anything."""


def _socket_address(address: str) -> str | None:
    """As the kernel takes it: a leading @ stands for an abstract name. None: of no kind that is known here."""
    if address.startswith("@"):
        return "\0" + address[1:]
    return address if address.startswith("/") else None


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.splitlines())}"
