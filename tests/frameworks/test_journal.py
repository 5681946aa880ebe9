"""Journals: what a task appends is what the next one reads, whatever happened in between."""

import asyncio
from pathlib import Path

import msgspec
import pytest

import dhp_client
from dhp_client import journal as journals
from dhp_client.journal import Journal, read
from tests.support.in_process_daemon import InProcessDaemon
from tests.support.proxy import Proxy

from ..client.waiting import until, until_async


class Note(msgspec.Struct, frozen=True, tag_field="test", tag="note"):
    text: str


async def opened(task: dhp_client.Task | None) -> tuple[Journal[Note], list[str]]:
    assert task is not None
    folded: list[str] = []
    return await Journal.open(task, Note, lambda note: folded.append(note.text)), folded


async def dispatched(client: dhp_client.Client, key: str) -> str:
    return (await client.dispatch("journal", {}, key=key, keep_checkpoints=dhp_client.KEEP_ALL)).handoff


async def texts(client: dhp_client.Client, handoff: str) -> list[str]:
    found: list[Note] = []
    await read(client, handoff, Note, found.append)
    return [note.text for note in found]


async def test_entries_are_folded_in_the_order_in_which_the_next_task_reads_them(
    client: dhp_client.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "PAGE", 3)
    handoff = await dispatched(client, "order")
    async with client.claim(handoff) as task:
        journal, folded = await opened(task)
        await asyncio.gather(*(journal.append(Note(str(n)), steps=n % 2) for n in range(20)))
        assert (len(journal), (await client.status(handoff)).steps) == (20, 10)
    assert sorted(folded, key=int) == [str(n) for n in range(20)]
    again, read_back = await opened(await client.claim(handoff))
    assert (read_back, len(again)) == (folded, 20)


async def test_an_append_whose_caller_is_cancelled_goes_on(tmp_path: Path) -> None:
    with InProcessDaemon(tmp_path) as daemon:
        async with dhp_client.connect(daemon.address) as client:
            handoff = await dispatched(client, "cancelled")
            journal, folded = await opened(await client.claim(handoff))
            daemon.store.held = True
            cancelled = asyncio.ensure_future(journal.append(Note("one")))
            await until(lambda: daemon.store.appending)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            daemon.store.held = False
            await until(lambda: folded == ["one"])
            await journal.append(Note("two"))
            assert folded == await texts(client, handoff) == ["one", "two"]


async def test_an_append_that_was_given_up_but_counts_is_folded(tmp_path: Path) -> None:
    with InProcessDaemon(tmp_path) as daemon:
        async with dhp_client.connect(daemon.address, retry_ms=200) as client:
            handoff = await dispatched(client, "unknown")
            journal, folded = await opened(await client.claim(handoff))
            daemon.store.away, daemon.store.failure = True, "kept"
            with pytest.raises(dhp_client.DHPError):
                await journal.append(Note("given up"))
            daemon.store.away, daemon.store.failure = False, None

            async def appended() -> bool:
                try:
                    await journal.append(Note("goes on"))
                except dhp_client.StoreUnavailable:
                    return False
                return True

            await until_async(appended)
            assert folded == await texts(client, handoff) == ["given up", "goes on"]


async def test_entries_that_wait_in_a_spool_are_folded_and_arrive(
    address: str, client: dhp_client.Client, tmp_path: Path
) -> None:
    with Proxy(address) as proxy:
        async with dhp_client.connect(proxy.address, spool=tmp_path) as cut_off:
            handoff = await dispatched(client, "spooled")
            task = await cut_off.claim(handoff, ttl_ms=60_000)
            journal, folded = await opened(task)
            await journal.append(Note("one"))
            proxy.cut()
            await journal.append(Note("two"))
            await journal.append(Note("three"))
            assert task is not None
            assert task.spooled == 2
            proxy.mend()
            await journal.append(Note("four"))
            assert folded == ["one", "two", "three", "four"]
            await until(lambda: not task.spooled)
            assert await texts(client, handoff) == folded


async def test_what_would_not_all_be_kept_is_refused(client: dhp_client.Client) -> None:
    work = await client.dispatch("journal", {}, key="few", keep_checkpoints=100)
    with pytest.raises(dhp_client.NoJournal, match=r"keeps only its 100 newest.*keep_checkpoints=dhp_client.KEEP_ALL"):
        await opened(await client.claim(work.handoff))


async def test_a_journal_with_a_beginning_that_is_gone_is_refused(client: dhp_client.Client) -> None:
    work = await client.dispatch("journal", {}, key="gone", keep_checkpoints=2)
    async with client.claim(work.handoff) as task:
        for n in range(3):
            await task.checkpoint(msgspec.to_builtins(Note(str(n))))
    with pytest.raises(dhp_client.NoJournal, match="Entries 1 to 1 of the journal aren't kept any more"):
        await texts(client, work.handoff)


async def test_other_states_among_the_entries_are_refused(client: dhp_client.Client) -> None:
    handoff = await dispatched(client, "mixed")
    async with client.claim(handoff) as task:
        journal, folded = await opened(task)
        await journal.append(Note("one"))
        await task.checkpoint({"page": 2})
        with pytest.raises(dhp_client.NoJournal, match="Checkpoint 2 is no entry of such a journal"):
            await journal.append(Note("three"))
        assert folded == ["one"]
    with pytest.raises(dhp_client.NoJournal, match="Checkpoint 2"):
        await opened(await client.claim(handoff))
