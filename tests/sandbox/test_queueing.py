"""The sandbox: started when needed and again after its end, in the order of what each has used, slow tasks by themselves."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable

import pytest

from dhp_protocol.errors import InvalidRequest, Overloaded, ResultInvalid
from dhp_protocol.intent import handoff_id
from dhpd.sandbox import queueing
from dhpd.sandbox.bounds import BeyondBounds, Bounds
from dhpd.sandbox.process import Process
from dhpd.sandbox.queueing import Queue
from dhpd.sandbox.tasks import decode_named
from tests.sandbox.fake_process import Fakes
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


# --- whose turn it is --------------------------------------------------------------------------------------------------


@pytest.fixture
def fakes() -> Fakes:
    return Fakes()


@pytest.fixture
async def faked(fakes: Fakes) -> AsyncIterator[Queue]:
    made = Queue(Bounds(cpu_s=4.0), fakes.start)
    yield made
    await made.close()


def asked(queue: Queue, asker: int | str, name: str, seconds: float = 0.01, size: int = 0) -> "asyncio.Task[bytes]":
    return asyncio.ensure_future(queue.ask(asker, name, str(seconds).encode(), b"." * size))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


async def test_whoever_has_used_none_goes_before_those_who_have(faked: Queue, fakes: Fakes) -> None:
    greedy = [asked(faked, "greedy", f"greedy {index}") for index in range(4)]
    others = [asked(faked, connection, f"other {connection}", size=100) for connection in (2, 3)]
    await asyncio.gather(*greedy, *others)
    assert fakes.quick == ["greedy 0", "other 2", "other 3", "greedy 1", "greedy 2", "greedy 3"]
    assert fakes.slow == []


async def test_of_who_has_used_the_same_the_small_goes_first(faked: Queue, fakes: Fakes) -> None:
    sizes = {"large": 9_000, "small": 10, "as small": 10, "middling": 500}
    await asyncio.gather(*(asked(faked, number, name, size=size) for number, (name, size) in enumerate(sizes.items())))
    assert fakes.quick == ["small", "as small", "middling", "large"]


async def test_what_is_quick_waits_for_no_slow_task(faked: Queue, fakes: Fakes) -> None:
    fakes.may_go_on.clear()
    dear = [asked(faked, connection, f"dear {connection}", 3.0) for connection in range(15) for _ in range(3)]
    await until(lambda: fakes.slow)
    assert await asked(faked, "honest", "honest", size=6_000) == b"honest"
    assert [task.done() for task in dear] == [False] * 45
    assert len(fakes.slow) == 1
    fakes.may_go_on.set()
    assert all(await asyncio.gather(*dear))


async def test_what_is_slow_waits_for_the_one_slow_task_that_is_being_done(faked: Queue, fakes: Fakes) -> None:
    fakes.may_go_on.clear()
    dear = [asked(faked, 1, f"dear {index}", 3.0) for index in range(3)]
    await until(lambda: len(fakes.quick) == 3)
    honest = asked(faked, 2, "honest", 0.5)
    await until(lambda: len(fakes.quick) == 4)
    fakes.may_go_on.set()
    await asyncio.gather(*dear, honest)
    assert fakes.slow == ["dear 0", "honest", "dear 1", "dear 2"]


async def test_what_is_beyond_the_bounds_has_used_them_up(faked: Queue, fakes: Fakes) -> None:
    with pytest.raises(BeyondBounds):
        await asked(faked, 1, "endless", 100.0)
    assert (fakes.quick, fakes.slow) == (["endless"], ["endless"])
    again, other = asked(faked, 1, "again"), asked(faked, 2, "other", 0.09, size=900)
    await asyncio.gather(again, other)
    assert fakes.quick == ["endless", "other", "again"]


async def test_what_nobody_waits_for_any_more_is_not_begun(faked: Queue, fakes: Fakes) -> None:
    fakes.may_go_on.clear()
    first, given_up, last = (asked(faked, 1, name, 1.0) for name in ("first", "given up", "last"))
    await until(lambda: len(fakes.quick) == 3)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    fakes.may_go_on.set()
    await asyncio.gather(first, last)
    assert fakes.slow == ["first", "last"]


async def test_who_has_waited_too_long_hears_of_it(faked: Queue, fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.may_go_on.clear()
    first = asked(faked, 1, "first", 1.0)
    await until(lambda: fakes.slow)
    monkeypatch.setattr(queueing, "ANSWERED_WITHIN_S", 0.01)
    with pytest.raises(Overloaded) as caught:
        await asked(faked, 1, "second", 1.0)
    assert caught.value.after_ms
    fakes.may_go_on.set()
    assert await first == b"first"
    assert fakes.slow == ["first"]


# --- how much may wait -------------------------------------------------------------------------------------------------


async def test_whoever_has_the_most_waiting_gives_way_to_others(
    faked: Queue, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queueing, "MAX_WAITING_BYTES", 10 * queueing.JOB_BYTES)
    fakes.may_go_on.clear()
    first = asked(faked, "greedy", "first", 1.0)
    await until(lambda: fakes.slow)
    greedy = [asked(faked, "greedy", f"greedy {index}", 1.0) for index in range(20)]
    await until(lambda: len(fakes.quick) == 1 + 9)
    for task in greedy[9:]:
        with pytest.raises(Overloaded):
            await task
    assert not any(task.done() for task in greedy[:9])
    others = [asked(faked, connection, f"other {connection}", 1.0) for connection in (2, 3, 4)]
    await until(lambda: len(fakes.quick) == 1 + 9 + 3)
    assert [task.done() for task in greedy[:9]] == [False] * 6 + [True] * 3
    assert not any(task.done() for task in others)
    for task in greedy[6:9]:
        with pytest.raises(Overloaded):
            await task
    fakes.may_go_on.set()
    assert await asyncio.gather(first, *others) == [b"first", b"other 2", b"other 3", b"other 4"]
    await asyncio.gather(*greedy[:6])


# --- the processes -----------------------------------------------------------------------------------------------------


async def test_what_takes_longer_than_a_slice_costs_the_quick_process_nothing(queue: Queue) -> None:
    assert await queue.ask(1, *PLAIN) == b""
    (quick,) = workers()
    with pytest.raises(BeyondBounds):
        await queue.ask(1, *HANG)
    assert workers() == [quick]
    assert await queue.ask(1, *PLAIN) == b""
    assert workers() == [quick]


async def test_what_takes_longer_than_a_slice_is_answered_all_the_same() -> None:
    queue = Queue(Bounds())
    long = b"[%b]" % b",".join([b"[1.5]"] * 400_000)
    with pytest.raises(ResultInvalid) as caught:
        await queue.ask(1, "judge", b'{"items": {"items": {"multipleOf": 0.5}}, "maxItems": 399999}', long)
    assert caught.value.details["rule"] == "maxItems"
    assert len(workers()) == 2, "one for what is quick, and one for what isn't"
    await queue.close()
    assert workers() == []


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


async def test_a_worker_that_sleeps_is_killed_by_the_clock_and_costs_nobody_anything() -> None:
    queue = Queue(SOON._replace(wall_s=0.5))
    assert await queue.ask(1, *PLAIN) == b""
    (first,) = workers()
    os.kill(first, signal.SIGSTOP)
    assert await queue.ask(1, *PLAIN) == b""
    assert first not in workers()
    await queue.close()


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
