"""One handoff's whole life over a line that is cut at any request or answer, slow to a byte, or says everything twice.

However it goes, what is on record at the end is what a good line leaves: each thing once, and all of it.
"""

import asyncio

import pytest

import dhp_client
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

OPS = [
    *("dispatch", "claim", "checkpoint", "spend", "activity", "effect_begin", "effect_done", "approval_request"),
    *(
        "approval_decide",
        "check_capability",
        "suspend",
        "resume",
        "release",
        "fail",
        "budget_add",
        "redrive",
        "complete",
        "ack",
    ),
]
RECORDS = [
    *("dispatched", "claimed", "checkpointed", "spent", "effect_begun", "effect_done", "approval_requested"),
    *(
        "approval_decided",
        "capability_checked",
        "suspended",
        "resumed",
        "claimed",
        "released",
        "claimed",
        "failed",
        "claimed",
    ),
    *("dead", "budget_added", "redriven", "claimed", "completed", "acked"),
]
IN_THE_MIDDLE = 20
"""Bytes of a frame, of which there are always more."""


async def whole_life(address: str, kind: str) -> str:
    """All that can become of a handoff, by a worker and a person; the id."""
    async with dhp_client.connect(address) as worker, dhp_client.connect(address) as person:
        made = await worker.dispatch(kind, {}, budget={"max_steps": 3}, capabilities={"files": ["/tmp/*"]})
        async with worker.claim(kinds=kind, ttl_ms=60_000) as task:
            assert (await task.checkpoint({"page": 1})).seq == 1
            assert (await task.spend(usd=0.25, steps=1)).steps == 2
            await task.activity("the same thing")
            assert await task.effect("charge", lambda key: "receipt") == "receipt"
            await _approved(task, person)
            assert await task.check_capability("files", "/tmp/x")
            await task.suspend()
        await person.resume(made.handoff)
        async with worker.claim(kinds=kind, ttl_ms=60_000) as task:
            await task.release()
        async with worker.claim(kinds=kind, ttl_ms=60_000) as task:
            await task.fail("Trouble", "of its own", delay_ms=0)
        async with worker.claim(kinds=kind, ttl_ms=60_000) as task:
            with pytest.raises(dhp_client.BudgetExceeded):
                await task.checkpoint({"page": 2}, steps=2)
        assert (await person.budget_add(made.handoff, {"max_steps": 10})).budget["max_steps"] == 13
        await person.redrive(made.handoff)
        async with worker.claim(kinds=kind, ttl_ms=60_000) as task:
            assert task.state == {"page": 2}
            await task.complete("done")
        await person.ack(made.handoff)
    return made.handoff


async def _approved(task: dhp_client.Task, person: dhp_client.Client) -> None:
    async def decide() -> None:
        while not (found := (await person.approvals(handoff=task.handoff)).approvals):
            await asyncio.sleep(0.005)
        await person.approve(found[0].approval)

    async with asyncio.TaskGroup() as group:
        group.create_task(decide())
        await task.approval("pay", timeout_ms=60_000)


async def assert_each_once(daemon: DaemonProcess, handoff: str) -> None:
    async with dhp_client.connect(daemon.address) as other:
        assert [record["type"] for record in (await other.history(handoff)).records] == RECORDS
        status = await other.status(handoff)
        assert (status.status, status.steps, status.usd, status.seq) == ("completed", 4, 0.25, 2)
        assert (status.attempt, status.budget["max_steps"]) == (5, 13)


@pytest.mark.parametrize(("where", "reset"), [("request", False), ("answer", True)])
@pytest.mark.parametrize("op", OPS)
async def test_cut_in_the_middle_of_a_frame(shared_daemon: DaemonProcess, op: str, where: str, reset: bool) -> None:
    with Proxy(shared_daemon.tcp) as proxy:
        cut = proxy.cut_request if where == "request" else proxy.cut_answer_to
        cut(op, after_bytes=IN_THE_MIDDLE, reset=reset)
        handoff = await whole_life(proxy.address, f"{op}-{where}")
        assert proxy.lost == 1
    await assert_each_once(shared_daemon, handoff)


async def test_byte_by_byte_in_both_directions(shared_daemon: DaemonProcess) -> None:
    with Proxy(shared_daemon.tcp) as proxy:
        proxy.piece_bytes = 1
        handoff = await whole_life(proxy.address, "bytes")
    await assert_each_once(shared_daemon, handoff)


async def test_everything_arrives_once_more_over_another_connection(shared_daemon: DaemonProcess) -> None:
    with Proxy(shared_daemon.tcp) as proxy:
        proxy.doubles = True
        handoff = await whole_life(proxy.address, "doubled")
        assert proxy.said_again >= len(OPS)
    await assert_each_once(shared_daemon, handoff)
