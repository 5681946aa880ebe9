"""Which handoff a claim gets, and which waiting claim gets a handoff."""

from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.errors import InvalidRequest, NotClaimable, NotFound
from dhp_protocol.messages import Ack, Cancel, Claim, Complete, Dispatch, Fail, Recover, Release, WorkError
from dhp_protocol.replies import NothingToClaim
from tests.support.engine_world import TTL_MS, Call, Outcome, World

NOTHING = NothingToClaim()


def by_kinds(*kinds: str, worker: str = "bob", **members: Any) -> Claim:
    return Claim(worker=worker, kinds=list(kinds) or ["work"], **members)


def waits(world: World, *, on: int | None = None, **members: Any) -> Call:
    """A claim by kinds, or of a given handoff, that is willing to wait for a minute."""
    members.setdefault("wait_ms", 60_000)
    if "handoff" not in members:
        members.setdefault("kinds", ["work"])
    return world.send(Claim(worker="bob", **members), on=on)


def taken(world: World, count: int, *kinds: str) -> list[str | None]:
    return [world.run(by_kinds(*kinds)).handoff for _ in range(count)]


# --- the order of choice ---------------------------------------------------------------------------------------------


def test_the_highest_priority_comes_first_then_the_oldest() -> None:
    world = World()
    low, old, new, high = (world.dispatch(priority=priority) for priority in (0, 5, 5, 9))
    assert taken(world, 5) == [high, old, new, low, None]


def test_within_a_priority_orphaned_comes_before_pending() -> None:
    world = World()
    older, newer = world.dispatch(), world.dispatch()
    world.claim(newer)
    world.advance(TTL_MS)
    urgent = world.dispatch(priority=6)
    assert taken(world, 3) == [urgent, newer, older]


def test_what_was_released_or_failed_keeps_its_age() -> None:
    world = World()
    one, two, three = (world.dispatch() for _ in range(3))
    world.run(Release(handoff=one, fence=world.claim(one)))
    world.run(Fail(handoff=two, fence=world.claim(two), error=WorkError(type="Oops"), delay_ms=0))
    assert taken(world, 3) == [one, two, three]


def test_of_several_kinds_the_first_of_all_is_taken() -> None:
    world = World()
    one = world.dispatch(kind="a")
    two = world.dispatch(kind="b")
    three = world.dispatch(kind="a")
    other = world.dispatch(kind="c", priority=9)
    urgent = world.dispatch(kind="b", priority=9)
    assert taken(world, 5, "a", "b", "a") == [urgent, one, two, three, None]
    assert taken(world, 1, "c") == [other]


def test_a_reply_tells_what_is_taken_over() -> None:
    world = World()
    handoff = world.dispatch()
    first = world.run(by_kinds(ttl_ms=9_000))
    assert (first.handoff, first.fence, first.attempt, first.was, first.checkpoint) == (handoff, 1, 1, "pending", None)
    assert (first.lease.ttl_ms, first.lease.heartbeat_ms) == (9_000, 3_000)
    world.advance(9_000)
    second = world.run(by_kinds())
    assert (second.handoff, second.fence, second.attempt, second.was) == (handoff, 3, 2, "orphaned")


def test_without_work_a_claim_that_does_not_wait_ends_at_once() -> None:
    world = World()
    world.dispatch(kind="other")
    assert world.run(by_kinds()) == NOTHING


@pytest.mark.parametrize("members", [{}, {"handoff": "0" * 64, "kinds": ["work"]}], ids=["neither", "both"])
def test_a_claim_names_a_handoff_or_kinds(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        World().run(Claim(worker="bob", **members))
    assert caught.value.details["member"] == "kinds"


def test_an_unknown_handoff_is_not_found() -> None:
    world = World()
    for request in (Claim(worker="bob", handoff="0" * 64, wait_ms=100), Recover(worker="bob", handoff="0" * 64)):
        with pytest.raises(NotFound):
            world.run(request)


# --- delays ----------------------------------------------------------------------------------------------------------


def test_a_delayed_handoff_can_be_claimed_when_the_delay_is_over_and_not_before() -> None:
    world = World()
    handoff = world.dispatch(delay_ms=5_000)
    world.advance(4_999)
    with pytest.raises(NotClaimable) as caught:
        world.claim(handoff)
    assert (caught.value.after_ms, caught.value.retry) == (1, "later")
    assert world.run(by_kinds()) == NOTHING
    world.advance(1)
    assert world.run(by_kinds()).handoff == handoff


@pytest.mark.parametrize("by_name", [True, False], ids=["by handoff", "by kind"])
def test_a_waiting_claim_gets_a_delayed_handoff_when_its_delay_is_over(by_name: bool) -> None:
    world = World()
    handoff = world.dispatch(delay_ms=5_000)
    call = waits(world, handoff=handoff) if by_name else waits(world)
    world.advance(4_999)
    assert not call.answered
    world.advance(1)
    assert call.result().handoff == handoff


@pytest.mark.parametrize("end", ["release", "fail"])
def test_whoever_hands_back_may_delay(end: str) -> None:
    world = World()
    handoff, fence = world.held()
    if end == "release":
        world.run(Release(handoff=handoff, fence=fence, delay_ms=2_000))
    else:
        world.run(Fail(handoff=handoff, fence=fence, error=WorkError(type="Oops"), delay_ms=2_000))
    call = waits(world)
    world.advance(1_999)
    assert not call.answered
    world.advance(1)
    assert call.result().handoff == handoff


def test_a_wall_clock_that_is_set_forward_is_noticed_within_a_second() -> None:
    world = World()
    handoff = world.dispatch(delay_ms=3_600_000)
    call = waits(world)
    world.jump(0, wall_ms=3_600_000)
    world.advance(1_000)
    assert call.result().handoff == handoff


def test_a_wall_clock_that_is_set_back_takes_nothing_out_of_reach() -> None:
    """What could be claimed already stays so, and what stands behind it isn't held up."""
    world = World()
    once_delayed = world.dispatch(delay_ms=1_000, priority=9)
    world.advance(1_000)
    plain = world.dispatch()
    world.jump(0, wall_ms=-3_600_000)
    assert taken(world, 2) == [once_delayed, plain]


def test_a_wall_clock_that_is_set_back_while_the_store_is_away_holds_up_nobody() -> None:
    world = World()
    handoff = world.dispatch(delay_ms=1_000)
    call = waits(world)
    world.send(Dispatch(kind="other", inputs=Raw(b"{}")))
    world.take()
    world.lose_or_keep(Outcome.FAILS)
    world.jump(1_000)
    world.tick()
    world.jump(0, wall_ms=-3_600_000)
    world.find_out()
    world.commit()
    assert call.result().handoff == handoff


# --- who waits ------------------------------------------------------------------------------------------------------


def test_of_two_hundred_waiting_claims_the_first_gets_the_one_handoff() -> None:
    world = World()
    calls = [waits(world, on=world.connect(f"session{i}"), ttl_ms=3_600_000) for i in range(200)]
    handoff = world.dispatch()
    assert [call for call in calls if call.answered] == calls[:1]
    assert calls[0].result().handoff == handoff
    world.advance(60_000)
    assert all(call.result() == NOTHING for call in calls[1:])


def test_handoffs_go_to_those_who_wait_in_the_order_of_arrival() -> None:
    world = World()
    calls = [waits(world) for _ in range(3)]
    handoffs = [world.dispatch() for _ in range(3)]
    assert [call.result().handoff for call in calls] == handoffs


def test_a_waiter_whose_connection_is_gone_is_passed_over() -> None:
    world = World()
    gone, here = world.connect("gone"), world.connect("here")
    first, second = waits(world, on=gone), waits(world, on=here)
    world.disconnect(gone)
    assert first.result() == NOTHING
    handoff = world.dispatch()
    assert second.result().handoff == handoff


def test_those_who_wait_for_the_handoff_and_those_who_wait_for_its_kind_stand_in_one_line() -> None:
    world = World()
    handoff, fence = world.held()
    calls = [waits(world), waits(world, handoff=handoff), waits(world), waits(world, handoff=handoff)]
    for call in calls:
        world.run(Release(handoff=handoff, fence=fence))
        assert [c for c in calls if c.answered][-1] is call
        fence = call.result().fence
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))


def test_somebody_who_asks_by_name_does_not_jump_the_line_at_a_deadline_that_no_tick_has_seen() -> None:
    world = World()
    handoff, _ = world.held()
    patient = waits(world)
    world.jump(TTL_MS)
    late = waits(world, handoff=handoff)
    world.commit()
    assert patient.result().handoff == handoff
    assert not late.answered


def test_somebody_who_asks_by_name_does_not_jump_the_line_when_a_delay_is_over() -> None:
    world = World()
    handoff = world.dispatch(delay_ms=1_000)
    patient = waits(world)
    world.jump(1_000)
    late = waits(world, handoff=handoff)
    world.commit()
    assert patient.result().handoff == handoff
    assert not late.answered


def test_a_waiter_for_several_kinds_is_served_once() -> None:
    world = World()
    both, one = waits(world, kinds=["a", "b"]), waits(world, kinds=["b"])
    first = world.dispatch(kind="b")
    second = world.dispatch(kind="b")
    world.dispatch(kind="a")
    assert both.result().handoff == first
    assert one.result().handoff == second


def test_several_that_are_freed_at_once_go_out_best_first() -> None:
    world = World()
    low, high = world.dispatch(priority=1), world.dispatch(priority=8)
    for handoff in (low, high):
        world.claim(handoff)
    first, second = waits(world), waits(world)
    world.advance(TTL_MS)
    assert (first.result().handoff, second.result().handoff) == (high, low)


def test_a_wait_ends_empty_at_its_time() -> None:
    world = World()
    call = waits(world, wait_ms=5_000)
    world.advance(4_999)
    assert not call.answered
    world.advance(1)
    assert call.result() == NOTHING
    world.dispatch()
    assert world.facts(world.dispatch()).status == "pending"


def test_a_wait_by_name_ends_empty_while_somebody_holds_it() -> None:
    world = World()
    handoff, _ = world.held(budget=Raw(b'{"max_attempts":9}'))
    call = waits(world, handoff=handoff, wait_ms=1_000)
    world.advance(1_000)
    assert call.result() == NOTHING


@pytest.mark.parametrize("end", ["complete", "cancel", "fail"])
def test_waiting_for_a_handoff_ends_with_it(end: str) -> None:
    world = World()
    handoff, fence = world.held()
    call = waits(world, handoff=handoff)
    if end == "complete":
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    elif end == "cancel":
        world.run(Cancel(handoff=handoff))
    else:
        world.run(Fail(handoff=handoff, fence=fence, error=WorkError(type="Oops"), retry=False))
    with pytest.raises(NotClaimable) as caught:
        call.result()
    assert caught.value.retry == "no"
    assert caught.value.details["status"] == world.facts(handoff).status


def test_one_that_is_final_is_not_waited_for() -> None:
    world = World()
    handoff = world.dispatch()
    world.run(Cancel(handoff=handoff))
    call = waits(world, handoff=handoff)
    assert call.answer.code == "not_claimable"
    world.run(Ack(handoff=handoff))


def test_recover_waits_until_it_is_orphaned_and_takes_nothing_else() -> None:
    world = World()
    handoff, fence = world.held()
    call = world.send(Recover(worker="bob", handoff=handoff, wait_ms=60_000))
    world.run(Release(handoff=handoff, fence=fence))
    assert not call.answered, "released isn't orphaned"
    world.claim(handoff)
    world.advance(TTL_MS)
    assert call.result().was == "orphaned"


def test_a_recover_that_does_not_fit_does_not_block_those_behind_it() -> None:
    world = World()
    handoff, fence = world.held()
    recoverer = world.send(Recover(worker="bob", handoff=handoff, wait_ms=60_000))
    behind = waits(world, handoff=handoff)
    world.run(Release(handoff=handoff, fence=fence))
    assert not recoverer.answered
    assert behind.result().was == "pending"
