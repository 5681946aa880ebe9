"""The sandbox: started when needed and again after its end, one task at a time, connections in turn."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from dhp_protocol.errors import InvalidRequest, Overloaded, ResultInvalid
from dhp_protocol.intent import handoff_id
from dhpd.sandbox import queueing
from dhpd.sandbox.bounds import BeyondBounds, Bounds
from dhpd.sandbox.process import Process
from dhpd.sandbox.queueing import Queue
from dhpd.sandbox.tasks import decode_named
from tests.support.sandbox_processes import has_worked
from tests.support.sandbox_processes import workers as workers_of

SOON = Bounds(steps=200_000, cpu_s=0.3, wall_s=20.0)
"""What takes longer takes too long, so that a test needn't wait for it."""
HANG = ("judge", b'{"pattern": "^(a+)+$"}', b'"' + b"a" * 40 + b'!"')
PLAIN = ("judge", b'{"pattern": "^a"}', b'"a"')


def workers() -> list[int]:
    return workers_of(os.getpid())


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    made = Queue(SOON)
    yield made
    await made.close()


async def test_no_worker_runs_before_it_is_needed_nor_after_the_end() -> None:
    queue = Queue(SOON)
    assert workers() == []
    assert await queue.ask(1, *PLAIN) == b""
    assert len(workers()) == 1
    await queue.close()
    assert workers() == []


async def test_connections_have_their_turns(queue: Queue) -> None:
    order = []

    async def ask(connection: int, name: str) -> None:
        await queue.ask(connection, *PLAIN)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        for index in range(4):
            group.create_task(ask(1, f"greedy {index}"))
        for connection in (2, 3):
            group.create_task(ask(connection, f"other {connection}"))
    assert order == ["greedy 0", "other 2", "other 3", "greedy 1", "greedy 2", "greedy 3"]


async def test_one_that_hangs_costs_the_others_their_turn_and_no_more(queue: Queue) -> None:
    hanging = [asyncio.ensure_future(queue.ask(1, *HANG)) for _ in range(3)]
    other = asyncio.ensure_future(queue.ask(2, *PLAIN))
    assert await other == b""
    assert [task.done() for task in hanging] == [True, False, False]
    for task in hanging:
        with pytest.raises(BeyondBounds):
            await task


async def test_a_worker_that_is_killed_from_outside_is_started_again_and_the_job_done(queue: Queue) -> None:
    assert await queue.ask(1, *PLAIN) == b""
    (first,) = workers()
    os.kill(first, signal.SIGKILL)
    assert await queue.ask(1, *PLAIN) == b""
    (second,) = workers()
    assert first != second


async def test_a_job_during_which_it_dies_twice_is_no_verdict() -> None:
    queue = Queue(Bounds(cpu_s=60.0))
    asked = asyncio.ensure_future(queue.ask(1, *HANG))
    for _ in range(2):
        while not (running := [worker for worker in workers() if has_worked(worker)]):
            await asyncio.sleep(0.01)
        os.kill(running[0], signal.SIGKILL)
        while running[0] in workers():
            await asyncio.sleep(0.01)
    with pytest.raises(BeyondBounds):
        await asked
    await queue.close()


async def test_a_worker_that_sleeps_is_killed_by_the_clock() -> None:
    queue = Queue(SOON._replace(wall_s=0.5))
    assert await queue.ask(1, *PLAIN) == b""
    (first,) = workers()
    os.kill(first, signal.SIGSTOP)
    with pytest.raises(BeyondBounds):
        await queue.ask(1, *PLAIN)
    assert await queue.ask(1, *PLAIN) == b""
    await queue.close()


async def test_what_waits_is_bounded(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queueing, "MAX_WAITING_JOBS", 2)
    hanging = [asyncio.ensure_future(queue.ask(1, *HANG))]
    while not workers():
        await asyncio.sleep(0.01)
    hanging += [asyncio.ensure_future(queue.ask(1, *HANG)) for _ in range(2)]
    await asyncio.sleep(0)  # They are in line.
    with pytest.raises(Overloaded) as caught:
        await queue.ask(2, *PLAIN)
    assert caught.value.after_ms
    answers = await asyncio.gather(*hanging, return_exceptions=True)
    assert [type(answer) for answer in answers] == [BeyondBounds] * 3


async def test_who_waits_when_it_is_closed_hears_of_it(queue: Queue) -> None:
    asked = [asyncio.ensure_future(queue.ask(connection, *HANG)) for connection in (1, 1, 2)]
    while not workers():
        await asyncio.sleep(0.01)
    await queue.close()
    for task in asked:
        with pytest.raises(Overloaded):
            await task
    with pytest.raises(Overloaded):
        await queue.ask(1, *PLAIN)


async def test_a_worker_that_can_not_be_started_is_no_verdict(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("sys.executable", "/nowhere/python")
        with pytest.raises(Overloaded):
            await queue.ask(1, *PLAIN)
        broken.setattr("sys.executable", "/bin/false")
        with pytest.raises(Overloaded):
            await queue.ask(1, *PLAIN)
    assert await queue.ask(1, *PLAIN) == b""


async def test_a_schema_that_takes_too_long_to_compile_is_no_verdict() -> None:
    sets = r"[\\p{L}x]" * 900  # Each is a table of hundreds of ranges.
    queue = Queue(SOON._replace(cpu_s=0.05))
    with pytest.raises(BeyondBounds):
        await queue.ask(1, "check", b'{"pattern": "%b"}' % sets.encode())
    await queue.close()


async def test_refusals_and_answers_come_as_they_were_made(queue: Queue) -> None:
    with pytest.raises(ResultInvalid) as caught:
        await queue.ask(1, "judge", b'{"properties": {"n": {"minimum": 3}}}', b'{"n": 2}')
    assert caught.value.details == {"path": "/n", "rule": "minimum"}
    assert await queue.ask(1, "canonical", b'{"b": 1.0, "a": "\\u00e9"}', b"details") == '{"a":"é","b":1}'.encode()
    with pytest.raises(InvalidRequest) as refused:
        await queue.ask(1, "canonical", b'{"b": 1, "b": 2}', b"details")
    assert refused.value.details == {"member": "details"}
    named = decode_named(await queue.ask(1, "name", b'{"op":"dispatch","kind":"k","inputs":{"b":1,"a":2}}', b"{}"))
    assert named.handoff == handoff_id(named.canonical)
    assert b'"inputs":{"a":2,"b":1}' in named.canonical


@pytest.mark.parametrize("kilobytes", [60, 100, 200, 500])
async def test_a_refusal_as_long_as_what_was_sent_disturbs_nobody(queue: Queue, kilobytes: int) -> None:
    name = b"n" * (kilobytes * 1024)
    schema = b'{"required": ["%b"]}' % name
    with pytest.raises(ResultInvalid) as caught:
        await queue.ask(1, "judge", schema, b"{}")
    assert caught.value.details["rule"] == "required"
    assert await queue.ask(2, "canonical", b'"mine"', b"details") == b'"mine"'
    assert len(workers()) == 1


async def test_whoever_asks_after_an_answer_that_could_not_be_read_gets_their_own(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await queue.ask(1, "canonical", b'"first"', b"details") == b'"first"'

    async def broken(self: Process) -> None:
        raise ValueError("half an answer is read")

    with monkeypatch.context() as patch:
        patch.setattr(Process, "_told", broken)
        with pytest.raises(ValueError, match="half"):
            await queue.ask(1, "canonical", b'"second"', b"details")
    assert await queue.ask(2, "canonical", b'"third"', b"details") == b'"third"'
