"""`dhpd check` and `dhpd backup`: what whoever keeps a store does with it, beside a running daemon or without one.

Owns what is printed, what to do about what is broken, and the exit codes: 0, 1 (broken, or it can't be done). Does not own how a
store is looked at (`dhpd.store.checking`) or copied (`dhpd.store.backing_up`).
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from dhp_protocol.printable import harmless

from .server.clock import wall_ms
from .server.directory import STORE_NAME
from .store.backing_up import back_up, open_to_read
from .store.checking import Checker

REPAIR = {
    "file": "The disk or its memory has lost or changed pages. Stop dhpd and copy the whole directory aside before anything else. "
    "Where only an index is named, `sqlite3 FILE reindex` mends it. Else restore the newest backup that passes this check, or "
    "save what can be read with `sqlite3 FILE .recover | sqlite3 NEW`, and check NEW.",
    "schema": "Use the dhpd that wrote the file, or a newer one. An older store is brought up to date by the next start of dhpd.",
    "journal": "Records that were acknowledged have been changed or lost: stop dhpd, copy the directory aside, and restore the newest "
    "backup that passes this check. The handoffs that aren't named are whole; `dhp export` saves each of them.",
    "table of facts": "The table disagrees with the journal, which dhpd never lets happen: report it. Stop dhpd, copy the directory "
    "aside, and restore the newest backup that passes this check.",
    "tail": "A start would stop here. Copy the directory aside, and restore the newest backup that passes this check.",
    "numbers": "The store's own numbers were changed from outside: copy the directory aside, and restore the newest backup.",
}
"""What to do, by the point that isn't whole."""


def check(file: Path) -> int:
    """Prints each point of the store in `file`, and what to do about it; the exit code."""
    broken: list[str] = []
    try:
        with closing(open_to_read(file)) as db:
            for point in Checker(db).points():
                print(f"{'FAILED' if point.faults else 'ok':6}  {point.name}: {point.counted}", flush=True)
                for fault in point.faults:
                    print(f"        {harmless(fault)}", flush=True)
                if point.faults:
                    broken.append(point.name)
    except sqlite3.Error as error:
        print(f"FAILED  file: it can't be read on: {harmless(str(error))}", flush=True)
        broken.append("file")
    for name in dict.fromkeys(broken):
        print(f"\nWhat to do ({name}): {REPAIR[name].replace('FILE', str(file))}")
    print(f"\n{file} is {'NOT whole' if broken else 'whole'}.")
    return 1 if broken else 0


def backup(store: Path, target: Path) -> int:
    """Copies the store, and prints what the copy holds and how to use it; raises `StoreError`."""
    done = back_up(store, target, wall_ms())
    print(f"{target}: {done.handoffs} handoffs, up to position {done.head}, {done.size_bytes:,} bytes; checked.")
    print(f"To restore it, put it into an empty directory as {STORE_NAME}, and start dhpd with --data there.")
    return 0
