"""The data directory: whose it is, and what stands in it beside the store.

Owns the lock against a second daemon, and `dhpd.json`, which tells clients where the daemon is.
"""

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

STORE_NAME = "dhpd.sqlite"
"""The journal's file in the directory."""


class DirectoryInUse(Exception):
    """Another daemon has the directory, or it can't be used; the message says which."""


class DataDirectory:
    """`DIR` with mode 0700, held by one daemon from `hold` until `give_up`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = path / STORE_NAME
        self._information = path / "dhpd.json"
        self._lock = -1

    def hold(self) -> None:
        """Raises `DirectoryInUse`."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            self._lock = os.open(self.path / "dhpd.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DirectoryInUse(f"The directory {self.path} can't be used: {error.strerror}.") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = -1
            holder = _read_pid(self.path / "dhpd.lock")
            who = f"Another dhpd (process {holder})" if holder else "Another dhpd"
            raise DirectoryInUse(f"{who} uses {self.path}: stop it, or choose another --data.") from None
        with suppress(OSError):  # On a full disk; it only helps whoever finds the directory in use.
            os.ftruncate(self._lock, 0)
            os.write(self._lock, f"{os.getpid()}\n".encode())
        self._information.unlink(missing_ok=True)

    @property
    def lost(self) -> bool:
        """Whether the directory was removed or replaced while it was held: what is written now, nobody will find."""
        held = os.fstat(self._lock)
        try:
            there = (self.path / "dhpd.lock").stat()
        except OSError:
            return True
        return (held.st_dev, held.st_ino) != (there.st_dev, there.st_ino)

    def publish(self, information: dict[str, Any]) -> None:
        """Says where the daemon is; a reader sees the whole or nothing. Raises `OSError`."""
        draft = self.path / "dhpd.json.new"
        draft.write_text(json.dumps(information) + "\n")
        draft.chmod(0o600)
        draft.replace(self._information)

    def give_up(self) -> None:
        if self._lock >= 0:
            if not self.lost:  # Else what stands there is another daemon's.
                self._information.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1


def _read_pid(lock: Path) -> str:
    try:
        return lock.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
