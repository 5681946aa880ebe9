"""The data directory: whose it is, and what stands in it beside the store.

Owns that nobody else can look or write there, the lock against a second daemon, and `dhpd.json`, which tells clients where the
daemon is.
"""

import fcntl
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

STORE_NAME = "dhpd.sqlite"
"""The journal's file in the directory."""
OWN_PREFIX = "dhpd."
"""All that the daemon makes in the directory begins so."""


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
            _make_private(self.path)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._lock = os.open(self.path / "dhpd.lock", flags, 0o600)
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
        try:
            self._information.unlink(missing_ok=True)
        except OSError as error:
            os.close(self._lock)
            self._lock = -1
            raise DirectoryInUse(f"{self._information} can't be removed: {error.strerror}.") from None

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
        draft.unlink(missing_ok=True)
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(json.dumps(information) + "\n")
            draft.replace(self._information)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def give_up(self) -> None:
        if self._lock >= 0:
            if not self.lost:  # Else what stands there is another daemon's.
                self._information.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1


def _make_private(directory: Path) -> None:
    """Closes the directory, and what is the daemon's in it, to everybody else; raises `DirectoryInUse` where another user had a hand
    in it: what they put there would be taken for our own, links to elsewhere among it.
    """
    mine = os.geteuid()
    if (owner := directory.stat().st_uid) != mine:
        raise DirectoryInUse(
            f"The directory {directory} is another user's ({owner}): run dhpd as that one, or chown it."
        )
    directory.chmod(0o700)
    for entry in os.scandir(directory):
        if entry.name.startswith(OWN_PREFIX):
            with suppress(FileNotFoundError):  # A daemon that is just ending takes some of them along.
                _make_file_private(entry, mine)


def _make_file_private(entry: "os.DirEntry[str]", mine: int) -> None:
    found = entry.stat(follow_symlinks=False)
    if found.st_uid != mine:
        raise DirectoryInUse(f"{entry.path} is another user's ({found.st_uid}): look at it, and remove it.")
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
        os.chmod(entry.path, 0o600)


def _read_pid(lock: Path) -> str:
    try:
        return lock.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
