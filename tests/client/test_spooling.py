"""A partition: work goes on, what it says is kept on the disk, and is sent in order; or it is void, and told of."""

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dhp_client
from dhp_client import sync
from dhp_protocol.errors import StoreUnavailable
from dhp_protocol.replies import CheckpointReply, ClaimReply, CompleteReply, LeaseLostEvent
from tests.client.fake_daemon import HANDOFF, Connection, FakeDaemon, grant
from tests.client.losing import losing
from tests.client.waiting import until, until_async, until_blocking
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

ProxyTo = Callable[[DaemonProcess], Proxy]


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def files(spool: Path) -> list[Path]:
    return sorted(spool.glob("*"))


async def states(client: dhp_client.Client, handoff: str) -> list[Any]:
    return [one.state for one in (await client.checkpoints(handoff)).checkpoints]


async def test_what_was_kept_while_the_daemon_was_away_is_sent_in_order_under_the_same_lease(
    daemon: DaemonProcess, spool: Path
) -> None:
    async with dhp_client.connect(daemon.address, spool=spool) as client:
        made = await client.dispatch("k", {}, budget={"max_usd": 9})
        async with client.claim(kinds="k") as task:
            assert not (await task.checkpoint(1)).spooled
            daemon.kill()
            told = [await task.checkpoint(n, usd="0.1", steps=2) for n in (2, 3)]
            assert [(one.seq, one.spooled) for one in told] == [(2, True), (3, True)]
            spent = await task.spend(usd="0.25")
            assert (spent.spooled, spent.usd, spent.steps) == (True, 0.45, 4)
            assert await task.activity("reading") is None
            assert (task.spooled, task.seq, task.state) == (3, 1, 1), "no daemon has more than that"
            daemon.start()
            await until(lambda: not files(spool))
            assert not (await task.checkpoint(4)).spooled
            await task.complete("done")
        assert await states(client, made.handoff) == [1, 2, 3, 4]
        status = await client.status(made.handoff)
        assert (status.attempt, status.failures, status.usd, status.steps) == (1, 0, 0.45, 6)


async def test_what_was_kept_leaves_by_itself_as_soon_as_somebody_answers(daemon: DaemonProcess, spool: Path) -> None:
    async with dhp_client.connect(daemon.address, spool=spool) as client:
        made = await client.dispatch("k", {})
        async with client.claim(kinds="k") as task:
            daemon.kill()
            assert (await task.checkpoint("kept")).spooled
            daemon.start()
            await until(lambda: not task.spooled)
            assert (task.state, task.seq) == ("kept", 1)
            assert await states(client, made.handoff) == ["kept"]
            await task.complete(None)


async def test_a_lease_that_ended_unclaimed_is_claimed_again_before_what_was_kept_is_sent(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    async with (
        dhp_client.connect(shared_daemon.address) as other,
        dhp_client.connect(proxy.address, spool=spool) as client,
    ):
        made = await other.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            await task.checkpoint(1)
            proxy.cut()
            assert (await task.checkpoint(2)).spooled
            await until_async(lambda: is_orphaned(other, made.handoff))
            assert (await task.checkpoint(3)).spooled
            proxy.mend()
            await task.complete("done")
            assert task.fence == 3
        assert await states(other, made.handoff) == [1, 2, 3]
        assert (await other.result(made.handoff)).result == "done"
        assert files(spool) == []


async def test_doubt_lasts_as_long_as_it_takes_and_begins_no_effect_and_asks_nobody(
    fake: FakeDaemon, spool: Path
) -> None:
    fake.answers |= {"claim": grants_shortly, "checkpoint": stores}
    async with dhp_client.connect(fake.address, spool=spool) as client, client.claim(kinds="fetch") as task:
        assert task._hold.lease.in_doubt_ms == float("inf")
        await until(lambda: len(fake.connections) == 2)
        await fake.vanish()
        await until(lambda: task.in_doubt)
        for begin in (
            lambda: task.effect("pay", lambda key: None),
            lambda: task.approval("may I", timeout_ms=1_000),
            lambda: task.check_capability("net", "x"),
        ):
            with pytest.raises(dhp_client.InDoubt):
                await begin()
        assert (await task.checkpoint(1)).spooled
        assert not task.lost
        await fake.listen(fake.port)
        await until(lambda: not task.spooled)


async def test_an_effect_that_was_carried_out_is_put_on_record_afterwards(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    async with (
        dhp_client.connect(shared_daemon.address) as other,
        dhp_client.connect(proxy.address, spool=spool) as client,
    ):
        made = await other.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:

            def pay(key: str) -> str:
                proxy.cut()
                return "receipt"

            assert await task.effect("pay", pay) == "receipt"
            assert task.spooled == 1
            proxy.mend()
            await until(lambda: not task.spooled)
            assert await task.effect("pay", pay) == "receipt"
            assert [one.state for one in (await other.effects(made.handoff)).effects] == ["done"]
            await task.complete(None)


async def test_a_result_waits_for_its_acceptance_and_is_kept_meanwhile(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, kind: str, spool: Path
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address, spool=spool) as client:
        made = await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            proxy.cut()
            assert (await task.checkpoint(1)).spooled
            ending = asyncio.create_task(task.complete({"rows": 3}))
            await until(lambda: task.spooled == 2)
            assert not ending.done()
            [kept] = await client.spooled()
            assert (kept.has_result, kept.result, kept.in_use) == (True, {"rows": 3}, True)
            proxy.mend()
            assert not (await ending).duplicate
        assert (await client.result(made.handoff)).result == {"rows": 3}
        assert files(spool) == []


async def test_a_result_whose_answer_was_lost_is_told_as_accepted_and_not_as_a_loss(
    daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path
) -> None:
    proxy = proxy_to(daemon)
    async with (
        dhp_client.connect(daemon.address) as other,
        dhp_client.connect(proxy.address, spool=spool) as client,
    ):
        made = await other.dispatch("k", {})
        async with client.claim(kinds="k", ttl_ms=500) as task:
            proxy.lose_answer_to("complete", then_cut=True)
            ending = asyncio.create_task(task.complete("done"))
            await until(lambda: task.spooled)
            proxy.mend()
            assert (await ending).duplicate
            assert (task.ended, task.lost) == ("completed", False)
        assert (await other.result(made.handoff)).result == "done"
        assert files(spool) == []


async def test_a_checkpoint_that_left_before_the_line_went_dead_and_was_kept_is_one_checkpoint(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    async with (
        dhp_client.connect(shared_daemon.address) as other,
        dhp_client.connect(proxy.address, spool=spool) as client,
    ):
        made = await other.dispatch(kind, {})
        async with client.claim(kinds=kind, ttl_ms=500) as task:
            proxy.lose_answer_to("checkpoint", then_cut=True)
            assert (await task.checkpoint(1, steps=5)).spooled
            assert (await task.checkpoint(2)).spooled
            assert await states(other, made.handoff) == [1]
            proxy.mend()
            await task.complete(None)
        assert await states(other, made.handoff) == [1, 2]
        assert (await other.status(made.handoff)).steps == 6


async def test_a_line_that_says_nothing_holds_up_no_checkpoint_longer_than_the_lease(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    async with (
        dhp_client.connect(shared_daemon.address) as other,
        dhp_client.connect(proxy.address, spool=spool) as client,
    ):
        await other.dispatch(kind, {})
        async with client.claim(kinds=kind, ttl_ms=600) as task:
            proxy.silence()
            assert (await task.checkpoint(1)).spooled
            assert task.in_doubt
            proxy.mend()
            proxy.drop()
            await until(lambda: not task.spooled)
            await task.complete(None)


async def test_a_take_over_makes_what_was_kept_void_keeps_it_and_tells(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = proxy_to(shared_daemon)
    async with (
        dhp_client.connect(shared_daemon.address) as other,
        dhp_client.connect(proxy.address, spool=spool) as client,
    ):
        made = await other.dispatch(kind, {})
        with losing() as lost:
            async with client.claim(kinds=kind) as task:
                proxy.cut()
                for n in (1, 2):
                    await task.checkpoint({"n": n})
                await task.spend(steps=1)
                standby = await other.claim(made.handoff, wait_ms=20_000)
                assert standby is not None
                proxy.mend()
                await asyncio.sleep(60)
        [path] = files(spool)
        details = lost.value.details
        assert (details["why"], details["spool"]) == (
            "superseded",
            {"path": str(path), "writes": 3, "checkpoints": 2},
        )
        assert str(path) in str(lost.value)
        assert any(str(path) in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
        await until_async(lambda: no_longer_in_use(client))
        [kept] = await client.spooled()
        assert (kept.void, kept.checkpoints, kept.state, kept.fence) == ("superseded", 2, {"n": 2}, 3)
        await standby.release()
        async with client.claim(made.handoff) as again:
            assert again.state is None, "what is void is never sent"
            await again.complete(None)
        assert files(spool) == [path]


async def test_a_cut_in_the_middle_of_sending_loses_nothing_and_doubles_nothing(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    async with (
        dhp_client.connect(shared_daemon.address) as other,
        dhp_client.connect(proxy.address, spool=spool) as client,
    ):
        made = await other.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            proxy.cut()
            for n in range(1, 8):
                await task.checkpoint(n)
                await task.spend(steps=10)
            for _ in range(3):
                proxy.lose_answer_to("checkpoint", then_cut=True)
                lost = proxy.lost
                proxy.mend()
                await until(lambda lost=lost: proxy.lost > lost)
                await task.checkpoint("late")
            proxy.mend()
            await task.complete(None)
        assert await states(other, made.handoff) == [1, 2, 3, 4, 5, 6, 7, "late", "late", "late"]
        assert (await other.status(made.handoff)).steps == 10 + 70


async def test_a_full_spool_says_so_and_keeps_what_it_has(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, kind: str, spool: Path
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address, spool=spool, max_spool_bytes=4_000) as client:
        made = await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            proxy.cut()
            await task.checkpoint("x" * 1_000)
            with pytest.raises(dhp_client.NotSpooled, match="4000 bytes"):
                await task.checkpoint("y" * 3_000)
            await task.checkpoint("small")
            proxy.mend()
            await task.complete(None)
        assert await states(client, made.handoff) == ["x" * 1_000, "small"]


async def test_a_spool_that_cannot_be_written_is_no_surprise_of_the_first_partition(
    shared_daemon: DaemonProcess, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.write_text("a file is in the way")  # noqa: ASYNC240 - nothing else runs yet.
    with pytest.raises(dhp_client.NotSpooled, match="can't be written"):
        await dhp_client.connect(shared_daemon.address, spool=spool)
    spool.unlink()  # noqa: ASYNC240
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # Root may write wherever anything can be.
    with pytest.raises(dhp_client.NotSpooled, match="read-only"):
        await dhp_client.connect(shared_daemon.address, spool=spool)


async def test_a_spool_that_cannot_be_written_any_more_says_so(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, kind: str, spool: Path
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address, spool=spool) as client:
        spool.rmdir()  # noqa: ASYNC240 - nothing else runs yet.
        spool.write_text("a file is in the way")  # noqa: ASYNC240
        await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            proxy.cut()
            with pytest.raises(dhp_client.NotSpooled, match="can't be written"):
                await task.checkpoint(1)
            proxy.mend()

            async def stored() -> bool:
                try:
                    return not (await task.checkpoint(2)).spooled
                except dhp_client.NotSpooled:  # Claiming the work again may take longer than a write waits.
                    return False

            await until_async(stored)
            await task.complete(None)


async def test_where_the_spool_is_deleted_nothing_is_told_as_kept_and_what_was_kept_is_sent(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, kind: str, spool: Path
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address, spool=spool) as client:
        made = await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            proxy.cut()
            await task.checkpoint(1)
            shutil.rmtree(spool)
            with pytest.raises(dhp_client.NotSpooled, match="was deleted"):
                await task.checkpoint(2)
            proxy.mend()
            await until(lambda: not task.spooled)
            await task.complete(None)
        assert await states(client, made.handoff) == [1]


async def test_a_claim_of_its_own_whose_answer_was_lost_is_nobody_else(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    async with (
        dhp_client.connect(shared_daemon.address) as other,
        dhp_client.connect(proxy.address, spool=spool) as client,
    ):
        made = await other.dispatch(kind, {})
        async with client.claim(kinds=kind, ttl_ms=500) as task:
            proxy.cut()
            await task.checkpoint(1)
            await until_async(lambda: is_orphaned(other, made.handoff))
            proxy.lose_answer_to("claim", then_cut=True)
            lost = proxy.lost
            proxy.mend()
            await until(lambda: proxy.lost > lost)
            await until_async(lambda: is_orphaned(other, made.handoff))
            proxy.mend()
            await task.complete("done")
            assert task.fence == 5
        assert await states(other, made.handoff) == [1]


async def test_what_is_kept_and_then_refused_is_told_to_the_next_call_and_holds_up_nothing(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, kind: str, spool: Path
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address, spool=spool) as client:
        made = await client.dispatch(kind, {}, output_schema={"type": "integer"})
        async with client.claim(kinds=kind) as task:
            proxy.cut()
            await task.checkpoint(1)
            ending = asyncio.create_task(task.complete("no integer"))
            await until(lambda: task.spooled == 2)
            proxy.mend()
            with pytest.raises(dhp_client.ResultInvalid):
                await ending
            assert (task.spooled, task.ended) == (0, None)
            await task.complete(7)
        assert (await client.result(made.handoff)).result == 7


async def test_a_cap_that_what_was_kept_would_pass_ends_the_work_and_the_rest_is_void(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, kind: str, spool: Path
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address, spool=spool) as client:
        made = await client.dispatch(kind, {}, budget={"max_steps": 2})
        async with client.claim(kinds=kind) as task:
            proxy.cut()
            for n in range(4):
                await task.checkpoint(n)
            proxy.mend()
            await until(lambda: task.ended)
            with pytest.raises(dhp_client.TaskEnded, match="cap"):
                await task.checkpoint("more")
        status = await client.status(made.handoff)
        assert (status.status, status.seq) == ("dead", 2)
        await until_async(lambda: no_longer_in_use(client))
        [kept] = await client.spooled()
        assert (kept.void, kept.checkpoints, kept.state) == ("dead", 1, 3)
        assert kept.errors[0].startswith("budget_exceeded")


async def test_a_daemon_that_is_back_but_cannot_store_yet_gets_it_later(fake: FakeDaemon, spool: Path) -> None:
    answers: list[Any] = []

    async def at_last(connection: Connection, request: Any) -> CheckpointReply:
        answers.append(request)
        if len(answers) < 4:
            raise StoreUnavailable("the disk is full", after_ms=10)
        return await stores(connection, request)

    fake.answers |= {"claim": grants, "checkpoint": at_last}
    async with dhp_client.connect(fake.address, spool=spool, retry_ms=15) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        await until(lambda: len(fake.connections) == 2)
        await fake.vanish()
        assert (await task.checkpoint(1)).spooled
        await fake.listen(fake.port)
        await until(lambda: not task.spooled)
        assert {request.seq for request in answers} == {1}
        await task.release()


async def test_an_end_told_while_a_result_waits_that_it_did_not_cause_is_a_loss(fake: FakeDaemon, spool: Path) -> None:
    async def refuses(connection: Connection, request: Any) -> CompleteReply:
        raise dhp_client.LeaseLost("no", why="cancelled", fence=2, status="cancelled")

    fake.answers |= {"claim": grants, "complete": refuses}
    async with dhp_client.connect(fake.address, spool=spool) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        await until(lambda: len(fake.connections) == 2)
        await fake.vanish()
        ending = asyncio.create_task(task.complete(1))
        await until(lambda: task.spooled)
        await fake.listen(fake.port)
        with pytest.raises(dhp_client.LeaseLost) as lost:
            await ending
        assert (lost.value.details["why"], lost.value.details["spool"]["writes"]) == ("cancelled", 1)


async def test_without_a_spool_a_checkpoint_waits(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, kind: str, tmp_path: Path
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address) as client:
        await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            proxy.cut()
            saving = asyncio.create_task(task.checkpoint(1))
            await asyncio.sleep(0.7)
            assert not saving.done()
            assert (task.spooled, await client.spooled()) == (0, [])
            proxy.mend()
            assert not (await saving).spooled
            await task.complete(None)


# Processes that die during the partition.

WORKER = """
import sys, time, dhp_client.sync
address, spool, handoff, last = sys.argv[1:5]
client = dhp_client.sync.connect(address, spool=spool)
task = client.claim(handoff)
task.checkpoint({"n": 1})
print("cut me off", flush=True)
sys.stdin.readline()
for n in (2, 3):
    assert task.checkpoint({"n": n}, steps=10).spooled
if last == "result":
    import threading
    threading.Thread(target=task.complete, args=("by the dead",), daemon=True).start()
    while task.spooled < 3:
        time.sleep(0.01)
print("kept", flush=True)
time.sleep(60)
"""


def killed_in_a_partition(proxy: Proxy, spool: Path, handoff: str, last: str = "checkpoint") -> None:
    command = [sys.executable, "-c", textwrap.dedent(WORKER), proxy.address, str(spool), handoff, last]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdin is not None
        assert worker.stdout.readline() == "cut me off\n"
        proxy.cut()
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert worker.stdout.readline() == "kept\n"
        worker.kill()
    proxy.mend()


def test_what_a_killed_process_kept_is_sent_by_the_next_that_claims(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    with sync.connect(shared_daemon.address, spool=spool) as client:
        made = client.dispatch(kind, {})
        killed_in_a_partition(proxy, spool, made.handoff)
        [left] = client.spooled()
        assert (left.in_use, left.checkpoints, left.seq, left.state) == (False, 2, 1, {"n": 3})
        with client.claim(kinds=kind, wait_ms=20_000) as task:
            assert (task.state, task.seq, task.fence) == ({"n": 3}, 3, 3)
            task.complete("by the next")
        assert client.spooled() == []
        assert client.status(made.handoff).steps == 21


def test_a_result_that_a_killed_process_kept_is_handed_in(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    with sync.connect(shared_daemon.address, spool=spool) as client:
        made = client.dispatch(kind, {})
        killed_in_a_partition(proxy, spool, made.handoff, "result")
        until_blocking(lambda: client.status(made.handoff).status == "orphaned")
        assert not client.claim(kinds=kind), "the only work there was has its result"
        assert client.result(made.handoff).result == "by the dead"
        assert client.spooled() == []


def test_what_is_left_is_sent_on_request_and_the_work_handed_back(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    with sync.connect(shared_daemon.address, spool=spool) as client:
        made = client.dispatch(kind, {})
        killed_in_a_partition(proxy, spool, made.handoff)
        until_blocking(lambda: client.status(made.handoff).status == "orphaned")
        assert client.replay_spool() == []
        status = client.status(made.handoff)
        assert (status.status, status.seq) == ("pending", 3)


def test_what_is_left_of_work_that_somebody_else_had_since_is_void(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    with sync.connect(shared_daemon.address) as other, sync.connect(shared_daemon.address, spool=spool) as client:
        made = client.dispatch(kind, {})
        killed_in_a_partition(proxy, spool, made.handoff)
        with other.claim(kinds=kind, wait_ms=20_000) as task:
            assert task.state == {"n": 1}
            assert client.replay_spool()[0].void is None, "whether it will leave anything isn't known"
            task.checkpoint({"n": "two"})
        [left] = client.replay_spool()
        assert (left.void, left.state) == ("superseded", {"n": 3})
        with client.claim(made.handoff) as task:
            assert task.state == {"n": "two"}
            task.complete(None)


def test_who_had_the_work_meanwhile_and_left_nothing_makes_nothing_void(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    with sync.connect(shared_daemon.address) as other, sync.connect(shared_daemon.address, spool=spool) as client:
        made = client.dispatch(kind, {})
        killed_in_a_partition(proxy, spool, made.handoff)
        with other.claim(kinds=kind, wait_ms=20_000) as task:
            assert task.state == {"n": 1}, "it has no such spool"
        with client.claim(made.handoff) as task:
            assert task.state == {"n": 3}
            task.complete(None)
        assert client.spooled() == []


def test_an_effect_that_somebody_else_began_meanwhile_makes_it_void(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, spool: Path, kind: str
) -> None:
    proxy = proxy_to(shared_daemon)
    with sync.connect(shared_daemon.address) as other, sync.connect(shared_daemon.address, spool=spool) as client:
        made = client.dispatch(kind, {})
        killed_in_a_partition(proxy, spool, made.handoff)
        with other.claim(kinds=kind, wait_ms=20_000) as task:
            task.effect("pay", lambda key: "receipt")
        with client.claim(made.handoff) as task:
            assert task.state == {"n": 1}
            task.complete(None)
        assert client.spooled()[0].void == "superseded"


async def is_orphaned(client: dhp_client.Client, handoff: str) -> bool:
    return (await client.status(handoff)).status == "orphaned"


async def no_longer_in_use(client: dhp_client.Client) -> bool:
    return all(one.void is not None and not one.in_use for one in await client.spooled())


async def grants(connection: Connection, request: Any) -> ClaimReply:
    return grant()


async def grants_shortly(connection: Connection, request: Any) -> ClaimReply:
    return grant(ttl_ms=300)


async def stores(connection: Connection, request: Any) -> CheckpointReply:
    return CheckpointReply(seq=request.seq, sha256=request.sha256, duplicate=False)


async def test_an_event_of_the_end_makes_what_waits_void(fake: FakeDaemon, spool: Path) -> None:
    fake.answers |= {"claim": grants, "checkpoint": stores}
    async with dhp_client.connect(fake.address, spool=spool) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        await until(lambda: len(fake.connections) == 2)
        await fake.vanish()
        await task.checkpoint(1)

        async def never(connection: Connection, request: Any) -> None:
            return None

        fake.answers["checkpoint"] = never
        await fake.listen(fake.port)
        await until(lambda: len(fake.connections) == 2)
        fake.connections[0].event(LeaseLostEvent(handoff=HANDOFF, fence=1, why="suspended", status="suspended"))
        await until(lambda: task.lost)
        with pytest.raises(dhp_client.LeaseLost, match="1 writes"):
            await task.checkpoint(2)
