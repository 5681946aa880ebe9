"""Steps and money: counted exactly and once, refused at a cap, and asked about before they are spent."""

import asyncio
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from typing import Any

import pytest
from msgspec.structs import replace

import dhp_client
from dhp_client import sync
from dhp_client.money import exact_usd, usd_json
from dhp_protocol.errors import BudgetExceeded, InvalidRequest
from dhp_protocol.replies import (
    CheckpointReply,
    ClaimReply,
    HistoryReply,
    LeaseLostEvent,
    StatusReply,
)
from tests.client.fake_daemon import HANDOFF, Connection, FakeDaemon, grant
from tests.client.losing import losing, raising
from tests.client.test_leases import status
from tests.client.waiting import until
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

ProxyTo = Callable[[DaemonProcess], Proxy]


@pytest.mark.parametrize(
    ("amount", "number"),
    [
        (0.1, b"0.1"),
        (1e-7, b"0.0000001"),
        (Decimal("0.30"), b"0.30"),
        (Decimal("1E+3"), b"1000"),
        ("0.000000001", b"0.000000001"),
        (" 2.50 ", b"2.50"),
        (7, b"7"),
        (Decimal("1E-40"), b"0.000000001"),
        (Decimal("1e-100"), b"0.000000001"),
        (Decimal("-1e-100"), b"-0.000000001"),
        (Decimal("0e-100"), b"0.000000000"),
        (Decimal("1234567.8901234565" + "0" * 30), b"1234567.890123456"),
        (-1, b"-1"),
    ],
)
@pytest.mark.parametrize("precision", [1, 28])
def test_money_is_the_number_that_was_written(amount: Any, number: bytes, precision: int) -> None:
    with localcontext(Context(prec=precision)):
        assert bytes(usd_json(amount)) == number


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), Decimal("NaN"), "-Infinity", "a lot", "", 10**40])
def test_what_is_no_finite_number_is_no_money(amount: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        exact_usd(amount)
    assert refused.value.details == {"member": "usd"}


@pytest.mark.parametrize("amount", [True, None, b"1", [1]])
def test_another_type_is_no_money(amount: Any) -> None:
    with pytest.raises(TypeError, match="usd must be a Decimal"):
        exact_usd(amount)


async def test_dimes_add_up_to_a_dollar_however_they_are_written(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {}, budget={"max_usd": 1})
    async with client.claim(kinds=kind) as task:
        for amount in (0.1, "0.1", Decimal("0.1"), 0.1, 0.1):
            await task.spend(usd=amount)
        for n in range(4):
            await task.checkpoint(n, usd=0.1, steps=2)
        assert (await task.spend(usd=0.1, steps=3)) == dhp_client.Spent(usd=1.0, steps=11)
        await task.complete(None)


async def test_a_spending_whose_answer_is_lost_is_counted_once(
    shared_daemon: DaemonProcess, kind: str, proxy_to: ProxyTo
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address) as client:
        await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            proxy.lose_answer_to("spend")
            reply = await task.spend(usd="0.25", steps=2)
            assert (proxy.lost, reply.usd, reply.steps) == (1, 0.25, 2)
            proxy.lose_answer_to("checkpoint")
            await task.checkpoint("half", usd="0.5", steps=3)
            found = await client.status(task.handoff)
            assert (proxy.lost, found.usd, found.steps, found.seq) == (2, 0.75, 5, 1)


async def test_what_would_pass_a_cap_ends_the_work_and_a_redrive_applies_it_first(
    client: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {}, budget=dhp_client.Budget(max_usd="0.30", max_steps=10))
    with raising(BudgetExceeded) as refused:
        async with client.claim(kinds=kind) as task:
            await task.checkpoint("cheap", usd="0.20")
            await task.checkpoint("dear", usd="0.20")
    details = refused.value.details
    assert (details["cap"], details["limit"], details["used"], details["asked"]) == ("max_usd", 0.3, 0.2, 0.2)
    assert (task.ended, task.lost) == ("dead", False)
    with pytest.raises(dhp_client.TaskEnded, match="redrive"):
        await task.checkpoint("more")
    with pytest.raises(BudgetExceeded):
        await client.redrive(made.handoff)
    assert (await client.redrive(made.handoff, {"max_usd": Decimal("0.1")})).status == "pending"
    async with client.claim(made.handoff) as again:
        assert (again.state, again.seq) == ("dear", 2)
        await again.complete("done")
    assert (await client.status(made.handoff)).usd == 0.4


@pytest.mark.parametrize("op", ["spend", "checkpoint"])
@pytest.mark.parametrize(
    ("cap", "asked"),
    [("max_usd", {"usd": "0.25", "steps": 1}), ("max_steps", {"steps": 6})],
)
@pytest.mark.parametrize("of_the_parent", [False, True])
async def test_a_caps_refusal_whose_answer_is_lost_is_still_told(
    shared_daemon: DaemonProcess,
    kind: str,
    proxy_to: ProxyTo,
    op: str,
    cap: str,
    asked: dict[str, Any],
    of_the_parent: bool,
) -> None:
    proxy = proxy_to(shared_daemon)
    budget = {"max_usd": "0.5", "max_steps": 7}
    async with dhp_client.connect(proxy.address) as client, dhp_client.connect(shared_daemon.address) as other:
        parent = await other.dispatch(kind, {"is": "parent"}, budget=budget if of_the_parent else {})
        made = await other.dispatch(kind, {}, budget={} if of_the_parent else budget, parent=parent.handoff)
        with raising(BudgetExceeded) as refused:
            async with client.claim(made.handoff) as task:
                await task.checkpoint("first", usd="0.3", steps=2)
                proxy.lose_answer_to(op)
                await (task.spend(**asked) if op == "spend" else task.checkpoint("second", **asked))
        assert (proxy.lost, task.ended, task.lost) == (1, "dead", False)
        with pytest.raises(BudgetExceeded) as told_by_redrive:
            await other.redrive(made.handoff)
    assert refused.value.details == told_by_redrive.value.details
    assert str(refused.value).startswith(f"This would pass {cap}")
    assert (refused.value.details["cap"], refused.value.details["whose"]) == (
        cap,
        parent.handoff if of_the_parent else made.handoff,
    )


@pytest.mark.parametrize(
    ("record", "ours"),
    [
        ({"fence": 2, "cap": "max_usd", "whose": HANDOFF, "kept_usd": 0.5, "kept_steps": 1}, True),
        ({"fence": 2, "cap": "max_usd", "whose": HANDOFF, "kept_usd": 0.5}, False),
        ({"fence": 2, "cap": "max_usd", "whose": HANDOFF, "kept_usd": 0.25, "kept_steps": 1}, False),
        ({"fence": 4, "cap": "max_usd", "whose": HANDOFF, "kept_usd": 0.5, "kept_steps": 1}, False),
        ({"fence": 2, "cap": "max_wallclock_ms"}, False),
        ({"fence": 2}, False),
    ],
)
async def test_work_that_died_of_something_else_is_lost(fake: FakeDaemon, record: dict[str, Any], ours: bool) -> None:
    async def grants(connection: Connection, request: Any) -> ClaimReply:
        return grant()

    async def refuse(connection: Connection, request: Any) -> None:
        if len(fake.of("spend")) == 1:
            connection.drop()
            return
        raise dhp_client.LeaseLost("no", why="dead", fence=2, status="dead")

    async def tell(connection: Connection, request: Any) -> HistoryReply:
        return HistoryReply(records=[{"n": 3, "position": 3, "type": "dead", **record}], next=None)

    async def account(connection: Connection, request: Any) -> StatusReply:
        return replace(status("dead", 2), usd=0.75, budget={"max_usd": 1.0})

    fake.answers |= {"claim": grants, "spend": refuse, "history": tell, "status": account}
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        with pytest.raises(BudgetExceeded if ours else dhp_client.LeaseLost) as told:
            await task.spend(usd="0.5", steps=1)
        assert (task.ended, task.lost) == (("dead", False) if ours else (None, True))
    if ours:
        expected = {"cap": "max_usd", "limit": 1.0, "used": 0.75, "asked": 0.5, "lacking": 0.25, "whose": HANDOFF}
        assert told.value.details == expected


async def test_being_told_of_the_end_before_the_refusal_comes_changes_nothing(fake: FakeDaemon) -> None:
    told = asyncio.Event()

    async def grants(connection: Connection, request: Any) -> ClaimReply:
        return grant()

    async def refuse(connection: Connection, request: Any) -> CheckpointReply:
        for other in fake.connections:
            other.event(LeaseLostEvent(handoff=HANDOFF, fence=1, why="dead", status="dead"))
        await told.wait()
        raise BudgetExceeded("no", cap="max_usd", limit=1, used=1, asked=1, whose=HANDOFF)

    fake.answers |= {"claim": grants, "checkpoint": refuse}
    async with dhp_client.connect(fake.address) as client:
        with raising(BudgetExceeded):
            async with client.claim(kinds="fetch") as task:
                saving = asyncio.create_task(task.checkpoint("dear", usd=1))
                await until(lambda: task._hold.lease.told is not None)
                told.set()
                await saving
        assert (task.ended, task.lost) == ("dead", False)


async def test_another_loss_that_is_told_meanwhile_is_a_loss(fake: FakeDaemon) -> None:
    async def grants(connection: Connection, request: Any) -> ClaimReply:
        return grant()

    async def store(connection: Connection, request: Any) -> CheckpointReply:
        connection.event(LeaseLostEvent(handoff=HANDOFF, fence=1, why="dead", status="dead"))
        return CheckpointReply(seq=request.seq, sha256=request.sha256, duplicate=False)

    fake.answers |= {"claim": grants, "checkpoint": store}
    async with dhp_client.connect(fake.address) as client:
        with losing() as lost:
            async with client.claim(kinds="fetch") as task:
                await task.checkpoint(1)
                await asyncio.sleep(60)
        assert lost.value.details["why"] == "dead"


async def test_afford_looks_at_every_cap_up_to_the_root(client: dhp_client.Client, kind: str) -> None:
    root = await client.dispatch(kind, {"is": "root"}, budget={"max_usd": 1, "max_steps": 5})
    async with client.claim(root.handoff) as parent:
        child = await parent.dispatch(f"{kind}-child", {}, budget={"max_usd": 10})
        async with client.claim(child.handoff) as task:
            await task.checkpoint("begun", usd="0.7", steps=2)
            headroom = await task.afford(usd="0.3", steps=3)
            assert headroom
            assert (headroom.usd, headroom.steps, headroom.cap) == (Decimal("0.3"), 3, None)
            dear = await task.afford(usd=0.31)
            assert (bool(dear), dear.cap, dear.whose) == (False, "max_usd", root.handoff)
            long = await task.afford(steps=4)
            assert (bool(long), long.cap, long.whose) == (False, "max_steps", root.handoff)
            assert (await client.status(root.handoff)).usd == 0.7
            await task.complete(None)
        await parent.complete(None)


async def test_what_is_left_is_exact_whatever_the_callers_precision(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {}, budget={"max_usd": "1234.5678"})
    async with client.claim(kinds=kind) as task:
        await task.spend(usd="0.0001")
        with localcontext(Context(prec=4)):
            headroom = await task.afford(usd="1234.56771")
        assert (headroom.usd, headroom.cap) == (Decimal("1234.5677"), "max_usd")


async def test_afford_without_caps_is_a_yes(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        assert await task.afford(usd=1_000_000, steps=1_000_000) == dhp_client.Headroom(usd=None, steps=None)


async def test_the_same_activity_again_and_again_is_a_stall(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {}, budget={"max_repeats": 2})
    with losing() as lost:
        async with client.claim(kinds=kind) as task:
            assert await task.activity({"tool": "search", "query": "x"}) == 0
            assert await task.activity({"tool": "search", "query": "y"}) == 0
            await task.checkpoint("on", activity={"tool": "search", "query": "y"})
            assert await task.activity("else") == 0
            assert await task.activity("else") == 1
            await task.activity("else")
    assert (lost.value.details["why"], lost.value.details["status"]) == ("stalled", "orphaned")
    assert (await client.status(task.handoff)).stalls == 1


async def test_an_activity_whose_answer_is_lost_is_not_said_again(
    shared_daemon: DaemonProcess, kind: str, proxy_to: ProxyTo
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address) as client:
        await client.dispatch(kind, {}, budget={"max_repeats": 2})
        async with client.claim(kinds=kind) as task:
            proxy.lose_answer_to("activity")
            assert await task.activity("search") is None
            assert proxy.lost == 1
            assert await task.activity("search") == 1


async def test_standing_still_cancels_the_body(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {}, budget={"stall_ms": 300})
    with losing() as lost:
        async with client.claim(kinds=kind):
            await asyncio.sleep(60)
    assert lost.value.details["why"] == "stalled"


def test_the_sync_task_counts_and_asks_the_same(shared_daemon: DaemonProcess, kind: str) -> None:
    with sync.connect(shared_daemon.address) as client:
        made = client.dispatch(kind, {}, budget={"max_usd": "0.5", "max_repeats": 9}, keep_checkpoints=1)
        with raising(BudgetExceeded), client.claim(kinds=kind) as task:
            assert task.activity("a") == 0
            task.checkpoint("one", usd=Decimal("0.1"), activity="b")
            task.checkpoint("two", usd=0.1)
            assert task.spend(usd="0.1").usd == 0.3
            assert task.afford(usd="0.2")
            assert not task.afford(usd="0.3")
            task.spend(usd="0.3")
        assert task.ended == "dead"
        assert client.redrive(made.handoff, {"max_usd": 1}).status == "pending"
        assert client.status(made.handoff).usd == 0.6
