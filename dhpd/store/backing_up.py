"""A copy of a store, taken while a daemon writes to it, that another daemon can start from.

Owns how the copy is made whole: one snapshot, checked, synced, put there under its name at once. Does not own when copies are
taken, or how many are kept; nor what a start makes of one (`restoring`).
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from .backend import StoreError
from .ballast import free_bytes
from .checking import Checker, Point
from .connecting import head_of
from .restoring import mark
from .wal import sync


class BackedUp(Struct, frozen=True):
    """What a backup holds: everything up to the position `head`."""

    head: int
    handoffs: int
    size_bytes: int


def open_to_read(file: Path) -> sqlite3.Connection:
    """The database in `file`, beside whoever writes to it; raises `StoreError`."""
    if not file.is_file():
        raise StoreError(f"{file} isn't there: say where the store lies with --data, or which file.")
    try:
        db = sqlite3.connect(f"file:{_quoted(file)}?mode=ro", uri=True, isolation_level=None)
        db.execute("pragma busy_timeout = 5000")
        return db
    except sqlite3.Error as error:
        raise StoreError(f"{file} can't be opened: {error}.") from error


def back_up(store: Path, target: Path, wall_ms: int) -> BackedUp:
    """Copies the store in the file `store` to a new file `target`, at the time `wall_ms`; raises `StoreError`, and then leaves nothing there."""
    draft = target.with_name(target.name + ".partial")
    if target.exists():
        raise StoreError(f"{target} is there already: choose another name, a backup overwrites nothing.")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        raise StoreError(f"{draft} is left from a backup that was broken off: remove it.") from None
    except OSError as error:
        raise StoreError(f"{draft} can't be written: {error.strerror}.") from None
    try:
        with closing(open_to_read(store)) as source, closing(sqlite3.connect(draft, isolation_level=None)) as copy:
            _check_room(source, target)
            source.backup(copy)  # In one step: one snapshot, whatever is committed meanwhile.
            copy.execute("pragma journal_mode = delete")  # One file is easier to carry than three.
            copy.execute("pragma synchronous = full")
            checker = Checker(copy)
            broken = [point for point in checker.points() if point.faults]
            if broken:
                raise StoreError(_not_whole(store, broken))
            mark(copy, wall_ms)
            done = BackedUp(head_of(copy), checker.handoffs, draft.stat().st_size)
        _put_in_place(draft, target)
        return done
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"The backup to {target} failed: {error}.") from error
    finally:
        for left in (draft, draft.with_name(draft.name + "-journal")):  # SQLite keeps its own where a disk ran full.
            left.unlink(missing_ok=True)


def _check_room(source: sqlite3.Connection, target: Path) -> None:
    """A copy that fills the disk would take the daemon's last room there, and come to nothing."""
    size_bytes = 1
    for pragma in ("page_count", "page_size"):
        size_bytes *= source.execute(f"pragma {pragma}").fetchone()[0]
    if (free := free_bytes(target.parent)) < size_bytes:
        raise StoreError(f"The copy takes {size_bytes:,} bytes, and there is room for {free:,} at {target}.")


def _put_in_place(draft: Path, target: Path) -> None:
    """Under its name once it is on disk."""
    sync(draft)
    draft.rename(target)
    sync(target.parent)


def _not_whole(store: Path, broken: list[Point]) -> str:
    first = broken[0]
    return f"{store} isn't whole ({first.name}: {first.faults[0]}), so it isn't copied: run dhpd check."


def _quoted(file: Path) -> str:
    return str(file.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
