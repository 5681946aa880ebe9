"""Agents whose steps are kept in a task: what a second attempt carries out, and what is refused."""

import asyncio
import contextlib
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.exceptions import ModelRetry, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

import dhp_client
import dhp_client.sync
from dhp_client.journal import read
from dhp_client.pydantic_ai import DHPDurability, Step, journaled

from ..client.waiting import until


class Clerk:
    """An agent that looks two things up, one after the other, and answers with both; `ran` tells what was carried out."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.breaks_at = ""
        tools: FunctionToolset[None] = FunctionToolset(id="tools")
        tools.add_function(self.look_up, takes_ctx=True)
        self.agent = Agent(FunctionModel(self.think), name="clerk", toolsets=[tools], capabilities=[DHPDurability()])

    def think(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.ran.append("think")
        found = [part.content for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
        if len(found) < 2:
            return ModelResponse([ToolCallPart("look_up", {"what": ["ebb", "flood"][len(found)]})])
        return ModelResponse([TextPart(" and ".join(map(str, found)))])

    def look_up(self, ctx: RunContext[None], what: str) -> str:
        self.ran.append(what)
        if what == self.breaks_at:
            raise OSError("the library is closed")
        return f"{what} at {len(what)}"


async def claimed(client: dhp_client.Client, key: str, **options: Any) -> dhp_client.Task:
    work = await client.dispatch("question", {}, key=key, **{"keep_checkpoints": dhp_client.KEEP_ALL, **options})
    task = await client.claim(work.handoff)
    assert task is not None
    return task


async def test_a_second_attempt_carries_out_only_what_had_not_finished(client: dhp_client.Client) -> None:
    first, second = Clerk(), Clerk()
    first.breaks_at = "flood"
    task = await claimed(client, "second")
    with pytest.raises(OSError, match="the library is closed"):
        async with journaled(task):
            await first.agent.run("when?")
    await task.release()
    successor = await client.claim(task.handoff)
    assert successor is not None
    async with journaled(successor):
        answer = await second.agent.run("when?")
    assert first.ran == ["think", "ebb", "think", "flood"]
    assert second.ran == ["flood", "think"]
    assert answer.output == "ebb at 3 and flood at 5"
    steps: list[Step] = []
    await read(client, task.handoff, Step, steps.append)
    assert [step.name for step in steps if "call_tool" in step.name] == [
        "clerk__function_toolset__tools.call_tool:look_up"
    ] * 2
    third = Clerk()
    async with journaled(successor):
        assert (await third.agent.run("when?")).output == answer.output
    assert third.ran == []


async def test_runs_one_after_the_other_are_told_apart(client: dhp_client.Client) -> None:
    task = await claimed(client, "runs")
    agent = Agent(TestModel(custom_output_text="yes"), name="other", capabilities=[DHPDurability()])
    ids = []
    for _ in range(2):  # As two attempts do.
        async with journaled(task):
            ids.append([(await agent.run("one?")).run_id, (await agent.run("two?")).run_id])
    assert ids == [[f"{task.handoff}:other:0", f"{task.handoff}:other:1"]] * 2
    assert task.seq == 2


async def test_two_runs_of_one_agent_at_once_are_refused_but_not_those_of_two(client: dhp_client.Client) -> None:
    one, two = (Agent(TestModel(), name=name, capabilities=[DHPDurability()]) for name in ("one", "two"))
    task = await claimed(client, "at-once")
    async with journaled(task):
        await asyncio.gather(one.run("go"), two.run("go"))
        first, second = await asyncio.gather(one.run("go"), one.run("go"), return_exceptions=True)
        assert not isinstance(first, BaseException)
        with pytest.raises(RuntimeError, match="'one' runs twice at once"):
            raise second if isinstance(second, BaseException) else AssertionError("both ran")
        await one.run("go")


async def test_an_agent_that_a_tool_runs_is_a_part_of_that_tools_step(client: dhp_client.Client) -> None:
    asked: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append("inner")
        return ModelResponse([TextPart(f"answer {len(asked)}")])

    inner = Agent(FunctionModel(answer), name="inner", capabilities=[DHPDurability()])
    clerk = Clerk()

    async def consult(ctx: RunContext[None], what: str) -> str:
        clerk.look_up(ctx, what)
        return (await inner.run(what)).output

    clerk.breaks_at = "flood"
    tools: FunctionToolset[None] = FunctionToolset(id="tools")
    tools.add_function(consult, name="look_up", takes_ctx=True)
    agent = Agent(FunctionModel(clerk.think), name="clerk", toolsets=[tools], capabilities=[DHPDurability()])
    task = await claimed(client, "nested")
    with pytest.raises(OSError, match="closed"):
        async with journaled(task):
            await agent.run("when?")
    clerk.breaks_at = ""
    async with journaled(task):
        assert (await agent.run("when?")).output == "answer 1 and answer 2"
    assert clerk.ran == ["think", "ebb", "think", "flood", "flood", "think"]


async def test_what_a_tool_asks_the_model_to_do_again_is_kept_too(client: dhp_client.Client) -> None:
    tries: list[int] = []

    def fussy(number: int) -> str:
        tries.append(number)
        if len(tries) == 1:
            raise ModelRetry("another one, please")
        return "fine"

    tools: FunctionToolset[None] = FunctionToolset([fussy], id="tools")
    agent = Agent(TestModel(), name="fussy", toolsets=[tools], capabilities=[DHPDurability()])
    task = await claimed(client, "retry")
    outputs = []
    for _ in range(2):
        async with journaled(task):
            outputs.append((await agent.run("go")).output)
    assert len(tries) == 2
    assert outputs[0] == outputs[1] == '{"fussy":"fine"}'


async def test_a_run_whose_lease_is_lost_takes_no_further_step(client: dhp_client.Client) -> None:
    clerk = Clerk()
    task = await claimed(client, "lost")
    async with journaled(task):
        await client.suspend(task.handoff)
        await until(lambda: task.lost)
        with pytest.raises(dhp_client.LeaseLost):
            await clerk.agent.run("when?")
    assert clerk.ran == []


async def test_outside_of_a_task_an_agent_is_as_ever(client: dhp_client.Client) -> None:
    clerk = Clerk()
    assert (await clerk.agent.run("when?")).output == "ebb at 3 and flood at 5"
    assert clerk.ran == ["think", "ebb", "think", "flood", "think"]


@pytest.mark.parametrize("claimed", [True, False])
def test_what_is_no_async_task_is_refused(sync_client: dhp_client.sync.Client, claimed: bool) -> None:
    if claimed:
        sync_client.dispatch("sync-task", {}, keep_checkpoints=dhp_client.KEEP_ALL)
    with sync_client.claim(kinds="sync-task") if claimed else contextlib.nullcontext() as task:

        async def run() -> None:
            async with journaled(task):  # type: ignore[arg-type]
                pass

        with pytest.raises(TypeError, match="claimed with `await`"):
            asyncio.run(run())


async def test_what_could_not_be_replayed_is_refused(client: dhp_client.Client) -> None:
    with pytest.raises(dhp_client.NoJournal, match="dispatch it with keep_checkpoints"):
        async with journaled(await claimed(client, "some", keep_checkpoints=16)):
            pass
    task = await claimed(client, "runtime-tools")
    late: FunctionToolset[None] = FunctionToolset(id="late")
    late.add_function(lambda: "x", name="x")
    async with journaled(task):
        with pytest.raises(UserError, match="DHP"):
            await Clerk().agent.run("when?", toolsets=[late])
    with pytest.raises(UserError, match="id"):
        Agent(TestModel(), name="no-id", toolsets=[FunctionToolset()], capabilities=[DHPDurability()])
    await task.checkpoint({"page": 1})
    with pytest.raises(dhp_client.NoJournal, match="is no entry of such a journal"):
        async with journaled(task):
            pass
