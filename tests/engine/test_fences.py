"""The fence: a late writer changes nothing, and hears why."""

from collections.abc import Callable

import pytest
from msgspec import Raw

from dhp_protocol.errors import LeaseLost
from dhp_protocol.messages import Cancel, Checkpoint, Complete, Fail, Recover, Release, Request, WorkError
from tests.support.engine_world import TTL_MS, World

Write = Callable[[str, int], Request]

WRITES: dict[str, Write] = {
    "checkpoint": lambda handoff, fence: Checkpoint(handoff=handoff, fence=fence, state=Raw(b'"late"')),
    "complete": lambda handoff, fence: Complete(handoff=handoff, fence=fence, result=Raw(b'"late"')),
    "fail": lambda handoff, fence: Fail(handoff=handoff, fence=fence, error=WorkError(type="Late"), delay_ms=0),
    "release": lambda handoff, fence: Release(handoff=handoff, fence=fence),
}


@pytest.fixture(params=WRITES.values(), ids=WRITES.keys())
def write(request: pytest.FixtureRequest) -> Write:
    chosen: Write = request.param
    return chosen


def refused(world: World, request: Request) -> tuple[str, int, str]:
    """Why it was refused, with the fence and the status told; nothing has changed."""
    handoff = request.handoff  # type: ignore[attr-defined]
    before = world.facts(handoff)
    with pytest.raises(LeaseLost) as caught:
        world.run(request)
    assert world.facts(handoff) == before
    details = caught.value.details
    assert (details["handoff"], details["fence"], details["status"]) == (handoff, before.fence, before.status)
    return details["why"], details["fence"], details["status"]


def test_before_any_claim_no_fence_is_known(write: Write) -> None:
    world = World()
    handoff = world.dispatch()
    assert refused(world, write(handoff, 0)) == ("never_claimed", 0, "pending")
    assert refused(world, write(handoff, 1)) == ("never_claimed", 0, "pending")


def test_a_fence_above_the_present_one_was_never_given_out(write: Write) -> None:
    world = World()
    handoff, fence = world.held()
    assert refused(world, write(handoff, fence + 1)) == ("never_claimed", fence, "running")


def test_after_the_lease_ended(write: Write) -> None:
    world = World()
    handoff, fence = world.orphaned()
    assert refused(world, write(handoff, fence)) == ("expired", fence + 1, "orphaned")


def test_after_a_take_over(write: Write) -> None:
    world = World()
    handoff, fence = world.orphaned()
    newer = world.claim(handoff, "bob")
    assert newer == fence + 2
    assert refused(world, write(handoff, fence)) == ("superseded", newer, "running")


def test_after_a_cancel(write: Write) -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Cancel(handoff=handoff))
    assert refused(world, write(handoff, fence)) == ("cancelled", fence + 1, "cancelled")


def test_after_a_complete(write: Write) -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b'"first"')))
    assert refused(world, write(handoff, fence)) == ("completed", fence, "completed")


@pytest.mark.parametrize(("end", "why"), [("release", "released"), ("fail", "failed")], ids=["released", "failed"])
def test_after_its_own_end(write: Write, end: str, why: str) -> None:
    world = World()
    handoff, fence = world.held()
    world.run(WRITES[end](handoff, fence))
    if write is WRITES[end]:
        assert world.run(write(handoff, fence)).duplicate
    else:
        assert refused(world, write(handoff, fence)) == (why, fence + 1, "pending")


@pytest.mark.parametrize("end", ["release", "fail"])
def test_after_a_re_claim_by_the_same_worker_name(write: Write, end: str) -> None:
    world = World()
    handoff, fence = world.held()
    world.run(WRITES[end](handoff, fence))
    newer = world.claim(handoff, "ada")
    assert newer == fence + 2
    assert refused(world, write(handoff, fence)) == ("superseded", newer, "running")


def test_after_a_restart(write: Write) -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Release(handoff=handoff, fence=fence))
    newer = world.claim(handoff, "ada")
    world.restart()
    assert refused(world, write(handoff, fence)) == ("superseded", newer, "running")
    assert refused(world, write(handoff, newer + 1)) == ("never_claimed", newer, "running")


def test_a_worker_that_was_only_paused_is_refused_at_its_deadline_and_after(write: Write) -> None:
    world = World()
    handoff, fence = world.held()
    world.jump(TTL_MS)  # No tick has seen it.
    call = world.send(write(handoff, fence))
    world.commit()
    with pytest.raises(LeaseLost) as caught:
        call.result()
    assert caught.value.details["why"] == "expired"
    assert world.facts(handoff).status == "orphaned"


def test_any_connection_may_use_the_fence() -> None:
    world = World()
    handoff = world.dispatch()
    fence = world.claim(handoff, on=world.connect("one"))
    assert world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")), on=world.connect("two")).seq == 1


def test_fences_begin_above_everything_that_was_purged() -> None:
    world = World(purged_fence=41)
    handoff = world.dispatch()
    assert world.status(handoff).fence == 41
    assert world.claim(handoff) == 42


def test_a_fence_has_one_holder_however_many_ask_at_once() -> None:
    world = World()
    handoff, _ = world.orphaned()
    calls = [world.send(Recover(worker=f"worker{i}", handoff=handoff)) for i in range(50)]
    world.commit()
    won = [call for call in calls if not isinstance(call.answer, Exception)]
    assert len(won) == 1
    assert won[0] is calls[0]
    assert all(call.answer.code == "already_claimed" for call in calls[1:])
