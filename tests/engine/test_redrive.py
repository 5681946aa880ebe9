"""Dead work comes back: with what a cap had refused, with all that was spent, and with counts that start anew."""

import hashlib
from typing import Any

import pytest
from msgspec import UNSET, Raw

from dhp_protocol.errors import BudgetExceeded, InvalidRequest, NotFound, ResultInvalid, StoreUnavailable, WrongState
from dhp_protocol.messages import (
    Ack,
    BudgetAdd,
    Cancel,
    Checkpoint,
    Checkpoints,
    Claim,
    Complete,
    Fail,
    History,
    LastCheckpoint,
    Redrive,
    Spend,
    WorkError,
)
from dhp_protocol.replies import KeptView
from dhpd.engine.waiting import Address
from tests.support.engine_world import TTL_MS, World

OOPS = WorkError(type="Oops", message="it broke")


def checkpoint(handoff: str, fence: int, state: bytes = b"{}", usd: str | None = None, **members: Any) -> Checkpoint:
    money = UNSET if usd is None else Raw(usd.encode())
    return Checkpoint(handoff=handoff, fence=fence, state=Raw(state), usd=money, **members)


def redrive(handoff: str, add: str | None = None, **members: Any) -> Redrive:
    return Redrive(handoff=handoff, budget_add=UNSET if add is None else Raw(add.encode()), **members)


def parked(world: World, state: bytes = b'"paid for"', **members: Any) -> tuple[str, int]:
    """A handoff whose second checkpoint a cap of one step and a dollar refused; and the fence that it had."""
    handoff, fence = world.held(budget=Raw(b'{"max_steps":1,"max_usd":1}'), **members)
    world.run(checkpoint(handoff, fence, b'"first"', "0.5"))
    with pytest.raises(BudgetExceeded):
        world.run(checkpoint(handoff, fence, state, "0.75", steps=2))
    return handoff, fence


ENOUGH = '{"max_steps":2,"max_usd":0.25}'


def test_what_the_cap_refused_is_applied_first_and_in_the_same_commit() -> None:
    world = World()
    handoff, _ = parked(world)
    died_fence = world.facts(handoff).fence
    call = world.send(redrive(handoff, ENOUGH))
    assert [type(entry.record).__name__ for entry in world.take().entries] == ["BudgetAdded", "Redriven"]
    world.finish()
    assert call.result().status == "pending"
    status = world.status(handoff)
    assert (status.status, status.seq, status.steps, status.usd, status.reason) == ("pending", 2, 3, 1.25, None)
    assert status.fence == died_fence + 1
    stored = world.run(LastCheckpoint(handoff=handoff)).checkpoint
    assert (bytes(stored.state), stored.sha256) == (b'"paid for"', hashlib.sha256(b'"paid for"').hexdigest())
    granted = world.run(Claim(worker="bob", handoff=handoff))
    assert (granted.checkpoint.seq, bytes(granted.checkpoint.state)) == (2, b'"paid for"')
    pages = world.run(Checkpoints(handoff=handoff)).checkpoints
    assert [(page.seq, bytes(page.state)) for page in pages] == [(1, b'"first"'), (2, b'"paid for"')]
    last = world.run(History(handoff=handoff)).records[-2]
    assert (last["type"], last["seq"], last["steps"], last["usd"]) == ("redriven", 2, 2, 0.75)


def test_it_is_there_after_a_restart_and_the_next_checkpoint_follows_it() -> None:
    world = World()
    handoff, _ = parked(world)
    world.restart()
    world.run(redrive(handoff, '{"max_steps":3,"max_usd":1}'))
    world.restart()
    fence = world.claim(handoff)
    assert world.run(checkpoint(handoff, fence, b'"paid for"', seq=2)).duplicate
    assert world.run(checkpoint(handoff, fence)).seq == 3
    assert world.status(handoff).steps == 4


def test_spent_money_is_applied_too() -> None:
    world = World()
    parent = world.dispatch()
    handoff, fence = world.held(budget=Raw(b'{"max_usd":1}'), parent=parent)
    with pytest.raises(BudgetExceeded):
        world.run(Spend(handoff=handoff, fence=fence, usd=Raw(b"1.5"), steps=7, nonce="n"))
    assert world.status(parent).usd == 0
    world.run(redrive(handoff, '{"max_usd":1}'))
    for each in (handoff, parent):
        status = world.status(each)
        assert (status.usd, status.steps, status.seq) == (1.5, 7, 0)


@pytest.mark.parametrize("add", [None, '{"max_usd":5}', '{"max_steps":1,"max_usd":5}', '{"max_steps":5}'])
def test_where_it_still_does_not_fit_it_stays_dead_and_nothing_changes(add: str | None) -> None:
    world = World()
    handoff, _ = parked(world)
    before = world.facts(handoff)
    with pytest.raises(BudgetExceeded) as caught:
        world.run(redrive(handoff, add, nonce="n"))
    cap, lacking = caught.value.details["cap"], caught.value.details["lacking"]
    assert cap in ("max_steps", "max_usd")
    assert caught.value.message == f"The handoff stays dead: budget_add at least {lacking} of {cap} to {handoff} first."
    assert world.facts(handoff) is before, "not even the budget was raised"
    assert world.run(redrive(handoff, ENOUGH, nonce="n")).status == "pending", "and the nonce wasn't used up"


@pytest.mark.parametrize("add", ['{"max_wallclock_ms":5}', '{"max_steps":0}', "{}", '{"nonsense":1}', "[]"])
def test_what_cannot_be_added_is_refused_and_nothing_changes(add: str) -> None:
    world = World()
    handoff, _ = parked(world)
    before = world.facts(handoff)
    with pytest.raises(InvalidRequest) as caught:
        world.run(redrive(handoff, add))
    assert caught.value.details["member"].startswith("budget_add")
    assert world.facts(handoff) is before


def test_what_an_ancestor_lacks_is_told_of_that_one_and_is_just_enough() -> None:
    world = World()
    parent = world.dispatch(budget=Raw(b'{"max_usd":1}'))
    child, fence = world.held(parent=parent)
    with pytest.raises(BudgetExceeded):
        world.run(Spend(handoff=child, fence=fence, usd=Raw(b"1.3")))
    with pytest.raises(BudgetExceeded) as caught:
        world.run(redrive(child))
    assert (caught.value.details["whose"], caught.value.details["lacking"]) == (parent, 0.3)
    assert "0.3 of max_usd" in caught.value.message
    assert parent in caught.value.message
    world.run(BudgetAdd(handoff=parent, add=Raw(b'{"max_usd":0.3}')))
    assert world.run(redrive(child)).status == "pending"


def test_a_status_tells_what_is_kept_until_it_is_applied() -> None:
    world = World()
    handoff, _ = parked(world)
    assert world.status(handoff).kept == KeptView(steps=2, usd=0.75, seq=2)
    world.restart()
    assert world.status(handoff).kept == KeptView(steps=2, usd=0.75, seq=2)
    world.run(redrive(handoff, ENOUGH))
    assert world.status(handoff).kept is None
    spent, fence = world.held(budget=Raw(b'{"max_usd":1}'))
    assert world.status(spent).kept is None
    with pytest.raises(BudgetExceeded):
        world.run(Spend(handoff=spent, fence=fence, usd=Raw(b"1.5")))
    assert world.status(spent).kept == KeptView(steps=0, usd=1.5, seq=0)


def test_only_what_is_dead_is_redriven() -> None:
    world = World()
    pending = world.dispatch()
    running, _ = world.held()
    cancelled = world.dispatch()
    world.run(Cancel(handoff=cancelled))
    completed, fence = world.held()
    world.run(Complete(handoff=completed, fence=fence, result=Raw(b"1")))
    for handoff, status in (
        (pending, "pending"),
        (running, "running"),
        (cancelled, "cancelled"),
        (completed, "completed"),
    ):
        with pytest.raises(WrongState) as caught:
            world.run(redrive(handoff))
        assert caught.value.details["status"] == status
    with pytest.raises(NotFound):
        world.run(redrive("0" * 64))


def test_with_a_nonce_it_happens_once() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Fail(handoff=handoff, fence=fence, error=OOPS, retry=False))
    assert world.run(redrive(handoff, '{"max_attempts":1}', nonce="n")).status == "pending"
    fence = world.claim(handoff)
    assert world.run(redrive(handoff, '{"max_attempts":1}', nonce="n")).status == "running"
    assert world.status(handoff).budget["max_attempts"] == 4
    world.run(Fail(handoff=handoff, fence=fence, error=OOPS, retry=False))
    assert world.run(redrive(handoff, nonce="n")).status == "dead"
    assert world.run(redrive(handoff, nonce="m")).status == "pending"


def test_failures_stalls_and_invalid_results_start_anew_and_nothing_spent_does() -> None:
    world = World()
    budget = Raw(b'{"max_attempts":2,"stall_ms":1000,"max_invalid_results":2,"max_steps":9}')
    handoff = world.dispatch(budget=budget)
    fence = world.claim(handoff)
    world.run(checkpoint(handoff, fence, usd="0.5"))
    world.run(Fail(handoff=handoff, fence=fence, error=OOPS, delay_ms=0))
    world.claim(handoff)
    world.advance(1_000)
    fence = world.claim(handoff)
    bad = ResultInvalid("It doesn't fit.", path="", rule="type")
    with pytest.raises(ResultInvalid):
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")), verdict=bad)
    world.run(Fail(handoff=handoff, fence=fence, error=OOPS))
    facts = world.facts(handoff)
    assert (facts.status, facts.failures, facts.stalls, facts.invalid_results) == ("dead", 2, 1, 1)
    world.run(redrive(handoff))
    facts = world.facts(handoff)
    assert (facts.status, facts.failures, facts.stalls, facts.invalid_results) == ("pending", 0, 0, 0)
    assert (facts.steps, facts.usd_nano, facts.attempt, facts.seq) == (1, 500_000_000, 3, 1)
    world.run(Fail(handoff=handoff, fence=world.claim(handoff), error=OOPS, delay_ms=0))
    assert world.status(handoff).status == "pending", "max_attempts counts from the redrive"


def test_redriven_work_is_served_to_those_who_wait_and_is_no_longer_acknowledged() -> None:
    world = World()
    handoff, _ = parked(world)
    world.run(Ack(handoff=handoff))
    call = world.send(Claim(worker="bob", kinds=["work"], wait_ms=5_000))
    world.run(redrive(handoff, ENOUGH))
    assert call.result().handoff == handoff
    assert world.status(handoff).acked is False


# --- the wall clock ----------------------------------------------------------------------------------------------------


def test_time_spent_dead_does_not_count_whatever_is_recorded_meanwhile() -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"max_wallclock_ms":10000}'))
    child = world.dispatch(parent=handoff)
    fence = world.claim(handoff)
    world.advance(4_000)
    world.run(Fail(handoff=handoff, fence=fence, error=OOPS, retry=False))
    world.advance(50_000)
    child_fence = world.claim(child)
    world.run(Spend(handoff=child, fence=child_fence, steps=1))
    world.run(BudgetAdd(handoff=handoff, add=Raw(b'{"max_attempts":1}')))
    world.run(Ack(handoff=handoff))
    world.advance(50_000)
    assert world.run(redrive(handoff)).status == "pending"
    world.advance(5_999)
    assert world.status(handoff).status == "pending"
    world.advance(1)
    assert world.status(handoff).status == "dead"


@pytest.mark.parametrize("down_ms", [0, 100_000])
def test_a_used_up_wall_clock_stays_used_up_until_there_is_more(down_ms: int) -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"max_wallclock_ms":10000}'))
    world.claim(handoff)
    if down_ms:
        world.restart(after_ms=down_ms)
    world.advance(20_000)
    with pytest.raises(BudgetExceeded) as caught:
        world.run(redrive(handoff))
    assert (caught.value.details["cap"], caught.value.details["used"]) == ("max_wallclock_ms", 10_000)
    assert caught.value.details["lacking"] == 1
    assert caught.value.message.startswith("The handoff stays dead: budget_add at least 1 of max_wallclock_ms")
    assert world.status(handoff).status == "dead"
    assert world.run(redrive(handoff, '{"max_wallclock_ms":3000}')).status == "pending"
    world.advance(2_999)
    assert world.status(handoff).status == "pending"
    world.advance(1)
    assert world.status(handoff).status == "dead"


# --- what is kept ------------------------------------------------------------------------------------------------------


def test_a_kept_state_that_is_not_the_present_one_is_never_applied() -> None:
    world = World()
    handoff, _ = parked(world)
    before = world.facts(handoff)
    request = redrive(handoff, ENOUGH)
    for state in (None, b'"another one"'):
        world.engine.execute(request, Address(world.home, 0, False), world.now, state)
        refused = world.engine.journal.ready.pop()
        assert isinstance(getattr(refused, "answer", None), StoreUnavailable)
        assert world.facts(handoff) is before
    assert world.run(request).status == "pending"


def test_what_was_applied_is_not_applied_again_by_the_next_redrive() -> None:
    world = World()
    handoff, _ = parked(world)
    world.run(redrive(handoff, ENOUGH))
    fence = world.claim(handoff)
    world.run(Fail(handoff=handoff, fence=fence, error=OOPS, retry=False))
    world.run(redrive(handoff))
    status = world.status(handoff)
    assert (status.steps, status.usd, status.seq) == (3, 1.25, 2)


def test_a_redrive_whose_commit_failed_leaves_it_dead_with_what_is_kept() -> None:
    world = World()
    parent = world.dispatch()
    handoff, _ = parked(world, parent=parent)
    call = world.send(redrive(handoff, ENOUGH, nonce="n"))
    world.fail_commit()
    assert call.answer.code == "store_unavailable"
    assert (world.status(handoff).status, world.status(parent).steps) == ("dead", 1)
    assert world.run(redrive(handoff, ENOUGH, nonce="n")).status == "pending"
    assert (world.status(handoff).steps, world.status(parent).steps) == (3, 3)


def test_an_old_fence_stays_late_after_a_redrive() -> None:
    world = World()
    handoff, fence = parked(world)
    world.run(redrive(handoff, ENOUGH))
    refusal = world.send(checkpoint(handoff, fence))
    world.commit()
    assert (refusal.answer.code, refusal.answer.details["why"]) == ("lease_lost", "dead")
    world.claim(handoff, "bob")
    world.advance(TTL_MS - 1)
    refusal = world.send(checkpoint(handoff, fence))
    world.commit()
    assert refusal.answer.details["why"] == "superseded"
