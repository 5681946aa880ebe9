"""Budgets, capabilities and typed results from the client's side: what is dispatched is what is in force."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest

import dhp_client
from dhp_client import sync
from dhp_client.budgets import budget_json
from dhp_protocol.errors import InvalidRequest, ResultInvalid, WrongState
from tests.client.losing import losing, raising
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

ProxyTo = Callable[[DaemonProcess], Proxy]

CAPS = {
    "max_steps": 9,
    "max_usd": 0.1,
    "max_wallclock_ms": 60_000,
    "max_attempts": 2,
    "stall_ms": 50_000,
    "max_repeats": 4,
    "max_stalls": 5,
    "max_invalid_results": 6,
}


@pytest.mark.parametrize("budget", [CAPS, dhp_client.Budget(**CAPS)], ids=["dict", "typed"])
async def test_every_cap_gets_through(client: dhp_client.Client, kind: str, budget: Any) -> None:
    made = await client.dispatch(kind, {}, budget=budget)
    assert (await client.status(made.handoff)).budget == CAPS


def test_the_same_caps_are_the_same_text_but_for_how_money_is_spelled() -> None:
    assert bytes(budget_json(dhp_client.Budget(max_usd=Decimal("0.1")))) == b'{"max_usd":0.1}'
    assert bytes(budget_json({"max_usd": "0.1", "max_steps": 1})) == b'{"max_usd":0.1,"max_steps":1}'
    assert bytes(budget_json({})) == b"{}"
    assert bytes(budget_json(MappingProxyType({"max_steps": 1}))) == b'{"max_steps":1}'
    assert bytes(budget_json(MappingProxyType({"max_usd": "0.1"}))) == b'{"max_usd":0.1}'


async def test_an_amount_is_the_same_intent_however_it_is_written(client: dhp_client.Client, kind: str) -> None:
    amounts = (0.1, "0.1", Decimal("0.100"), "1e-1")
    made = [await client.dispatch(kind, {}, budget={"max_usd": amount}) for amount in amounts]
    assert len({one.handoff for one in made}) == 1


@pytest.mark.parametrize(
    ("budget", "member"),
    [
        ({"max_step": 1}, "budget.max_step"),
        ({"max_steps": -1}, "budget.max_steps"),
        ({"max_usd": -0.01}, "budget.max_usd"),
        ({"max_usd": float("nan")}, "budget.max_usd"),
        ({"max_usd": 10_000_000}, "budget.max_usd"),
        ({"max_steps": None}, "budget.max_steps"),
        ({"max_attempts": 1.5}, "budget.max_attempts"),
    ],
)
async def test_a_cap_that_is_none_is_refused_by_name(
    client: dhp_client.Client, kind: str, budget: dict[str, Any], member: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await client.dispatch(kind, {}, budget=budget)
    assert refused.value.details["member"] == member


async def test_more_budget_whose_answer_is_lost_is_added_once(
    shared_daemon: DaemonProcess, kind: str, proxy_to: ProxyTo
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address) as client:
        made = await client.dispatch(kind, {}, budget={"max_usd": 1, "max_steps": 1})
        proxy.lose_answer_to("budget_add")
        given = await client.budget_add(made.handoff, dhp_client.Budget(max_usd="0.5", max_steps=2))
        assert (given.budget["max_usd"], given.budget["max_steps"]) == (1.5, 3)
        async with client.claim(made.handoff) as task:
            await task.fail("Broken", retry=False)
        proxy.lose_answer_to("redrive")
        assert (await client.redrive(made.handoff, {"max_steps": 4})).status == "pending"
        assert (proxy.lost, (await client.status(made.handoff)).budget["max_steps"]) == (2, 7)
        with pytest.raises(WrongState):
            await client.redrive(made.handoff)


async def test_a_result_that_does_not_fit_is_mended_under_the_same_lease(client: dhp_client.Client, kind: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    made = await client.dispatch(kind, {}, output_schema=schema)
    async with client.claim(kinds=kind) as task:
        with pytest.raises(ResultInvalid) as refused:
            await task.complete({"n": "1"})
        assert (refused.value.details["path"], refused.value.details["left"]) == ("/n", 2)
        assert (task.ended, task.lost) == (None, False)
        await task.complete({"n": 1})
    assert (await client.result(made.handoff)).result == {"n": 1}


async def test_the_last_result_that_does_not_fit_is_told_even_if_the_answer_is_lost(
    shared_daemon: DaemonProcess, kind: str, proxy_to: ProxyTo
) -> None:
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address) as client:
        await client.dispatch(kind, {}, output_schema={"type": "object"}, budget={"max_invalid_results": 2})
        with raising(ResultInvalid) as refused:
            async with client.claim(kinds=kind) as task:
                with pytest.raises(ResultInvalid) as first:
                    await task.complete([1])
                proxy.lose_answer_to("complete")
                await task.complete([2])
        assert (proxy.lost, task.ended, task.lost) == (1, "dead", False)
    assert refused.value.details == {**first.value.details, "left": 0}


async def test_the_last_result_that_does_not_fit_ends_the_work(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {}, output_schema=False, budget={"max_invalid_results": 1})
    with pytest.raises(ResultInvalid) as refused:
        async with client.claim(kinds=kind) as task:
            await task.complete({})
    assert (refused.value.details["left"], task.ended) == (0, "dead")
    assert (await client.status(made.handoff)).status == "dead"
    end = await client.result(made.handoff)
    assert (end.status, end.result, end.refused, end.was_refused) == ("dead", None, {}, True)


async def test_a_null_that_was_refused_is_told_from_none(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {}, output_schema=False, budget={"max_invalid_results": 1})
    async with client.claim(kinds=kind) as task:
        before = await client.result(made.handoff)
        assert (before.refused, before.was_refused) == (None, False)
        with pytest.raises(ResultInvalid):
            await task.complete(None)
    after = await client.result(made.handoff)
    assert (after.refused, after.was_refused) == (None, True)


async def test_time_that_is_used_up_takes_the_lease_away(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {}, budget={"max_wallclock_ms": 1})
    with losing() as lost:
        async with client.claim(made.handoff):
            await asyncio.Event().wait()
    assert (lost.value.details["why"], lost.value.details["status"]) == ("dead", "dead")
    assert str((await client.status(made.handoff)).reason).startswith("max_wallclock_ms: ")


async def test_an_unknown_cap_is_refused_with_those_there_are(client: dhp_client.Client, kind: str) -> None:
    with pytest.raises(InvalidRequest, match="no cap 'usd': the caps are max_steps, max_usd,") as refused:
        await client.dispatch(kind, {}, budget={"usd": 1})
    assert refused.value.details["member"] == "budget.usd"


async def test_what_the_intent_does_not_grant_is_denied(client: dhp_client.Client, kind: str) -> None:
    granted = {"http": ["https://example.org/*"], "mail": ["ada@example.org"]}
    made = await client.dispatch(kind, {}, capabilities=granted)
    async with client.claim(kinds=kind) as task:
        await task.require("http", "https://example.org/a")
        assert await task.check_capability("mail", "ada@example.org")
        assert not await task.check_capability("mail", "ada@example.org.evil")
        with pytest.raises(dhp_client.CapabilityDenied, match="file") as denied:
            await task.require("file", "/etc/passwd")
        assert (denied.value.domain, denied.value.resource) == ("file", "/etc/passwd")
    checks = [r for r in (await client.history(made.handoff)).records if r["type"] == "capability_checked"]
    assert [check["granted"] for check in checks] == [True, True, False, False]


async def test_children_carry_caps_of_their_own(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        child = await task.dispatch(
            f"{kind}-child", {}, budget={"max_steps": 1}, capabilities={"http": ["*"]}, keep_checkpoints=2
        )
        again = await task.dispatch(f"{kind}-child", {}, budget={"max_steps": 1}, capabilities={"http": ["*"]})
        assert (again.handoff, again.created) == (child.handoff, False)
        status = await client.status(child.handoff)
        assert (status.parent, status.budget["max_steps"]) == (task.handoff, 1)


async def test_a_failure_is_retried_after_a_pause_unless_told_otherwise(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {}, budget={"max_attempts": 9})
    async with client.claim(kinds=kind) as task:
        await task.fail("Broken", delay_ms=0)
    async with client.claim(kinds=kind) as task:
        await task.fail("Broken")
    failed = [record for record in (await client.history(made.handoff)).records if record["type"] == "failed"]
    assert ["not_before" in record and record["not_before"] > record["at"] for record in failed] == [False, True]


def test_the_sync_client_says_the_same(shared_daemon: DaemonProcess, kind: str) -> None:
    with sync.connect(shared_daemon.address) as client:
        made = client.dispatch(
            kind, {}, budget=dhp_client.Budget(max_steps=1), capabilities={"a": ["b"]}, output_schema={"type": "null"}
        )
        assert client.budget_add(made.handoff, {"max_steps": 1}).budget["max_steps"] == 2
        with client.claim(kinds=kind) as task:
            task.require("a", "b")
            assert not task.check_capability("a", "c")
            with pytest.raises(dhp_client.CapabilityDenied):
                task.require("a", "c")
            with pytest.raises(ResultInvalid):
                task.complete(1)
            task.complete(None)
        assert client.result(made.handoff).status == "completed"
