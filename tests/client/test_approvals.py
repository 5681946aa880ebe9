"""A person's word: waited for under the lease, or with the work put aside; never the asker's own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import dhp_client
from dhp_client import sync
from dhp_client.results import Approval
from dhp_protocol.errors import AlreadyDecided, ApprovalExpired, BudgetExceeded, Forbidden, Overloaded, StoreUnavailable
from dhp_protocol.replies import ApprovalRequestReply, ClaimReply, DecisionReply
from tests.client.fake_daemon import HANDOFF, Connection, FakeDaemon, grant
from tests.client.losing import losing, raising
from tests.client.waiting import until, until_async
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

ProxyTo = Callable[[DaemonProcess], Proxy]

LONG_MS = 600_000
APPROVAL = f"{HANDOFF}-{'0' * 16}"


@pytest.fixture
async def person(shared_daemon: DaemonProcess) -> AsyncIterator[dhp_client.Client]:
    """Somebody else than the worker: another session."""
    async with dhp_client.connect(shared_daemon.address, name="person") as person:
        yield person


async def asked(person: dhp_client.Client, handoff: str) -> Approval:
    """What the work wants to know, as soon as it does."""
    (found, *_) = await all_asked(person, handoff, 1)
    return found


async def all_asked(person: dhp_client.Client, handoff: str, count: int) -> list[Approval]:
    """So many open questions of the work, as soon as they are there."""
    found: list[Approval] = []

    async def there() -> bool:
        found[:] = (await person.approvals(handoff=handoff, status="open")).approvals
        return len(found) >= count

    await until_async(there, f"{count} questions")
    return found


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


async def test_a_worker_waits_however_long_the_daemon_is_away(daemon: DaemonProcess) -> None:
    async with (
        dhp_client.connect(daemon.address, retry_ms=50) as client,
        dhp_client.connect(daemon.address) as person,
    ):
        made = await client.dispatch("k", {})
        async with client.claim(kinds="k") as task:
            asking = asyncio.create_task(task.approval("pay", timeout_ms=LONG_MS))
            approval = (await asked(person, made.handoff)).approval
            daemon.kill()
            for _ in range(2):  # Any other call has given up by then.
                with pytest.raises((dhp_client.NotConnected, dhp_client.ConnectionLost)):
                    await client.ping()
            await asyncio.to_thread(daemon.start)
            await person.approve(approval)
            assert (await asking).approval == approval
            await task.complete(None)


@pytest.mark.parametrize("error", [StoreUnavailable, Overloaded])
async def test_a_worker_waits_however_long_the_daemon_can_not_say(fake: FakeDaemon, error: type[Any]) -> None:
    over = False

    async def grants(connection: Connection, request: Any) -> ClaimReply:
        return grant()

    async def noted(connection: Connection, request: Any) -> ApprovalRequestReply:
        return ApprovalRequestReply(approval=APPROVAL)

    async def decided(connection: Connection, request: Any) -> DecisionReply:
        if not over:
            raise error("not now")
        return DecisionReply(decision="approved")

    async def unwell(connection: Connection, request: Any) -> None:
        raise error("not now")

    fake.answers |= {"claim": grants, "approval_request": noted, "approval_wait": decided, "stats": unwell}
    async with dhp_client.connect(fake.address, retry_ms=50) as client, client.claim(kinds="fetch") as task:
        asking = asyncio.create_task(task.approval("pay", timeout_ms=LONG_MS))
        await until(lambda: fake.of("approval_wait"))
        for _ in range(2):  # Any other call has given up by then.
            with pytest.raises(error):
                await client.stats()
        over = True
        assert (await asking).approval == APPROVAL


async def test_who_waits_for_a_decision_hears_that_the_block_is_left(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        asking = asyncio.create_task(task.approval("pay", timeout_ms=LONG_MS))
        approval = (await asked(person, made.handoff)).approval
    with pytest.raises(dhp_client.TaskEnded, match="released"):
        await asking
    await person.approve(approval)
    with pytest.raises(dhp_client.TaskEnded):
        await task.approval("pay", timeout_ms=LONG_MS)


async def test_who_waits_for_a_decision_hears_that_a_cap_has_ended_the_work(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {}, budget={"max_steps": 1})
    with raising(BudgetExceeded):
        async with client.claim(kinds=kind) as task:
            asking = asyncio.create_task(task.approval("pay", timeout_ms=LONG_MS))
            await asked(person, made.handoff)
            await task.spend(steps=2)
    with pytest.raises((dhp_client.TaskEnded, ApprovalExpired)) as told:
        await asking
    assert "dead" in str(told.value) or "has ended" in str(told.value)


async def test_a_question_that_ended_with_its_work_does_not_pretend_that_nobody_answered(fake: FakeDaemon) -> None:
    async def grants(connection: Connection, request: Any) -> ClaimReply:
        return grant()

    async def noted(connection: Connection, request: Any) -> ApprovalRequestReply:
        return ApprovalRequestReply(approval=APPROVAL)

    async def cancelled(connection: Connection, request: Any) -> DecisionReply:
        return DecisionReply(decision="cancelled")

    fake.answers |= {"claim": grants, "approval_request": noted, "approval_wait": cancelled}
    async with dhp_client.connect(fake.address) as client, client.claim(kinds="fetch") as task:
        with pytest.raises(ApprovalExpired, match="The work has ended") as told:
            await task.approval("pay", timeout_ms=LONG_MS)
        assert told.value.details["decision"] == "cancelled"


async def test_nothing_is_waited_for_once_the_lease_is_lost(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    task = await client.claim(kinds=kind)
    assert task is not None
    await person.cancel(made.handoff)
    await until(lambda: task.lost)

    async def never() -> None:
        pytest.fail("this was begun")

    with losing():
        await task._hold.wait(never)


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
        while True:  # On a machine that is slow, a question may be over before the work is put aside.
            with contextlib.suppress(ApprovalExpired):
                await task.approval("pay", {"n": 1.0}, timeout_ms=300, park=True, again=True)
    assert task.ended == "suspended"
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


async def test_a_question_in_a_group_of_tasks_puts_the_work_aside_as_well(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task, asyncio.TaskGroup() as group:
        group.create_task(task.approval("mail", timeout_ms=LONG_MS))
        await asked(person, made.handoff)
        group.create_task(task.approval("pay", timeout_ms=LONG_MS, park=True))
        group.create_task(task.approval("ship", timeout_ms=LONG_MS, park=True))
    assert task.ended == "suspended"
    assert (await client.status(made.handoff)).status == "suspended"


async def test_whoever_hears_first_that_the_work_was_put_aside_ends_the_block_as_well(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})

    async def pay(task: dhp_client.Task) -> None:
        await asked(person, made.handoff)
        await task.approval("pay", timeout_ms=LONG_MS, park=True)

    async with client.claim(kinds=kind) as task:
        await asyncio.gather(task.approval("mail", timeout_ms=LONG_MS), pay(task))
    assert task.ended == "suspended"


async def test_going_on_after_a_suspend_of_ones_own_is_a_mistake(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {})
    with raising(dhp_client.TaskEnded):
        async with client.claim(kinds=kind) as task:
            await task.suspend(wake_ms=60_000)
            await task.checkpoint("more")


async def test_what_else_a_group_of_tasks_raised_is_not_swallowed(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {})

    async def breaks(task: dhp_client.Task) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionResetError

    with raising(ExceptionGroup) as raised:
        async with client.claim(kinds=kind) as task, asyncio.TaskGroup() as group:
            group.create_task(breaks(task))
            group.create_task(task.approval("pay", timeout_ms=LONG_MS, park=True))
    assert raised.value.subgroup(ConnectionResetError) is not None
    assert task.ended == "suspended"


@pytest.mark.parametrize("park", [True, False])
async def test_another_event_loop_is_told_apart(client: dhp_client.Client, kind: str, park: bool) -> None:
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        for work in (
            task.approval("pay", timeout_ms=LONG_MS, park=park),
            task.afford(steps=1),
            task.effect("charge", lambda key: key),
        ):
            with pytest.raises(dhp_client.WrongLoop):
                await asyncio.to_thread(asyncio.run, work)


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
        await all_asked(person, task.handoff, 3)
        page = await person.approvals(handoff=task.handoff, limit=2)
        assert page.next is not None
        rest = await person.approvals(handoff=task.handoff, after=page.next)
        assert (len(page.approvals), rest.next) == (2, None)
        assert sorted(one.details for one in [*page.approvals, *rest.approvals]) == [0, 1, 2]
        for one in [*page.approvals, *rest.approvals]:
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


async def test_a_no_that_leaves_the_block_ends_the_work_and_burns_no_further_attempt(
    client: dhp_client.Client, person: dhp_client.Client, kind: str
) -> None:
    handoff = (await client.dispatch(kind, {})).handoff

    async def attempt() -> None:
        async with client.claim(handoff, wait_ms=60_000) as task:
            await task.approval("pay", timeout_ms=LONG_MS, park=True)

    await attempt()
    await person.deny((await asked(person, handoff)).approval, "too dear")
    with pytest.raises(dhp_client.ApprovalDenied):
        await attempt()
    status = await client.status(handoff)
    assert (status.status, status.failures) == ("dead", 1)
    assert status.reason is not None
    assert "ApprovalDenied" in status.reason


def test_the_sync_client_does_not_try_again_after_a_no_either(shared_daemon: DaemonProcess, kind: str) -> None:
    with sync.connect(shared_daemon.address) as client, sync.connect(shared_daemon.address) as person:
        handoff = client.dispatch(kind, {}).handoff

        def attempt() -> None:
            with client.claim(handoff, wait_ms=60_000) as task:
                task.approval("pay", timeout_ms=LONG_MS, park=True)

        attempt()
        person.deny(person.approvals(handoff=handoff).approvals[0].approval)
        with pytest.raises(dhp_client.ApprovalDenied):
            attempt()
        assert client.status(handoff).status == "dead"
