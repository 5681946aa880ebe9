"""What is too much for one step goes on in steps: others come in between, and an undo in the middle leaves nothing half told."""

from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.errors import Draining, LeaseLost, NotClaimable, NotFound, StoreUnavailable, WrongState
from dhp_protocol.messages import (
    Ack,
    ApprovalDecide,
    ApprovalRequest,
    ApprovalWait,
    Cancel,
    Checkpoint,
    Claim,
    Complete,
    Dispatch,
    Fail,
    Forget,
    GetResult,
    Goodbye,
    Heartbeat,
    Hello,
    History,
    LeaseRef,
    Redrive,
    WorkError,
)
from dhp_protocol.replies import Empty, NothingToClaim, StatusAfter
from dhpd.engine.backlog import Backlog, Steps
from dhpd.engine.ledger import MAX_COLD_HANDOFFS
from dhpd.engine.moments import Now
from dhpd.engine.serving import STEPS_OF_A_TICK
from dhpd.engine.waiting import Address
from tests.simulation.store_model import Outcome
from tests.support.engine_world import TTL_MS, Call, World, memory

AT_ONCE = 2
MANY = 10
WAIT_MS = 60_000


def a_world(**members: Any) -> World:
    return World(steps_at_once=AT_ONCE, **members)


def to_the_end(world: World, *calls: Call) -> None:
    """Ticks and commits until all of them are answered."""
    for _ in range(1_000):
        if all(call.answered for call in calls):
            return
        world.tick()
        world.commit()
    raise AssertionError("it goes on for ever")


def a_step(world: World) -> None:
    """One step of what is under way, and no commit."""
    next(world.engine.carry_on(world.now))


def statuses(world: World, handoffs: list[str]) -> list[str]:
    return [world.facts(handoff).status for handoff in handoffs]


def a_family(world: World, count: int = MANY) -> tuple[str, list[str]]:
    parent = world.dispatch()
    return parent, [world.dispatch(parent=parent) for _ in range(count)]


# --- the backlog itself ---------------------------------------------------------------------------------------------


def counting(told: list[tuple[str, int]], name: str, steps: int) -> Steps:
    for _ in range(steps):
        now = yield
        told.append((name, now.lease_ms))
    yield


def test_works_take_turns_and_each_step_has_a_time_of_its_own() -> None:
    backlog, told = Backlog(at_once=1), list[tuple[str, int]]()
    for name, steps in (("long", 4), ("short", 2)):
        backlog.begin(counting(told, name, steps), Now(0, 0))
    assert told == [("long", 0), ("short", 0)], "the first step is taken at once"
    lease_ms = 0
    while backlog:
        lease_ms += 1
        backlog.step(Now(lease_ms, 0))
    assert told[2:] == [("long", 1), ("short", 2), ("long", 3), ("long", 5)]


def test_a_short_work_is_done_at_once() -> None:
    backlog, told = Backlog(at_once=5), list[tuple[str, int]]()
    backlog.begin(counting(told, "short", 4), Now(0, 0))
    assert not backlog
    assert len(told) == 4


def test_only_work_that_is_to_be_answered_is_given_up() -> None:
    backlog, told = Backlog(at_once=0), list[tuple[str, int]]()
    to = Address(1, "id", False)
    backlog.begin(counting(told, "answered", 1), Now(0, 0), to)
    backlog.begin(counting(told, "other", 1), Now(0, 0))
    assert backlog.give_up() == [to]
    assert backlog.give_up() == []
    backlog.step(Now(7, 0))
    assert told == [("other", 7)]


# --- cancel with children -------------------------------------------------------------------------------------------


def test_while_many_are_cancelled_others_come_in_between_and_the_answer_comes_last() -> None:
    world = a_world()
    parent, children = a_family(world)
    call = world.send(Cancel(handoff=parent, children=True, reason="enough"))
    assert statuses(world, children) == ["cancelled"] * AT_ONCE + ["pending"] * (MANY - AT_ONCE)
    assert world.engine.next_tick_ms(world.now) == world.now.lease_ms + 1, "the rest is due at once"
    other = world.dispatch("other")
    assert world.claim(other)
    assert world.claim(children[-1]), "it is live until its turn comes"
    assert not call.answered
    a_step(world)
    assert not call.answered
    to_the_end(world, call)
    assert call.result() == StatusAfter(status="cancelled")
    assert statuses(world, children) == ["cancelled"] * MANY
    assert world.status(children[-1]).reason == "enough"
    assert world.facts(other).status == "running"


def test_the_answer_waits_until_all_are_durable() -> None:
    world = a_world()
    parent, _ = a_family(world)
    call = world.send(Cancel(handoff=parent, children=True))
    world.tick()
    assert not world.engine.backlog
    assert not call.answered
    world.commit()
    assert call.answered


def test_a_tick_takes_a_bounded_number_of_steps() -> None:
    world = a_world()
    parent, children = a_family(world, STEPS_OF_A_TICK + 3 * AT_ONCE)
    world.send(Cancel(handoff=parent, children=True))
    world.tick()
    assert statuses(world, children).count("pending") == 2 * AT_ONCE


def test_children_that_come_meanwhile_are_cancelled_too_and_cancelled_parents_take_none() -> None:
    world = a_world()
    parent, children = a_family(world)
    call = world.send(Cancel(handoff=parent, children=True))
    for ended in (parent, children[0]):
        with pytest.raises(WrongState):
            world.dispatch(parent=ended)
    grandchild = world.dispatch(parent=children[-1])
    great_grandchild = world.dispatch(parent=grandchild)
    to_the_end(world, call)
    assert statuses(world, [*children, grandchild, great_grandchild]) == ["cancelled"] * (MANY + 2)


def test_one_that_ends_by_itself_meanwhile_stays_as_it_is() -> None:
    world = a_world()
    parent, children = a_family(world)
    fence = world.claim(children[-1])
    call = world.send(Cancel(handoff=parent, children=True))
    world.run(Complete(handoff=children[-1], fence=fence, result=Raw(b"1")))
    to_the_end(world, call)
    assert statuses(world, children) == ["cancelled"] * (MANY - 1) + ["completed"]


def test_whoever_asked_may_be_gone_and_it_is_done_all_the_same() -> None:
    world = a_world()
    parent, children = a_family(world)
    asks = world.connect()
    world.send(Cancel(handoff=parent, children=True), on=asks)
    world.disconnect(asks)
    world.advance(1_000)
    assert statuses(world, children) == ["cancelled"] * MANY


def test_two_who_cancel_the_same_family_are_both_answered() -> None:
    world = a_world()
    parent, _ = a_family(world)
    calls = [world.send(Cancel(handoff=parent, children=True)) for _ in range(2)]
    to_the_end(world, *calls)
    assert [call.result().status for call in calls] == ["cancelled"] * 2


def test_an_undo_in_the_middle_takes_all_back_and_nothing_goes_on() -> None:
    world = a_world()
    parent, children = a_family(world)
    before = memory(world.engine)
    call = world.send(Cancel(handoff=parent, children=True))
    a_step(world)
    world.fail_commit()
    with pytest.raises(StoreUnavailable):
        call.result()
    assert memory(world.engine) == before
    world.advance(1_000)
    assert memory(world.engine) == before
    again = world.send(Cancel(handoff=parent, children=True))
    to_the_end(world, again)
    assert statuses(world, children) == ["cancelled"] * MANY


def test_what_was_durable_before_an_undo_stays_cancelled() -> None:
    world = a_world()
    parent, children = a_family(world)
    call = world.send(Cancel(handoff=parent, children=True))
    world.commit()
    a_step(world)
    world.fail_commit()
    assert isinstance(call.answer, StoreUnavailable)
    assert statuses(world, [parent, *children]) == ["cancelled"] * (1 + AT_ONCE) + ["pending"] * (MANY - AT_ONCE)


@pytest.mark.parametrize("outcome", [Outcome.FAILS, Outcome.FAILS_BUT_KEPT])
def test_when_the_store_is_lost_in_the_middle_whoever_asked_hears_so_at_once(outcome: Outcome) -> None:
    world = a_world()
    parent, children = a_family(world)
    call = world.send(Cancel(handoff=parent, children=True))
    world.take()
    world.lose_or_keep(outcome)
    assert isinstance(call.answer, StoreUnavailable)
    assert not world.engine.backlog
    world.find_out()
    world.advance(1_000)
    kept = AT_ONCE if outcome is Outcome.FAILS_BUT_KEPT else 0
    assert statuses(world, children) == ["cancelled"] * kept + ["pending"] * (MANY - kept)


def test_one_that_cannot_be_stored_is_not_tried_for_ever() -> None:
    world = a_world()
    parent, children = a_family(world)
    call = world.send(Cancel(handoff=parent, children=True))
    world.take()
    world.finish(Outcome.POISON)
    assert isinstance(call.answer, StoreUnavailable)
    assert not world.engine.backlog
    again = world.send(Cancel(handoff=parent, children=True))
    to_the_end(world, again)
    assert statuses(world, children) == ["cancelled"] * MANY


def test_after_a_crash_in_the_middle_the_same_request_ends_the_others() -> None:
    world = a_world()
    parent, children = a_family(world)
    world.send(Cancel(handoff=parent, children=True))
    world.commit()
    world.restart()
    assert "pending" in statuses(world, children[AT_ONCE:])
    again = world.send(Cancel(handoff=parent, children=True))
    to_the_end(world, again)
    assert world.engine.ledger.counts["pending"] == 0


def test_what_is_under_way_waits_for_the_disk() -> None:
    world = a_world(max_queued_bytes=16 * 1024)
    parent, children = a_family(world, 40)
    call = world.send(Cancel(handoff=parent, children=True))
    for _ in range(5):
        world.tick()
    assert "pending" in statuses(world, children), "the queue is for others too"
    world.dispatch("other")
    to_the_end(world, call)
    assert statuses(world, children) == ["cancelled"] * 40


# --- goodbye --------------------------------------------------------------------------------------------------------


def holding(world: World, count: int = MANY, **members: Any) -> tuple[int, list[LeaseRef]]:
    mine = world.connect("mine")
    handoffs = [world.dispatch() for _ in range(count)]
    return mine, [LeaseRef(handoff, world.claim(handoff, on=mine, **members)) for handoff in handoffs]


def test_after_a_goodbye_nothing_is_held_any_more_though_the_releases_come_in_steps() -> None:
    world = a_world()
    mine, held = holding(world)
    keeper = world.connect("mine")
    call = world.send(Goodbye(), on=mine)
    running = [ref for ref in held if world.facts(ref.handoff).status == "running"]
    assert len(running) == MANY - AT_ONCE
    with pytest.raises(LeaseLost) as caught:
        world.run(Checkpoint(handoff=running[-1].handoff, fence=running[-1].fence, state=Raw(b"1")), on=keeper)
    assert caught.value.details["why"] == "released"
    assert world.claim(running[-2].handoff, "bob") > running[-2].fence, "it is free for whoever asks"
    assert world.run(Heartbeat(leases=running), on=keeper).renewed == []
    to_the_end(world, call)
    assert call.result() == Empty()
    facts = [world.facts(ref.handoff) for ref in held]
    assert sorted(each.status for each in facts) == ["pending"] * (MANY - 1) + ["running"]
    assert [each.failures for each in facts] == [0] * MANY


def test_a_deadline_that_comes_while_a_goodbye_is_under_way_is_no_failure() -> None:
    world = a_world()
    mine, held = holding(world)
    call = world.send(Goodbye(), on=mine)
    world.jump(2 * TTL_MS)
    to_the_end(world, call)
    facts = [world.facts(ref.handoff) for ref in held]
    assert [(each.status, each.failures) for each in facts] == [("pending", 0)] * MANY


def test_a_cap_on_time_that_is_reached_while_a_goodbye_is_under_way_comes_first() -> None:
    world = a_world()
    mine = world.connect("mine")
    handoffs = [world.dispatch(budget=Raw(b'{"max_wallclock_ms":1000}')) for _ in range(MANY)]
    for handoff in handoffs:
        world.claim(handoff, on=mine)
    call = world.send(Goodbye(), on=mine)
    world.jump(1_000)
    for handoff in handoffs[AT_ONCE : AT_ONCE + 2]:
        assert world.status(handoff).status == "dead"
    to_the_end(world, call)
    records = world.run(History(handoff=handoffs[-1])).records
    assert [record["type"] for record in records] == ["dispatched", "claimed", "dead"]


def test_a_goodbye_goes_on_when_the_connection_has_gone() -> None:
    world = a_world()
    mine, held = holding(world)
    world.send(Goodbye(), on=mine)
    world.disconnect(mine)
    world.advance(TTL_MS)
    facts = [world.facts(ref.handoff) for ref in held]
    assert [(each.status, each.failures) for each in facts] == [("pending", 0)] * MANY


def test_what_is_given_back_goes_to_others_and_not_to_the_sessions_own_waiting_claims() -> None:
    world = a_world()
    mine, held = holding(world)
    also_mine, other = world.connect("mine"), world.connect("other")
    own = [world.send(Claim(worker="ada", kinds=["work"], wait_ms=WAIT_MS), on=also_mine) for _ in range(MANY)]
    others = [world.send(Claim(worker="bob", kinds=["work"], wait_ms=WAIT_MS), on=other) for _ in range(MANY)]
    call = world.send(Goodbye(), on=mine)
    to_the_end(world, call, *own, *others)
    assert [claim.result() for claim in own] == [NothingToClaim()] * MANY
    assert sorted(claim.result().handoff for claim in others) == sorted(ref.handoff for ref in held)


def test_what_is_claimed_after_a_goodbye_is_held() -> None:
    world = a_world()
    mine, held = holding(world)
    call = world.send(Goodbye(), on=mine)
    fresh = world.dispatch()
    fence = world.claim(fresh, on=mine)
    to_the_end(world, call)
    assert world.engine.ledger.counts["pending"] == len(held)
    assert world.run(Heartbeat(leases=[LeaseRef(fresh, fence)]), on=mine).renewed == [fresh]


@pytest.mark.parametrize("steps", [0, 3, MANY], ids=["at once", "in the middle", "when all was done"])
def test_a_goodbye_that_is_undone_leaves_all_leases_alive(steps: int) -> None:
    world = a_world()
    mine, held = holding(world)
    before = memory(world.engine)
    call = world.send(Goodbye(), on=mine)
    for _ in zip(range(steps), world.engine.carry_on(world.now), strict=False):
        pass
    world.fail_commit()
    assert isinstance(call.answer, StoreUnavailable)
    assert memory(world.engine) == before
    assert world.run(Heartbeat(leases=held), on=mine).renewed == [ref.handoff for ref in held]
    for ref in held:
        assert not world.run(Checkpoint(handoff=ref.handoff, fence=ref.fence, state=Raw(b"1"))).duplicate


# --- the end of a connection ----------------------------------------------------------------------------------------


def test_what_is_freed_goes_past_those_whose_connection_has_gone() -> None:
    world = a_world()
    gone, there = world.connect(), world.connect()
    kinds = ["work", "other"]
    theirs = [world.send(Claim(worker="gone", kinds=kinds, wait_ms=WAIT_MS), on=gone) for _ in range(MANY)]
    named = world.dispatch("named", delay_ms=1_000)
    theirs += [world.send(Claim(worker="gone", handoff=named, wait_ms=WAIT_MS), on=gone) for _ in range(MANY)]
    claims = [world.send(Claim(worker="bob", kinds=[kind], wait_ms=WAIT_MS), on=there) for kind in ("work", "named")]
    world.disconnect(gone)
    assert not all(call.answered for call in theirs), "some of them stand there still"
    work = world.dispatch("work")
    assert claims[0].result().handoff == work
    world.jump(1_000)
    assert world.run(Claim(worker="carl", kinds=["named"])).handoff is None, "it belongs to whoever has waited"
    assert claims[1].result().handoff == named
    to_the_end(world, *theirs)
    assert [call.result() for call in theirs] == [NothingToClaim()] * len(theirs), "it may have been half-closed"
    assert world.engine.waiting.claims() == 0


def test_when_the_store_is_back_nothing_is_granted_to_whoever_has_gone() -> None:
    world = a_world()
    gone, there = world.connect(), world.connect()
    for _ in range(3 * STEPS_OF_A_TICK):
        world.send(Claim(worker="gone", kinds=["work"], wait_ms=WAIT_MS), on=gone)
    claim = world.send(Claim(worker="bob", kinds=["work"], wait_ms=WAIT_MS), on=there)
    work = world.dispatch("work", delay_ms=1_000)
    world.send(Cancel(handoff=world.dispatch("other")))
    world.take()
    world.lose_or_keep(Outcome.FAILS)
    world.disconnect(gone)
    world.jump(1_000)
    world.tick()
    assert world.engine.waiting.claims() > STEPS_OF_A_TICK
    world.find_out()
    world.commit()
    assert claim.result().handoff == work


def test_a_claim_sent_again_over_a_new_connection_takes_the_place_of_one_whose_connection_has_gone() -> None:
    world = a_world()
    gone, back, other = (world.connect() for _ in range(3))
    claims = [Claim(worker="ada", kinds=["work"], wait_ms=WAIT_MS, nonce=f"n{n}") for n in range(MANY)]
    lost = [world.send(claim, on=gone) for claim in claims]
    later = world.send(Claim(worker="bob", kinds=["work"], wait_ms=WAIT_MS), on=other)
    world.disconnect(gone)
    again = world.send(claims[-1], on=back)
    to_the_end(world, *lost)
    handoff = world.dispatch()
    assert again.result().handoff == handoff
    assert not later.answered


def test_a_session_that_comes_back_while_it_is_being_missed_has_all_its_leases() -> None:
    world = a_world()
    mine, held = holding(world, 100)
    world.disconnect(mine)
    assert len(world.engine.backlog) == 1
    world.run(Hello(session="mine"), on=world.connect())
    world.advance(TTL_MS - 1)
    assert statuses(world, [ref.handoff for ref in held]) == ["running"] * 100
    world.advance(1)
    assert statuses(world, [ref.handoff for ref in held]) == ["orphaned"] * 100


def test_the_grace_counts_from_the_last_end_whatever_is_left_of_an_earlier_one() -> None:
    world = a_world()
    mine, held = holding(world, 100)
    world.disconnect(mine)
    world.jump(100)
    back = world.connect()
    world.run(Hello(session="mine"), on=back)
    world.jump(100)
    world.disconnect(back)
    world.jump(249)
    a_step(world)
    assert world.run(Heartbeat(leases=held)).renewed == [ref.handoff for ref in held]
    world.tick()
    assert not world.engine.backlog
    world.advance(1)
    assert statuses(world, [ref.handoff for ref in held]) == ["orphaned"] * 100


def test_who_waits_when_the_daemon_drains_hears_of_it_in_steps() -> None:
    world = a_world()
    connections = [world.connect() for _ in range(3)]
    claims = [
        world.send(Claim(worker="ada", kinds=["work", "more"], wait_ms=WAIT_MS), on=connections[number % 3])
        for number in range(MANY)
    ]
    world.engine.drain(world.now)
    to_the_end(world, *claims)
    assert all(isinstance(claim.answer, Draining) for claim in claims)
    assert world.engine.waiting.claims() == 0


# --- many who wait for one thing ------------------------------------------------------------------------------------


def waiting_for_end(world: World, handoff: str, count: int = MANY) -> list[Call]:
    results = [world.send(GetResult(handoff=handoff, wait_ms=WAIT_MS)) for _ in range(count)]
    claims = [world.send(Claim(worker="bob", handoff=handoff, wait_ms=WAIT_MS)) for _ in range(count)]
    return results + claims


def test_many_who_wait_for_an_end_hear_of_it_in_steps() -> None:
    world = a_world()
    handoff, fence = world.held()
    calls = waiting_for_end(world, handoff)
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"7")))
    assert sum(call.answered for call in calls) == AT_ONCE
    to_the_end(world, *calls)
    assert [bytes(call.result().result) for call in calls[:MANY]] == [b"7"] * MANY
    assert all(isinstance(call.answer, NotClaimable) for call in calls[MANY:])


def test_until_an_end_is_durable_only_the_first_answers_wait_for_it_on_their_way_out() -> None:
    world = a_world()
    handoff, fence = world.held()
    calls = waiting_for_end(world, handoff)
    world.send(Complete(handoff=handoff, fence=fence, result=Raw(b"7")))
    for _ in range(3):
        world.tick()
    assert len(world.engine.waiting.results_of(handoff)) == MANY - AT_ONCE
    to_the_end(world, *calls)


def test_a_tick_that_was_interrupted_finds_the_work_done_by_another() -> None:
    """As when the store comes back while a tick is at it."""
    world = a_world()
    handoff, fence = world.held()
    calls = waiting_for_end(world, handoff)
    world.send(Complete(handoff=handoff, fence=fence, result=Raw(b"7")))
    interrupted = world.engine.tick_in_steps(world.now)
    next(interrupted)
    world.commit()
    to_the_end(world, *calls)
    world.tick()
    assert not world.engine.backlog
    assert len(list(interrupted)) == 1, "there is nothing left to do"


def test_an_end_that_is_undone_while_it_is_being_told_was_never_told() -> None:
    world = a_world()
    handoff, fence = world.held()
    calls = waiting_for_end(world, handoff)
    before = memory(world.engine)
    world.send(Complete(handoff=handoff, fence=fence, result=Raw(b"7")))
    a_step(world)
    world.fail_commit()
    assert memory(world.engine) == before
    world.tick()
    assert not any(call.answered for call in calls)
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"8")))
    to_the_end(world, *calls)
    assert [bytes(call.result().result) for call in calls[:MANY]] == [b"8"] * MANY


def test_whoever_was_told_together_with_something_later_that_is_undone_is_told_again() -> None:
    """The end is on disk; the ack isn't, and they were told after it."""
    world = a_world()
    handoff, fence = world.held()
    calls = waiting_for_end(world, handoff)
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"7")))
    world.send(Ack(handoff=handoff))
    a_step(world)
    a_step(world)
    world.fail_commit()
    to_the_end(world, *calls)
    assert [bytes(call.result().result) for call in calls[:MANY]] == [b"7"] * MANY
    assert not world.engine.waiting.awaited(handoff)


def test_whoever_has_not_been_told_of_a_death_when_it_is_redriven_waits_on() -> None:
    world = a_world()
    handoff, fence = world.held()
    calls = waiting_for_end(world, handoff)[:MANY]
    world.run(Fail(handoff=handoff, fence=fence, error=WorkError(type="Oops"), retry=False))
    world.run(Redrive(handoff=handoff))
    world.tick()
    assert [call.answered for call in calls] == [True] * AT_ONCE + [False] * (MANY - AT_ONCE)
    world.run(Cancel(handoff=handoff))
    to_the_end(world, *calls)
    assert [call.result().status for call in calls] == ["dead"] * AT_ONCE + ["cancelled"] * (MANY - AT_ONCE)


def test_what_is_forgotten_before_all_have_been_told_is_not_found() -> None:
    world = a_world()
    handoff, fence = world.held()
    calls = waiting_for_end(world, handoff)
    over = world.send(GetResult(handoff=handoff, wait_ms=1))
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"7")))
    call = world.send(Forget(handoff=handoff))
    world.jump(1)
    to_the_end(world, call, over, *calls)
    told = [other for other in calls if not isinstance(other.answer, NotFound)]
    assert len(told) == AT_ONCE
    assert isinstance(over.answer, NotFound)


def test_a_wait_that_is_over_before_its_turn_tells_what_has_come() -> None:
    world = a_world()
    handoff, fence = world.held()
    calls = [world.send(GetResult(handoff=handoff, wait_ms=1_000)) for _ in range(MANY)]
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"7")))
    world.jump(1_000)
    to_the_end(world, *calls)
    assert [bytes(call.result().result) for call in calls] == [b"7"] * MANY


def test_what_has_ended_leaves_memory_once_all_have_been_told() -> None:
    world = a_world()
    handoff, fence = world.held()
    calls = waiting_for_end(world, handoff)
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"7")))
    world.jump(2_000)
    world.commit()  # The table of facts has it, and somebody is still to be told.
    to_the_end(world, *calls)
    for number in range(MAX_COLD_HANDOFFS):
        other = Dispatch(kind="other", inputs=Raw(b'{"other":%d}' % number))
        world.send(Cancel(handoff=world.run(other).handoff))
    world.commit()
    world.advance(10_000)
    assert world.engine.ledger.get(handoff) is None


def deciding(world: World, count: int = MANY) -> tuple[str, str, list[Call], int]:
    """A handoff, an approval, those who wait for its decision, and somebody who may decide it."""
    mine, person = world.connect("mine"), world.connect()
    handoff = world.dispatch()
    fence = world.claim(handoff, on=mine)
    request = ApprovalRequest(handoff=handoff, fence=fence, action="pay", details=Raw(b"{}"), timeout_ms=WAIT_MS)
    approval: str = world.run(request, on=mine).approval
    calls = [world.send(ApprovalWait(approval=approval, wait_ms=1_000), on=mine) for _ in range(count)]
    return handoff, approval, calls, person


def test_many_who_wait_for_a_decision_hear_of_it_in_steps() -> None:
    world = a_world()
    _, approval, calls, person = deciding(world)
    world.run(ApprovalDecide(approval=approval, decision="approve"), on=person)
    assert sum(call.answered for call in calls) == AT_ONCE
    world.jump(1_000)
    to_the_end(world, *calls)
    assert [call.result().decision for call in calls] == ["approved"] * MANY, "also where the wait was over just then"


def test_a_decision_that_is_undone_while_it_is_being_told_was_never_told() -> None:
    world = a_world()
    _, approval, calls, person = deciding(world)
    world.send(ApprovalDecide(approval=approval, decision="approve"), on=person)
    a_step(world)
    world.fail_commit()
    world.tick()
    assert not any(call.answered for call in calls)
    world.run(ApprovalDecide(approval=approval, decision="deny"), on=person)
    to_the_end(world, *calls)
    assert [call.result().decision for call in calls] == ["denied"] * MANY


def test_a_decision_is_told_although_the_worker_goes_on_writing_and_again_where_that_was_undone() -> None:
    world = a_world()
    handoff, approval, calls, person = deciding(world)
    world.run(ApprovalDecide(approval=approval, decision="approve"), on=person)
    for number in range(MANY):
        world.send(Checkpoint(handoff=handoff, fence=1, state=Raw(b"%d" % number)))
        if world.engine.backlog:
            a_step(world)
    assert not world.engine.backlog, "the decision itself is durable"
    assert sum(call.answered for call in calls) == AT_ONCE, "the others were told together with what isn't"
    world.fail_commit()
    assert [call.result().decision for call in calls] == ["approved"] * MANY


def test_the_end_of_the_work_decides_for_all_who_wait() -> None:
    world = a_world()
    handoff, _, calls, _ = deciding(world)
    world.run(Cancel(handoff=handoff))
    to_the_end(world, *calls)
    assert [call.result().decision for call in calls] == ["cancelled"] * MANY
