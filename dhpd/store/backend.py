"""What a store does, on one page.

Owns the interface and its errors. A store keeps a journal that is only appended to and pruned, a table of facts that is written
behind it, and the extensions that restarts gave to leases. With the record that forgets a handoff, its facts leave the table,
and the purged fence is raised to its fence. It knows no rules.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from dhpd.engine.facts import CheckpointFacts, Handoff, Status
from dhpd.engine.journal import Batch, Extension
from dhpd.engine.lookups import ListLookup
from dhpd.engine.records import AnyRecord, Entry


class StoreError(Exception):
    """The store can't be used as it is: in use, broken, or of a newer version. The message says what to do."""


class DiskError(Exception):
    """The disk failed; whether the last append is on it isn't known until `settle` has succeeded.

    If it is, then without the records of the handoffs in `failed`, which could not be stored anyway. `out_of_room`: all that
    was wrong is that the disk has no room.
    """

    def __init__(self, message: str, failed: frozenset[str] = frozenset(), *, out_of_room: bool = False) -> None:
        super().__init__(message)
        self.failed = failed
        self.out_of_room = out_of_room


class Loaded(Struct, frozen=True):
    """What a daemon starts from. `facts` holds all live handoffs, and the ended ones that `tail` speaks of.

    `dead_children` are the ancestors of each dead handoff that has any, as the table of facts has them.
    """

    head: int
    covered: int
    purged_fence: int
    counts: dict[Status, int]
    dead_children: dict[str, tuple[str, ...]]
    facts: list[Handoff]
    tail: list[Entry]
    extensions: dict[str, Extension]
    fence_floor: int = 0


class Appended(Struct, frozen=True):
    """`head` is the journal's newest position; `failed` the handoffs whose records could not be stored."""

    head: int
    failed: frozenset[str] = frozenset()


class StoredRecord(Struct, frozen=True, gc=False):
    """A record as it lies in the journal.

    Of a page of the journal: `kind` is its handoff's, where the table of facts has it, and `before` the position of its
    handoff's record before it, which may have gone.
    """

    position: int
    handoff: str
    record: AnyRecord
    kind: str | None = None
    before: int = 0


class StoreBackend(Protocol):
    """A journal that survives. Every method raises `DiskError` when the disk fails."""

    durability: str
    """What an answer survives, in words."""
    full: bool
    """Whether the disk is full, as far as is known: the room held back was given up, and is for the ends of work."""

    async def load(self) -> Loaded:
        """Everything that a daemon needs in memory."""

    async def append(self, batch: Batch, expected_head: int) -> Appended:
        """Writes the batch in one commit; refuses (`StoreError`) if the journal's head is another one.

        Records that can't be stored for another cause than the disk fail alone, with their handoff
        and what is bound to it (`dhpd.engine.binding`).
        """

    async def settle(self) -> int:
        """After a `DiskError`: opens the store anew and gives the head that is on disk."""

    async def find_room(self) -> None:
        """On a full disk: looks whether there is room again; then it isn't `full` any more. Not while an append is under way."""

    async def facts_of(self, handoffs: Sequence[str]) -> list[Handoff]:
        """The table's facts of those handoffs that it has."""

    async def payloads(self, positions: Sequence[int]) -> dict[int, bytes]:
        """The payloads at these positions; one that isn't there is left out."""

    async def records_of(self, head: int, after_n: int, limit: int) -> list[StoredRecord]:
        """A handoff's records after its `after_n`-th, oldest first; `head` is the position of its newest."""

    async def checkpoints_of(self, head: int, after_seq: int, limit: int) -> list[CheckpointFacts]:
        """A handoff's checkpoints after `after_seq`, oldest first."""

    async def handoffs(self, lookup: ListLookup) -> tuple[list[Handoff], int | None]:
        """A page of the table of facts in the order asked for, and after which number to go on (None: the end).

        It may hold fewer than there are, or none: a store goes through so much at a time.
        """

    async def records_after(self, position: int, limit: int) -> list[StoredRecord]:
        """The journal's records after `position`, oldest first."""

    def prune(self, covered: int, first_in_use: Callable[[str], int | None]) -> AsyncIterator[int]:
        """Goes once through what may go from the disk: replaced checkpoints, and the records of what was forgotten.

        Works in small steps, and yields after each how many records went. Nothing goes that lies after `covered`, up to
        where the table of facts is known to be, and no checkpoint from the seq on that `first_in_use` tells of a handoff.
        """

    async def acked_before(self, acked_before_ms: int, after: tuple[int, int], limit: int) -> list[Handoff]:
        """Handoffs without children that were acknowledged up to then, longest ago first, as the table of facts has them.

        `after` is the `acked_at_ms` and `number` of the one to go on from.
        """

    async def close(self) -> None:
        """Closes the store."""
