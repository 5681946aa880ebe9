"""Reads that may be long, in steps that are short: whoever else reads comes in between.

Owns how a handoff's chain of records is walked, and how much of the table of facts one request goes through. Does not own
the connection on which a step is done.
"""

import json
import sqlite3
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec import UNSET

from dhpd.engine.facts import RUNNING, Handoff
from dhpd.engine.lookups import ListLookup

from . import schema
from .rows import decode_facts, encoded_label

T = TypeVar("T")

SLICE_RECORDS = 1_000
SCAN_ROWS = 2_000
MAX_SCANNED_ROWS = 20_000
"""So many rows one request for a list goes through at most, in steps of `SCAN_ROWS`; the next one goes on from there."""
_BEYOND_ALL = 2**63 - 1


class Read(Protocol):
    """Does one step on the connection, in its turn."""

    async def __call__(self, step: Callable[[sqlite3.Connection], T], /) -> T: ...


async def walk(read: Read, slice_sql: str, head: int, after: int, limit: int) -> list[int]:
    """The positions of the first `limit` records whose number comes after `after`, oldest first.

    The number is `n` with `schema.RECORDS_SLICE`, `seq` with `schema.CHECKPOINTS_SLICE`. The way leads back from `head`.
    """
    found: list[int] = []
    prev = anchor = head
    while True:
        parameters = {"prev": prev, "anchor": anchor, "after": after, "rows": SLICE_RECORDS}
        count, _, number, prev, anchor, positions = await read(_one_row(slice_sql, parameters))
        found = [*sorted(json.loads(positions)), *found][:limit]
        if count < SLICE_RECORDS or (number is not None and number <= after + 1):
            return found


def _one_row(sql: str, parameters: dict[str, Any]) -> Callable[[sqlite3.Connection], Any]:
    return lambda db: db.execute(sql, parameters).fetchone()


async def scan(read: Read, lookup: ListLookup) -> tuple[list[Handoff], int | None]:
    """A page of handoffs, and after which number to go on (None: the end); it may be empty although there are more."""
    status = lookup.status
    if lookup.worker is not UNSET:
        if status not in (UNSET, RUNNING):
            return [], None
        status = RUNNING  # Nobody holds anything else, and those that run are found without the others.
    name, _, value = ("", "", "") if lookup.label is UNSET else lookup.label.partition("=")
    prefix = "" if lookup.prefix is UNSET else lookup.prefix
    by = "prefix" if prefix else "number" if status is UNSET else "status"
    sqls = schema.SCANS[lookup.newest_first][by]
    parameters = {
        "first_id": bytes.fromhex(f"{prefix:0<64}"),
        "last_id": bytes.fromhex(f"{prefix:f<64}"),
        "rows": SCAN_ROWS,
        "status": None if status is UNSET else status,
        "kind": None if lookup.kind is UNSET else lookup.kind,
        "holder": None if lookup.worker is UNSET else lookup.worker,
        "label": None if lookup.label is UNSET else encoded_label(name, value),
    }
    page: list[Handoff] = []
    after: int | None = (lookup.after or _BEYOND_ALL) if lookup.newest_first else lookup.after
    scanned_rows = 0
    # One more than asked for tells whether there are more.
    while after is not None and scanned_rows < MAX_SCANNED_ROWS and len(page) <= lookup.limit:
        step = _scan_step(*sqls, {**parameters, "after": after, "wanted": lookup.limit + 1 - len(page)})
        found, after = await read(step)
        page += (facts for facts in found if lookup.label is UNSET or (facts.labels or {}).get(name) == value)
        scanned_rows += SCAN_ROWS
    if len(page) > lookup.limit:
        return page[: lookup.limit], page[lookup.limit - 1].number
    return page, after


def _scan_step(
    sql: str, end_sql: str, parameters: dict[str, Any]
) -> Callable[[sqlite3.Connection], tuple[list[Handoff], int | None]]:
    def step(db: sqlite3.Connection) -> tuple[list[Handoff], int | None]:
        """What is wanted of the next rows, and the number of the last that was looked at, unless it was the last of all."""
        db.execute("begin")  # One snapshot: a row that comes after the scan mustn't be taken for one that it saw.
        try:
            found = [decode_facts(facts) for _, facts in db.execute(sql, parameters)]
            if len(found) == parameters["wanted"]:
                return found, found[-1].number
            end = db.execute(end_sql, parameters).fetchone()
            return found, None if end is None else end[0]
        finally:
            db.execute("rollback")

    return step
