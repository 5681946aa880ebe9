"""A store as the first version wrote it: its tables and its records, written down here once more.

Owns what that version's rows were like. Facts are left in a form that nobody reads any more.
"""

import json
import sqlite3
from pathlib import Path
from typing import Any

TABLES = """
create table journal (
    position integer primary key,
    handoff blob not null,
    n integer not null,
    seq integer,
    prev integer not null,
    anchor integer not null,
    body blob not null,
    payload blob
) strict;
create table handoffs (
    number integer primary key,
    id blob not null unique,
    status text not null,
    kind text not null,
    holder text,
    facts blob not null
) strict;
create index handoffs_by_status on handoffs (status, number);
create table extensions (handoff blob primary key, fence integer not null, until_ms integer not null) strict;
create table meta (name text primary key, value integer not null) strict;
insert into meta values ('covered', 0), ('head', 0), ('purged_fence', 0);
pragma application_id = 1145589809;
pragma user_version = 1;
"""


class Version1Store:
    """`tell` appends a record; the newest is at `position`."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path)
        self._db.execute("pragma journal_mode = wal")
        self._db.executescript(TABLES)
        self._last: dict[str, tuple[int, int, int]] = {}
        self.position = 0

    def tell(self, handoff: str, record_type: str, fence: int, payload: bytes | None = None, **members: Any) -> int:
        """Gives the record's position."""
        n, prev, anchor = self._last.get(handoff, (0, 0, 0))
        self.position += 1
        record = {"type": record_type, "n": n + 1, "at_ms": 1_000 + self.position, "fence": fence, **members}
        row = (
            self.position,
            bytes.fromhex(handoff),
            n + 1,
            members.get("seq") if record_type == "checkpointed" else None,
            prev,
            anchor,
            json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode(),
            payload,
        )
        self._db.execute("insert into journal values (?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._last[handoff] = (n + 1, self.position, anchor if record_type == "checkpointed" else self.position)
        return self.position

    def dispatch(self, handoff: str, *, max_attempts: int = 3, **members: Any) -> int:
        settings = {"kind": "work", "priority": 5, "max_attempts": max_attempts, "bytes": 2, **members}
        return self.tell(handoff, "dispatched", 0, b"{}", **settings)

    def claim(self, handoff: str, fence: int, worker: str = "ada", was: str = "pending", attempt: int = 1) -> int:
        members = {"worker": worker, "session": "s", "ttl_ms": 6_000, "attempt": attempt, "was": was}
        return self.tell(handoff, "claimed", fence, **members)

    def checkpoint(self, handoff: str, fence: int, seq: int, state: bytes) -> int:
        members = {"seq": seq, "sha256": f"{seq:064x}", "bytes": len(state), "steps": 1}
        return self.tell(handoff, "checkpointed", fence, state, **members)

    def in_table(self, handoff: str, number: int, status: str) -> None:
        """The table of facts has it."""
        row = (number, bytes.fromhex(handoff), status, "work", None, b"facts of the first version")
        self._db.execute("insert into handoffs values (?, ?, ?, ?, ?, ?)", row)

    def extend(self, handoff: str, fence: int, until_ms: int) -> None:
        self._db.execute("insert into extensions values (?, ?, ?)", (bytes.fromhex(handoff), fence, until_ms))

    def close(self, *, covered: int) -> None:
        """It was stopped when the table of facts was so far."""
        self._db.execute("update meta set value = ? where name = 'covered'", (covered,))
        self._db.commit()
        self._db.close()
