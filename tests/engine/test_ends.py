"""Results, and those who wait for them."""

import pytest
from msgspec import UNSET, Raw

from dhp_protocol.errors import NotFound, WrongState
from dhp_protocol.messages import Ack, Cancel, Claim, Complete, Fail, GetResult, Heartbeat, LeaseRef, WorkError
from dhp_protocol.replies import Empty, ResultReply, StatusAfter
from tests.support.engine_world import TTL_MS, World


def complete(world: World, handoff: str, fence: int, result: bytes = b'{"pages": 60}') -> None:
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(result)))


def test_a_result_comes_back_byte_for_byte() -> None:
    world = World()
    handoff, fence = world.held()
    assert world.run(GetResult(handoff=handoff)) == ResultReply(status="running", result=UNSET)
    complete(world, handoff, fence, b'{ "a":1.0e2 ,"a":null}')
    reply = world.run(GetResult(handoff=handoff))
    assert (reply.status, bytes(reply.result)) == ("completed", b'{ "a":1.0e2 ,"a":null}')


def test_all_who_wait_for_the_end_hear_of_it() -> None:
    world = World()
    handoff, fence = world.held()
    calls = [world.send(GetResult(handoff=handoff, wait_ms=60_000), on=world.connect()) for _ in range(3)]
    assert not any(call.answered for call in calls)
    complete(world, handoff, fence)
    assert [bytes(call.result().result) for call in calls] == [b'{"pages": 60}'] * 3


def test_the_wait_ends_with_the_status_as_it_is_then() -> None:
    world = World()
    handoff, _ = world.held()
    call = world.send(GetResult(handoff=handoff, wait_ms=1_000))
    world.advance(999)
    assert not call.answered
    world.advance(1)
    assert call.result() == ResultReply(status="running")


def test_a_wait_for_what_was_cancelled_or_died_ends_with_it() -> None:
    world = World()
    cancelled = world.dispatch()
    dead, fence = world.held()
    calls = [world.send(GetResult(handoff=handoff, wait_ms=60_000)) for handoff in (cancelled, dead)]
    world.run(Cancel(handoff=cancelled))
    world.run(Fail(handoff=dead, fence=fence, error=WorkError(type="Oops"), retry=False))
    assert [call.result() for call in calls] == [ResultReply(status="cancelled"), ResultReply(status="dead")]


def test_a_wait_for_what_has_ended_already_is_none() -> None:
    world = World()
    handoff, fence = world.held()
    complete(world, handoff, fence)
    assert world.send(GetResult(handoff=handoff, wait_ms=60_000)).answered


def test_a_wait_ends_with_its_connection_and_not_with_another() -> None:
    world = World()
    handoff, _ = world.held()
    one, two = world.connect(), world.connect()
    first = world.send(GetResult(handoff=handoff, wait_ms=60_000), on=one)
    second = world.send(GetResult(handoff=handoff, wait_ms=60_000), on=two)
    world.disconnect(one)
    assert (first.answered, second.answered) == (True, False)


def test_a_waiting_result_holds_up_nothing_behind_it() -> None:
    world = World()
    handoff, fence = world.held()
    world.send(GetResult(handoff=handoff, wait_ms=60_000))
    complete(world, handoff, fence)


def test_cancel_tells_the_final_status_that_stays() -> None:
    world = World()
    handoff, fence = world.held()
    complete(world, handoff, fence)
    before = world.facts(handoff)
    assert world.run(Cancel(handoff=handoff)) == StatusAfter(status="completed")
    assert world.facts(handoff) == before


def test_an_end_is_acknowledged_when_there_is_one() -> None:
    world = World()
    handoff, fence = world.held()
    with pytest.raises(WrongState) as caught:
        world.run(Ack(handoff=handoff))
    assert caught.value.details["status"] == "running"
    complete(world, handoff, fence)
    assert world.run(Ack(handoff=handoff)) == Empty()
    assert world.status(handoff).acked


@pytest.mark.parametrize("request_type", [GetResult, Ack, Cancel])
def test_an_unknown_handoff_is_not_found(request_type: type[GetResult | Ack | Cancel]) -> None:
    with pytest.raises(NotFound):
        World().run(request_type(handoff="0" * 64))


@pytest.mark.parametrize("then", ["tick", "another claim", "a heartbeat"])
def test_a_deadline_that_comes_before_a_completion_is_on_disk_takes_nothing_from_it(then: str) -> None:
    world = World()
    handoff, fence = world.held()
    done = world.send(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    world.take()  # The commit is on its way.
    world.jump(2 * TTL_MS)
    if then == "tick":
        world.tick()
    elif then == "a heartbeat":
        world.send(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)]))
    else:
        world.send(Claim(worker="bob", kinds=["work"]))
    world.finish()
    world.commit()
    assert done.result().duplicate is False
    assert world.facts(handoff).status == "completed"
    assert bytes(world.run(GetResult(handoff=handoff)).result) == b"1"
