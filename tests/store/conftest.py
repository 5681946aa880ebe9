"""Each store, for the suite that holds for all of them."""

import sqlite3
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Protocol

import pytest

from dhpd.engine.journal import Batch
from dhpd.store.backend import Appended, StoreBackend
from dhpd.store.sqlite import SqliteStore
from tests.simulation.store_model import ModelStore


class Kit(Protocol):
    """A store, with what a test needs and no daemon does."""

    store: StoreBackend

    async def append(self, batch: Batch) -> Appended:
        """Appends at the present head."""

    async def reopen(self) -> None:
        """Closes the store and opens it again."""

    async def prune(self, positions: Iterable[int]) -> None:
        """Takes these rows out of the journal, as retention does."""


class SqliteKit:
    def __init__(self, path: Path, store: SqliteStore) -> None:
        self.path = path
        self.store = store

    async def append(self, batch: Batch) -> Appended:
        return await self.store.append(batch, (await self.store.load()).head)

    async def reopen(self) -> None:
        await self.store.close()
        self.store = await SqliteStore.open(self.path)

    async def prune(self, positions: Iterable[int]) -> None:
        with sqlite3.connect(self.path) as db:
            db.executemany("delete from journal where position = ?", [(position,) for position in positions])
        db.close()


class ModelKit:
    def __init__(self) -> None:
        self.store = ModelStore()
        self.store.prunes_by_itself = False

    async def append(self, batch: Batch) -> Appended:
        return await self.store.append(batch, self.store.head)

    async def reopen(self) -> None:
        pass

    async def prune(self, positions: Iterable[int]) -> None:
        for position in positions:
            del self.store.left[position]


@pytest.fixture(params=["sqlite", "model"])
async def kit(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kit]:
    if request.param == "model":
        yield ModelKit()
        return
    path = tmp_path / "store.sqlite"
    kit = SqliteKit(path, await SqliteStore.open(path))
    yield kit
    await kit.store.close()


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteKit]:
    path = tmp_path / "store.sqlite"
    kit = SqliteKit(path, await SqliteStore.open(path))
    yield kit
    await kit.store.close()
