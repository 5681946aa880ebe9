"""A store that was restored from a backup: fences that were given out after the backup was taken stay void there.

Owns the mark that a copy carries, and how far its first start lifts the fences. Invariant 1 across a restore: who claimed
meanwhile isn't known to the copy, and must not be taken for a later holder; nor who claimed where the same copy was restored before.
So how far goes by the time that has passed since the backup, in which only so many claims can have been made.
"""

import sqlite3

from dhp_protocol.limits import MAX_SAFE_INTEGER

from . import schema
from .loading import meta
from .rows import decode_facts

SPARE_FENCES = 2**32
"""The least by which a restored store is above its backup, whatever the clocks say."""
FENCES_A_MS = 64
"""More claims of one handoff than this can't be committed in a millisecond."""
MOST = MAX_SAFE_INTEGER // 2


def mark(db: sqlite3.Connection, wall_ms: int) -> None:
    """This is a copy, as of now; a copy of one that was never started stays as old as that."""
    db.execute(schema.MARK_BACKUP, (wall_ms,))


def lift_fences(db: sqlite3.Connection, wall_ms: int) -> None:
    """At a start: if the store is a copy, its fences go on far above all that may have been given out since it was taken."""
    backed_up_ms = meta(db, "backed_up_ms")
    if not backed_up_ms:
        return
    highest = _highest_fence(db)
    passed_ms = max(0, wall_ms - backed_up_ms)
    floor = max(highest, min(highest + SPARE_FENCES + passed_ms * FENCES_A_MS, MOST))
    db.execute("begin immediate")
    try:
        for name in ("purged_fence", "fence_floor"):
            db.execute(schema.PUT_META, (name, floor))
        db.execute(schema.UNMARK_BACKUP)
        db.execute("commit")
    except sqlite3.Error:
        if db.in_transaction:
            db.execute("rollback")
        raise


def _highest_fence(db: sqlite3.Connection) -> int:
    highest = max(meta(db, "purged_fence"), meta(db, "fence_floor"))
    for (facts,) in db.execute(schema.ALL_FACTS):
        highest = max(highest, decode_facts(facts).fence)
    for (fence,) in db.execute(schema.FENCES_AFTER, (meta(db, "covered"),)):
        highest = max(highest, fence)
    return highest
