"""Group commit on a real loop: what a failing disk means for those who wait, and for what comes next."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dhp_protocol.errors import DHPError, StoreUnavailable
from dhp_protocol.limits import Limits
from dhp_protocol.messages import (
    Cancel,
    Checkpoint,
    Claim,
    Complete,
    Dispatch,
    GetStatus,
    Heartbeat,
    LeaseRef,
    ListHandoffs,
    Request,
)
from dhpd.engine.core import Settings
from dhpd.engine.dispatching import prepare_dispatch
from dhpd.engine.journal import Batch
from dhpd.engine.lookups import Lookup
from dhpd.engine.operations import Engine
from dhpd.engine.outputs import Reply
from dhpd.engine.views import NO_LEASE
from dhpd.engine.waiting import Address
from dhpd.store import appending, group_commit
from dhpd.store.backend import Appended, StoreBackend, StoreError
from dhpd.store.checking import Checker
from dhpd.store.connecting import head_of
from dhpd.store.group_commit import GroupCommit
from dhpd.store.loading import meta
from dhpd.store.reading import resolve
from dhpd.store.rows import record_row
from dhpd.store.sqlite import SqliteStore
from tests.support.engine_world import START, TERMS
from tests.support.faulty_store import FaultyStore


class Shell:
    """The engine with its writer, and no sockets: time stands still, and answers come as futures."""

    def __init__(self, store: StoreBackend, head: int = 0) -> None:
        self.store = store
        names = count()
        self.engine = Engine(Settings(limits=Limits(), terms=TERMS), lambda: f"own-{next(names)}")
        self.commits = GroupCommit(self.engine, store, head, lambda: START, lambda batch: self.deliver())
        self._numbers = count(1)
        self._answers: dict[object, asyncio.Future[Any]] = {}
        self._reads: set[asyncio.Task[None]] = set()
        self.engine.open(1)

    async def load(self) -> None:
        """Takes up what the store holds."""
        loaded = await self.store.load()
        self.engine.load(
            loaded.facts,
            loaded.tail,
            loaded.extensions,
            loaded.counts,
            loaded.dead_children,
            head=loaded.head,
            covered=loaded.covered,
            now=START,
        )

    def ask(self, request: Request) -> "asyncio.Future[Any]":
        number = next(self._numbers)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        to = Address(1, number, False)
        if isinstance(request, Dispatch):
            self.engine.execute(prepare_dispatch(request, Limits()), to, START)
        elif isinstance(request, Complete):
            self.engine.execute(request, to, START, None)
        else:
            self.engine.execute(request, to, START)
        self.deliver()
        self.commits.poke()
        return future

    def deliver(self) -> None:
        ready = self.engine.journal.ready
        while ready:
            output = ready.popleft()
            if isinstance(output, Reply):
                task = asyncio.get_running_loop().create_task(self._answer(output))
                self._reads.add(task)
                task.add_done_callback(self._reads.discard)

    async def _answer(self, reply: Reply) -> None:
        answer: Any = reply.answer
        if isinstance(answer, Lookup):
            try:
                answer = await resolve(answer, self.store, 1 << 20, lambda handoff, fence: NO_LEASE)
            except DHPError as error:
                answer = error
        future = self._answers.pop(reply.to.request_id)
        if isinstance(answer, DHPError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


@asynccontextmanager
async def running(shell: Shell) -> AsyncIterator[Shell]:
    writer = asyncio.create_task(shell.commits.run())
    try:
        yield shell
    finally:
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)


@pytest.fixture
async def faulty(tmp_path: Path) -> AsyncIterator[FaultyStore]:
    store = FaultyStore(await SqliteStore.open(tmp_path / "store.sqlite"))
    yield store
    await store.close()


@pytest.fixture
async def shell(faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shell]:
    monkeypatch.setattr(group_commit, "SETTLE_AGAIN_S", 0.001)
    async with running(Shell(faulty)) as shell:
        yield shell


def dispatch(number: int) -> Dispatch:
    return Dispatch(kind="work", inputs=Raw(b'{"n":%d}' % number))


async def refused(futures: "Collection[asyncio.Future[Any]]") -> list[str]:
    answers = await asyncio.gather(*futures, return_exceptions=True)
    return [getattr(answer, "code", repr(answer)) for answer in answers]


async def test_what_gathers_during_one_commit_goes_with_the_next(shell: Shell) -> None:
    futures = [shell.ask(dispatch(number)) for number in range(300)]
    replies = await asyncio.gather(*futures)
    assert all(reply.created for reply in replies)
    assert shell.commits.records == 300
    assert shell.commits.commits < 10


async def test_when_a_commit_fails_all_who_wait_hear_so_and_nothing_of_it_is_visible(
    shell: Shell, faulty: FaultyStore
) -> None:
    kept = (await shell.ask(dispatch(0))).handoff
    faulty.fail_next()
    first = [shell.ask(dispatch(number)) for number in range(1, 50)]
    await asyncio.sleep(0)  # Those are on their way; these gather behind them.
    behind = [shell.ask(dispatch(number)) for number in range(50, 100)]
    looking = shell.ask(GetStatus(handoff=prepare_dispatch(dispatch(7), Limits()).handoff))
    assert await refused([*first, *behind, looking]) == ["store_unavailable"] * 100
    await shell.commits.flushed()
    assert len(await faulty.records_after(0, 1_000)) == 1
    assert shell.engine.ledger.counts["pending"] == 1
    assert (await shell.ask(GetStatus(handoff=kept))).status == "pending"


async def test_work_goes_on_with_the_next(shell: Shell, faulty: FaultyStore) -> None:
    faulty.fail_next()
    assert await refused([shell.ask(dispatch(1))]) == ["store_unavailable"]
    await shell.commits.flushed()
    reply = await shell.ask(dispatch(1))
    assert reply.created
    granted = await shell.ask(Claim(worker="ada", handoff=reply.handoff))
    assert granted.fence == 1
    assert (await shell.ask(Checkpoint(handoff=reply.handoff, fence=1, state=Raw(b"1")))).seq == 1


async def test_failed_but_kept_comes_to_one_truth(shell: Shell, faulty: FaultyStore) -> None:
    """Whoever asked heard of a doubt, and the same again settles it."""
    handoff = (await shell.ask(dispatch(1))).handoff
    fence = (await shell.ask(Claim(worker="ada", handoff=handoff))).fence
    faulty.fail_next(kept=True)
    checkpoint = Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1"), seq=1)
    assert await refused([shell.ask(checkpoint)]) == ["store_unavailable"]
    await shell.commits.flushed()
    assert (await shell.ask(checkpoint)).duplicate
    records = await faulty.records_after(0, 100)
    assert [type(stored.record).__name__ for stored in records] == ["Dispatched", "Claimed", "Checkpointed"]
    restarted = Shell(faulty)
    await restarted.load()
    assert restarted.engine.ledger.get(handoff) == shell.engine.ledger.get(handoff)


@pytest.mark.parametrize("kept", [False, True], ids=["not kept", "kept"])
async def test_a_waiter_is_granted_once_whatever_became_of_the_commit(
    shell: Shell, faulty: FaultyStore, kept: bool
) -> None:
    waiting = shell.ask(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    faulty.fail_next(kept=kept)
    assert await refused([shell.ask(dispatch(1))]) == ["store_unavailable"]
    await shell.commits.flushed()
    again = await shell.ask(dispatch(1))
    assert again.created is not kept
    granted = await waiting
    assert (granted.handoff, granted.fence) == (again.handoff, 1)


async def test_until_the_store_is_back_nothing_is_taken_and_leases_are_renewed(
    shell: Shell, faulty: FaultyStore
) -> None:
    handoff = (await shell.ask(dispatch(1))).handoff
    fence = (await shell.ask(Claim(worker="ada", handoff=handoff))).fence
    faulty.settle_failures = 20
    faulty.fail_next()
    assert await refused([shell.ask(dispatch(2))]) == ["store_unavailable"]
    assert not shell.engine.available
    assert await refused([shell.ask(GetStatus(handoff=handoff)), shell.ask(Cancel(handoff=handoff))]) == [
        "store_unavailable",
        "store_unavailable",
    ]
    renewed = await shell.ask(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)]))
    assert renewed.renewed == [handoff]
    await shell.commits.flushed()
    assert faulty.calls["settle"] == 21
    assert shell.engine.available
    assert (await shell.ask(GetStatus(handoff=handoff))).status == "running"


@pytest.mark.parametrize("kept", [False, True], ids=["not kept", "kept"])
async def test_many_failures_in_a_row_lose_nothing_that_was_acknowledged(
    shell: Shell, faulty: FaultyStore, kept: bool
) -> None:
    acknowledged: set[str] = set()
    for number in range(60):
        if number % 3 == 1:
            faulty.fail_next(kept=kept)
        futures = [shell.ask(dispatch(10 * number + other)) for other in range(10)]
        answers = await asyncio.gather(*futures, return_exceptions=True)
        acknowledged |= {answer.handoff for answer in answers if not isinstance(answer, BaseException)}
        assert all(isinstance(answer, StoreUnavailable) for answer in answers if isinstance(answer, BaseException))
        await shell.commits.flushed()
    assert len(acknowledged) == 400
    on_disk = {stored.handoff for stored in await faulty.records_after(0, 10_000)}
    assert acknowledged <= on_disk
    assert len(on_disk) == (600 if kept else 400)
    assert {facts.id for facts in shell.engine.ledger} == on_disk


def poison(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[Any], bool]) -> None:
    """Such entries become rows that SQLite refuses."""
    row = record_row
    monkeypatch.setattr(
        appending, "record_row", lambda entry: row(replace(entry, prev=2**63) if is_bad(entry) else entry)
    )


async def test_one_that_cannot_be_stored_fails_alone(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = prepare_dispatch(dispatch(3), Limits()).handoff
    poison(monkeypatch, lambda entry: entry.handoff == bad)
    answers = await refused([shell.ask(dispatch(number)) for number in range(6)])
    assert answers[3] == "store_unavailable"
    assert answers.count("store_unavailable") == 1
    assert shell.engine.ledger.get(bad) is None
    monkeypatch.undo()
    assert (await shell.ask(dispatch(3))).created


async def test_a_store_that_could_not_take_its_newest_record_is_whole(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bad = prepare_dispatch(dispatch(1), Limits()).handoff
    poison(monkeypatch, lambda entry: entry.handoff == bad)
    await refused([shell.ask(dispatch(number)) for number in range(2)])
    await shell.ask(ListHandoffs())  # Once the table of facts is as far as the journal.
    with closing(sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)) as db:
        assert meta(db, "covered") > head_of(db)
        assert [point for point in Checker(db).points() if point.faults] == []


@pytest.mark.parametrize("bad", [2, 5], ids=["in the middle", "at the end"])
async def test_one_that_cannot_be_stored_in_a_commit_that_fails_but_is_kept(
    shell: Shell, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    handoffs = [prepare_dispatch(dispatch(number), Limits()).handoff for number in range(6)]
    poison(monkeypatch, lambda entry: entry.handoff == handoffs[bad])
    faulty.fail_next(kept=True)
    assert await refused([shell.ask(dispatch(number)) for number in range(6)]) == ["store_unavailable"] * 6
    await shell.commits.flushed()
    on_disk = {stored.handoff for stored in await faulty.records_after(0, 100)}
    assert on_disk == {facts.id for facts in shell.engine.ledger} == set(handoffs) - {handoffs[bad]}
    monkeypatch.undo()
    replies = await asyncio.gather(*(shell.ask(dispatch(number)) for number in range(6)))
    assert [reply.created for reply in replies] == [number == bad for number in range(6)]


async def test_a_real_commit_that_fails_says_which_could_not_be_stored(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails under the commit that goes handoff by handoff."""
    bad = prepare_dispatch(dispatch(1), Limits()).handoff
    poison(monkeypatch, lambda entry: entry.handoff == bad)

    def commit(db: sqlite3.Connection) -> None:
        db.execute("commit")
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(appending, "_commit", commit)
    futures = [shell.ask(dispatch(number)) for number in range(3)]
    assert await refused(futures) == ["store_unavailable"] * 3
    monkeypatch.undo()
    await shell.commits.flushed()
    assert shell.engine.ledger.counts["pending"] == 2
    assert shell.engine.ledger.get(bad) is None


class Beheaded(FaultyStore):
    """Says after an error that it is where nobody's batch ends."""

    async def settle(self) -> int:
        return await super().settle() + 17


@pytest.mark.parametrize("fault", ["another daemon wrote", "the store is somewhere else"])
async def test_a_store_that_is_no_longer_ours_ends_the_writer(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "store.sqlite"
    store = Beheaded(await SqliteStore.open(path))
    shell = Shell(store)
    writer = asyncio.create_task(shell.commits.run())
    if fault == "another daemon wrote":
        other = await SqliteStore.open(path)
        async with running(Shell(other)) as stranger:
            await stranger.ask(dispatch(99))
        await other.close()
    else:
        store.fail_next()
    future = shell.ask(dispatch(1))
    with pytest.raises(StoreError):
        await writer
    await shell.commits.flushed()
    if fault == "another daemon wrote":
        assert not future.done(), "nothing is promised"
    else:
        assert await refused([future]) == ["store_unavailable"]
    await store.close()


async def test_flushed_waits_for_all_that_was_decided(shell: Shell, faulty: FaultyStore) -> None:
    futures = [shell.ask(dispatch(number)) for number in range(1_200)]
    await shell.commits.flushed()
    assert len(await faulty.records_after(0, 2_000)) == 1_200
    await asyncio.gather(*futures)


class Slow(FaultyStore):
    """Each commit waits until it is let go."""

    def __init__(self, inner: StoreBackend) -> None:
        super().__init__(inner)
        self.let_go = asyncio.Semaphore(0)
        self.sizes: list[int] = []

    async def append(self, batch: Batch, expected_head: int) -> Appended:
        self.sizes.append(len(batch.entries))
        await self.let_go.acquire()
        return await super().append(batch, expected_head)


async def test_one_commit_at_a_time_each_as_large_as_may_be(tmp_path: Path) -> None:
    store = Slow(await SqliteStore.open(tmp_path / "store.sqlite"))
    async with running(Shell(store)) as shell:
        first = shell.ask(dispatch(0))
        while not store.sizes:
            await asyncio.sleep(0)
        rest = [shell.ask(dispatch(number)) for number in range(1, 700)]
        assert store.sizes == [1]
        for _ in range(3):
            store.let_go.release()
        await asyncio.gather(first, *rest)
        assert store.sizes == [1, 512, 187]
    await store.close()
