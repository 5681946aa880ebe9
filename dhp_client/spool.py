"""The directory where a client keeps what it couldn't say during a partition: one file per task.

Owns which files there are, the bound on their size, and telling what they hold. Blocking: the event loop calls it in threads. A
file is `spool_file`'s, what is done about what waits `spooling`'s.
"""

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from . import payload
from .exceptions import NotSpooled
from .spool_file import SpoolFile, is_locked, lock, make_folder, open_own, take
from .spool_lines import Contents, Entry, Head, KeptCheckpoint, KeptResult, parsed, read

MAX_SPOOL_BYTES = 256 * 1024 * 1024
SUFFIX = ".spool"


class Spooled(msgspec.Struct, frozen=True, kw_only=True):
    """What one spool file holds that no daemon has.

    `writes` is how many wait, `checkpoints` how many of them are checkpoints, coming after the stored one `seq`; `state` is the
    last one's, decoded. `usd` and `steps` are what isn't counted yet, `result` the result that isn't accepted yet (`has_result` tells
    whether there is one). `in_use`: a living process has it. `void` tells why the writes can't be sent any more (None: they may be yet),
    with the handoff's `fence` by then; `damaged`, that the file was changed or broken, and may hold more than is told here.
    """

    path: str
    handoff: str
    kind: str
    worker: str
    fence: int
    since: str
    writes: int
    checkpoints: int
    seq: int
    state: Any
    usd: float
    steps: int
    has_result: bool
    result: Any
    in_use: bool
    void: str | None
    damaged: bool
    errors: list[str]

    @property
    def may_be_sent(self) -> bool:
        """Whether somebody else than its worker may send what waits, once the handoff can be claimed."""
        return not self.in_use and self.writes > 0 and self.void is None and not self.damaged


class Spool:
    """The files in `folder`, which is made where there is none; together they have at most `max_bytes`.

    Several processes may have the same folder.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_SPOOL_BYTES) -> None:
        self.folder = folder.absolute()
        self.max_bytes = max_bytes

    def check(self) -> None:
        """Makes the folder where there is none. Raises `NotSpooled` where nothing could be kept: better now than in a partition."""
        if sys.platform == "win32":
            raise NotSpooled("There is no spool on Windows.")
        try:
            make_folder(self.folder)
        except OSError as error:
            raise self._not_written(error) from error
        if not os.access(self.folder, os.R_OK | os.W_OK | os.X_OK):
            raise self._not_written("this program may not, or it is read-only")

    def keep(self, file: SpoolFile | None, head: Head, entry: Entry) -> SpoolFile:
        """Writes `entry` down, in a new file where there is none. Raises `NotSpooled`; then what was there is still there."""
        used, size = sum(map(_size_of, self._paths())), len(msgspec.json.encode(entry))
        if used + size > self.max_bytes:
            raise NotSpooled(
                f"The spool {self.folder} may have {self.max_bytes} bytes, of which {used} are used: nothing more is kept "
                "until a daemon answers. `dhp spool list` shows what may be dropped."
            )
        try:
            if file is None:
                return self._create(head, entry)
            file.append(entry)
        except OSError as error:
            raise self._not_written(error) from error
        return file

    def left_of(self, handoff: str) -> list[SpoolFile]:
        """Files of `handoff` that wait and that no living process has, locked."""
        return [file for path in self._paths(handoff) if (file := take(path)) is not None]

    def all(self) -> list[Spooled]:
        """What every file holds, oldest first."""
        found = [told for path in self._paths() if (told := _told(path)) is not None]
        return sorted(found, key=lambda one: one.since)

    def drop(self, path: Path) -> None:
        """Deletes one file and what it holds, for good. Raises `NotSpooled` where a living process has it."""
        with path.open("rb") as opened:
            if not lock(opened.fileno()):
                raise NotSpooled(f"{path} belongs to a process that is at work.")
            path.unlink()

    def _create(self, head: Head, entry: Entry) -> SpoolFile:
        make_folder(self.folder)
        return SpoolFile.create(
            self.folder / f"{head.handoff}-{head.fence}-{secrets.token_hex(4)}{SUFFIX}", head, entry
        )

    def _not_written(self, why: OSError | str) -> NotSpooled:
        told = (why.strerror or why) if isinstance(why, OSError) else why
        return NotSpooled(f"The spool {self.folder} can't be written, so nothing is kept there: {told}.")

    def _paths(self, handoff: str = "") -> Iterator[Path]:
        with contextlib.suppress(FileNotFoundError):
            yield from sorted(self.folder.glob(f"{handoff}*{SUFFIX}"))


def _told(path: Path) -> Spooled | None:
    descriptor = open_own(path, os.O_RDONLY)
    if descriptor is None:
        return None
    with open(descriptor, "rb") as opened:
        in_use = is_locked(descriptor)
        data = opened.read()
    contents = read(data)
    if contents is None:
        if b"\n" not in data:
            return None  # Its process died while it made it.
        nobody = Head(
            handoff=path.name[:64], kind="", worker="", fence=0, seq=0, sha256=None, unanswered=[], at="", pid=0
        )
        contents = Contents.of(nobody)
        contents.damaged = True
    if contents.empty:
        return None
    head, waiting = contents.head, [parsed(data[one.start : one.start + one.length]) for one in contents.waiting]
    states = [one.state for one in waiting if isinstance(one, KeptCheckpoint)]
    results = [one.result for one in waiting if isinstance(one, KeptResult)]
    return Spooled(
        path=str(path),
        handoff=head.handoff,
        kind=head.kind,
        worker=head.worker,
        fence=contents.fence if contents.void is None else contents.void.fence,
        since=head.at,
        writes=len(waiting),
        checkpoints=contents.checkpoints,
        seq=contents.seq,
        state=payload.decode(states[-1]) if states else None,
        usd=contents.usd,
        steps=contents.steps,
        has_result=bool(results),
        result=payload.decode(results[-1]) if results else None,
        in_use=in_use,
        void=None if contents.void is None else contents.void.why,
        damaged=contents.damaged,
        errors=contents.errors,
    )


def _size_of(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # Somebody else has just sent all of it.
        return path.stat().st_size
    return 0
