"""The configuration files on disk: read whole, replaced whole.

Owns that a file that others read is never half-written, keeps its mode, has a copy of what it was beside it, and isn't another one than
it looks (a link, a device, somebody else's). What is written is the caller's. Raises `NotChanged`.
"""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from msgspec import Struct

from ...spool_file import sync_folder
from .refusals import NotChanged

MAX_BYTES = 32 * 1024 * 1024
BACKUP = ".before-dhp"
"""What the copy of a file's former content has at the end of its name."""


class Found(Struct, frozen=True):
    """A file as it was read; `stamp` tells whether it is still the same. A file that isn't there is empty, and `stamp` None."""

    text: str
    stamp: tuple[int, int, int] | None
    mode: int = 0o600


def read(file: Path, new_mode: int = 0o600) -> Found:
    """What the file holds; nothing where there is none, which then is to get the mode `new_mode`."""
    try:
        # Non-blocking, so that a pipe in its place holds up nothing.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if file.is_symlink():
            raise NotChanged("it is a link to nothing") from None
        return Found("", None, new_mode)
    except OSError as error:
        if file.is_symlink():
            raise NotChanged(f"it is a link, to {os.path.realpath(file)}") from None
        raise NotChanged(f"it can't be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotChanged("it is no plain file")
        if status.st_uid != os.geteuid():
            raise NotChanged("it is somebody else's")
        if status.st_nlink > 1:
            raise NotChanged("it has another name too, which would go on with what it holds now")
        if not status.st_mode & stat.S_IWUSR:
            raise NotChanged("it is write-protected")
        if status.st_size > MAX_BYTES:
            raise NotChanged("it is too large")
        content = opened.read()
    try:
        return Found(content.decode(), _stamp(status), stat.S_IMODE(status.st_mode))
    except UnicodeDecodeError:
        raise NotChanged("it isn't UTF-8") from None


def replace(file: Path, found: Found, text: str) -> Path | None:
    """Puts `text` in the file's place, if it still is what was `found` there; the copy of what it was, if it was there."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        backup = None
        if found.stamp is not None:
            backup = file.with_name(file.name + BACKUP)
            _put(backup, found.text, found.mode)
        draft = _draft(file, text, found.mode)
        try:
            if _stamp_of(file) != found.stamp:
                raise NotChanged("somebody else has just changed it: try again")
            os.replace(draft, file)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
        sync_folder(file.parent)
    except OSError as error:
        raise NotChanged(f"it can't be written: {error.strerror}") from None
    return backup


def _put(file: Path, text: str, mode: int) -> None:
    draft = _draft(file, text, mode)
    os.replace(draft, file)  # In the place of a link too, not where it leads.


def _draft(file: Path, text: str, mode: int) -> str:
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    with os.fdopen(descriptor, "wb") as opened:
        os.fchmod(descriptor, mode)
        opened.write(text.encode())
        opened.flush()
        os.fsync(descriptor)
    return draft


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    try:
        return _stamp(os.lstat(file))
    except FileNotFoundError:
        return None


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size
