"""Graphs that are saved in a task: who may run on, what a successor does, and what is refused before anything runs."""

import asyncio
import contextlib
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

import dhp_client
import dhp_client.sync
from dhp_client.journal import read
from dhp_client.langgraph import DHPSaver, DurabilityNotSync, TypeNotAllowed
from dhp_client.langgraph.entries import Entry, Put, Writes

from ..client.waiting import until, until_async


class State(TypedDict):
    done: Annotated[list[str], operator.add]


class Ran(list[str]):
    """The names of the nodes that ran, as a graph's nodes say them; `at` is called when one begins."""

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[str, Callable[[], Any]] = {}

    def node(self, name: str) -> Callable[[State], dict[str, list[str]]]:
        def run(state: State) -> dict[str, list[str]]:
            self.append(name)
            self.at.get(name, lambda: None)()
            return {"done": [name]}

        return run

    def graph(self, saver: DHPSaver, *names: str) -> Any:
        """One node after the other."""
        builder = StateGraph(State)
        for name in names:
            builder.add_node(name, self.node(name))
        for one, other in zip((START, *names), (*names, END), strict=True):
            builder.add_edge(one, other)
        return builder.compile(checkpointer=saver)


def failing() -> None:
    raise OSError("the other side is down")


def config_of(task: "dhp_client.Task | dhp_client.sync.Task") -> RunnableConfig:
    return {"configurable": {"thread_id": task.handoff}}


async def dispatched(client: dhp_client.Client, key: str, **options: Any) -> str:
    return (await client.dispatch("graph", {}, key=key, **{"keep_checkpoints": dhp_client.KEEP_ALL, **options})).handoff


async def claimed(client: dhp_client.Client, key: str, **options: Any) -> dhp_client.Task:
    task = await client.claim(await dispatched(client, key, **options))
    assert task is not None
    return task


async def entries(client: dhp_client.Client, handoff: str) -> list[Entry]:
    found: list[Entry] = []
    await read(client, handoff, Entry, found.append)
    return found


async def test_a_successor_runs_only_what_had_not_finished(client: dhp_client.Client) -> None:
    ran = Ran()
    ran.at["b"] = failing
    task = await claimed(client, "successor", budget={"max_steps": 5})
    handoff = task.handoff
    with pytest.raises(OSError, match="the other side is down"):
        await ran.graph(DHPSaver(task), "a", "b", "c").ainvoke({"done": []}, config_of(task), durability="sync")
    await task.release()
    ran.at.clear()
    async with client.claim(handoff) as task:
        graph = ran.graph(DHPSaver(task), "a", "b", "c")
        assert (await graph.aget_state(config_of(task))).next == ("b",)
        result = await graph.ainvoke(None, config_of(task), durability="sync")
        await task.complete(result)
    assert ran == ["a", "b", "b", "c"]
    assert (await client.result(handoff)).result == {"done": ["a", "b", "c"]}
    puts = [entry for entry in await entries(client, handoff) if isinstance(entry, Put)]
    assert len(puts) == 5  # Its input, what it began with, and one for each node.
    assert (await client.status(handoff)).steps == 5


async def test_a_successor_whose_clock_is_behind_is_not_taken_for_the_past(
    client: dhp_client.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = Ran()
    handoff = await dispatched(client, "clocks")
    hour_ns = 3_600 * 10**9
    for ahead_ns, broken in ((hour_ns, "b"), (0, "c"), (0, "")):  # Ids of checkpoints begin with the time.
        clock = SimpleNamespace(time_ns=lambda ahead_ns=ahead_ns: time.time_ns() + ahead_ns)
        monkeypatch.setattr("langgraph.checkpoint.base.id.time", clock)
        monkeypatch.setattr(
            "langgraph.checkpoint.base.id._last_v6_timestamp", None
        )  # Another process knows no last one.
        ran.at = {broken: failing}
        async with client.claim(handoff) as task:
            graph = ran.graph(DHPSaver(task), "a", "b", "c")
            with pytest.raises(OSError, match="down") if broken else contextlib.nullcontext():
                await graph.ainvoke(None if task.seq else {"done": []}, config_of(task), durability="sync")
    assert ran == ["a", "b", "b", "c", "c"]
    async with client.claim(handoff) as task:
        past = [state async for state in ran.graph(DHPSaver(task), "a", "b", "c").aget_state_history(config_of(task))]
        assert [state.next for state in past] == [(), ("c",), ("b",), ("a",), ("__start__",)]
        before = [
            state
            async for state in ran.graph(DHPSaver(task), "a", "b", "c").aget_state_history(
                config_of(task), before=past[1].config
            )
        ]
        assert [state.next for state in before] == [("b",), ("a",), ("__start__",)]


def test_without_await_a_successor_runs_only_what_had_not_finished(sync_client: dhp_client.sync.Client) -> None:
    ran = Ran()
    ran.at["b"] = failing
    work = sync_client.dispatch("graph", {}, key="sync-successor", keep_checkpoints=dhp_client.KEEP_ALL)
    task = sync_client.claim(work.handoff)
    assert task
    with pytest.raises(OSError, match="the other side is down"):
        ran.graph(DHPSaver(task), "a", "b", "c").invoke({"done": []}, config_of(task), durability="sync")
    task.release()
    ran.at.clear()
    with sync_client.claim(work.handoff) as task:
        graph = ran.graph(DHPSaver(task), "a", "b", "c")
        assert graph.invoke(None, config_of(task), durability="sync") == {"done": ["a", "b", "c"]}
        task.complete(None)
    assert ran == ["a", "b", "b", "c"]


@pytest.mark.parametrize("mode", [None, "async", "exit"])
async def test_a_run_that_does_not_wait_is_refused_before_anything_runs(client: dhp_client.Client, mode: Any) -> None:
    ran = Ran()
    task = await claimed(client, f"mode-{mode}")
    graph = ran.graph(DHPSaver(task), "a")
    with pytest.raises(DurabilityNotSync, match='pass durability="sync" to invoke'):
        await graph.ainvoke({"done": []}, config_of(task), durability=mode)
    assert (ran, task.seq) == ([], 0)
    await graph.aupdate_state(config_of(task), {"done": ["by hand"]})  # From outside of a run nobody needs to wait.
    assert (await graph.aget_state(config_of(task))).values == {"done": ["by hand"]}


async def test_a_run_whose_lease_is_lost_ends_before_its_next_node(client: dhp_client.Client) -> None:
    ran = Ran()
    task = await claimed(client, "lost")

    async def lose(state: State) -> dict[str, list[str]]:
        ran.append("lose")
        await client.suspend(task.handoff)
        return {"done": ["lose"]}

    builder = StateGraph(State).add_node("lose", lose).add_node("next", ran.node("next"))
    builder.add_edge(START, "lose").add_edge("lose", "next")
    graph = builder.compile(checkpointer=DHPSaver(task))
    with pytest.raises(dhp_client.LeaseLost):
        await graph.ainvoke({"done": []}, config_of(task), durability="sync")
    assert ran == ["lose"]
    await client.resume(task.handoff)
    async with client.claim(task.handoff) as successor:
        graph = builder.compile(checkpointer=DHPSaver(successor))
        assert (await graph.aget_state(config_of(successor))).next == ("lose",)


async def test_a_run_does_not_begin_when_the_lease_is_lost(client: dhp_client.Client) -> None:
    ran = Ran()
    task = await claimed(client, "lost-before")
    graph = ran.graph(DHPSaver(task), "a")
    await graph.ainvoke({"done": []}, config_of(task), durability="sync")
    await client.suspend(task.handoff)
    await until(lambda: task.lost)
    with pytest.raises(dhp_client.LeaseLost):
        await graph.ainvoke({"done": []}, config_of(task), durability="sync")
    assert ran == ["a"]
    asks = {"thread_id": task.handoff, "__pregel_runtime": None, "__pregel_durability": "sync"}
    with pytest.raises(dhp_client.LeaseLost):  # What a run asks before all else.
        await DHPSaver(task).aget_tuple({"configurable": asks})
    assert (await graph.aget_state(config_of(task))).values == {
        "done": ["a"]
    }  # What it last knew can still be looked at.


async def test_a_run_that_passes_a_cap_goes_on_when_the_work_is_brought_back(client: dhp_client.Client) -> None:
    ran = Ran()
    task = await claimed(client, "cap", budget={"max_steps": 2})
    with pytest.raises(dhp_client.BudgetExceeded):
        await ran.graph(DHPSaver(task), "a", "b").ainvoke({"done": []}, config_of(task), durability="sync")
    assert ran == ["a"]
    await client.redrive(task.handoff, budget_add={"max_steps": 10})
    async with client.claim(task.handoff) as successor:
        graph = ran.graph(DHPSaver(successor), "a", "b")
        result = await graph.ainvoke(None, config_of(successor), durability="sync")
    assert (result, ran) == ({"done": ["a", "b"]}, ["a", "b"])  # The checkpoint that was refused isn't lost.


def test_without_await_a_run_whose_lease_is_lost_ends_before_its_next_node(
    sync_client: dhp_client.sync.Client,
) -> None:
    ran = Ran()
    work = sync_client.dispatch("graph", {}, key="sync-lost", keep_checkpoints=dhp_client.KEEP_ALL)
    task = sync_client.claim(work.handoff)
    assert task
    ran.at["lose"] = lambda: sync_client.suspend(work.handoff)
    graph = ran.graph(DHPSaver(task), "lose", "next")
    with pytest.raises(dhp_client.LeaseLost):
        graph.invoke({"done": []}, config_of(task), durability="sync")
    assert ran == ["lose"]


async def test_tasks_of_one_step_that_had_finished_are_not_run_again(client: dhp_client.Client) -> None:
    ran: list[str] = []
    task = await claimed(client, "fan-out")

    async def part(which: dict[str, str]) -> dict[str, list[str]]:
        ran.append(which["name"])
        if which["name"] == "3" and ran.count("3") == 1:
            await until_async(others_written)
            failing()
        return {"done": [which["name"]]}

    async def others_written() -> bool:
        written = [entry for entry in await entries(client, task.handoff) if isinstance(entry, Writes)]
        return [write.channel for entry in written for write in entry.writes].count(
            "done"
        ) == 3  # Of the input, and of two parts.

    builder = StateGraph(State).add_node("split", lambda state: {}).add_node("part", part)
    builder.add_edge(START, "split")
    builder.add_conditional_edges("split", lambda state: [Send("part", {"name": name}) for name in "123"], ["part"])
    with pytest.raises(OSError, match="down"):
        await builder.compile(checkpointer=DHPSaver(task)).ainvoke({"done": []}, config_of(task), durability="sync")
    await task.release()
    async with client.claim(task.handoff) as successor:
        graph = builder.compile(checkpointer=DHPSaver(successor))
        result = await graph.ainvoke(None, config_of(successor), durability="sync")
    assert sorted(ran) == ["1", "2", "3", "3"]
    assert result["done"] == ["1", "2", "3"]


async def test_an_interrupted_graph_is_answered_in_another_task(client: dhp_client.Client) -> None:
    def ask(state: State) -> dict[str, list[str]]:
        return {"done": [interrupt("may I?")]}

    inner = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()
    builder = StateGraph(State).add_node("inner", inner).add_edge(START, "inner")
    handoff = await dispatched(client, "interrupted")
    async with client.claim(handoff) as task:
        graph = builder.compile(checkpointer=DHPSaver(task))
        stopped = await graph.ainvoke({"done": []}, config_of(task), durability="sync")
        assert [each.value for each in stopped["__interrupt__"]] == ["may I?"]
    async with client.claim(handoff) as task:
        graph = builder.compile(checkpointer=DHPSaver(task))
        answered = await graph.ainvoke(Command(resume="yes"), config_of(task), durability="sync")
    assert answered == {"done": ["yes"]}


async def test_another_thread_than_the_tasks_is_refused(client: dhp_client.Client) -> None:
    ran = Ran()
    task = await claimed(client, "other")
    with pytest.raises(ValueError, match=r"'thread_id': task.handoff.*not 'mine'"):
        await ran.graph(DHPSaver(task), "a").ainvoke(
            {"done": []}, {"configurable": {"thread_id": "mine"}}, durability="sync"
        )
    with pytest.raises(ValueError, match="the work in hand"):
        await DHPSaver(task).adelete_thread(task.handoff)
    with pytest.raises(ValueError, match="released as a task is"):
        await DHPSaver(task).arelease(task.handoff)
    assert (ran, task.ended, task.lost) == ([], None, False)


async def test_work_that_keeps_only_some_checkpoints_is_refused(client: dhp_client.Client) -> None:
    ran = Ran()
    task = await claimed(client, "some", keep_checkpoints=16)
    with pytest.raises(dhp_client.NoJournal, match=r"dispatch it with keep_checkpoints=dhp_client.KEEP_ALL"):
        await ran.graph(DHPSaver(task), "a").ainvoke({"done": []}, config_of(task), durability="sync")
    assert ran == []


async def test_a_step_that_saves_too_much_is_refused_and_says_what_it_is(client: dhp_client.Client) -> None:
    ran = Ran()
    task = await claimed(client, "large")
    graph = ran.graph(DHPSaver(task), "a")
    with pytest.raises(dhp_client.TooLarge, match=r"may have 262144.*channel '\w+'.*keep large data elsewhere"):
        await graph.ainvoke({"done": ["x" * 200_000]}, config_of(task), durability="sync")
    await graph.ainvoke({"done": ["x" * 100_000]}, config_of(task), durability="sync")
    assert ran == ["a"]


@dataclass
class Page:
    number: int


class PageState(TypedDict):
    page: Page


async def test_a_type_that_nobody_allowed_is_refused_when_it_is_saved(client: dhp_client.Client) -> None:
    builder = StateGraph(PageState).add_node("turn", lambda state: {"page": Page(state["page"].number + 1)})
    builder.add_edge(START, "turn")
    task = await claimed(client, "types")
    graph = builder.compile(checkpointer=DHPSaver(task))
    with pytest.raises(
        TypeNotAllowed, match=r"allowed_msgpack_modules=\[\('tests.frameworks.test_langgraph_runs', 'Page'\)\]"
    ):
        await graph.ainvoke({"page": Page(1)}, config_of(task), durability="sync")
    graph = builder.compile(checkpointer=DHPSaver(task, allowed_msgpack_modules=[Page]))
    await graph.ainvoke({"page": Page(1)}, config_of(task), durability="sync")
    await task.release()
    successor = await client.claim(task.handoff)
    assert successor is not None
    graph = builder.compile(checkpointer=DHPSaver(successor, allowed_msgpack_modules=[Page]))
    assert (await graph.aget_state(config_of(successor))).values == {"page": Page(2)}
    graph = builder.compile(checkpointer=DHPSaver(successor))
    with pytest.raises(TypeNotAllowed):
        await graph.aget_state(config_of(successor))


async def test_what_cannot_be_saved_at_all_is_told_by_its_channel(client: dhp_client.Client) -> None:
    task = await claimed(client, "unsayable")
    graph = Ran().graph(DHPSaver(task), "a")
    with pytest.raises(TypeError, match=r"Channel '\w+' can't be saved: .*complex"):
        await graph.ainvoke({"done": [1j]}, config_of(task), durability="sync")


async def test_what_one_saver_of_a_task_has_saved_another_one_goes_on_from(client: dhp_client.Client) -> None:
    ran = Ran()
    task = await claimed(client, "two-savers")
    one, other = (ran.graph(DHPSaver(task), name) for name in ("a", "b"))
    await one.ainvoke({"done": ["1"]}, config_of(task), durability="sync")
    await other.ainvoke({"done": ["2"]}, config_of(task), durability="sync")
    assert (await one.aget_state(config_of(task))).values == {"done": ["1", "a", "2", "b"]}
    await other.ainvoke({"done": ["3"]}, config_of(task), durability="sync")
    result = await one.ainvoke({"done": ["4"]}, config_of(task), durability="sync")
    assert result["done"] == ["1", "a", "2", "b", "3", "b", "4", "a"]


async def test_a_graph_is_run_by_threads_and_loops_other_than_the_clients(
    client: dhp_client.Client, sync_client: dhp_client.sync.Client
) -> None:
    ran = Ran()
    task = await claimed(client, "threads")
    graph = ran.graph(DHPSaver(task), "a")
    await asyncio.to_thread(lambda: graph.invoke({"done": []}, config_of(task), durability="sync"))
    await task.release()
    claim = await asyncio.to_thread(lambda: sync_client.claim(task.handoff))
    assert claim
    graph = ran.graph(DHPSaver(claim), "a")
    assert (await graph.ainvoke({"done": []}, config_of(claim), durability="sync"))["done"] == ["a", "a"]
    assert len([state async for state in graph.aget_state_history(config_of(claim))]) == 6
    await asyncio.to_thread(claim.release)


async def test_invoke_on_the_clients_own_loop_is_refused_instead_of_waiting_for_ever(
    client: dhp_client.Client,
) -> None:
    task = await claimed(client, "own-loop")
    with pytest.raises(RuntimeError, match="use ainvoke"):
        Ran().graph(DHPSaver(task), "a").invoke({"done": []}, config_of(task), durability="sync")


def test_a_claim_that_got_nothing_is_refused(sync_client: dhp_client.sync.Client) -> None:
    nothing = sync_client.claim(kinds="nothing-of-this-kind")
    with pytest.raises(TypeError, match="Give a task or a client"):
        DHPSaver(nothing)


async def test_a_serialiser_of_ones_own_allows_what_it_allows(client: dhp_client.Client) -> None:
    task = await claimed(client, "serde")
    with pytest.raises(ValueError, match="to the serialiser"):
        DHPSaver(task, serde=DHPSaver(task).serde, allowed_msgpack_modules=[Page])


async def test_a_node_that_waits_for_a_person_puts_the_work_aside_and_runs_again_once_they_have_decided(
    client: dhp_client.Client, address: str
) -> None:
    ran = Ran()
    handoff = await dispatched(client, "approval")

    def graph_of(task: dhp_client.Task) -> Any:
        async def publish(state: State) -> dict[str, list[str]]:
            await task.approval("publish", {"pages": 3}, timeout_ms=60_000, park=True)
            return ran.node("publish")(state)

        builder = StateGraph(State).add_node("write", ran.node("write")).add_node("publish", publish)
        builder.add_edge(START, "write").add_edge("write", "publish")
        return builder.compile(checkpointer=DHPSaver(task))

    async with client.claim(handoff) as task:
        await graph_of(task).ainvoke({"done": []}, config_of(task), durability="sync")
    assert (ran, (await client.status(handoff)).status) == (["write"], "suspended")
    async with dhp_client.connect(address) as person:
        (asked,) = (await person.approvals(handoff=handoff)).approvals
        await person.approve(asked.approval)
    async with client.claim(handoff, wait_ms=60_000) as task:
        result = await graph_of(task).ainvoke(None, config_of(task), durability="sync")
    assert (result, ran) == ({"done": ["write", "publish"]}, ["write", "publish"])
