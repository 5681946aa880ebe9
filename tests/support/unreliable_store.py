"""A store that fails when it is told to, around a real one.

Owns the ways in which an append can go wrong: nothing of it is on disk, or all of it although the disk said no; and a
disk that stays away. Driven from the test's thread while the daemon runs in another.
"""

import asyncio
from typing import Any, Literal

from dhpd.engine.journal import Batch
from dhpd.store.backend import Appended, DiskError
from dhpd.store.sqlite import SqliteStore

Failure = Literal["lost", "kept"]
POLL_S = 0.001


class UnreliableStore:
    """`held`: appends of records wait. `failure`: how the next one fails. `away`: the store can't be settled yet."""

    def __init__(self, inner: SqliteStore) -> None:
        self.held = False
        self.failure: Failure | None = None
        self.away = False
        self.appending = False
        """Whether an append is being held."""
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(self, batch: Batch, expected_head: int) -> Appended:
        if not batch.entries:
            return await self._inner.append(batch, expected_head)
        while self.held:
            self.appending = True
            await asyncio.sleep(POLL_S)
        self.appending = False
        failure, self.failure = self.failure, None
        if failure is None:
            return await self._inner.append(batch, expected_head)
        if failure == "kept":
            await self._inner.append(batch, expected_head)
        raise DiskError("told to fail")

    async def settle(self) -> int:
        if self.away:
            raise DiskError("told to stay away")
        return await self._inner.settle()
