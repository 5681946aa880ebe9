"""Ballast: room on the disk that is held back for when there is no other.

Owns the file that occupies it, and how it is told that a disk is full. Given up, it leaves room for the ends of work; taken back
only where as much again stays free, so that a disk on the brink doesn't bring one and the other by turns. Does not own when
(`sqlite`, `group_commit`), nor what may be written meanwhile (`dhpd.engine.scarcity`). Blocking: called on a thread.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

NAME = "dhpd.ballast"
PROBE_BYTES = 64 * 1024
"""A disk that doesn't take so little more is full: SQLite needs 32 KiB to open a file at all."""
_PIECE_BYTES = 1024 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)
_CANNOT_ALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL)


class Ballast:
    """`size_bytes` in `directory`, occupied from `take_back` until `give_up`."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._directory = directory
        self._path = directory / NAME

    def take_back(self) -> bool:
        """Occupies the room, unless it is occupied already or too little would be left; tells whether it is occupied."""
        if self._occupied():
            return True
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            if free_bytes(self._directory) >= 2 * self.size_bytes:
                _occupy(self._path, self.size_bytes)
                return True
        return False

    def give_up(self) -> None:
        """Lets the room go. Where not even that can be done, there is none."""
        with suppress(OSError):
            os.truncate(self._path, 0)  # A copy-on-write file system that is full may refuse to unlink.
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def is_needed(self) -> bool:
        """Whether the disk is full: it doesn't take `PROBE_BYTES` more."""
        probe = self._path.with_suffix(".probe")
        try:
            _occupy(probe, PROBE_BYTES)
        except OSError as error:
            return error.errno in _FULL
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        return False

    def _occupied(self) -> bool:
        try:
            found = self._path.stat()
        except OSError:
            return False
        # A copy may have made a hole of it.
        return found.st_size == self.size_bytes and found.st_blocks * 512 >= self.size_bytes


def free_bytes(directory: Path) -> int:
    """How much a program without privileges may still write to the directory's file system; raises `OSError`."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def _occupy(path: Path, size_bytes: int) -> None:
    """A file of that size with all its blocks, or none; raises `OSError`."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.posix_fallocate(file, 0, size_bytes)
        except OSError as error:
            if error.errno not in _CANNOT_ALLOCATE:
                raise
            _write(file, size_bytes)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)


def _write(file: int, size_bytes: int) -> None:
    """Random bytes, of which a file system that compresses can't make fewer."""
    while size_bytes:
        size_bytes -= os.write(file, os.urandom(min(size_bytes, _PIECE_BYTES)))
