"""A store that fails on purpose, around any other one: the seam at which a disk breaks.

Owns when it fails and how: before anything was written, or after all of it was. What it says to nobody is which of the two.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

from dhpd.engine.facts import CheckpointFacts, Handoff
from dhpd.engine.journal import Batch
from dhpd.engine.lookups import ListLookup
from dhpd.store.backend import Appended, DiskError, Loaded, StoreBackend, StoredRecord


class FaultyStore:
    """`fail_on={"append": 2}`: the second append fails; `{"append": {2, 3}}`: the third too. Other methods likewise.

    With `kept`, an append that fails has been written all the same. `settle` fails `settle_failures` times in a row.
    """

    def __init__(
        self,
        inner: StoreBackend,
        *,
        fail_on: Mapping[str, int | Collection[int]] | None = None,
        kept: bool = False,
        settle_failures: int = 0,
    ) -> None:
        self.durability = inner.durability
        self.kept = kept
        self.settle_failures = settle_failures
        self.calls: dict[str, int] = {}
        self._inner = inner
        self._fail_on = {
            name: frozenset((when,) if isinstance(when, int) else when) for name, when in (fail_on or {}).items()
        }

    def fail_next(self, name: str = "append", *, kept: bool = False) -> None:
        """The next call of that method fails."""
        self.kept = kept
        self._fail_on[name] = frozenset((self.calls.get(name, 0) + 1,))

    async def load(self) -> Loaded:
        self._count("load")
        return await self._inner.load()

    async def append(self, batch: Batch, expected_head: int) -> Appended:
        if not self.kept:
            self._count("append")
        appended = await self._inner.append(batch, expected_head)
        if self.kept:
            self._count("append", appended.failed)
        return appended

    async def settle(self) -> int:
        self.calls["settle"] = self.calls.get("settle", 0) + 1
        if self.settle_failures:
            self.settle_failures -= 1
            raise DiskError("injected: still failing")
        return await self._inner.settle()

    @property
    def full(self) -> bool:
        return self._inner.full

    async def find_room(self) -> None:
        self._count("find_room")
        await self._inner.find_room()

    async def facts_of(self, handoffs: Sequence[str]) -> list[Handoff]:
        self._count("facts_of")
        return await self._inner.facts_of(handoffs)

    async def payloads(self, positions: Sequence[int]) -> dict[int, bytes]:
        self._count("payloads")
        return await self._inner.payloads(positions)

    async def records_of(self, head: int, after_n: int, limit: int) -> list[StoredRecord]:
        self._count("records_of")
        return await self._inner.records_of(head, after_n, limit)

    async def checkpoints_of(self, head: int, after_seq: int, limit: int) -> list[CheckpointFacts]:
        self._count("checkpoints_of")
        return await self._inner.checkpoints_of(head, after_seq, limit)

    async def handoffs(self, lookup: ListLookup) -> tuple[list[Handoff], int | None]:
        self._count("handoffs")
        return await self._inner.handoffs(lookup)

    async def records_after(self, position: int, limit: int) -> list[StoredRecord]:
        self._count("records_after")
        return await self._inner.records_after(position, limit)

    async def prune(self, covered: int, first_in_use: Callable[[str], int | None]) -> AsyncIterator[int]:
        self._count("prune")
        async for gone in self._inner.prune(covered, first_in_use):
            yield gone

    async def acked_before(self, acked_before_ms: int, after: tuple[int, int], limit: int) -> list[Handoff]:
        self._count("acked_before")
        return await self._inner.acked_before(acked_before_ms, after, limit)

    async def close(self) -> None:
        await self._inner.close()

    def _count(self, name: str, failed: frozenset[str] = frozenset()) -> None:
        number = self.calls[name] = self.calls.get(name, 0) + 1
        if number in self._fail_on.get(name, ()):
            raise DiskError(f"injected: {name} number {number} failed", failed)
