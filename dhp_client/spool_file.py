"""One task's spool file: durable line by line, and locked for as long as its process lives.

Owns appending, reading back, and taking over what a dead process left. Blocking: the event loop calls it in threads. What a
line says is `spool_lines`', which files there are `spool`'s.
"""

import contextlib
import logging
import os
import stat
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

from . import forking
from .spool_lines import Answered, Contents, Entry, Head, Line, Reclaimed, Void, parsed, read, written

if sys.platform != "win32":  # There is no spool (`spool`).
    import fcntl

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
        self._unwritten: list[Line] = []
        """Marks that count here, and couldn't be written."""
        self._close = weakref.finalize(self, os.close, descriptor)
        forking.on_fork_in_child(self)

    def after_fork_in_child(self) -> None:
        if self._close.alive:
            forking.close_raw(self._descriptor)  # Else the lock would live as long as the child.

    @classmethod
    def create(cls, path: Path, head: Head, entry: Entry) -> "SpoolFile":
        """A new file, locked, that holds `entry`; durable, as is its name. Raises OSError; then there is none."""
        made = cls(path, _locked_anew(path), Contents.of(head))
        try:
            made.append(head, entry)
            sync_folder(path.parent)
        except OSError:
            with contextlib.suppress(OSError):
                made.remove()
            made.close()
            raise
        return made

    @property
    def closed(self) -> bool:
        return not self._close.alive

    def append(self, *lines: Line) -> None:
        """Writes `lines`, durable once this returns. Raises OSError, also when closed: then they aren't there."""
        with self._turn:
            self._append(lines)

    def mark(self, line: Line) -> None:
        """Writes down what has become of what waits; where that can't be, it counts in this process, and is written before
        whatever is written next.

        What is sent again then, by whoever comes next, is known to the daemon.
        """
        with self._turn:
            try:
                self._append((line,))
            except OSError as error:
                if not self._unwritten:
                    log.warning("%s couldn't be marked: %s", self.path, error)
                self.contents.take(line, 0, self.contents.digest)
                self._unwritten.append(line)

    def answered(self, line: Answered) -> None:
        """The oldest that waits has its answer. With the last one the file is deleted, by which that is noted too."""
        if len(self.contents.waiting) == 1:
            with contextlib.suppress(OSError):
                self.remove()
                self.contents.take(line, 0, self.contents.digest)
                return
        self.mark(line)

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
        """Lets go of it and deletes it. Raises OSError where that can't be, also when closed: somebody else may have it by now."""
        with self._turn:
            self._check_open()
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            self._close()
        with contextlib.suppress(OSError):  # If a power cut brings it back, it is sent again.
            sync_folder(self.path.parent)

    def _append(self, lines: Sequence[Line]) -> None:
        contents, pieces = self.contents, []
        digest = contents.digest
        for line in (*self._unwritten, *lines):
            text, digest = written(line, digest)
            pieces.append((text, digest))
        self._write(b"".join(text for text, _ in pieces))
        known = len(self._unwritten)
        self._unwritten.clear()
        for text, digest in pieces[:known]:
            contents.stands(len(text), digest)
        for line, (text, digest) in zip(lines, pieces[known:], strict=True):
            contents.take(line, len(text), digest)

    def _write(self, text: bytes) -> None:
        self._check_open()
        if not os.fstat(self._descriptor).st_nlink:
            raise OSError(f"{self.path} was deleted")  # What is written now would be nowhere once this process ends.
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
    """The file, locked, if something may be sent of what it holds and nobody has it. One that holds nothing is deleted: its
    process died while it made it.
    """
    descriptor = open_own(path, os.O_RDWR)
    if descriptor is None:
        return None
    try:
        if lock(descriptor) and (found := os.fstat(descriptor)).st_nlink:  # Else who had it has just sent all of it.
            data = os.pread(descriptor, found.st_size, 0)
            contents = read(data)
            if b"\n" not in data or (contents is not None and contents.empty):
                path.unlink()
            elif contents is None or contents.damaged:
                log.warning("%s is damaged, so nothing of it is sent", path)
            elif contents.void is None:
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
    for further in reversed(range(tries)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if further:
                threading.Event().wait(_LOCK_PAUSE_S)
    return False


def is_locked(descriptor: int) -> bool:
    """Whether a living process has the file. The lock is held for no longer than asking takes."""
    if not lock(descriptor, tries=1):
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def make_folder(folder: Path) -> None:
    """Has `folder` there, on the disk, for its owner alone where it is new. Raises OSError."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Has the folder's own entries on the disk, a new file's name among them."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _locked_anew(path: Path) -> int:
    """The descriptor of a new file that is locked; before it was, somebody may have taken it for a dead process's."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
