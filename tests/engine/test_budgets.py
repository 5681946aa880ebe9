"""Caps: what may be reached, what may not be passed, and what becomes of the write that would."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec import UNSET, Raw

from dhp_protocol.errors import BudgetExceeded, DHPError, InvalidRequest, LeaseLost, NotClaimable, WrongState
from dhp_protocol.limits import MAX_ATTEMPTS, MAX_DELAY_MS, MAX_SAFE_INTEGER, MAX_STEPS, Limits
from dhp_protocol.messages import (
    BudgetAdd,
    Cancel,
    Checkpoint,
    Complete,
    History,
    LastCheckpoint,
    Spend,
    Suspend,
)
from dhp_protocol.replies import LeaseLostEvent
from dhpd.engine.budget import CAPS
from tests.support.engine_world import TTL_MS, World


def checkpoint(handoff: str, fence: int, state: bytes = b"{}", *, usd: str | None = None, **members: Any) -> Checkpoint:
    money = UNSET if usd is None else Raw(usd.encode())
    return Checkpoint(handoff=handoff, fence=fence, state=Raw(state), usd=money, **members)


def spend(handoff: str, fence: int, usd: str = "0", **members: Any) -> Spend:
    return Spend(handoff=handoff, fence=fence, usd=Raw(usd.encode()), **members)


def exactly(shown: float) -> Decimal:
    return Decimal(repr(shown))


def test_a_cap_may_be_reached() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_steps":2,"max_usd":0.5}'))
    world.run(checkpoint(handoff, fence, usd="0.2"))
    assert world.run(checkpoint(handoff, fence, usd="0.3")).seq == 2
    status = world.status(handoff)
    assert (status.status, status.steps, status.usd) == ("running", 2, 0.5)


@pytest.mark.parametrize(
    ("write", "cap", "limit", "used", "asked"),
    [
        (lambda h, f: checkpoint(h, f), "max_steps", 2, 2, 1),
        (lambda h, f: checkpoint(h, f, steps=MAX_STEPS), "max_steps", 2, 2, MAX_STEPS),
        (lambda h, f: checkpoint(h, f, steps=0, usd="0.000000001"), "max_usd", 1.5, 1.5, 1e-9),
        (lambda h, f: checkpoint(h, f, steps=0, usd="1e-300"), "max_usd", 1.5, 1.5, 1e-9),
        (lambda h, f: spend(h, f, steps=3), "max_steps", 2, 2, 3),
        (lambda h, f: spend(h, f, "8000000"), "max_usd", 1.5, 1.5, 8_000_000),
        (lambda h, f: spend(h, f, "1", steps=1), "max_steps", 2, 2, 1),
    ],
)
def test_the_write_that_would_pass_it_is_refused_and_parks_the_handoff(
    write: Any, cap: str, limit: float, used: float, asked: float
) -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"max_steps":2,"max_usd":1.5}'))
    mine = world.connect("mine")
    fence = world.claim(handoff, on=mine)
    world.run(checkpoint(handoff, fence, b'"kept"', steps=2, usd="1.5"))
    with pytest.raises(BudgetExceeded) as caught:
        world.run(write(handoff, fence), on=mine)
    details = caught.value.details
    lacking = details.pop("lacking")
    assert exactly(used) + exactly(asked) - exactly(limit) == exactly(lacking) > 0
    assert details == {"cap": cap, "limit": limit, "used": used, "asked": asked, "whose": handoff}
    told = "({used} of {limit} used, {asked} asked)".format_map(details)
    assert caught.value.message == f"This would pass {cap} {told}: parked as dead, with all it has."
    status = world.status(handoff)
    assert (status.status, status.steps, status.usd, status.seq) == ("dead", 2, 1.5, 1)
    assert status.reason.startswith(f"{cap}: ")
    assert bytes(world.run(LastCheckpoint(handoff=handoff)).checkpoint.state) == b'"kept"'
    assert world.heard[mine] == [LeaseLostEvent(handoff=handoff, fence=fence, why="dead", status="dead")]
    with pytest.raises(NotClaimable):
        world.claim(handoff)


def test_the_refused_write_sent_again_is_late_and_adds_nothing() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_steps":1}'))
    for write in (checkpoint(handoff, fence, steps=2), spend(handoff, fence, steps=2, nonce="n")):
        with pytest.raises(DHPError):
            world.run(write)
        n = world.facts(handoff).n
        with pytest.raises(LeaseLost) as caught:
            world.run(write)
        assert (caught.value.details["why"], caught.value.details["status"]) == ("dead", "dead")
        assert world.facts(handoff).n == n


def test_a_refusal_is_said_only_once_the_parking_is_on_disk() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_steps":0}'))
    call = world.send(checkpoint(handoff, fence))
    assert not call.answered
    world.fail_commit()
    assert call.answer.code == "store_unavailable"
    assert world.status(handoff).status == "running"
    with pytest.raises(BudgetExceeded):
        world.run(checkpoint(handoff, fence))


def test_an_exhausted_budget_still_takes_what_costs_nothing() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_steps":0,"max_usd":0}'))
    assert world.run(checkpoint(handoff, fence, steps=0, usd="0")).seq == 1
    assert world.run(spend(handoff, fence)).usd == 0
    assert world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1"))).duplicate is False


def test_without_caps_only_the_bounds_of_exact_sums_are_in_the_way() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(spend(handoff, fence, "8000000"))
    with pytest.raises(InvalidRequest) as caught:
        world.run(spend(handoff, fence, "1e-9"))
    assert caught.value.details == {"member": "usd", "limit": 8_000_000, "whose": handoff}
    status = world.status(handoff)
    assert (status.status, status.usd) == ("running", 8_000_000)


def test_an_ancestors_sum_at_its_bound_is_told_as_that_and_parks_nothing() -> None:
    world = World()
    parent = world.dispatch()
    parent_fence = world.claim(parent)
    child, fence = world.held(parent=parent)
    world.run(spend(child, fence, "8000000"))
    for handoff, held in ((parent, parent_fence), world.held(parent=parent)):
        for write in (spend(handoff, held, "1e-9"), checkpoint(handoff, held, usd="1")):
            with pytest.raises(InvalidRequest) as caught:
                world.run(write)
            assert caught.value.details == {"member": "usd", "limit": 8_000_000, "whose": parent}
            assert parent in caught.value.message
        assert world.run(checkpoint(handoff, held)).seq == 1, "what costs nothing is taken"
        assert world.status(handoff).status == "running"


@pytest.mark.parametrize(
    ("budget", "member"),
    [
        ('{"max_step":1}', "budget.max_step"),
        ('{"max_usd":null}', "budget.max_usd"),
        ('{"max_usd":-1}', "budget.max_usd"),
        ('{"max_usd":"1"}', "budget.max_usd"),
        ('{"max_usd":1e400}', "budget"),
        ('{"max_usd":8000001}', "budget.max_usd"),
        ('{"max_steps":-1}', "budget.max_steps"),
        ('{"max_steps":1.5}', "budget.max_steps"),
        ('{"max_steps":true}', "budget.max_steps"),
        ('{"max_steps":9007199254740992}', "budget.max_steps"),
        ('{"max_steps":1e999}', "budget"),
        ('{"max_steps":1,"max_steps":99}', "budget"),
        ('{"max_wallclock_ms":0}', "budget.max_wallclock_ms"),
        (f'{{"stall_ms":{MAX_DELAY_MS + 1}}}', "budget.stall_ms"),
        ('{"max_attempts":0}', "budget.max_attempts"),
        (f'{{"max_repeats":{MAX_ATTEMPTS + 1}}}', "budget.max_repeats"),
        ('{"max_stalls":0}', "budget.max_stalls"),
        ('{"max_invalid_results":0}', "budget.max_invalid_results"),
        ("[]", "budget"),
        ("null", "budget"),
        ('{"%s":1}' % ("x" * 2_000), f"budget.{'x' * 64}"),
        ('{"max_steps":1%s}' % (" " * 5_000), "budget"),
    ],
)
def test_caps_that_mean_nothing_are_refused_at_the_door(budget: str, member: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        World(limits=Limits()).dispatch(budget=Raw(budget.encode()))
    assert caught.value.details["member"] == member


def test_status_shows_the_caps_in_force_and_the_defaults() -> None:
    world = World()
    budget = world.status(world.dispatch(budget=Raw(b'{"max_usd":0.1,"max_steps":0}'))).budget
    assert budget == {"max_usd": 0.1, "max_steps": 0, "max_attempts": 3, "max_stalls": 2, "max_invalid_results": 3}


def add(handoff: str, caps: str, **members: Any) -> BudgetAdd:
    return BudgetAdd(handoff=handoff, add=Raw(caps.encode()), **members)


def test_budget_add_adds_to_each_cap_named_and_is_recorded() -> None:
    world = World()
    caps = ",".join(f'"{cap}":{1_000 if cap.endswith("_ms") else 2}' for cap in CAPS)
    handoff, fence = world.held(budget=Raw(f"{{{caps}}}".encode()))
    reply = world.run(add(handoff, '{"max_usd":0.5,"max_steps":3,"max_wallclock_ms":7}'))
    assert (reply.budget["max_usd"], reply.budget["max_steps"], reply.budget["max_wallclock_ms"]) == (2.5, 5, 1_007)
    assert reply.budget == world.status(handoff).budget
    last = world.run(History(handoff=handoff)).records[-1]
    assert (last["type"], last["budget"], last["fence"]) == ("budget_added", reply.budget, fence)
    assert world.run(checkpoint(handoff, fence, steps=5)).seq == 1, "the hold goes on"


def test_budget_add_with_a_nonce_adds_once() -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"max_steps":1}'))
    first = world.run(add(handoff, '{"max_steps":1}', nonce="n"))
    assert world.run(add(handoff, '{"max_steps":1}', nonce="n")) == first
    assert world.run(add(handoff, '{"max_steps":1}', nonce="m")).budget["max_steps"] == 3
    assert world.run(add(handoff, '{"max_steps":1}')).budget["max_steps"] == 4


def test_a_nonce_of_one_operation_is_none_of_another() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_steps":5}'))
    assert world.run(spend(handoff, fence, steps=1, nonce="1")).steps == 1
    assert world.run(add(handoff, '{"max_steps":1}', nonce="1")).budget["max_steps"] == 6


@pytest.mark.parametrize(
    ("caps", "member"),
    [
        ("{}", "add"),
        ('{"max_usd":1}', "add.max_usd"),
        ('{"max_steps":0}', "add.max_steps"),
        ('{"max_steps":-1}', "add.max_steps"),
        (f'{{"max_steps":{MAX_SAFE_INTEGER}}}', "add.max_steps"),
        ('{"max_steps":1,"max_steps":1}', "add"),
        ('{"max_stepz":1}', "add.max_stepz"),
        ('{"max_steps":1,"stall_ms":5}', "add.stall_ms"),
        ("1", "add"),
    ],
)
def test_what_cannot_be_added_is_refused_and_changes_nothing(caps: str, member: str) -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"max_steps":1}'))
    before = world.facts(handoff)
    with pytest.raises(InvalidRequest) as caught:
        world.run(add(handoff, caps))
    assert caught.value.details["member"] == member
    assert world.facts(handoff) is before


def test_budget_add_works_until_the_work_is_completed_or_cancelled() -> None:
    world = World()
    budget = Raw(b'{"max_steps":1}')
    dead, fence = world.held(budget=budget)
    with pytest.raises(BudgetExceeded):
        world.run(checkpoint(dead, fence, steps=2))
    suspended = world.dispatch(budget=budget)
    world.run(Suspend(handoff=suspended))
    orphaned, _ = world.held(budget=budget)
    world.advance(TTL_MS)
    for handoff, status in ((dead, "dead"), (suspended, "suspended"), (orphaned, "orphaned")):
        assert world.run(add(handoff, '{"max_steps":1}')).budget["max_steps"] == 2
        assert world.status(handoff).status == status, "it brings nothing back by itself"
    cancelled = world.dispatch(budget=budget)
    world.run(Cancel(handoff=cancelled))
    completed, fence = world.held(budget=budget)
    world.run(Complete(handoff=completed, fence=fence, result=Raw(b"1")))
    for handoff, status in ((cancelled, "cancelled"), (completed, "completed")):
        with pytest.raises(WrongState) as caught:
            world.run(add(handoff, '{"max_steps":1}'))
        assert caught.value.details["status"] == status
