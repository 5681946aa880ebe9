"""Work put aside: it comes back when it was to, whatever happened meanwhile, and not before."""

from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.errors import InvalidRequest, LeaseLost, NotClaimable, NotFound, StoreUnavailable, WrongState
from dhp_protocol.messages import (
    ApprovalDecide,
    ApprovalRequest,
    Cancel,
    Checkpoint,
    Claim,
    Complete,
    Export,
    Heartbeat,
    History,
    LeaseRef,
    Resume,
    Suspend,
)
from dhp_protocol.replies import LeaseLostEvent
from dhpd.engine.settling import SETTLED_AT_ONCE
from dhpd.engine.views import rfc3339
from tests.support.engine_world import TTL_MS, Outcome, World

HOUR_MS = 3_600_000


def suspend(world: World, handoff: str, fence: int | None = None, **members: Any) -> Any:
    held = {} if fence is None else {"fence": fence}
    return world.run(Suspend(handoff=handoff, **held, **members))


def ask(world: World, handoff: str, fence: int, *, timeout_ms: int = HOUR_MS) -> str:
    asked = ApprovalRequest(handoff=handoff, fence=fence, action="pay", details=Raw(b"{}"), timeout_ms=timeout_ms)
    approval: str = world.run(asked).approval
    return approval


def decide(world: World, approval: str, decision: Any = "approve") -> None:
    world.run(ApprovalDecide(approval=approval, decision=decision), on=world.connect())


def resumed(world: World, handoff: str) -> list[str]:
    """Why it was resumed, each time."""
    records = world.run(History(handoff=handoff)).records
    return [record["why"] for record in records if record["type"] == "resumed"]


# --- by its worker -----------------------------------------------------------------------------------------------------


def test_a_worker_puts_its_work_aside_and_its_fence_is_void() -> None:
    world = World()
    handoff, fence = world.held()
    assert suspend(world, handoff, fence).status == "suspended"
    assert world.facts(handoff).fence == fence + 1
    with pytest.raises(LeaseLost) as caught:
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
    assert caught.value.details["why"] == "suspended"
    assert world.run(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)])).lost == [handoff]
    world.advance(10 * TTL_MS)
    assert world.facts(handoff).status == "suspended"
    assert world.facts(handoff).failures == 0


def test_the_same_suspend_again_is_a_duplicate_until_the_next_claim() -> None:
    world = World()
    handoff, fence = world.held()
    suspend(world, handoff, fence, wake_ms=1_000)
    before = world.facts(handoff)
    again = suspend(world, handoff, fence, wake_ms=1_000)
    assert (again.status, again.duplicate) == ("suspended", True)
    assert world.facts(handoff) == before
    world.advance(1_000)
    again = suspend(world, handoff, fence, wake_ms=1_000)
    assert (again.status, again.duplicate) == ("pending", True)
    world.claim(handoff)
    with pytest.raises(LeaseLost) as caught:
        suspend(world, handoff, fence)
    assert caught.value.details["why"] == "superseded"


@pytest.mark.parametrize("by_export", [False, True], ids=["from outside", "by an export"])
@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart"])
def test_what_another_one_put_aside_is_no_suspend_of_the_workers_and_arms_no_wake_up(
    by_export: bool, restarted: bool
) -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Export(handoff=handoff)) if by_export else suspend(world, handoff)
    if restarted:
        world.restart()
    before = world.facts(handoff)
    with pytest.raises(LeaseLost) as caught:
        suspend(world, handoff, fence, wake_ms=1_000)
    assert (caught.value.details["why"], caught.value.details["status"]) == ("suspended", "suspended")
    assert world.facts(handoff) is before


def test_its_own_suspend_stays_a_duplicate_whatever_was_done_to_it_since() -> None:
    world = World()
    handoff, fence = world.held()
    suspend(world, handoff, fence, wake_ms=1_000)
    world.run(Export(handoff=handoff))
    world.restart()
    assert suspend(world, handoff, fence, wake_ms=1_000).duplicate


def test_a_status_tells_when_it_wakes_while_it_sleeps() -> None:
    world = World()
    handoff, fence = world.held()
    assert world.status(handoff).wake_at is None
    suspend(world, handoff, fence, wake_ms=1_000)
    assert world.status(handoff).wake_at == rfc3339(world.now.wall_ms + 1_000)
    world.advance(1_000)
    assert world.status(handoff).wake_at is None
    suspend(world, handoff)
    assert world.status(handoff).wake_at is None
    world.run(Resume(handoff=handoff))
    suspend(world, handoff, wake_ms=HOUR_MS)
    world.run(Cancel(handoff=handoff))
    assert world.status(handoff).wake_at is None


def test_a_void_fence_suspends_nothing() -> None:
    world = World()
    handoff, fence = world.orphaned()
    with pytest.raises(LeaseLost):
        suspend(world, handoff, fence)
    assert world.facts(handoff).status == "orphaned"


# --- from outside ------------------------------------------------------------------------------------------------------


def test_work_that_is_suspended_from_outside_is_taken_from_its_worker_who_hears_of_it() -> None:
    world = World()
    worker = world.connect("worker")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=worker)
    suspend(world, handoff, reason="wait")
    assert world.heard[worker] == [LeaseLostEvent(handoff=handoff, fence=fence, why="suspended", status="suspended")]
    assert world.facts(handoff).reason == "wait"
    with pytest.raises(LeaseLost) as caught:
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    assert (caught.value.details["why"], caught.value.details["status"]) == ("suspended", "suspended")


def test_the_worker_that_suspends_its_own_work_hears_no_loss() -> None:
    world = World()
    worker = world.connect("worker")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=worker)
    world.run(Suspend(handoff=handoff, fence=fence), on=worker)
    assert world.heard[worker] == []


@pytest.mark.parametrize("status", ["pending", "orphaned"])
def test_work_that_nobody_holds_can_be_suspended(status: str) -> None:
    world = World()
    handoff = world.dispatch() if status == "pending" else world.orphaned()[0]
    assert world.facts(handoff).status == status
    fence = world.facts(handoff).fence
    assert suspend(world, handoff).status == "suspended"
    assert world.facts(handoff).fence == fence + 1


@pytest.mark.parametrize("status", ["suspended", "completed", "cancelled", "dead"])
def test_suspended_and_final_work_cannot_be_suspended(status: str) -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_attempts":1}'))
    match status:
        case "suspended":
            suspend(world, handoff)
        case "completed":
            world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
        case "cancelled":
            world.run(Cancel(handoff=handoff))
        case "dead":
            world.advance(TTL_MS)
    before = world.facts(handoff)
    with pytest.raises(WrongState) as caught:
        suspend(world, handoff)
    assert caught.value.details["status"] == status
    assert world.facts(handoff) == before


@pytest.mark.parametrize("reason", ["exported", "imported"])
def test_nobody_can_pretend_that_work_has_moved(reason: str) -> None:
    world = World()
    handoff, fence = world.held()
    for held in (None, fence):
        with pytest.raises(InvalidRequest) as caught:
            suspend(world, handoff, held, reason=reason)
        assert caught.value.details["member"] == "reason"
    assert world.facts(handoff).status == "running"


# --- resume ------------------------------------------------------------------------------------------------------------


def test_resumed_work_is_claimed_by_whoever_waits() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
    suspend(world, handoff, fence)
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    by_name = world.send(Claim(worker="cyd", handoff=handoff, wait_ms=60_000))
    world.commit()
    assert not waiter.answered
    world.run(Resume(handoff=handoff))
    assert (waiter.result().fence, waiter.result().was, waiter.result().checkpoint.seq) == (fence + 3, "pending", 1)
    assert not by_name.answered
    assert resumed(world, handoff) == ["resume"]


@pytest.mark.parametrize("status", ["pending", "running", "orphaned", "completed"])
def test_only_suspended_work_can_be_resumed(status: str) -> None:
    world = World()
    handoff = world.dispatch()
    if status != "pending":
        fence = world.claim(handoff)
    if status == "orphaned":
        world.advance(TTL_MS)
    if status == "completed":
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    with pytest.raises(WrongState) as caught:
        world.run(Resume(handoff=handoff))
    assert caught.value.details["status"] == status


def test_suspended_work_is_not_claimed_by_kind_or_by_name() -> None:
    world = World()
    handoff = world.dispatch()
    suspend(world, handoff)
    assert world.run(Claim(worker="bob", kinds=["work"])).handoff is None
    with pytest.raises(NotClaimable) as caught:
        world.claim(handoff)
    assert (caught.value.details["status"], caught.value.retry) == ("suspended", "later")
    assert caught.value.after_ms is None


def test_a_delay_is_not_shortened_by_a_suspension() -> None:
    world = World()
    handoff = world.dispatch(delay_ms=10_000)
    suspend(world, handoff)
    world.advance(4_000)
    world.run(Resume(handoff=handoff))
    with pytest.raises(NotClaimable) as caught:
        world.claim(handoff)
    assert caught.value.after_ms == 6_000
    world.advance(6_000)
    world.claim(handoff)


# --- a time ------------------------------------------------------------------------------------------------------------


def test_a_durable_sleep_ends_at_its_moment_and_not_before() -> None:
    world = World()
    handoff, fence = world.held()
    suspend(world, handoff, fence, wake_ms=HOUR_MS)
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=600_000))
    with pytest.raises(NotClaimable) as caught:
        world.claim(handoff)
    assert caught.value.after_ms == HOUR_MS
    world.advance(HOUR_MS - 1)
    assert waiter.result().handoff is None  # Its wait was over long before.
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=600_000))
    assert world.facts(handoff).status == "suspended"
    world.advance(1)
    assert waiter.result().handoff == handoff
    assert resumed(world, handoff) == ["wake"]


def test_a_sleep_of_no_time_wakes_with_the_next_tick() -> None:
    world = World()
    handoff, fence = world.held()
    suspend(world, handoff, fence, wake_ms=0)
    world.advance(1)
    assert world.facts(handoff).status == "pending"


def test_work_whose_time_has_come_is_claimed_though_no_tick_has_seen_it() -> None:
    world = World()
    handoff, fence = world.held()
    suspend(world, handoff, fence, wake_ms=1_000)
    world.jump(1_000)
    assert world.run(Claim(worker="bob", kinds=["work"])).handoff == handoff


def test_a_sleep_survives_restarts_and_counts_the_time_in_which_the_daemon_was_down() -> None:
    world = World()
    slept, sleeps = world.held()[0], world.held()[0]
    suspend(world, slept, world.facts(slept).fence, wake_ms=HOUR_MS)
    suspend(world, sleeps, world.facts(sleeps).fence, wake_ms=3 * HOUR_MS)
    world.advance(2_000)
    world.restart(after_ms=1_000)
    world.restart(after_ms=2 * HOUR_MS)
    world.advance(1)
    assert [world.facts(one).status for one in (slept, sleeps)] == ["pending", "suspended"]
    world.advance(HOUR_MS)
    assert world.facts(sleeps).status == "pending"
    assert [resumed(world, one) for one in (slept, sleeps)] == [["wake"], ["wake"]]


def test_a_sleep_is_by_the_wall_clock_when_that_is_set() -> None:
    world = World()
    handoff, fence = world.held()
    suspend(world, handoff, fence, wake_ms=HOUR_MS)
    world.jump(1_000, wall_ms=-HOUR_MS)
    world.advance(HOUR_MS)
    assert world.facts(handoff).status == "suspended"
    world.jump(0, wall_ms=HOUR_MS)
    world.tick()
    assert world.facts(handoff).status == "pending"


def test_work_that_woke_stays_awake_when_the_wall_clock_is_set_back() -> None:
    world = World()
    handoff, fence = world.held()
    suspend(world, handoff, fence, wake_ms=1_000)
    world.advance(1_000)
    world.jump(0, wall_ms=-HOUR_MS)
    world.tick()
    world.claim(handoff)


def test_a_resume_ends_the_sleep_and_the_old_time_wakes_nothing_later() -> None:
    world = World()
    handoff, fence = world.held()
    suspend(world, handoff, fence, wake_ms=10_000)
    world.run(Resume(handoff=handoff))
    suspend(world, handoff, world.claim(handoff))
    world.advance(20_000)
    assert world.facts(handoff).status == "suspended"
    assert resumed(world, handoff) == ["resume"]


def test_a_waking_that_was_undone_comes_again() -> None:
    world = World()
    handoff, fence = world.held()
    suspend(world, handoff, fence, wake_ms=1_000)
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    world.jump(1_000)
    world.tick()
    world.fail_commit()
    world.commit()
    assert waiter.result().handoff == handoff
    assert resumed(world, handoff) == ["wake"]


def test_a_suspension_that_was_undone_leaves_the_work_with_its_worker() -> None:
    world = World()
    handoff, fence = world.held()
    call = world.send(Suspend(handoff=handoff, fence=fence, wake_ms=1_000))
    world.fail_commit()
    with pytest.raises(StoreUnavailable):
        call.result()
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
    world.advance(2_000)
    assert world.facts(handoff).status == "running"


# --- an approval -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_work_comes_back_when_a_person_has_decided(decision: str) -> None:
    world = World()
    handoff, fence = world.held()
    approval = ask(world, handoff, fence)
    suspend(world, handoff, fence, approval=approval)
    world.advance(HOUR_MS // 2)
    assert world.facts(handoff).status == "suspended"
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    decide(world, approval, decision)
    assert waiter.result().handoff == handoff
    assert resumed(world, handoff) == ["approval"]


def test_work_comes_back_when_nobody_has_decided_in_time() -> None:
    world = World()
    handoff, fence = world.held()
    approval = ask(world, handoff, fence, timeout_ms=10_000)
    suspend(world, handoff, fence, approval=approval)
    world.advance(9_999)
    assert world.facts(handoff).status == "suspended"
    world.advance(1)
    assert world.facts(handoff).status == "pending"
    assert resumed(world, handoff) == ["approval"]


@pytest.mark.parametrize("by", ["worker", "dispatcher"])
def test_work_that_waits_for_what_has_been_decided_comes_back_at_once(by: str) -> None:
    world = World()
    worker = world.connect("worker")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=worker)
    approval = ask(world, handoff, fence)
    decide(world, approval)
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    reply = suspend(world, handoff, fence if by == "worker" else None, approval=approval)
    assert reply.status == "pending"
    assert waiter.result().fence == fence + 3
    assert len(world.heard[worker]) == (by == "dispatcher")
    assert suspend(world, handoff, waiter.result().fence, approval=approval).status == "pending"


@pytest.mark.parametrize("first", ["wake", "approval"])
def test_with_both_whichever_comes_first_wakes_it_once(first: str) -> None:
    world = World()
    handoff, fence = world.held()
    approval = ask(world, handoff, fence)
    suspend(world, handoff, fence, approval=approval, wake_ms=10_000)
    if first == "approval":
        decide(world, approval)
        world.advance(10_000)
    else:
        world.advance(10_000)
        decide(world, approval)
    assert world.facts(handoff).status == "pending"
    assert resumed(world, handoff) == [first]


def test_a_decision_made_while_the_work_runs_again_changes_nothing_about_it() -> None:
    world = World()
    handoff, fence = world.held()
    approval = ask(world, handoff, fence)
    suspend(world, handoff, fence, approval=approval, wake_ms=1_000)
    world.advance(1_000)
    second = world.claim(handoff)
    decide(world, approval)
    world.run(Checkpoint(handoff=handoff, fence=second, state=Raw(b"1")))


def test_a_decision_after_another_suspension_wakes_only_what_waits_for_it() -> None:
    world = World()
    handoff, fence = world.held()
    approval = ask(world, handoff, fence)
    suspend(world, handoff, fence, approval=approval, wake_ms=1_000)
    world.advance(1_000)
    suspend(world, handoff, world.claim(handoff))
    decide(world, approval)
    assert world.facts(handoff).status == "suspended"


def test_work_that_waits_for_an_approval_survives_restarts_before_and_after_the_decision() -> None:
    world = World()
    handoff, fence = world.held()
    approval = ask(world, handoff, fence)
    suspend(world, handoff, fence, approval=approval)
    world.restart(after_ms=TTL_MS)
    assert world.facts(handoff).status == "suspended"
    decide(world, approval)
    world.restart()
    assert world.run(Claim(worker="bob", kinds=["work"])).handoff == handoff


def test_a_decision_that_was_undone_wakes_nothing() -> None:
    world = World()
    handoff, fence = world.held()
    approval = ask(world, handoff, fence)
    suspend(world, handoff, fence, approval=approval)
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    world.send(ApprovalDecide(approval=approval, decision="approve"), on=world.connect())
    world.fail_commit()
    world.commit()
    assert world.facts(handoff).status == "suspended"
    assert not waiter.answered
    decide(world, approval)
    assert waiter.result().handoff == handoff


def test_another_handoffs_approval_wakes_nothing() -> None:
    world = World()
    handoff, fence = world.held()
    other, other_fence = world.held()
    approval = ask(world, other, other_fence)
    with pytest.raises(NotFound):
        suspend(world, handoff, fence, approval=approval)
    assert world.facts(handoff).status == "running"


# --- caps --------------------------------------------------------------------------------------------------------------


def test_the_cap_on_time_goes_on_in_a_sleep() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_wallclock_ms":10000}'))
    suspend(world, handoff, fence, wake_ms=HOUR_MS)
    world.advance(9_999)
    assert world.facts(handoff).status == "suspended"
    world.advance(1)
    assert world.facts(handoff).status == "dead"
    world.advance(HOUR_MS)
    assert world.facts(handoff).status == "dead"


def test_the_stall_clock_does_not_go_on_in_a_sleep() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"stall_ms":1000}'))
    world.advance(900)
    suspend(world, handoff, fence, wake_ms=5_000)
    world.advance(5_000)
    assert (world.facts(handoff).status, world.facts(handoff).stalls) == ("pending", 0)
    world.claim(handoff)
    world.advance(999)
    assert world.facts(handoff).status == "running"


def test_what_is_due_while_the_store_is_away_happens_once_it_is_back() -> None:
    world = World()
    sleeper, fence = world.held()
    suspend(world, sleeper, fence, wake_ms=1_000)
    asker, asker_fence = world.held(budget=Raw(b'{"max_attempts":9}'))
    approval = ask(world, asker, asker_fence, timeout_ms=1_000)
    world.send(Checkpoint(handoff=asker, fence=asker_fence, state=Raw(b"1")))
    world.take()
    world.lose_or_keep(Outcome.FAILS)
    world.jump(1_000)
    for _ in range(2):
        world.tick()
        assert world.facts(sleeper).status == "suspended"
    world.find_out()
    world.commit()
    assert world.facts(sleeper).status == "pending"
    decided = (world.facts(asker).approvals or {})[approval]
    assert decided.decision == "expired"


def test_a_claim_waits_for_few_of_very_many_that_wake_and_the_tick_sees_to_the_rest() -> None:
    world = World()
    sleepers = [world.dispatch(key=str(number)) for number in range(200)]
    for handoff in sleepers:
        world.run(Suspend(handoff=handoff, wake_ms=1_000))
    world.commit()
    world.jump(1_000)
    assert world.run(Claim(worker="ada", kinds=["other"])).handoff is None
    awake = sum(world.facts(handoff).status == "pending" for handoff in sleepers)
    assert awake == SETTLED_AT_ONCE
    assert world.run(Claim(worker="ada", handoff=sleepers[-1])).handoff == sleepers[-1], "the one named is looked at"
    world.tick()
    assert {world.facts(handoff).status for handoff in sleepers} == {"pending", "running"}
