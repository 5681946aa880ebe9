"""Putting work aside, by its worker and from outside, and how it comes back."""

import asyncio
from collections.abc import Callable

import pytest

import dhp_client
from dhp_client import sync
from dhp_protocol.errors import NotFound, WrongState
from tests.client.losing import losing
from tests.client.proxy import Proxy
from tests.client.waiting import until_async
from tests.support.daemon_process import DaemonProcess

ProxyTo = Callable[[DaemonProcess], Proxy]


async def test_a_worker_puts_its_work_to_sleep_and_any_worker_goes_on(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        await task.checkpoint("half")
        assert (await task.suspend(wake_ms=200, reason="not yet")).status == "suspended"
        with pytest.raises(dhp_client.TaskEnded, match="suspended"):
            await task.checkpoint("more")
    assert (task.ended, task.lost) == ("suspended", False)
    async with client.claim(kinds=kind, wait_ms=20_000) as again:
        assert again.state == "half"
        await again.complete(None)
    assert (await client.status(made.handoff)).failures == 0


async def test_a_sleep_outlives_the_daemon(daemon: DaemonProcess) -> None:
    async with dhp_client.connect(daemon.address) as client:
        await client.dispatch("k", {})
        async with client.claim(kinds="k") as task:
            await task.suspend(wake_ms=500)
        daemon.kill()
        await asyncio.to_thread(daemon.start)
        async with client.claim(kinds="k", wait_ms=20_000) as again:
            await again.complete("awake")


async def test_work_without_a_wake_up_waits_for_resume(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    assert (await client.suspend(made.handoff, reason="hold it")).status == "suspended"
    status = await client.status(made.handoff)
    assert (status.status, status.reason) == ("suspended", "hold it")
    with pytest.raises(WrongState):
        await client.suspend(made.handoff)
    assert (await client.resume(made.handoff)).status == "pending"
    with pytest.raises(WrongState):
        await client.resume(made.handoff)


async def test_a_worker_whose_work_is_put_aside_from_outside_loses_it(
    client: dhp_client.Client, kind: str, shared_daemon: DaemonProcess
) -> None:
    made = await client.dispatch(kind, {})
    async with dhp_client.connect(shared_daemon.address) as other:
        with losing() as lost:
            async with client.claim(kinds=kind):
                await other.suspend(made.handoff, wake_ms=60_000)
                await asyncio.sleep(60)
    assert lost.value.details["why"] == "suspended"
    status = await client.status(made.handoff)
    assert (status.status, status.failures) == ("suspended", 0)


@pytest.mark.parametrize("op", ["suspend", "resume"])
async def test_a_word_from_outside_whose_answer_is_lost_is_said_again_in_peace(
    shared_daemon: DaemonProcess, kind: str, proxy_to: ProxyTo, op: str
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address) as client:
        made = await client.dispatch(kind, {})
        proxy.lose_answer_to(op)
        assert (await client.suspend(made.handoff)).status == "suspended"
        assert (await client.resume(made.handoff)).status == "pending"
        assert proxy.lost == 1


async def test_a_workers_suspend_whose_answer_is_lost_is_the_end_of_its_hold(
    shared_daemon: DaemonProcess, kind: str, proxy_to: ProxyTo
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address) as client:
        made = await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            proxy.lose_answer_to("suspend")
            await task.suspend(wake_ms=60_000)
        assert (proxy.lost, task.ended, task.lost) == (1, "suspended", False)
        records = (await client.history(made.handoff)).records
        assert [record["type"] for record in records] == ["dispatched", "claimed", "suspended"]


async def test_what_has_ended_can_be_forgotten_at_once(daemon: DaemonProcess, proxy_to: ProxyTo) -> None:
    proxy = proxy_to(daemon)
    async with dhp_client.connect(proxy.address) as client:
        made = await client.dispatch("k", {})
        with pytest.raises(WrongState):
            await client.forget(made.handoff)
        await client.cancel(made.handoff)
        proxy.lose_answer_to("forget")
        await client.forget(made.handoff)
        assert proxy.lost == 1
        with pytest.raises(NotFound):
            await client.forget(made.handoff)


def test_the_sync_client_says_the_same(shared_daemon: DaemonProcess, kind: str) -> None:
    with sync.connect(shared_daemon.address) as client:
        made = client.dispatch(kind, {})
        with client.claim(kinds=kind) as task:
            assert task.suspend(reason="later").status == "suspended"
        assert task.ended == "suspended"
        assert client.resume(made.handoff).status == "pending"
        assert client.suspend(made.handoff, wake_ms=1).status == "suspended"
        with client.claim(kinds=kind, wait_ms=20_000) as task:
            task.complete(None)
        with pytest.raises(NotFound):
            client.forget("0" * 64)


async def test_a_sleeper_can_be_woken_early(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    await client.suspend(made.handoff, wake_ms=600_000)
    await client.resume(made.handoff, force=True)

    async def pending() -> bool:
        return (await client.status(made.handoff)).status == "pending"

    await until_async(pending)
