"""Cancel: it reaches a worker at once, holds when none is up, and has one outcome against any other end."""

from collections.abc import Callable

import pytest
from msgspec import Raw

from dhp_protocol.errors import LeaseLost, NotClaimable, StoreUnavailable, WrongState
from dhp_protocol.messages import (
    Ack,
    Cancel,
    Checkpoint,
    Claim,
    Complete,
    Fail,
    GetResult,
    Redrive,
    Release,
    Request,
    Resume,
    Suspend,
    WorkError,
)
from dhp_protocol.replies import CancelledEvent
from tests.support.engine_world import TTL_MS, World


def in_status(world: World, status: str) -> str:
    handoff, fence = world.held(budget=Raw(b'{"max_attempts":1}') if status == "dead" else Raw(b"{}"))
    match status:
        case "pending":
            world.run(Release(handoff=handoff, fence=fence))
        case "orphaned" | "dead":
            world.advance(TTL_MS)
        case "suspended":
            world.run(Suspend(handoff=handoff, fence=fence, wake_ms=1_000))
        case "completed":
            world.run(Complete(handoff=handoff, fence=fence, result=Raw(b'"kept"')))
    assert world.facts(handoff).status == status
    return handoff


@pytest.mark.parametrize("status", ["pending", "running", "orphaned", "suspended"])
def test_live_work_is_cancelled_whether_or_not_anybody_is_up(status: str) -> None:
    world = World()
    handoff = in_status(world, status)
    fence = world.facts(handoff).fence
    waiter = world.send(GetResult(handoff=handoff, wait_ms=60_000))
    assert world.run(Cancel(handoff=handoff, reason="no need")).status == "cancelled"
    assert world.facts(handoff).fence == fence + 1
    assert waiter.result().status == "cancelled"
    for _ in range(2):
        assert world.run(Claim(worker="bob", kinds=["work"])).handoff is None
        with pytest.raises(NotClaimable):
            world.claim(handoff)
        with pytest.raises(WrongState):
            world.run(Resume(handoff=handoff))
        assert world.status(handoff).reason == "no need"
        world.restart(after_ms=10 * TTL_MS)
        world.advance(10 * TTL_MS)
    assert world.status(handoff).status == "cancelled"


@pytest.mark.parametrize("status", ["completed", "dead"])
def test_final_work_stays_as_it_is_and_tells_how(status: str) -> None:
    world = World()
    handoff = in_status(world, status)
    before = world.facts(handoff)
    assert world.run(Cancel(handoff=handoff, reason="too late")).status == status
    assert world.facts(handoff) == before


def test_a_cancel_sent_again_changes_nothing() -> None:
    world = World()
    handoff, _ = world.held()
    world.run(Cancel(handoff=handoff, reason="first"))
    before = world.facts(handoff)
    assert world.run(Cancel(handoff=handoff, reason="second")).status == "cancelled"
    assert world.facts(handoff) == before


def test_the_workers_session_hears_of_it_once_it_is_on_disk() -> None:
    world = World()
    worker, keeper, other = world.connect("worker"), world.connect("worker"), world.connect("other")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=worker)
    world.send(Cancel(handoff=handoff, reason="stop"))
    assert world.heard[worker] == []
    world.commit()
    event = CancelledEvent(handoff=handoff, fence=fence, reason="stop")
    assert (world.heard[worker], world.heard[keeper], world.heard[other]) == ([event], [event], [])


def test_a_cancel_that_was_undone_is_heard_of_by_nobody_and_the_work_goes_on() -> None:
    world = World()
    worker = world.connect("worker")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=worker)
    call = world.send(Cancel(handoff=handoff))
    world.fail_commit()
    with pytest.raises(StoreUnavailable):
        call.result()
    assert world.heard[worker] == []
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))


@pytest.mark.parametrize("first", ["cancel", "complete"])
@pytest.mark.parametrize("fails", [False, True])
def test_cancel_and_complete_in_one_commit_have_one_outcome(first: str, fails: bool) -> None:
    world = World()
    handoff, fence = world.held()
    requests: dict[str, Request] = {
        "cancel": Cancel(handoff=handoff),
        "complete": Complete(handoff=handoff, fence=fence, result=Raw(b'"done"')),
    }
    order = [first, *(requests.keys() - {first})]
    calls = {name: world.send(requests[name]) for name in order}
    if fails:
        world.fail_commit()
        for call in calls.values():
            with pytest.raises(StoreUnavailable):
                call.result()
        assert world.status(handoff).status == "running"
        calls = {name: world.send(requests[name]) for name in order}
    world.commit()
    if first == "cancel":
        assert calls["cancel"].result().status == "cancelled"
        with pytest.raises(LeaseLost) as caught:
            calls["complete"].result()
        assert caught.value.details["why"] == "cancelled"
        assert world.status(handoff).status == "cancelled"
    else:
        assert calls["complete"].result().duplicate is False
        assert calls["cancel"].result().status == "completed"
        assert bytes(world.run(GetResult(handoff=handoff)).result) == b'"done"'


ENDS: dict[str, Callable[[str, int], Request]] = {
    "complete": lambda handoff, fence: Complete(handoff=handoff, fence=fence, result=Raw(b"1")),
    "fail": lambda handoff, fence: Fail(handoff=handoff, fence=fence, error=WorkError(type="E")),
    "fail for good": lambda handoff, fence: Fail(handoff=handoff, fence=fence, error=WorkError(type="E"), retry=False),
    "release": lambda handoff, fence: Release(handoff=handoff, fence=fence),
    "suspend": lambda handoff, fence: Suspend(handoff=handoff, fence=fence),
}


@pytest.mark.parametrize("end", ENDS)
def test_after_a_cancel_no_other_end_counts(end: str) -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Cancel(handoff=handoff))
    before = world.facts(handoff)
    with pytest.raises(LeaseLost) as caught:
        world.run(ENDS[end](handoff, fence))
    assert (caught.value.details["why"], caught.value.details["status"]) == ("cancelled", "cancelled")
    assert world.facts(handoff) == before


def test_a_lease_that_ends_after_the_cancel_ends_nothing() -> None:
    world = World()
    handoff, _ = world.held()
    world.jump(TTL_MS - 1)
    world.send(Cancel(handoff=handoff))
    world.advance(TTL_MS)
    assert (world.facts(handoff).status, world.facts(handoff).failures) == ("cancelled", 0)


def test_cancelled_work_is_not_redriven() -> None:
    world = World()
    handoff, _ = world.held()
    world.run(Cancel(handoff=handoff))
    with pytest.raises(WrongState):
        world.run(Redrive(handoff=handoff))
    world.run(Ack(handoff=handoff))
    assert world.facts(handoff).status == "cancelled"


def test_a_cancel_ends_a_sleep_for_good() -> None:
    world = World()
    handoff = in_status(world, "suspended")
    world.run(Cancel(handoff=handoff))
    world.advance(10_000)
    assert world.facts(handoff).status == "cancelled"


def test_children_are_left_alone_unless_asked_for() -> None:
    world = World()
    parent = world.dispatch()
    child = world.dispatch(parent=parent)
    grandchild = world.dispatch(parent=child)
    worker = world.connect("worker")
    fence = world.claim(grandchild, on=worker)
    world.run(Cancel(handoff=parent))
    assert [world.facts(one).status for one in (child, grandchild)] == ["pending", "running"]
    world.run(Cancel(handoff=parent, children=True))
    assert [world.facts(one).status for one in (child, grandchild)] == ["cancelled", "cancelled"]
    assert world.heard[worker] == [CancelledEvent(handoff=grandchild, fence=fence, reason=None)]
