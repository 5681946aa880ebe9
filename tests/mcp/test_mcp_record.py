"""What agents hold: by handles alone, let go when nobody calls, given back when nobody has heard of it, found again after a crash."""

import asyncio
from typing import Any

import pytest
from mcp import MCPError

import dhp_client
from dhp_client.mcp.record import Ended, Record
from dhp_client.mcp.refusals import UnknownHandle, told
from tests.client.waiting import until_async

from .conftest import ERAS, Serving


async def status_is(client: dhp_client.Client, handoff: str, *statuses: str) -> None:
    """Returns when the handoff stands so."""

    async def does() -> bool:
        return (await client.status(handoff)).status in statuses

    await until_async(does, f"{handoff} is {statuses}")


async def test_one_agent_never_writes_as_another(agent_of: Serving, kind: str) -> None:
    async with agent_of(guessable=False) as first, agent_of(guessable=False) as second:
        await first.call("dispatch", kind=kind, inputs={})
        work = await first.claim(kinds=[kind])
        assert len(work["handle"]) >= 32
        for handle in (work["handle"], work["handoff"], f"{work['handoff'][:12]}.{work['attempt']}"):
            for tool, arguments in (("checkpoint", {"state": "theirs"}), ("complete", {"result": 1}), ("release", {})):
                assert (await second.refused(tool, handle=handle, **arguments)).startswith("unknown_handle")
        assert (await second.call("recover"))["work"] == []
        # Who holds something can't be told over HTTP, so nobody is told what there is.
        assert (await first.call("recover"))["work"] == []
        (mine,) = (await first.call("recover", handle=work["handle"]))["work"]
        assert mine == work
        assert (await first.call("checkpoint", handle=work["handle"], state="mine"))["seq"] == 1
        await first.call("release", handle=work["handle"])


async def test_the_lease_is_kept_while_the_agent_thinks(agent_of: Serving, other: dhp_client.Client, kind: str) -> None:
    async with agent_of() as agent:
        handoff = (await agent.call("dispatch", kind=kind, inputs={}))["handoff"]
        work = await agent.claim(kinds=[kind])
        # For longer than the lease would live, seen from outside.
        assert (await other.result(handoff, wait_ms=7_000)).status == "running"
        assert (await agent.call("complete", handle=work["handle"]))["status"] == "completed"


async def test_an_old_handle_never_means_a_later_claim(agent_of: Serving, other: dhp_client.Client, kind: str) -> None:
    async with agent_of() as agent:
        handoff = (await agent.call("dispatch", kind=kind, inputs={}))["handoff"]
        old = await agent.claim(kinds=[kind])
        await other.suspend(handoff)
        await other.resume(handoff)
        new = await agent.claim(kinds=[kind])
        assert new["handle"] != old["handle"]
        assert (await agent.refused("checkpoint", handle=old["handle"], state="late")).startswith("lease_lost")
        assert (await agent.call("recover"))["work"] == [new]


async def test_nor_one_of_a_handoff_that_was_forgotten_and_asked_for_again(
    agent_of: Serving, other: dhp_client.Client, kind: str
) -> None:
    async with agent_of() as agent:
        handoff = (await agent.call("dispatch", kind=kind, inputs={}))["handoff"]
        old = await agent.claim(kinds=[kind])
        await agent.call("complete", handle=old["handle"], result=1)
        await other.forget(handoff)
        assert (await agent.call("dispatch", kind=kind, inputs={}))["handoff"] == handoff
        new = await agent.claim(kinds=[kind])
        assert (await agent.refused("checkpoint", handle=old["handle"], state="late")).startswith("task_ended")
        await agent.call("complete", handle=new["handle"], result=2)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_claim_that_is_cancelled_while_it_waits_takes_nothing(
    agent_of: Serving, other: dhp_client.Client, kind: str, mode: str
) -> None:
    async with agent_of(mode) as agent:
        with pytest.raises(MCPError, match=r"[Tt]imed out"):
            await agent.client.call_tool("claim", {"kinds": [kind], "wait_ms": 20_000}, read_timeout_seconds=0.2)
        handoff = (await other.dispatch(kind, {})).handoff
        async with other.claim(handoff, wait_ms=10_000) as task:
            await task.complete(None)
        assert (await agent.call("recover"))["work"] == []


async def claimed(client: dhp_client.Client, handoff: str, **settings: Any) -> dhp_client.Task:
    task = await client.claim(handoff, **settings)
    assert task is not None
    return task


async def test_a_claim_whose_answer_was_turned_away_from_is_given_back(other: dhp_client.Client, kind: str) -> None:
    record = Record(idle_ms=None, guessable=True)
    handoff = (await other.dispatch(kind, {})).handoff
    used = record.add(await claimed(other, handoff), 1)
    with record.using(used):
        pass
    record.is_cancelled(1)  # It has been used since, so its answer has come.
    with record.using(used) as task:
        await task.release()
    lost = record.add(await claimed(other, handoff), 2)
    record.is_cancelled(2)
    record.is_cancelled(2)
    with pytest.raises(Ended, match="was cancelled"), record.using(lost):
        pass
    await status_is(other, handoff, "pending")
    assert (await other.status(handoff)).failures == 0


async def test_work_nobody_calls_about_is_let_go_and_can_be_recovered(
    agent_of: Serving, other: dhp_client.Client, kind: str
) -> None:
    handoff = (await other.dispatch(kind, {})).handoff
    async with other.claim(handoff) as task:
        await task.checkpoint({"n": 5})
        await task.release()
    async with agent_of(guessable=False, idle_ms=300) as agent:
        work = await agent.claim(kinds=[kind])
        assert (work["idle_ms"], work["state"]) == (300, {"n": 5})
        await status_is(other, handoff, "orphaned")
        assert (await other.status(handoff)).failures == 1
        text = await agent.refused("checkpoint", handle=work["handle"], state={"n": 6})
        assert text.startswith("lease_lost: There was no call with this handle for 300 ms")
        found = await agent.call("recover", kinds=[kind])
        assert found["work"] == []
        (begun,) = found["claimable"]
        assert (begun["handoff"], begun["status"], begun["state"]) == (handoff, "orphaned", {"n": 5})
        (again,) = (await agent.call("recover", handoff=handoff))["work"]
        assert (again["state"], again["was"], again["attempt"]) == ({"n": 5}, "orphaned", 3)
        assert again["handle"] != work["handle"]


async def test_calls_put_off_the_end_and_so_does_one_under_way(other: dhp_client.Client, kind: str) -> None:
    record = Record(idle_ms=200, guessable=False)
    handoff = (await other.dispatch(kind, {})).handoff
    handle = record.add(await claimed(other, handoff), 1)
    with record.using(handle):
        await asyncio.sleep(0.5)
    record.await_person(handle, 60_000)
    await asyncio.sleep(0.5)
    with record.using(handle) as task:
        assert (await other.status(handoff)).status == "running"
        await task.release()
    with pytest.raises(Ended, match="released already"), record.using(handle):
        pass
    with pytest.raises(UnknownHandle), record.using("made-up"):
        pass


async def test_waiting_for_a_person_keeps_the_lease_of_the_work(
    agent_of: Serving, other: dhp_client.Client, kind: str
) -> None:
    handoff = (await other.dispatch(kind, {})).handoff
    async with agent_of(guessable=False, idle_ms=1_500) as agent:
        work = await agent.claim(kinds=[kind])
        question = await agent.call("approval_request", handle=work["handle"], action="pay")
        arguments = {"approval": question["approval"], "handle": work["handle"], "wait_ms": 20_000}
        waiting = asyncio.create_task(agent.call("approval_wait", **arguments))
        assert (await other.result(handoff, wait_ms=2_500)).status == "running"
        assert (await agent.call("complete", handle=work["handle"], result=1))["status"] == "completed"
        assert (await waiting)["decision"] == "cancelled"


async def test_an_agent_that_ends_in_good_order_hands_back_what_it_held(
    agent_of: Serving, other: dhp_client.Client, kind: str
) -> None:
    async with agent_of() as agent:
        handoff = (await agent.call("dispatch", kind=kind, inputs={}))["handoff"]
        work = await agent.claim(kinds=[kind])
        await agent.call("checkpoint", handle=work["handle"], state="x" * 50_000)
    await status_is(other, handoff, "pending")
    async with agent_of() as agent:
        (begun,) = (await agent.call("recover", kinds=[kind]))["claimable"]
        assert (begun["state"], begun["state_left_out"], begun["failures"]) == (None, True, 0)
        (work,) = (await agent.call("recover", handoff=handoff))["work"]
        assert (await agent.call("recover", handoff=handoff))["work"] == [work]
        assert (work["state"], work["was"]) == ("x" * 50_000, "pending")


def test_what_cannot_be_told_is_not() -> None:
    assert told(RuntimeError("a secret of this program's own")) is None
    assert told(ValueError("usd is no number")) == (
        "invalid_request: usd is no number\nNext: Mend the arguments as the sentence says, and call again."
    )
