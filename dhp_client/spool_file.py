"""One task's spool file: durable line by line, and locked for as long as its process lives.

Owns appending, reading back, and taking over what a dead process left. Blocking: the event loop calls it in threads. What a
line says is `spool_lines`', which files there are `spool`'s.
"""

import contextlib
import logging
import os
import stat
import threading
import weakref
from pathlib import Path

from . import forking
from .spool_lines import Answered, Contents, Entry, Head, Line, Reclaimed, Void, parsed, read, written

log = logging.getLogger("dhp_client")

_LOCK_TRIES = 5
_LOCK_PAUSE_S = 0.02
"""Who only looks whether a file is in use has its lock for a moment."""


class SpoolFile:
    """One task's file, locked. Any thread; one at a time gets through."""

    def __init__(self, path: Path, descriptor: int, contents: Contents) -> None:
        self.path = path
        self.contents = contents
        self._descriptor = descriptor
        self._turn = threading.Lock()
        self._close = weakref.finalize(self, os.close, descriptor)
        forking.on_fork_in_child(self)

    def after_fork_in_child(self) -> None:
        if self._close.alive:
            forking.close_raw(self._descriptor)  # Else the lock would live as long as the child.

    @classmethod
    def create(cls, path: Path, head: Head) -> "SpoolFile":
        """A new file, locked, with nothing in it but its head."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        made = cls(path, descriptor, Contents.of(head))
        try:
            lock(descriptor)
            made.append(head)
            _sync(path.parent)
        except OSError:
            made.remove()
            raise
        return made

    @property
    def closed(self) -> bool:
        return not self._close.alive

    def append(self, line: Line) -> None:
        """Writes `line`, durable once this returns. Raises OSError, also when closed: then it isn't there."""
        with self._turn:
            contents = self.contents
            text, digest = written(line, contents.digest)
            self._write(text)
            contents.take(line, len(text), digest)

    def mark(self, line: Line) -> None:
        """Writes down what has become of what waits; where that can't be, it counts for as long as the process lives.

        What is sent again then, by whoever comes next, is known to the daemon.
        """
        try:
            self.append(line)
        except OSError as error:
            log.warning("%s couldn't be marked: %s", self.path, error)
            self.contents.take(line, 0, self.contents.digest)

    def first(self) -> Entry:
        """The oldest entry that waits."""
        with self._turn:
            self._check_open()
            place = self.contents.waiting[0]
            line = parsed(os.pread(self._descriptor, place.length, place.start))
            assert not isinstance(line, Head | Answered | Reclaimed | Void)  # `Contents` took it for an entry.
            return line

    def close(self) -> None:
        """Lets go of it: it stays where it is, for whoever comes next."""
        with self._turn:
            self._close()

    def remove(self) -> None:
        """Lets go of it and deletes it."""
        with self._turn, contextlib.suppress(FileNotFoundError):
            self.path.unlink()
            self._close()

    def _write(self, text: bytes) -> None:
        self._check_open()
        end = self.contents.end
        try:
            # What may stand behind the last good line is what was never acknowledged.
            os.ftruncate(self._descriptor, end)
            done = 0
            while done < len(text):
                done += os.pwrite(self._descriptor, memoryview(text)[done:], end + done)
            os.fsync(self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)
            raise

    def _check_open(self) -> None:
        if not self._close.alive:
            raise OSError(f"{self.path} was let go of")


def take(path: Path) -> SpoolFile | None:
    """The file, locked, if something may be sent of what it holds and nobody has it."""
    descriptor = open_own(path, os.O_RDWR)
    if descriptor is None:
        return None
    try:
        if lock(descriptor) and (found := os.fstat(descriptor)).st_nlink:  # Else who had it has just sent all of it.
            contents = read(os.pread(descriptor, found.st_size, 0))
            if contents is not None and contents.waiting and contents.void is None and not contents.damaged:
                file = SpoolFile(path, descriptor, contents)
                descriptor = -1
                return file
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return None


def open_own(path: Path, flags: int) -> int | None:
    """A descriptor of the file; None where it isn't a plain one of this user's.

    A link may lead anywhere, a pipe may never say anything, and what another user put there would be said in our name.
    """
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    return None


def lock(descriptor: int, *, tries: int = _LOCK_TRIES) -> bool:
    """Takes the file's lock, which ends with the process; false where a living one has it."""
    import fcntl  # Not on Windows, where there is no spool.

    for further in reversed(range(tries)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if further:
                threading.Event().wait(_LOCK_PAUSE_S)
    return False


def _sync(folder: Path) -> None:
    """Has the folder's own entries on the disk, a new file's name among them."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
