"""Leases live while their worker does: not shorter, whatever its loop is doing, and not longer."""

import asyncio
import functools
import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest

import dhp_client
from dhp_client.heartbeats import Heartbeats
from dhp_protocol.errors import Overloaded
from dhp_protocol.replies import ClaimReply, HeartbeatReply
from tests.client.fake_daemon import Connection, FakeDaemon, grant
from tests.client.losing import losing
from tests.client.waiting import until, until_async
from tests.support.daemon_process import DaemonProcess

SHORT_TTL_MS = 1_500


async def grants_shortly(connection: Connection, request: Any) -> ClaimReply:
    return grant(ttl_ms=300)


async def test_a_blocked_event_loop_keeps_its_lease(shared_daemon: DaemonProcess, kind: str) -> None:
    async with dhp_client.connect(shared_daemon.address) as client:
        made = await client.dispatch(kind, {})
        async with client.claim(kinds=kind, ttl_ms=SHORT_TTL_MS) as task:
            time.sleep(2.2 * SHORT_TTL_MS / 1000)  # noqa: ASYNC251 - blocking the loop is the point.
            assert not task.lost
            assert not task.in_doubt
            await task.checkpoint(1)
            await task.complete("done")
        status = await client.status(made.handoff)
        assert (status.status, status.attempt, status.failures) == ("completed", 1, 0)


async def test_a_closed_client_loses_its_leases_at_once(
    shared_daemon: DaemonProcess, client: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    holder = await dhp_client.connect(shared_daemon.address)
    task = await holder.claim(kinds=kind)
    assert task is not None
    await holder.close()
    assert (await client.status(made.handoff)).status == "pending"
    with pytest.raises(dhp_client.ClientClosed):
        await task.checkpoint(1)


async def test_a_collected_client_gives_back_what_it_held(
    shared_daemon: DaemonProcess, client: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})

    async def claim_and_forget() -> None:
        task = await (await dhp_client.connect(shared_daemon.address)).claim(kinds=kind, ttl_ms=60_000)
        assert task is not None
        await task.checkpoint(1)

    await asyncio.create_task(claim_and_forget())
    gc.collect()
    await until_async(lambda: _is(client, made.handoff, "pending"))
    assert (await client.status(made.handoff)).failures == 0


async def test_a_task_keeps_its_client_alive(shared_daemon: DaemonProcess, kind: str) -> None:
    async def claim_only() -> dhp_client.Task:
        client = await dhp_client.connect(shared_daemon.address)
        await client.dispatch(kind, {})
        task = await client.claim(kinds=kind)
        assert task is not None
        return task

    task = await asyncio.create_task(claim_only())
    gc.collect()
    await task.checkpoint(1)
    await task.complete(None)


async def test_a_task_that_is_dropped_is_not_kept_alive(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    assert await client.claim(kinds=kind, ttl_ms=SHORT_TTL_MS) is not None
    gc.collect()
    await until_async(lambda: _is(client, made.handoff, "orphaned"))


WORKER = """
import asyncio, sys, dhp_client

async def main():
    client = await dhp_client.connect(sys.argv[1])
    task = await client.claim(kinds=sys.argv[2], ttl_ms=60_000)
    await task.checkpoint(1)
    globals().update(kept=(client, task))
    print("claimed", flush=True)
    {rest}

asyncio.run(main())
"""


def start_worker(daemon: DaemonProcess, kind: str, rest: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WORKER.format(rest=rest), daemon.address, kind]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    line = worker.stdout.readline()
    assert line == "claimed\n", worker.communicate()
    return worker


async def test_a_killed_process_loses_its_lease_long_before_the_ttl(
    shared_daemon: DaemonProcess, client: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    worker = await asyncio.to_thread(start_worker, shared_daemon, kind, "await asyncio.sleep(60)")
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    async with client.recover(made.handoff, wait_ms=20_000) as task:
        assert (task.state, task.was) == (1, "orphaned")
        await task.complete(None)


async def test_a_loop_that_was_closed_keeps_nothing_alive(
    shared_daemon: DaemonProcess, client: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    kept: list[Any] = []

    async def claim_and_end() -> None:
        own = await dhp_client.connect(shared_daemon.address)
        kept.extend((own, await own.claim(kinds=kind, ttl_ms=2_000)))

    await asyncio.to_thread(asyncio.run, claim_and_end())
    assert kept[1] is not None
    await until_async(lambda: _is(client, made.handoff, "pending"))
    assert kept[1].lost


async def test_many_leases_are_all_kept_alive(client: dhp_client.Client, kind: str) -> None:
    made = [await client.dispatch(kind, {"n": n}) for n in range(20)]
    tasks = [await client.claim(one.handoff, ttl_ms=SHORT_TTL_MS) for one in made]
    await asyncio.sleep(2.2 * SHORT_TTL_MS / 1000)
    for task in tasks:
        assert task is not None
        await task.complete(None)


async def test_heartbeats_go_over_a_connection_of_their_own_in_the_same_session(fake: FakeDaemon) -> None:
    fake.answers["claim"] = grants_shortly
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        await until(lambda: len(fake.of("heartbeat")) > 3)
        assert {hello.session for hello in fake.of("hello")} == {client.session}
        assert len(fake.connections) == 2
        assert all(
            [(lease.handoff, lease.fence) for lease in beat.leases] == [(task.handoff, 1)]
            for beat in fake.of("heartbeat")
        )
        await task.release()


async def test_a_lost_keep_alive_connection_is_replaced(fake: FakeDaemon) -> None:
    fake.answers["claim"] = grants_shortly
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        for _ in range(3):
            await until(lambda: len(fake.connections) == 2)
            beats = len(fake.of("heartbeat"))
            fake.connections[1].drop()
            await until(functools.partial(_beat_since, fake, beats))
        assert task is not None
        await task.release()


async def test_the_thread_survives_an_error_of_its_own(
    fake: FakeDaemon, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["claim"] = grants_shortly
    beat = Heartbeats.beat
    failures = iter([RuntimeError("a mistake"), ValueError("another")])

    def beat_badly(self: Heartbeats, *, first: bool = False) -> None:
        for failure in failures:
            raise failure
        beat(self, first=first)

    monkeypatch.setattr(Heartbeats, "beat", beat_badly)
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        await until(lambda: len(fake.of("heartbeat")) > 2)
        await task.release()
    assert sum("an error of its own" in record.message for record in caplog.records) == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_thread_that_ends_puts_its_leases_in_doubt(
    fake: FakeDaemon, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["claim"] = grants_shortly

    def die(self: Heartbeats, *, first: bool = False) -> None:
        raise SystemExit

    monkeypatch.setattr(Heartbeats, "beat", die)
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        await until(lambda: task.in_doubt)
    assert any(record.levelno == logging.ERROR and "in doubt" in record.message for record in caplog.records)


async def test_an_overloaded_daemon_is_not_given_up(fake: FakeDaemon) -> None:
    async def busy(connection: Connection, request: Any) -> HeartbeatReply:
        if len(fake.of("heartbeat")) % 2:
            raise Overloaded("busy")
        return HeartbeatReply(renewed=[lease.handoff for lease in request.leases], lost=[])

    fake.answers |= {"claim": grants_shortly, "heartbeat": busy}
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        await until(lambda: len(fake.of("heartbeat")) > 4)
        assert len(fake.of("hello")) == 2
        await task.release()


async def test_closing_ends_the_thread(shared_daemon: DaemonProcess, kind: str) -> None:
    def keepers() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "dhp-keep-alive"]

    gc.collect()
    await until(lambda: not keepers())
    async with dhp_client.connect(shared_daemon.address) as client:
        await client.dispatch(kind, {})
        assert await client.claim(kinds=kind) is not None
        assert len(keepers()) == 1
    assert keepers() == []


async def test_a_paused_daemon_costs_no_lease(daemon: DaemonProcess) -> None:
    async with dhp_client.connect(daemon.address) as client:
        made = await client.dispatch("k", {})
        async with client.claim(kinds="k", ttl_ms=SHORT_TTL_MS) as task:
            await task.checkpoint(1)
            daemon.pause()
            await until(lambda: task.in_doubt)
            await asyncio.sleep(SHORT_TTL_MS / 1000)
            saving = asyncio.create_task(task.checkpoint(2))
            daemon.resume()
            await saving
            await task.complete("done")
        status = await client.status(made.handoff)
        assert (status.status, status.attempt, status.fence) == ("completed", 1, 1)


async def test_a_paused_worker_whose_work_was_taken_over_learns_it(
    shared_daemon: DaemonProcess, client: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    rest = """
    try:
        async with task:
            await asyncio.sleep(60)
    except dhp_client.LeaseLost as lost:
        print(lost.details["why"], flush=True)
    """
    worker = await asyncio.to_thread(
        start_worker, shared_daemon, kind, textwrap.indent(textwrap.dedent(rest), "    ").strip()
    )
    os.kill(worker.pid, signal.SIGSTOP)
    # Its ttl is a minute, so it is cancelled in its stead; from the worker's side a loss is a loss.
    await client.cancel(made.handoff)
    os.kill(worker.pid, signal.SIGCONT)
    output, errors = await asyncio.to_thread(worker.communicate, timeout=20)
    assert output == "cancelled\n", errors


def _beat_since(fake: FakeDaemon, beats: int) -> bool:
    return len(fake.of("heartbeat")) > beats + 2


async def _is(client: dhp_client.Client, handoff: str, status: str) -> bool:
    return (await client.status(handoff)).status == status


async def test_losing_while_blocked_is_seen_without_the_loop(shared_daemon: DaemonProcess, kind: str) -> None:
    canceller = """
    import asyncio, sys, dhp_client
    async def main():
        async with dhp_client.connect(sys.argv[1]) as client:
            await client.cancel(sys.argv[2])
    asyncio.run(main())
    """
    async with dhp_client.connect(shared_daemon.address) as client:
        made = await client.dispatch(kind, {})
        with losing():
            async with client.claim(kinds=kind) as task:
                command = [sys.executable, "-c", textwrap.dedent(canceller), shared_daemon.address, made.handoff]
                subprocess.run(command, check=True)  # noqa: ASYNC221 - blocking the loop is the point.
                deadline = time.monotonic() + 20
                while not task.lost and time.monotonic() < deadline:
                    time.sleep(0.01)  # noqa: ASYNC251
                assert task.lost
                await asyncio.sleep(60)
