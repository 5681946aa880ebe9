"""`async with client.claim(...) as task`: however the block is left, the work isn't left hanging."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

import dhp_client
from dhp_protocol.errors import LeaseLost
from dhp_protocol.replies import CheckpointReply, ClaimReply, CompleteReply, LeaseLostEvent, ReleaseReply
from tests.client.fake_daemon import HANDOFF, Connection, FakeDaemon, grant
from tests.client.losing import losing
from tests.client.waiting import until


async def last_record(client: dhp_client.Client, handoff: str) -> dict[str, Any]:
    records: list[dict[str, Any]] = (await client.history(handoff)).records
    return records[-1]


async def test_leaving_without_an_end_releases(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        await task.checkpoint(1)
    status = await client.status(made.handoff)
    assert (status.status, status.failures) == ("pending", 0)
    assert task.ended == "released"


async def test_an_exception_fails_the_attempt_with_retry_and_goes_on_its_way(
    client: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    with pytest.raises(KeyError):
        async with client.claim(kinds=kind):
            raise KeyError("no such \ud800 page")
    assert (await client.status(made.handoff)).failures == 1
    failed = await last_record(client, made.handoff)
    assert (failed["type"], failed["error"], failed["retry"]) == (
        "failed",
        {"type": "KeyError", "message": "'no such \\ud800 page'"},
        True,
    )


async def test_an_exception_whose_text_cannot_be_had_fails_too(client: dhp_client.Client, kind: str) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    made = await client.dispatch(kind, {})
    with pytest.raises(Mute):
        async with client.claim(kinds=kind):
            raise Mute
    assert (await last_record(client, made.handoff))["error"]["type"] == "Mute"


@pytest.mark.parametrize("leaving", [SystemExit, GeneratorExit])
async def test_an_exit_releases(client: dhp_client.Client, kind: str, leaving: type[BaseException]) -> None:
    made = await client.dispatch(kind, {})
    with pytest.raises(leaving):
        async with client.claim(kinds=kind):
            raise leaving
    while (await client.status(made.handoff)).status == "running":
        await asyncio.sleep(0.01)
    assert (await last_record(client, made.handoff))["type"] == "released"


async def test_cancellation_releases_and_stays_a_cancellation(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    begun = asyncio.Event()

    async def work() -> None:
        async with client.claim(kinds=kind):
            begun.set()
            await asyncio.sleep(60)

    working = asyncio.create_task(work())
    await begun.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert (await last_record(client, made.handoff))["type"] == "released"


async def test_a_generator_that_is_given_up_releases(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})

    async def pages() -> AsyncIterator[int]:
        async with client.claim(kinds=kind):
            yield 1
            yield 2

    generator = pages()
    assert await anext(generator) == 1
    await generator.aclose()  # type: ignore[attr-defined]
    while (await client.status(made.handoff)).status == "running":
        await asyncio.sleep(0.01)
    assert (await last_record(client, made.handoff))["type"] == "released"


async def test_after_its_end_a_task_takes_nothing_more(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        await task.complete({"n": 1})
        with pytest.raises(dhp_client.TaskEnded):
            await task.checkpoint(1)
        with pytest.raises(dhp_client.TaskEnded):
            await task.complete({"n": 1})
    assert (await client.result(made.handoff)).result == {"n": 1}


async def test_failing_without_retry_is_the_end(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        assert (await task.fail("Broken", "for good", retry=False)).status == "dead"
    assert (await client.status(made.handoff)).status == "dead"


async def test_a_refused_result_leaves_the_work_running(client: dhp_client.Client, kind: str) -> None:
    schema = {"type": "object", "required": ["n"]}
    made = await client.dispatch(kind, {}, output_schema=schema)
    async with client.claim(kinds=kind) as task:
        with pytest.raises(dhp_client.ResultInvalid):
            await task.complete({})
        await task.checkpoint("still here")
        await task.complete({"n": 1})
    assert (await client.result(made.handoff)).result == {"n": 1}


async def test_a_block_can_be_run_with_a_task_that_was_awaited(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    task = await client.claim(kinds=kind)
    assert task is not None
    with pytest.raises(ZeroDivisionError):
        async with task:
            raise ZeroDivisionError
    assert (await client.status(made.handoff)).failures == 1


async def test_concurrent_checkpoints_of_one_task_each_get_a_place(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        replies = await asyncio.gather(*(task.checkpoint({"n": n}) for n in range(20)))
        assert [reply.seq for reply in replies] == list(range(1, 21))
        await task.complete(None)


async def test_a_cancelled_checkpoint_does_not_put_the_next_one_out_of_step(
    client: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        for n in range(10):
            call = asyncio.create_task(task.checkpoint({"n": n}))
            for _ in range(n % 4):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await task.checkpoint({"after": n})
        await task.complete(None)
    last = await client.last_checkpoint(made.handoff)
    assert last is not None
    assert last.state == {"after": 9}


async def grants(connection: Connection, request: Any) -> ClaimReply:
    return grant()


def says_lost(connection: Connection, why: str = "superseded", status: str = "running") -> None:
    connection.event(LeaseLostEvent(handoff=HANDOFF, fence=1, why=why, status=status))


async def test_losing_the_lease_cancels_the_body_and_the_block_says_why(
    fake: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    fake.answers["claim"] = grants
    async with dhp_client.connect(fake.address) as client:
        with losing() as lost:
            async with client.claim(kinds="fetch") as task:
                says_lost(fake.connections[0])
                await asyncio.sleep(60)
        assert lost.value.details["why"] == "superseded"
        assert task.lost
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0
        with pytest.raises(dhp_client.LeaseLost):
            await task.checkpoint(1)
    assert not fake.of("checkpoint", "fail", "release")
    warned = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned == [], "what is raised isn't written to standard error as well"


async def test_a_user_who_cancels_at_the_same_time_gets_the_cancellation(fake: FakeDaemon) -> None:
    fake.answers["claim"] = grants
    begun = asyncio.Event()

    async def work(client: dhp_client.Client) -> None:
        async with client.claim(kinds="fetch", on_lost=lambda task: working.cancel()):
            begun.set()
            await asyncio.sleep(60)

    async with dhp_client.connect(fake.address) as client:
        working = asyncio.create_task(work(client))
        await begun.wait()
        says_lost(fake.connections[0])
        with pytest.raises(asyncio.CancelledError):
            await working


async def test_an_exception_after_the_loss_is_the_losss_cause(fake: FakeDaemon) -> None:
    fake.answers["claim"] = grants
    async with dhp_client.connect(fake.address) as client:
        with losing() as lost:
            async with client.claim(kinds="fetch"):
                says_lost(fake.connections[0])
                try:
                    await asyncio.sleep(60)
                finally:
                    raise ZeroDivisionError
        assert isinstance(lost.value.__cause__, ZeroDivisionError)


async def test_a_body_that_swallows_the_cancellation_is_told_at_the_end(fake: FakeDaemon) -> None:
    fake.answers["claim"] = grants
    async with dhp_client.connect(fake.address) as client:
        with losing():
            async with client.claim(kinds="fetch"):
                says_lost(fake.connections[0])
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass


async def test_a_write_that_waits_when_the_lease_is_lost_raises_instead_of_being_cancelled(fake: FakeDaemon) -> None:
    async def never(connection: Connection, request: Any) -> None:
        says_lost(connection)

    fake.answers |= {"claim": grants, "checkpoint": never}
    async with dhp_client.connect(fake.address) as client:
        with losing():
            async with client.claim(kinds="fetch") as task:
                with pytest.raises(dhp_client.LeaseLost):
                    await task.checkpoint(1)
                await asyncio.sleep(0)  # Nothing is left that would cancel this.


async def test_a_write_that_is_refused_raises_and_the_body_is_not_cancelled_on_top(fake: FakeDaemon) -> None:
    async def refuse(connection: Connection, request: Any) -> CheckpointReply:
        raise LeaseLost("no", why="superseded", fence=3, status="running")

    fake.answers |= {"claim": grants, "checkpoint": refuse}
    told: list[Any] = []
    async with dhp_client.connect(fake.address) as client:
        with losing() as lost:
            async with client.claim(kinds="fetch", on_lost=told.append) as task:
                try:
                    await task.checkpoint(1)
                finally:
                    await asyncio.sleep(0)
        assert lost.value.details == {"why": "superseded", "fence": 3, "status": "running"}
        assert told == [task]


async def test_a_write_from_another_task_that_is_refused_cancels_the_body(fake: FakeDaemon) -> None:
    async def refuse(connection: Connection, request: Any) -> CheckpointReply:
        raise LeaseLost("no", why="cancelled", fence=2, status="cancelled")

    fake.answers |= {"claim": grants, "checkpoint": refuse}
    async with dhp_client.connect(fake.address) as client:
        with losing() as lost:
            async with client.claim(kinds="fetch") as task:
                saving = asyncio.create_task(task.checkpoint(1))
                await asyncio.sleep(60)
        assert lost.value.details["why"] == "cancelled"
        with pytest.raises(dhp_client.LeaseLost):
            await saving


async def test_without_a_block_the_callback_runs_and_the_next_call_raises(fake: FakeDaemon) -> None:
    fake.answers["claim"] = grants
    told: list[dhp_client.Task] = []
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch", on_lost=told.append)
        assert task is not None
        says_lost(fake.connections[0])
        await until(lambda: told)
        assert task.lost
        with pytest.raises(dhp_client.LeaseLost):
            await task.complete(1)
    assert told == [task]


async def test_a_callback_that_fails_costs_nothing(fake: FakeDaemon) -> None:
    fake.answers["claim"] = grants

    def broken(task: dhp_client.Task) -> None:
        raise RuntimeError("broken callback")

    async with dhp_client.connect(fake.address) as client:
        with losing():
            async with client.claim(kinds="fetch", on_lost=broken):
                says_lost(fake.connections[0])
                await asyncio.sleep(60)
        await client.ping()


async def test_cancelled_work_is_stopped(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    with losing() as lost:
        async with client.claim(kinds=kind):
            await client.cancel(made.handoff)
            await asyncio.sleep(60)
    assert lost.value.details["why"] == "cancelled"


async def test_completing_is_not_mistaken_for_a_loss_when_the_heartbeat_hears_of_it_first(fake: FakeDaemon) -> None:
    async def complete(connection: Connection, request: Any) -> CompleteReply:
        for other in fake.connections:
            other.event(LeaseLostEvent(handoff=HANDOFF, fence=1, why="completed", status="completed"))
        await asyncio.sleep(0.05)
        return CompleteReply(duplicate=False)

    fake.answers |= {"claim": grants, "complete": complete}
    async with dhp_client.connect(fake.address) as client:
        async with client.claim(kinds="fetch") as task:
            await task.complete(1)
        assert (task.ended, task.lost) == ("completed", False)


async def test_a_body_that_is_cancelled_while_it_completes_is_not_said_to_have_failed_to_give_back(
    fake: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def complete(connection: Connection, request: Any) -> CompleteReply:
        begun.set()
        await go_on.wait()
        return CompleteReply(duplicate=False)

    async def work(client: dhp_client.Client) -> None:
        async with client.claim(kinds="fetch") as task:
            tasks.append(task)
            await task.complete(1)

    tasks: list[dhp_client.Task] = []
    fake.answers |= {"claim": grants, "complete": complete}
    async with dhp_client.connect(fake.address) as client:
        working = asyncio.create_task(work(client))
        await begun.wait()
        working.cancel()
        await client.ping()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await working
    assert (tasks[0].ended, fake.of("release")) == ("completed", [])
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_closing_the_client_releases_and_ends_the_work_under_way(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    begun = asyncio.Event()

    async def work() -> None:
        async with client.claim(kinds=kind):
            begun.set()
            await asyncio.sleep(60)

    working = asyncio.create_task(work())
    await begun.wait()
    address = client._session.connection._addresses
    await client.close()
    with pytest.raises(dhp_client.ClientClosed):
        await working
    async with dhp_client.connect([str(one) for one in address]) as other:
        assert (await last_record(other, made.handoff))["type"] == "released"


async def test_a_release_that_nobody_answers_does_not_hold_up_the_end_of_the_block_for_ever(
    fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(connection: Connection, request: Any) -> ReleaseReply | None:
        return None

    monkeypatch.setattr("dhp_client.task.END_TIMEOUT_MS", 100)
    fake.answers |= {"claim": grants, "release": never}
    async with dhp_client.connect(fake.address) as client:
        async with client.claim(kinds="fetch"):
            pass
        assert len(fake.of("release")) == 1
