"""Alive but not moving: no checkpoint and nothing new for too long, or the same again and again."""

from collections.abc import Callable

import pytest
from msgspec import Raw

from dhp_protocol.errors import LeaseLost
from dhp_protocol.messages import (
    Activity,
    ApprovalDecide,
    ApprovalRequest,
    BudgetAdd,
    Checkpoint,
    EffectBegin,
    Fail,
    Goodbye,
    Heartbeat,
    Hello,
    History,
    LeaseRef,
    Request,
    Spend,
    WorkError,
)
from dhp_protocol.replies import LeaseLostEvent
from dhpd.engine.activities import MAX_KNOWN, Activities
from tests.support.engine_world import TTL_MS, World

STALL_MS = 10_000
STALLS = Raw(b'{"stall_ms":10000,"max_stalls":2,"max_attempts":2}')


def activity(handoff: str, fence: int, digest: str) -> Activity:
    return Activity(handoff=handoff, fence=fence, digest=digest)


def heartbeat(handoff: str, fence: int) -> Heartbeat:
    return Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)])


def checkpoint(handoff: str, fence: int, **members: str | int) -> Checkpoint:
    return Checkpoint(handoff=handoff, fence=fence, state=Raw(b"{}"), **members)  # type: ignore[arg-type]


def beat(world: World, handoff: str, fence: int, ms: int) -> None:
    """Time goes by, and the worker's heartbeats come, once a second."""
    for _ in range(ms // 1_000):
        world.advance(1_000)
        world.run(heartbeat(handoff, fence))


def stall(world: World, handoff: str) -> None:
    beat(world, handoff, world.claim(handoff), STALL_MS)


def test_a_worker_that_only_beats_is_taken_back_as_stalled_at_its_moment() -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    mine = world.connect("mine")
    fence = world.claim(handoff, on=mine)
    beat(world, handoff, fence, STALL_MS - 1_000)
    world.advance(999)
    assert world.facts(handoff).status == "running"
    world.advance(1)
    status = world.status(handoff)
    assert (status.status, status.stalls, status.failures, status.reason) == ("orphaned", 1, 0, "orphaned: stalled")
    assert world.heard[mine] == [LeaseLostEvent(handoff=handoff, fence=fence, why="stalled", status="orphaned")]
    with pytest.raises(LeaseLost) as caught:
        world.run(checkpoint(handoff, fence))
    assert caught.value.details["why"] == "stalled"


MOVES: dict[str, Callable[[str, int], Request]] = {
    "checkpoint": lambda handoff, fence: checkpoint(handoff, fence, seq=2),
    "new activity": lambda handoff, fence: activity(handoff, fence, "something new"),
    "effect": lambda handoff, fence: EffectBegin(handoff=handoff, fence=fence, step="pay"),
}
STANDS: dict[str, Callable[[str, int], Request]] = {
    "heartbeat": heartbeat,
    "the same activity": lambda handoff, fence: activity(handoff, fence, "something"),
    "the same checkpoint": lambda handoff, fence: checkpoint(handoff, fence, seq=1),
    "spending": lambda handoff, fence: Spend(handoff=handoff, fence=fence, steps=1, usd=Raw(b"0.1")),
}


@pytest.mark.parametrize("name", [*MOVES, *STANDS])
def test_what_moves_the_stall_clock_and_what_does_not(name: str) -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    fence = world.claim(handoff, ttl_ms=3 * STALL_MS)
    world.run(checkpoint(handoff, fence))
    world.run(activity(handoff, fence, "something"))
    world.advance(STALL_MS - 1)
    world.run((MOVES | STANDS)[name](handoff, fence))
    world.advance(1)
    assert world.facts(handoff).status == ("running" if name in MOVES else "orphaned")
    world.advance(STALL_MS - 1)
    assert world.facts(handoff).status == "orphaned"
    assert world.facts(handoff).stalls == 1


def test_the_clock_starts_anew_with_every_claim() -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    stall(world, handoff)
    world.advance(5 * STALL_MS)
    fence = world.claim(handoff, "standby")
    beat(world, handoff, fence, STALL_MS - 1_000)
    assert world.facts(handoff).status == "running"


def test_the_last_stall_allowed_makes_it_dead_in_the_same_change() -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    stall(world, handoff)
    world.run(checkpoint(handoff, world.claim(handoff)))
    world.advance(TTL_MS)
    assert world.facts(handoff).failures == 1, "a lost worker in between is another matter"
    stall(world, handoff)
    status = world.status(handoff)
    assert (status.status, status.stalls, status.failures, status.seq) == ("dead", 2, 1, 1)
    assert status.reason == "max_stalls: stalled 2 times"
    orphaned, died = world.run(History(handoff=handoff, after=world.facts(handoff).n - 2)).records
    assert (orphaned["type"], orphaned["why"], orphaned["stalls"]) == ("orphaned", "stalled", 2)
    assert (died["type"], died["cap"]) == ("dead", "max_stalls")


def test_stalls_use_up_no_attempts_and_failures_no_stalls() -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"stall_ms":10000,"max_stalls":9,"max_attempts":2}'))
    for _ in range(4):
        stall(world, handoff)
    fail = Fail(handoff=handoff, fence=world.claim(handoff), error=WorkError(type="Oops"), delay_ms=0)
    assert world.run(fail).status == "pending"
    facts = world.facts(handoff)
    assert (facts.stalls, facts.failures) == (4, 1)


@pytest.mark.parametrize("ttl_ms", [STALL_MS, STALL_MS - 1, 1_000])
def test_a_worker_that_is_silent_until_its_lease_ends_is_lost_and_not_stalled(ttl_ms: int) -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    world.claim(handoff, ttl_ms=ttl_ms)
    world.jump(STALL_MS)
    world.tick()
    assert world.status(handoff).reason == "orphaned: expired"
    assert (world.facts(handoff).stalls, world.facts(handoff).failures) == (0, 1)


def test_a_worker_whose_session_is_gone_does_not_stall() -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    mine = world.connect("mine", local=False)
    world.claim(handoff, on=mine, ttl_ms=3 * STALL_MS)
    world.advance(STALL_MS - 100)
    world.disconnect(mine, local=False)
    world.advance(100)
    assert world.facts(handoff).status == "running", "it may come back within its grace"
    world.advance(3 * STALL_MS)
    assert (world.facts(handoff).stalls, world.facts(handoff).failures) == (0, 1)


def test_the_stall_clock_stands_while_the_session_is_away() -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    mine = world.connect("mine", local=False)
    world.claim(handoff, on=mine, ttl_ms=3 * STALL_MS)
    world.advance(STALL_MS - 100)
    world.disconnect(mine, local=False)
    world.advance(200)
    again = world.connect()
    world.run(Hello(session="mine"), on=again)
    world.advance(99)
    assert world.facts(handoff).status == "running", "it had 100 ms left when it went"
    world.advance(1)
    assert (world.facts(handoff).status, world.facts(handoff).stalls) == ("orphaned", 1)


def test_a_lease_that_has_ended_is_not_brought_back_by_the_end_of_its_session() -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    mine = world.connect("mine", local=False)
    fence = world.claim(handoff, on=mine, ttl_ms=3 * STALL_MS)
    world.jump(STALL_MS)
    world.disconnect(mine, local=False)
    with pytest.raises(LeaseLost) as caught:
        world.run(checkpoint(handoff, fence))
    assert caught.value.details["why"] == "stalled"


def test_goodbye_is_no_stall() -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    mine = world.connect("mine")
    world.claim(handoff, on=mine)
    world.advance(5_000)
    world.run(Goodbye(), on=mine)
    assert (world.facts(handoff).status, world.facts(handoff).stalls) == ("pending", 0)


def test_more_stall_ms_counts_for_the_present_hold_and_an_undone_one_does_not() -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    world.claim(handoff, ttl_ms=9 * STALL_MS)
    world.advance(STALL_MS - 1)
    more = BudgetAdd(handoff=handoff, add=Raw(b'{"stall_ms":5000}'))
    world.send(more)
    world.fail_commit()
    assert world.deadline_ms(handoff) == 1
    world.run(more)
    assert world.deadline_ms(handoff) == 5_001


# --- waiting for a person ------------------------------------------------------------------------------------------------


def ask(world: World, handoff: str, fence: int, *, on: int | None = None, timeout_ms: int = 3_600_000) -> str:
    question = ApprovalRequest(handoff=handoff, fence=fence, action="pay", details=Raw(b"{}"), timeout_ms=timeout_ms)
    approval: str = world.run(question, on=on).approval
    return approval


def decide(world: World, approval: str) -> None:
    world.run(ApprovalDecide(approval=approval, decision="deny"), on=world.connect())


@pytest.mark.parametrize("end", ["decided", "expired", "decided after a restart"])
def test_the_stall_clock_stands_while_the_worker_waits_for_a_person_and_starts_anew_then(end: str) -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    fence = world.claim(handoff)
    beat(world, handoff, fence, STALL_MS - 1_000)
    approval = ask(world, handoff, fence, timeout_ms=5 * STALL_MS)
    beat(world, handoff, fence, 3 * STALL_MS)
    if "restart" in end:
        world.restart()
    beat(world, handoff, fence, 2 * STALL_MS - 1_000)
    if end == "expired":
        beat(world, handoff, fence, 1_000)
    else:
        decide(world, approval)
    beat(world, handoff, fence, STALL_MS - 1_000)
    world.advance(999)
    assert world.facts(handoff).status == "running"
    world.advance(1)
    assert (world.facts(handoff).status, world.facts(handoff).stalls) == ("orphaned", 1)


def test_a_question_of_an_earlier_hold_lets_nobody_stand_still_until_it_is_asked_again() -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"stall_ms":10000,"max_stalls":9}'))
    approval = ask(world, handoff, world.claim(handoff))
    world.advance(TTL_MS)
    stall(world, handoff)
    assert world.facts(handoff).stalls == 1
    fence = world.claim(handoff)
    assert ask(world, handoff, fence) == approval
    world.restart()
    beat(world, handoff, fence, 3 * STALL_MS)
    assert world.facts(handoff).status == "running"
    decide(world, approval)
    beat(world, handoff, fence, STALL_MS)
    assert world.facts(handoff).stalls == 2


def test_it_stands_until_the_last_of_several_questions_is_answered() -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    fence = world.claim(handoff)
    first = ask(world, handoff, fence)
    question = ApprovalRequest(handoff=handoff, fence=fence, action="mail", details=Raw(b"1"), timeout_ms=3_600_000)
    second = world.run(question).approval
    decide(world, second)
    beat(world, handoff, fence, 2 * STALL_MS)
    assert world.facts(handoff).status == "running"
    decide(world, first)
    beat(world, handoff, fence, STALL_MS)
    assert world.facts(handoff).stalls == 1


def test_a_worker_that_waits_and_is_lost_is_lost_at_its_leases_end_and_has_not_stalled() -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    ask(world, handoff, world.claim(handoff, ttl_ms=2 * STALL_MS))
    world.advance(2 * STALL_MS)
    assert (world.facts(handoff).status, world.facts(handoff).failures) == ("orphaned", 1)
    assert world.facts(handoff).stalls == 0


def test_a_question_or_an_answer_that_could_not_be_kept_changes_nothing() -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"stall_ms":4000}'))
    fence = world.claim(handoff)
    question = ApprovalRequest(handoff=handoff, fence=fence, action="pay", details=Raw(b"{}"), timeout_ms=3_600_000)
    world.send(question)
    assert world.deadline_ms(handoff) == TTL_MS
    world.fail_commit()
    assert world.deadline_ms(handoff) == 4_000
    approval = world.run(question).approval
    world.send(ApprovalDecide(approval=approval, decision="approve"), on=world.connect())
    assert world.deadline_ms(handoff) == 4_000
    world.fail_commit()
    assert world.deadline_ms(handoff) == TTL_MS
    beat(world, handoff, fence, 10_000)
    assert world.facts(handoff).status == "running"


def test_a_restart_gives_a_full_stall_ms() -> None:
    world = World()
    handoff = world.dispatch(budget=STALLS)
    fence = world.claim(handoff)
    beat(world, handoff, fence, STALL_MS - 1_000)
    world.restart()
    beat(world, handoff, fence, STALL_MS - 1_000)
    assert world.facts(handoff).status == "running"
    beat(world, handoff, fence, 1_000)
    assert world.facts(handoff).stalls == 1


# --- the same again and again ------------------------------------------------------------------------------------------


def test_the_nth_repeat_takes_it_back_as_stalled_and_says_so() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_repeats":2}'))
    assert [world.run(activity(handoff, fence, "search")).repeats for _ in range(2)] == [0, 1]
    with pytest.raises(LeaseLost) as caught:
        world.run(activity(handoff, fence, "search"))
    details = {"why": "stalled", "fence": fence + 1, "status": "orphaned", "handoff": handoff}
    assert caught.value.details == details
    assert world.status(handoff).stalls == 1


@pytest.mark.parametrize("circle", ["A", "AB", "ABC", "AAB"])
def test_a_circle_is_seen_however_long_it_is(circle: str) -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_repeats":3}'))
    refused = None
    for number in range(5 * len(circle)):
        call = world.send(activity(handoff, fence, circle[number % len(circle)]))
        world.commit()
        refused = refused or (call.answer if isinstance(call.answer, LeaseLost) else None)
    assert refused is not None
    assert refused.details["why"] == "stalled"
    assert world.facts(handoff).stalls == 1


def test_what_comes_back_between_new_things_is_no_circle() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_repeats":2}'))
    world.run(activity(handoff, fence, "test"))
    for number in range(MAX_KNOWN * 2):
        assert world.run(activity(handoff, fence, f"edit {number}")).repeats == 0
        assert world.run(activity(handoff, fence, "test")).repeats == 1


def test_what_is_known_is_bounded() -> None:
    activities = Activities()
    for number in range(MAX_KNOWN + 1):
        assert activities.say(str(number), 0) == 0
    assert activities.say("1", 0) == 1
    assert activities.say("0", 0) == 0, "this one was forgotten"


def test_a_new_hold_knows_of_no_repeats() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_repeats":2,"max_attempts":9}'))
    for _ in range(2):
        world.run(activity(handoff, fence, "search"))
    world.advance(TTL_MS)
    fence = world.claim(handoff)
    assert world.run(activity(handoff, fence, "search")).repeats == 0


def test_a_checkpoint_brings_its_activity_and_one_sent_again_brings_none() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_repeats":2}'))
    world.run(checkpoint(handoff, fence, seq=1, activity="search"))
    for _ in range(5):
        assert world.run(checkpoint(handoff, fence, seq=1, activity="search")).duplicate
    assert world.run(activity(handoff, fence, "search")).repeats == 1


def test_a_checkpoint_that_goes_round_in_circles_is_kept_and_the_work_taken_back() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_repeats":1}'))
    world.run(checkpoint(handoff, fence, activity="search"))
    with pytest.raises(LeaseLost) as caught:
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"2"), usd=Raw(b"0.5"), activity="search"))
    assert caught.value.details["why"] == "stalled"
    status = world.status(handoff)
    assert (status.status, status.seq, status.usd, status.stalls) == ("orphaned", 2, 0.5, 1)
