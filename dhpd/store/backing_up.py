"""A copy of a store, taken while a daemon writes to it, that another daemon can start from.

Owns how the copy is made whole (one snapshot, checked, synced, put there under its name at once), and that fences given out after
it was taken stay void where it is restored. Does not own when copies are taken, or how many are kept.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from dhp_protocol.limits import MAX_SAFE_INTEGER

from . import schema
from .backend import StoreError
from .checking import Checker, Point
from .connecting import head_of
from .loading import meta
from .rows import decode_facts

SPARE_FENCES = 2**32
"""So many claims of one handoff may come after the backup, and a restored store will still be above them."""

_FENCES = "select json_extract(body, '$.fence') from journal where position > ?"
_SET_META = "insert or replace into meta values (?, ?)"


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


def back_up(store: Path, target: Path) -> BackedUp:
    """Copies the store in the file `store` to a new file `target`; raises `StoreError`, and then leaves nothing there."""
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
            source.backup(copy)  # In one step: one snapshot, whatever is committed meanwhile.
            copy.execute("pragma journal_mode = delete")  # One file is easier to carry than three.
            copy.execute("pragma synchronous = full")
            broken = [point for point in Checker(copy).points() if point.faults]
            if broken:
                raise StoreError(_not_whole(store, broken))
            _lift_fences(copy)
            done = BackedUp(head_of(copy), _count(copy), draft.stat().st_size)
        _put_in_place(draft, target)
        return done
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"The backup to {target} failed: {error}.") from error
    finally:
        draft.unlink(missing_ok=True)


def _lift_fences(db: sqlite3.Connection) -> None:
    """Invariant 1 across a restore: who claimed after the backup was taken isn't known to it, and must not be taken for a later holder."""
    highest = max(meta(db, "purged_fence"), meta(db, "fence_floor"))
    for (facts,) in db.execute("select facts from handoffs"):
        highest = max(highest, decode_facts(facts).fence)
    for (fence,) in db.execute(_FENCES, (meta(db, "covered"),)):
        highest = max(highest, fence)
    floor = min(highest + SPARE_FENCES, MAX_SAFE_INTEGER // 2) if highest < MAX_SAFE_INTEGER // 2 else highest
    db.execute("begin immediate")
    for name in ("purged_fence", "fence_floor"):
        db.execute(_SET_META, (name, floor))
    db.execute("commit")


def _count(db: sqlite3.Connection) -> int:
    return sum(count for _, count in db.execute(schema.COUNTS))


def _put_in_place(draft: Path, target: Path) -> None:
    """Under its name once it is on disk."""
    _sync(draft)
    draft.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_whole(store: Path, broken: list[Point]) -> str:
    first = broken[0]
    return f"{store} isn't whole ({first.name}: {first.faults[0]}), so it isn't copied: run dhpd check."


def _quoted(file: Path) -> str:
    return str(file.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
