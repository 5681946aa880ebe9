"""A process that writes to a store until it is killed: `python -m tests.store.steady_writer FILE TAKE_OVER_BYTES`.

Prints the journal's head after each commit. The log is taken over each time so many bytes were written.
"""

import asyncio
import sys
from pathlib import Path

from dhpd.store import wal
from dhpd.store.sqlite import SqliteStore

from .stories import Stories, name

RECORDS = 16


async def write_on(path: Path) -> None:
    store = await SqliteStore.open(path)
    stories = Stories()
    stories.dispatch(name(1))
    stories.claim(name(1))
    head = 0
    while True:
        for _ in range(RECORDS):
            stories.checkpoint(name(1), b"x" * (1_024 + stories.position % 3_072))
        head = (await store.append(stories.batch(facts_of=[name(1)]), head)).head
        print(head, flush=True)


if __name__ == "__main__":
    wal.TAKE_OVER_BYTES = int(sys.argv[2])
    asyncio.run(write_on(Path(sys.argv[1])))
