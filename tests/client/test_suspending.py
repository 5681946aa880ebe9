"""Putting work aside, by its worker and from outside, and how it comes back."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

import dhp_client
from dhp_client import sync
from dhp_protocol.errors import NotFound, WrongState
from dhp_protocol.replies import HistoryReply, StatusReply
from tests.client.fake_daemon import HANDOFF, Connection, FakeDaemon, grant
from tests.client.losing import losing
from tests.client.test_leases import status
from tests.client.waiting import until_async
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

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


async def test_a_sleep_outlives_the_daemon_and_is_no_shorter(daemon: DaemonProcess) -> None:
    async with dhp_client.connect(daemon.address) as client:
        nap, sleep = await client.dispatch("nap", {}), await client.dispatch("sleep", {})
        for made, wake_ms in ((nap, 500), (sleep, 600_000)):
            async with client.claim(made.handoff) as task:
                await task.suspend(wake_ms=wake_ms)
        daemon.kill()
        await asyncio.to_thread(daemon.start)
        async with client.claim(kinds=["nap", "sleep"], wait_ms=20_000) as again:
            assert again.handoff == nap.handoff
            await again.complete("awake")
        assert (await client.status(sleep.handoff)).status == "suspended"
        records = {record["type"]: record for record in (await client.history(nap.handoff)).records}
        assert records["resumed"]["why"] == "wake"
        assert datetime.fromisoformat(records["resumed"]["at"]) >= datetime.fromisoformat(
            records["suspended"]["wake_at"]
        )


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
@pytest.mark.parametrize("asked", [{}, {"reason": "hold it"}, {"wake_ms": 60_001, "reason": "hold it"}])
async def test_a_word_from_outside_whose_answer_is_lost_is_said_again_in_peace(
    shared_daemon: DaemonProcess, kind: str, proxy_to: ProxyTo, op: str, asked: dict[str, Any]
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address) as client:
        made = await client.dispatch(kind, {})
        proxy.lose_answer_to(op)
        assert (await client.suspend(made.handoff, **asked)).status == "suspended"
        assert (await client.resume(made.handoff)).status == "pending"
        assert proxy.lost == 1


AT = "2026-01-01T00:00:00.000Z"
A_MINUTE_LATER = "2026-01-01T00:01:00.000Z"


def answered_once(fake: FakeDaemon, op: str, status_then: str, *records: dict[str, Any]) -> None:
    """The first `op` gets no answer and the second is refused; `records` are there by then, of which up to 5 were before."""

    async def answer(connection: Connection, request: Any) -> None:
        if len(fake.of(op)) == 1:
            connection.drop()
            return
        raise WrongState("no", handoff=HANDOFF, status=status_then)

    async def before(connection: Connection, request: Any) -> StatusReply:
        return replace(status("orphaned", 2), position=5)

    async def tell(connection: Connection, request: Any) -> HistoryReply:
        return HistoryReply(records=[{"n": 1, "position": 1, "type": "dispatched", "at": AT}, *records], next=None)

    fake.answers |= {op: answer, "status": before, "history": tell}


@pytest.mark.parametrize(
    ("record", "ours"),
    [
        ({"position": 6, "wake_at": A_MINUTE_LATER, "reason": "night"}, True),
        ({"position": 5, "wake_at": A_MINUTE_LATER, "reason": "night"}, False),
        ({"position": 6, "reason": "night"}, False),
        ({"position": 6, "wake_at": "2026-01-01T00:01:00.001Z", "reason": "night"}, False),
        ({"position": 6, "wake_at": A_MINUTE_LATER}, False),
        ({"position": 6, "wake_at": A_MINUTE_LATER, "reason": "night", "approval": "a"}, False),
        ({"position": 6, "wake_at": A_MINUTE_LATER, "reason": "night", "worker": "w"}, False),
    ],
)
async def test_only_a_sleep_of_ones_own_is_a_success_when_it_is_asked_for_again(
    fake: FakeDaemon, record: dict[str, Any], ours: bool
) -> None:
    answered_once(fake, "suspend", "suspended", {"n": 2, "type": "suspended", "at": AT, **record})
    async with dhp_client.connect(fake.address) as client:
        asking = client.suspend(HANDOFF, wake_ms=60_000, reason="night")
        if ours:
            assert (await asking).status == "suspended"
        else:
            with pytest.raises(WrongState):
                await asking
    assert len(fake.of("suspend")) == 2


async def test_a_sleep_that_somebody_has_replaced_is_no_success(fake: FakeDaemon) -> None:
    ours = {"n": 2, "position": 6, "type": "suspended", "at": AT}
    theirs = {"n": 4, "position": 8, "type": "suspended", "at": AT, "reason": "exported"}
    answered_once(fake, "suspend", "suspended", ours, theirs)
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(WrongState):
            await client.suspend(HANDOFF)


@pytest.mark.parametrize("now", ["pending", "running", "orphaned", "completed"])
async def test_what_was_resumed_is_so_whatever_became_of_it_since(fake: FakeDaemon, now: str) -> None:
    answered_once(fake, "resume", now, {"n": 2, "position": 6, "type": "resumed", "at": AT, "why": "resume"})
    async with dhp_client.connect(fake.address) as client:
        assert (await client.resume(HANDOFF)).status == now


@pytest.mark.parametrize(("position", "why"), [(5, "resume"), (6, "wake")])
async def test_what_was_pending_before_or_woke_by_itself_was_not_resumed(
    fake: FakeDaemon, position: int, why: str
) -> None:
    answered_once(fake, "resume", "pending", {"n": 2, "position": position, "type": "resumed", "at": AT, "why": why})
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(WrongState):
            await client.resume(HANDOFF)


@pytest.mark.parametrize(("why", "ended"), [("superseded", "suspended"), ("cancelled", None)])
async def test_a_workers_suspend_that_another_end_came_before_is_a_loss(
    fake: FakeDaemon, why: str, ended: str | None
) -> None:
    async def grants(connection: Connection, request: Any) -> Any:
        return grant()

    async def refuse(connection: Connection, request: Any) -> None:
        if len(fake.of("suspend")) == 1:
            connection.drop()
            return
        raise dhp_client.LeaseLost("no", why=why, fence=4, status="running")

    fake.answers |= {"claim": grants, "suspend": refuse}
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        if ended is None:
            with losing() as lost:
                await task.suspend(wake_ms=60_000)
            assert lost.value.details["why"] == why
        else:
            assert (await task.suspend(wake_ms=60_000)).duplicate
        assert task.ended == ended


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


async def test_what_never_was_there_is_not_forgotten_however_often_it_is_asked(fake: FakeDaemon) -> None:
    async def unknown(connection: Connection, request: Any) -> None:
        if len(fake.of("forget")) == 1:
            connection.drop()
            return
        raise NotFound("no", handoff=HANDOFF)

    fake.answers |= {"forget": unknown, "status": unknown}
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(NotFound):
            await client.forget(HANDOFF)


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
