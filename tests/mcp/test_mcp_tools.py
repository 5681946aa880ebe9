"""An agent hands work off, does some, and gets what came of it, over the official client in both eras."""

from typing import Any

import pytest
from mcp import MCPError

import dhp_client
from dhp_client.mcp import failing
from dhp_client.mcp.answers import Status
from dhp_client.mcp.tools import TABLE
from dhp_client.mcp.waiting import MAX_WAIT_MS
from dhp_protocol.replies import StatusReply
from tests.client.waiting import until_async

from .conftest import ERAS, Serving


@pytest.mark.parametrize("mode", ERAS)
async def test_work_goes_from_dispatch_to_result(agent_of: Serving, kind: str, mode: str) -> None:
    intent = {"kind": kind, "inputs": {"to": 2}, "output_schema": {"type": "object"}, "budget": {"max_usd": 0.5}}
    async with agent_of(mode) as agent:
        asked = await agent.call("dispatch", **intent)
        assert asked["created"]
        assert not (await agent.call("dispatch", **intent))["created"]
        work = await agent.claim(kinds=[kind])
        assert (work["handoff"], work["inputs"], work["state"], work["was"]) == (
            asked["handoff"],
            {"to": 2},
            None,
            "pending",
        )
        assert (work["output_schema"], work["budget"], work["idle_ms"]) == ({"type": "object"}, {"max_usd": 0.5}, None)
        handle = work["handle"]
        stored = await agent.call("checkpoint", handle=handle, state={"n": 1}, usd=0.1, steps=3, activity="counting")
        assert stored["seq"] == 1
        assert await agent.call("spend", handle=handle, usd=0.2) == {"usd": 0.3, "steps": 3}
        assert (await agent.call("heartbeat", handle=handle))["held"]
        assert (await agent.call("activity", handle=handle, what="thinking"))["repeats"] == 0
        seen = await agent.call("last_checkpoint", handoff=asked["handoff"])
        assert (seen["checkpoint"]["state"], seen["checkpoint"]["sha256"]) == ({"n": 1}, stored["sha256"])
        running = await agent.call("result", handoff=asked["handoff"])
        assert (running["status"], running["waiting"]) == ("running", True)
        assert "result_invalid" in await agent.refused("complete", handle=handle, result=[])
        await agent.call("complete", handle=handle, result={"n": 2})
        end = await agent.call("result", handoff=asked["handoff"], wait_ms=5_000)
        assert (end["status"], end["waiting"], end["result"]) == ("completed", False, {"n": 2})
        assert (await agent.call("ack", handoff=asked["handoff"]))["status"] == "completed"
        told = await agent.call("status", handoff=asked["handoff"])
        assert told["acked"]
        assert set(told) == set(StatusReply.__struct_fields__)
        (listed,) = (await agent.call("list", kind=kind))["handoffs"]
        assert (listed["handoff"], listed["usd"]) == (asked["handoff"], 0.3)
        assert (await agent.call("health"))["status"] == "ok"
        (content,) = (await agent.client.read_resource(f"dhp://handoffs/{asked['handoff']}")).contents
        assert '"status":"completed"' in content.text
        with pytest.raises(MCPError, match="not_found"):
            await agent.client.read_resource(f"dhp://handoffs/{'0' * 64}")


async def test_every_tool_is_described_annotated_and_has_a_schema_both_ways(agent_of: Serving) -> None:
    async with agent_of() as agent:
        found = (await agent.client.list_tools()).tools
    assert [tool.name for tool in found] == [name for name, _, _ in TABLE]
    for tool in found:
        hints = tool.annotations
        assert hints is not None
        four = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
        assert all(isinstance(hint, bool) for hint in four), tool.name
        assert tool.description
        assert "  " not in tool.description
        assert tool.output_schema is not None
        assert tool.input_schema["additionalProperties"] is False
        taken = set(tool.input_schema["properties"])
        assert not {"fence", "session"} & taken, tool.name
        assert "worker" not in taken or hints.read_only_hint, tool.name


def test_a_status_names_what_the_daemon_tells() -> None:
    assert set(Status.model_fields) <= set(StatusReply.__struct_fields__)


@pytest.mark.parametrize(
    "state",
    [
        "[1, 2]",
        '{"looks": "like JSON"}',
        "null",
        None,
        12345678901234567890123,
        0.1,
        ["\u202e\x00\r\n\u2028", "𝔘\ufffd", {"": {"é": [[[]]]}}],
        "x" * 3_000_000,
    ],
    ids=lambda state: str(state)[:12].encode("ascii", "replace").decode(),
)
async def test_a_state_comes_back_as_it_was_sent(agent_of: Serving, kind: str, state: Any) -> None:
    async with agent_of() as agent:
        await agent.call("dispatch", kind=kind, inputs={"hostile": "'; drop table\n" + "\u0000"})
        work = await agent.claim(kinds=[kind])
        await agent.call("checkpoint", handle=work["handle"], state=state)
        await agent.call("release", handle=work["handle"])
        again = await agent.claim(kinds=[kind])
        assert (again["state"], again["inputs"], again["seq"]) == (state, {"hostile": "'; drop table\n\u0000"}, 1)
        await agent.call("complete", handle=again["handle"], result=state)
        assert (await agent.call("result", handoff=work["handoff"]))["result"] == state


async def test_what_a_tool_does_not_know_or_cannot_take_is_refused_and_nothing_is_lost(
    agent_of: Serving, kind: str
) -> None:
    async with agent_of() as agent:
        assert "invalid_request" in await agent.refused("claim")
        assert "no handoff id" in await agent.refused("status", handoff="the one from before")
        assert "not_found" in await agent.refused("status", handoff="0" * 64)
        assert "max_stepps" in await agent.refused("dispatch", kind=kind, inputs={}, budget={"max_stepps": 1})
        await agent.call("dispatch", kind=kind, inputs={})
        work = await agent.claim(kinds=[kind])
        assert "fence" in await agent.refused("checkpoint", handle=work["handle"], state=1, fence=7)
        assert "too_large" in await agent.refused("checkpoint", handle=work["handle"], state="x" * 5_000_000)
        assert "unknown_handle" in await agent.refused("checkpoint", handle="made-up", state=1)
        assert (await agent.call("checkpoint", handle=work["handle"], state=1))["seq"] == 1
        assert "already_claimed" in await agent.refused("claim", handoff=work["handoff"])
        await agent.call("release", handle=work["handle"])
        told = await agent.refused("checkpoint", handle=work["handle"], state=2)
        assert told.startswith("task_ended: This task was released")
        assert "Next: " in told


async def test_wrong_arguments_are_told_in_the_same_form_and_not_repeated(agent_of: Serving) -> None:
    async with agent_of() as agent:
        told = await agent.refused("checkpoint", handle=["a-secret"], state=1, fence=7)
        assert told == (
            "invalid_request: handle: Input should be a valid string; fence: Extra inputs are not permitted.\n"
            "Next: Mend the arguments as the sentence says, and call again."
        )
        told = await agent.refused("approval_wait", approval="a", word={"action": "accept", "data": {"approve": True}})
        assert told.startswith("invalid_request: word: Extra inputs")


async def test_a_call_that_nobody_answers_ends_and_says_that_it_is_in_doubt(
    agent_of: Serving, other: dhp_client.Client, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failing.CALL_WITHIN_MS > MAX_WAIT_MS
    monkeypatch.setattr(failing, "CALL_WITHIN_MS", 300)
    handoff = (await other.dispatch(kind, {})).handoff
    async with agent_of() as agent:
        told = await agent.refused("result", handoff=handoff, wait_ms=20_000)
        assert told.startswith("in_doubt: The daemon hasn't answered for 300 ms.")
        assert "Next: " in told


async def test_an_object_sent_as_text_is_taken_where_an_object_is_wanted(agent_of: Serving, kind: str) -> None:
    async with agent_of() as agent:
        await agent.call("dispatch", kind=kind, inputs='{"some hosts": "do so"}')
        assert (await agent.claim(kinds=[kind]))["inputs"] == {"some hosts": "do so"}


async def test_waiting_ends_within_a_call_and_says_so(agent_of: Serving, other: dhp_client.Client, kind: str) -> None:
    async with agent_of() as agent:
        assert await agent.call("claim", kinds=[kind], wait_ms=50) == {"waiting": True, "handoff": None, "work": None}
        handoff = (await other.dispatch(kind, {})).handoff
        async with other.claim(handoff) as task:
            found = await agent.call("claim", handoff=handoff, wait_ms=50)
            assert (found["waiting"], found["handoff"]) == (True, handoff)
            waits = await agent.call("result", handoff=handoff, wait_ms=50)
            assert (waits["waiting"], waits["status"]) == (True, "running")
            await task.release()
        assert (await agent.claim(handoff=handoff, wait_ms=600_000_000))["handoff"] == handoff


@pytest.mark.parametrize("mode", ERAS)
async def test_who_waits_hears_that_it_goes_on(
    agent_of: Serving, other: dhp_client.Client, kind: str, mode: str
) -> None:
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)
        await other.dispatch(kind, {})

    async with agent_of(mode) as agent:
        arguments = {"kinds": [kind], "wait_ms": 20_000}
        found = await agent.client.call_tool("claim", arguments, progress_callback=hear)
        assert found.structured_content["work"]["kind"] == kind
    assert heard[0] == "waiting for work"


async def test_a_child_belongs_to_the_work_that_asked_for_it(agent_of: Serving, kind: str) -> None:
    async with agent_of() as agent:
        parent = (await agent.call("dispatch", kind=kind, inputs={}, budget={"max_steps": 2}))["handoff"]
        work = await agent.claim(kinds=[kind])
        child = await agent.call("dispatch", kind=f"{kind}.child", inputs={}, handle=work["handle"])
        assert (await agent.call("status", handoff=child["handoff"]))["parent"] == parent
        held = await agent.claim(handoff=child["handoff"])
        await agent.call("checkpoint", handle=held["handle"], state=1, steps=2)
        told = await agent.refused("checkpoint", handle=held["handle"], state=2, steps=1)
        assert told.startswith("budget_exceeded")
        assert parent in told
        assert (await agent.call("status", handoff=child["handoff"]))["status"] == "dead"
        await agent.call("cancel", handoff=parent, reason="enough")
        assert (await agent.refused("checkpoint", handle=work["handle"], state=1)).startswith("lease_lost")


async def test_an_effect_is_begun_once_over_attempts(agent_of: Serving, kind: str) -> None:
    async with agent_of() as agent:
        await agent.call("dispatch", kind=kind, inputs={})
        work = await agent.claim(kinds=[kind])
        begun = await agent.call("effect_begin", handle=work["handle"], step="mail")
        assert begun["state"] == "new"
        assert (await agent.call("effect_begin", handle=work["handle"], step="mail"))["state"] == "in_doubt"
        await agent.call("fail", handle=work["handle"], type="crash", delay_ms=0)
        work = await agent.claim(kinds=[kind], wait_ms=5_000)
        doubt = await agent.call("effect_begin", handle=work["handle"], step="mail")
        assert doubt == {"state": "in_doubt", "idempotency_key": begun["idempotency_key"], "result": None}
        await agent.call("effect_done", handle=work["handle"], step="mail", result={"id": 7})
        done = await agent.call("effect_begin", handle=work["handle"], step="mail")
        assert (done["state"], done["result"]) == ("done", {"id": 7})
        assert "effect_conflict" in await agent.refused("effect_done", handle=work["handle"], step="mail", result=8)
        (effect,) = (await agent.call("effects", handoff=work["handoff"]))["effects"]
        assert (effect["step"], effect["state"]) == ("mail", "done")


async def test_what_may_be_touched_is_asked_first(agent_of: Serving, kind: str) -> None:
    async with agent_of() as agent:
        await agent.call("dispatch", kind=kind, inputs={}, capabilities={"files": ["/tmp/*"]})
        work = await agent.claim(kinds=[kind])
        assert work["capabilities"] == {"files": ["/tmp/*"]}
        for resource, granted in (("/tmp/x", True), ("/etc/passwd", False)):
            found = await agent.call("check_capability", handle=work["handle"], domain="files", resource=resource)
            assert found == {"granted": granted}


async def test_work_that_sleeps_comes_back(agent_of: Serving, kind: str) -> None:
    async with agent_of() as agent:
        await agent.call("dispatch", kind=kind, inputs={})
        for wake in ({"wake_ms": 1}, {}):
            work = await agent.claim(kinds=[kind], wait_ms=10_000)
            assert (await agent.call("suspend", handle=work["handle"], **wake))["status"] == "suspended"
        assert (await agent.call("resume", handoff=work["handoff"]))["status"] == "pending"
        assert (await agent.claim(kinds=[kind]))["attempt"] == 3


async def test_no_daemon_is_said_and_tried_again(agent_of: Serving, daemon: Any) -> None:
    async with agent_of(address="tcp://127.0.0.1:9") as agent:
        assert (await agent.client.list_tools()).tools
        assert (await agent.refused("health")).startswith("not_connected")
        assert "Next: " in await agent.refused("recover")


async def test_another_agents_loss_is_told_with_what_to_do(
    agent_of: Serving, other: dhp_client.Client, kind: str
) -> None:
    async with agent_of() as agent:
        handoff = (await agent.call("dispatch", kind=kind, inputs={}))["handoff"]
        work = await agent.claim(kinds=[kind])
        await other.suspend(handoff)
        await other.resume(handoff)
        async with other.claim(handoff) as task:
            await task.checkpoint("theirs")

            async def is_told() -> bool:
                told = await agent.refused("checkpoint", handle=work["handle"], state="mine")
                return told.startswith("lease_lost") and "Stop this work now" in told

            await until_async(is_told, "the loss is told")
            assert (await other.status(handoff)).seq == 1
            await task.release()
