"""Threads of any names over a client: who may write one, what looking costs, and how one goes."""

import asyncio
import gc
import os
import signal
import weakref
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import dhp_client
from dhp_client.langgraph import DHPSaver
from dhp_client.langgraph.threads import ManyThreads

from .test_langgraph_runs import Ran, dispatched


def named(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


async def test_a_conversation_goes_on_and_its_past_can_be_read_and_forked(client: dhp_client.Client) -> None:
    graph = Ran().graph(DHPSaver(client), "a")
    await graph.ainvoke({"done": ["1"]}, named("talk"), durability="sync")
    assert (await graph.ainvoke({"done": ["2"]}, named("talk"), durability="sync"))["done"] == ["1", "a", "2", "a"]
    past = [state async for state in graph.aget_state_history(named("talk"))]
    assert [state.values.get("done") for state in past] == [
        ["1", "a", "2", "a"],
        ["1", "a", "2"],
        ["1", "a"],
        ["1", "a"],
        ["1"],
        [],
    ]
    forked = await graph.aupdate_state(past[3].config, {"done": ["else"]})
    assert (await graph.ainvoke(None, forked, durability="sync"))["done"] == ["1", "a", "else"]
    assert len([state async for state in graph.aget_state_history(named("talk"))]) == len(past) + 1


async def test_two_programs_never_write_one_thread(client: dhp_client.Client, address: str) -> None:
    ran = Ran()
    saver = DHPSaver(client)
    await ran.graph(saver, "a").ainvoke({"done": []}, named("one"), durability="sync")
    async with dhp_client.connect(address) as other:
        elsewhere = ran.graph(DHPSaver(other), "b")
        assert (await elsewhere.aget_state(named("one"))).values == {"done": ["a"]}  # Looking claims nothing.
        for change in (
            elsewhere.ainvoke({"done": []}, named("one"), durability="sync"),
            elsewhere.aupdate_state(named("one"), {"done": ["b"]}),
        ):
            with pytest.raises(dhp_client.AlreadyClaimed, match=r"holds the thread 'one'.*wait_ms"):
                await change
        assert ran == ["a"]
        await saver.arelease("one")
        assert (await elsewhere.ainvoke({"done": []}, named("one"), durability="sync"))["done"] == ["a", "b"]
        with pytest.raises(dhp_client.AlreadyClaimed):
            await ran.graph(saver, "a").ainvoke({"done": []}, named("one"), durability="sync")
        waiting = ran.graph(DHPSaver(client, wait_ms=300), "a")
        with pytest.raises(dhp_client.NothingToClaim, match="holds the thread 'one'"):
            await waiting.ainvoke({"done": []}, named("one"), durability="sync")
    waiting = ran.graph(DHPSaver(client, wait_ms=60_000), "a")
    assert (await waiting.ainvoke({"done": []}, named("one"), durability="sync"))["done"] == ["a", "b", "a"]


async def test_a_thread_whose_lease_was_lost_is_claimed_anew_by_the_next_run(client: dhp_client.Client) -> None:
    ran = Ran()
    saver = DHPSaver(client)
    graph = ran.graph(saver, "a")
    await graph.ainvoke({"done": []}, named("again"), durability="sync")
    (found,) = (await client.list(label="thread_id=again")).handoffs
    await client.suspend(found.handoff)
    with pytest.raises(dhp_client.LeaseLost):
        await graph.aupdate_state(named("again"), {"done": ["late"]})
    with pytest.raises(dhp_client.NotClaimable):
        await graph.ainvoke({"done": []}, named("again"), durability="sync")
    await client.resume(found.handoff)
    assert (await graph.ainvoke({"done": []}, named("again"), durability="sync"))["done"] == ["a", "a"]


async def test_a_listed_checkpoint_is_loaded_when_its_turn_comes(client: dhp_client.Client) -> None:
    loaded: list[str] = []

    class Counting(JsonPlusSerializer):
        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            loaded.append(data[0])
            return super().loads_typed(data)

    saver = DHPSaver(client, serde=Counting())
    for _ in range(3):
        await Ran().graph(saver, "a").ainvoke({"done": []}, named("lazy"), durability="sync")
    loaded.clear()
    assert len([found async for found in saver.alist(named("lazy"), limit=1)]) == 1
    for_one = len(loaded)
    async for _ in saver.alist(named("lazy")):
        break
    assert len(loaded) == 2 * for_one


async def test_a_thread_whose_work_has_ended_here_is_looked_at_as_others_write_it(
    client: dhp_client.Client, address: str
) -> None:
    handoff = await dispatched(client, "ended-here", budget={"max_steps": 2})
    graph = Ran().graph(DHPSaver(client), "a")
    with pytest.raises(dhp_client.BudgetExceeded):
        await graph.ainvoke({"done": []}, named(handoff), durability="sync")
    await client.redrive(handoff, budget_add={"max_steps": 10})
    async with dhp_client.connect(address) as other:
        elsewhere = Ran().graph(DHPSaver(other), "a")
        await elsewhere.ainvoke(None, named(handoff), durability="sync")
        await elsewhere.ainvoke({"done": ["b"]}, named(handoff), durability="sync")
    assert (await graph.aget_state(named(handoff))).values == {"done": ["a", "b", "a"]}


async def test_a_released_thread_leaves_nothing_in_memory(client: dhp_client.Client) -> None:
    threads = ManyThreads(client, "released", 0)
    held = weakref.ref((await threads.hold("gone")).task)
    await threads.release("gone")
    gc.collect()
    assert (held(), len(threads._held), len(threads._claiming)) == (None, 0, 0)


def test_a_saver_of_no_more_use_says_so_instead_of_waiting_for_ever(address: str) -> None:
    loop = asyncio.new_event_loop()

    async def connected() -> dhp_client.Client:
        return await dhp_client.connect(address)

    client = loop.run_until_complete(connected())
    saver = DHPSaver(client)
    with pytest.raises(dhp_client.WrongLoop, match="has ended"):
        saver.get_tuple(named("x"))
    with pytest.raises(dhp_client.WrongLoop, match="has ended"):
        asyncio.run(saver.aget_tuple(named("x")))
    loop.run_until_complete(client.close())
    loop.close()
    with pytest.raises(dhp_client.ClientClosed):
        saver.get_tuple(named("x"))


def test_a_forked_child_is_told_to_connect_again(sync_client: dhp_client.sync.Client) -> None:
    saver = DHPSaver(sync_client)
    child = os.fork()
    if not child:
        signal.alarm(60)  # Ends a child that would wait for ever.
        try:
            saver.get_tuple(named("x"))
        except dhp_client.ClientClosed:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_what_this_process_holds_is_read_once(client: dhp_client.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    checkpoints = client.checkpoints

    async def counting(handoff: str, after: int = 0, limit: int = 100) -> dhp_client.CheckpointPage:
        asked.append(handoff)
        return await checkpoints(handoff, after, limit)

    monkeypatch.setattr(client, "checkpoints", counting)
    graph = Ran().graph(DHPSaver(client), "a", "b")
    for _ in range(3):
        await graph.ainvoke({"done": []}, named("long"), durability="sync")
        await graph.aget_state(named("long"))
    assert len(asked) == 1


async def test_a_handoffs_id_is_the_thread_of_its_worker(client: dhp_client.Client, address: str) -> None:
    handoff = await dispatched(client, "looked-at")
    async with client.claim(handoff) as task:
        await Ran().graph(DHPSaver(task), "a").ainvoke({"done": []}, named(handoff), durability="sync")
        async with dhp_client.connect(address) as other:
            graph = Ran().graph(DHPSaver(other), "a")
            assert (await graph.aget_state(named(handoff))).values == {"done": ["a"]}
            assert (await graph.aget_state(named("0" * 64))).values == {}


async def test_a_handoff_that_holds_no_thread_is_not_kept(client: dhp_client.Client) -> None:
    handoff = await dispatched(client, "other-states")
    async with client.claim(handoff) as task:
        await task.checkpoint({"page": 1})
    saver = DHPSaver(client)
    for change in (
        Ran().graph(saver, "a").ainvoke({"done": []}, named(handoff), durability="sync"),
        Ran().graph(saver, "a").aget_state(named(handoff)),
    ):
        with pytest.raises(dhp_client.NoJournal, match="Checkpoint 1 is no entry"):
            await change
    assert (await client.status(handoff)).status == "pending"


async def test_every_thread_is_listed_and_a_deleted_one_begins_anew(client: dhp_client.Client) -> None:
    saver = DHPSaver(client, kind="listed")
    graph = Ran().graph(saver, "a")
    for name in ("x", "y"):
        await graph.ainvoke({"done": [name]}, named(name), durability="sync")
    everything = [found async for found in saver.alist(None)]
    assert [found.config["configurable"]["thread_id"] for found in everything] == ["x"] * 3 + ["y"] * 3
    assert len([found async for found in saver.alist(None, limit=4)]) == 4
    (kept,) = (await client.list(kind="listed", label="thread_id=x")).handoffs
    await client.cancel(kept.handoff)
    with pytest.raises(dhp_client.NotClaimable, match="delete_thread has it begin anew"):
        await Ran().graph(DHPSaver(client, kind="listed"), "a").ainvoke({"done": []}, named("x"), durability="sync")
    await saver.adelete_thread("x")
    assert [found.config["configurable"]["thread_id"] async for found in saver.alist(None)] == ["y"] * 3
    assert (await graph.ainvoke({"done": ["new"]}, named("x"), durability="sync"))["done"] == ["new", "a"]


@pytest.mark.parametrize("thread_id", ["", "x" * 257])
async def test_a_thread_id_that_cannot_be_found_again_is_refused(client: dhp_client.Client, thread_id: str) -> None:
    with pytest.raises(ValueError, match="has 1 to 256 characters"):
        await DHPSaver(client).aget_tuple(named(thread_id))
    with pytest.raises(ValueError, match="Say which thread"):
        await DHPSaver(client).aget_tuple({"configurable": {}})
