"""A person's word: waited for under the lease, or with the work put aside; never the asker's own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import dhp_client
from dhp_client import sync
from dhp_client.results import Approval
from dhp_protocol.errors import AlreadyDecided, ApprovalExpired, Forbidden
from tests.client.losing import losing, raising
from tests.client.proxy import Proxy
from tests.support.daemon_process import DaemonProcess

ProxyTo = Callable[[DaemonProcess], Proxy]

LONG_MS = 600_000


@pytest.fixture
async def person(shared_daemon: DaemonProcess) -> AsyncIterator[dhp_client.Client]:
    """Somebody else than the worker: another session."""
    async with dhp_client.connect(shared_daemon.address, name="person") as person:
        yield person


async def asked(person: dhp_client.Client, handoff: str) -> Approval:
    """What the work wants to know, as soon as it does."""
    while not (found := (await person.approvals(handoff=handoff, status="open")).approvals):
        await asyncio.sleep(0.01)
    return found[0]


async def test_a_worker_waits_under_its_lease_for_a_yes(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        asking = asyncio.create_task(task.approval("pay", {"usd": 12.5, "to": "Ada"}, timeout_ms=LONG_MS))
        open_one = await asked(person, task.handoff)
        assert (open_one.action, open_one.details, open_one.decision) == ("pay", {"to": "Ada", "usd": 12.5}, None)
        assert not asking.done()
        decision = await person.approve(open_one.approval, note="fine by me")
        assert decision.decision == "approved"
        approved = await asking
        assert (approved.approval, approved.note) == (open_one.approval, "fine by me")
        assert approved == await task.approval("pay", {"to": "Ada", "usd": 12.5}, timeout_ms=LONG_MS)
        await task.complete(None)


async def test_a_no_is_an_exception_that_says_why(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        asking = asyncio.create_task(task.approval("pay", timeout_ms=LONG_MS))
        approval = (await asked(person, task.handoff)).approval
        await person.deny(approval, "too dear")
        with pytest.raises(dhp_client.ApprovalDenied, match="too dear") as denied:
            await asking
        assert (denied.value.approval, denied.value.note) == (approval, "too dear")
        with pytest.raises(AlreadyDecided):
            await person.approve(approval)


async def test_nobodys_word_is_no_no_and_a_new_question_may_follow(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        with pytest.raises(ApprovalExpired) as expired:
            await task.approval("pay", timeout_ms=1)
        asking = asyncio.create_task(task.approval("pay", timeout_ms=LONG_MS))
        approval = (await asked(person, task.handoff)).approval
        assert approval != expired.value.details["approval"]
        with pytest.raises(ApprovalExpired):
            await person.approve(expired.value.details["approval"])
        await person.approve(approval)
        assert (await asking).approval == approval


async def test_whoever_asks_does_not_decide(client: dhp_client.Client, person: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        asking = asyncio.create_task(task.approval("pay", timeout_ms=LONG_MS))
        approval = (await asked(person, task.handoff)).approval
        with pytest.raises(Forbidden):
            await client.approve(approval)
        assert (await client.approval_wait(approval)).decision is None
        await person.approve(approval)
        await asking


async def test_a_worker_whose_lease_is_lost_stops_waiting(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    task = await client.claim(kinds=kind)
    assert task is not None
    asking = asyncio.create_task(task.approval("pay", timeout_ms=LONG_MS))
    approval = (await asked(person, made.handoff)).approval
    await person.cancel(made.handoff)
    with losing() as lost:
        await asking
    assert lost.value.details["why"] == "cancelled"
    assert (await person.approval_wait(approval)).decision == "cancelled"


async def test_an_approval_outlives_the_daemon_while_a_worker_waits(daemon: DaemonProcess) -> None:
    async with dhp_client.connect(daemon.address) as client, dhp_client.connect(daemon.address) as person:
        made = await client.dispatch("k", {})
        async with client.claim(kinds="k") as task:
            asking = asyncio.create_task(task.approval("pay", timeout_ms=LONG_MS))
            approval = (await asked(person, made.handoff)).approval
            daemon.kill()
            await asyncio.to_thread(daemon.start)
            await person.approve(approval)
            assert (await asking).approval == approval
            await task.complete(None)


async def test_parked_work_frees_its_worker_and_comes_back_with_the_answer(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    paid: list[str] = []
    reached: list[Any] = []

    async def work() -> None:
        async with client.claim(kinds=kind, wait_ms=20_000) as task:
            approved = await task.approval("pay", {"usd": 3}, timeout_ms=LONG_MS, park=True)
            reached.append(approved)
            await task.effect("pay", paid.append, approval=approved)
            await task.complete("paid")

    await work()  # It ends here without an exception.
    assert reached == []
    status = await client.status(made.handoff)
    assert (status.status, status.holder, status.failures) == ("suspended", None, 0)
    coming_back = asyncio.create_task(work())
    await person.approve((await asked(person, made.handoff)).approval)
    await coming_back
    assert len(paid) == 1
    assert (await client.result(made.handoff)).result == "paid"


async def test_parked_work_comes_back_with_a_no(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        await task.approval("pay", timeout_ms=LONG_MS, park=True)
    assert task.ended == "suspended"
    await person.deny((await asked(person, made.handoff)).approval)
    with raising(dhp_client.ApprovalDenied):
        async with client.claim(kinds=kind, wait_ms=20_000) as again:
            await again.approval("pay", timeout_ms=LONG_MS, park=True)


async def test_parked_work_hears_that_nobody_answered_before_it_asks_again(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    heard = False
    async with client.claim(kinds=kind) as task:
        await task.approval("pay", {"n": 1.0}, timeout_ms=300, park=True)
    async with client.claim(kinds=kind, wait_ms=20_000) as again:
        with pytest.raises(ApprovalExpired):
            await again.approval("pay", {"n": 1}, timeout_ms=LONG_MS, park=True)
        heard = True
        await again.approval("pay", {"n": 1}, timeout_ms=LONG_MS, park=True, again=True)
    assert (again.ended, heard) == ("suspended", True)
    assert (await asked(person, made.handoff)).details == {"n": 1}


async def test_outside_of_a_block_the_end_of_the_work_is_an_exception(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {})
    task = await client.claim(kinds=kind)
    assert task is not None
    with pytest.raises(dhp_client.Suspended) as suspended:
        await task.approval("pay", timeout_ms=LONG_MS, park=True)
    assert (suspended.value.handoff, task.ended) == (task.handoff, "suspended")


async def test_a_block_lets_anothers_suspended_pass(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {"n": 1})
    await client.dispatch(kind, {"n": 2})
    other = await client.claim(kinds=kind)
    assert other is not None
    with raising(dhp_client.Suspended):
        async with client.claim(kinds=kind):
            await other.approval("pay", timeout_ms=LONG_MS, park=True)


@pytest.mark.parametrize("op", ["approval_request", "approval_decide"])
async def test_a_question_and_an_answer_that_are_sent_again_are_the_same(
    shared_daemon: DaemonProcess, kind: str, proxy_to: ProxyTo, op: str
) -> None:
    asker, decider = proxy_to(shared_daemon), proxy_to(shared_daemon)
    async with dhp_client.connect(asker.address) as client, dhp_client.connect(decider.address) as person:
        await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            for proxy in (asker, decider):
                proxy.lose_answer_to(op)
            asking = asyncio.create_task(task.approval("pay", timeout_ms=LONG_MS))
            await person.approve((await asked(person, task.handoff)).approval)
            await asking
            assert asker.lost + decider.lost == 1
            records = [record["type"] for record in (await client.history(task.handoff)).records]
            assert (records.count("approval_requested"), records.count("approval_decided")) == (1, 1)


async def test_all_that_is_open_is_listed(client: dhp_client.Client, person: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        asking = [asyncio.create_task(task.approval("pay", n, timeout_ms=LONG_MS)) for n in range(3)]
        while len(found := (await person.approvals(handoff=task.handoff, limit=2)).approvals) < 2:
            await asyncio.sleep(0.01)
        page = await person.approvals(handoff=task.handoff, limit=2)
        while page.next is None:
            page = await person.approvals(handoff=task.handoff, limit=2)
        rest = await person.approvals(handoff=task.handoff, after=page.next)
        assert sorted(one.details for one in [*found, *rest.approvals]) == [0, 1, 2]
        for one in [*found, *rest.approvals]:
            await person.approve(one.approval)
        await asyncio.gather(*asking)


def test_the_sync_task_waits_and_parks_the_same(shared_daemon: DaemonProcess, kind: str) -> None:
    with sync.connect(shared_daemon.address) as client, sync.connect(shared_daemon.address) as person:
        made = client.dispatch(kind, {})
        with client.claim(kinds=kind) as task:
            task.approval("pay", timeout_ms=LONG_MS, park=True)
            pytest.fail("the block goes no further")
        assert task.ended == "suspended"
        (one,) = person.approvals(handoff=made.handoff).approvals
        person.approve(one.approval, "go")
        assert client.approval_wait(one.approval, 1_000).decision == "approved"
        with client.claim(kinds=kind, wait_ms=20_000) as task:
            assert task.approval("pay", timeout_ms=LONG_MS).note == "go"
            with pytest.raises(ApprovalExpired):
                task.approval("mail", timeout_ms=1)
            task.complete(None)
        with pytest.raises(AlreadyDecided):
            person.deny(one.approval)
