"""The wall-clock cap: everything since the first claim, whatever the handoff does meanwhile."""

import pytest
from msgspec import Raw

from dhp_protocol.errors import LeaseLost
from dhp_protocol.messages import BudgetAdd, Checkpoint, Claim, Dispatch, History, Release, Suspend
from dhp_protocol.replies import LeaseLostEvent
from tests.support.engine_world import TTL_MS, Outcome, World

CAPPED_MS = 10_000
CAPPED = Raw(b'{"max_wallclock_ms":10000,"max_attempts":9}')


def test_the_wall_clock_cap_counts_from_the_first_claim_and_fires_by_itself() -> None:
    world = World()
    handoff = world.dispatch(budget=CAPPED)
    world.advance(3 * CAPPED_MS)
    mine = world.connect("mine")
    fence = world.claim(handoff, on=mine, ttl_ms=2 * CAPPED_MS)
    world.advance(CAPPED_MS - 1)
    assert world.facts(handoff).status == "running"
    world.advance(1)
    assert world.status(handoff).status == "dead"
    assert world.heard[mine] == [LeaseLostEvent(handoff=handoff, fence=fence, why="dead", status="dead")]
    last = world.run(History(handoff=handoff)).records[-1]
    assert (last["type"], last["cap"]) == ("dead", "max_wallclock_ms")


@pytest.mark.parametrize("status", ["pending", "running", "orphaned", "suspended"])
def test_in_every_live_state(status: str) -> None:
    world = World()
    handoff = world.dispatch(budget=CAPPED)
    fence = world.claim(handoff, ttl_ms=2 * CAPPED_MS if status == "running" else TTL_MS)
    if status == "pending":
        world.run(Release(handoff=handoff, fence=fence, delay_ms=3 * CAPPED_MS))
    elif status == "suspended":
        world.run(Suspend(handoff=handoff, fence=fence, wake_ms=1_000_000))
    world.advance(CAPPED_MS - 1)
    assert world.facts(handoff).status == status
    world.advance(1)
    assert world.facts(handoff).status == "dead"


def test_a_write_at_its_moment_is_late_though_no_tick_has_come() -> None:
    world = World()
    handoff = world.dispatch(budget=CAPPED)
    fence = world.claim(handoff, ttl_ms=2 * CAPPED_MS)
    world.jump(CAPPED_MS)
    with pytest.raises(LeaseLost) as caught:
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"{}")))
    assert caught.value.details["why"] == "dead"


def test_more_time_moves_its_moment() -> None:
    world = World()
    handoff = world.dispatch(budget=CAPPED)
    world.claim(handoff, ttl_ms=4 * CAPPED_MS)
    world.advance(CAPPED_MS - 1)
    world.run(BudgetAdd(handoff=handoff, add=Raw(b'{"max_wallclock_ms":5000}')))
    world.advance(5_000)
    assert world.facts(handoff).status == "running"
    world.advance(1)
    assert world.facts(handoff).status == "dead"


def test_after_another_thing_was_due_it_still_fires_once() -> None:
    world = World()
    handoff, fence = world.held(budget=CAPPED)
    world.run(Suspend(handoff=handoff, fence=fence, wake_ms=1_000))
    world.advance(2_000)
    assert world.facts(handoff).status == "pending"
    world.advance(2 * CAPPED_MS)
    assert world.facts(handoff).status == "dead"


def test_a_daemon_that_was_down_makes_up_for_it_at_its_start() -> None:
    world = World()
    handoff = world.dispatch(budget=CAPPED)
    world.claim(handoff, ttl_ms=2 * CAPPED_MS)
    world.restart(after_ms=3 * CAPPED_MS)
    assert world.status(handoff).status == "dead"


def test_a_wall_clock_that_is_set_back_only_defers_it() -> None:
    world = World()
    handoff = world.dispatch(budget=CAPPED)
    world.claim(handoff, ttl_ms=9 * CAPPED_MS)
    world.jump(1_000, wall_ms=-5_000)
    world.advance(CAPPED_MS)
    assert world.facts(handoff).status == "running"
    world.advance(5_000)
    assert world.status(handoff).status == "dead"


def test_a_claim_that_waits_for_it_hears_of_its_end() -> None:
    world = World()
    handoff = world.dispatch(budget=CAPPED)
    world.claim(handoff, ttl_ms=2 * CAPPED_MS)
    call = world.send(Claim(worker="bob", handoff=handoff, wait_ms=60_000))
    world.advance(CAPPED_MS)
    world.commit()
    assert call.answer.code == "not_claimable"


def test_a_write_past_its_moment_is_late_though_a_tick_has_put_that_off() -> None:
    world = World()
    handoff = world.dispatch(budget=CAPPED)
    fence = world.claim(handoff, ttl_ms=2 * CAPPED_MS)
    world.send(Dispatch(kind="other", inputs=Raw(b"{}")))
    world.take()
    world.lose_or_keep(Outcome.FAILS)
    world.jump(CAPPED_MS)
    tick = world.engine.tick_in_steps(world.now)
    next(tick)  # While the store is away nothing can end.
    world.find_out()
    with pytest.raises(LeaseLost) as caught:
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"{}")))
    assert caught.value.details["why"] == "dead"
    tick.close()
