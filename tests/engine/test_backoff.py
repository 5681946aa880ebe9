"""Failed work waits before it is tried again: longer each time, never too long, and not all at the same moment."""

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec import Raw

from dhp_protocol.errors import NotClaimable
from dhp_protocol.limits import MAX_ATTEMPTS
from dhp_protocol.messages import Claim, Fail, Release, WorkError
from dhpd.engine.holding import FIRST_BACKOFF_MS, MAX_BACKOFF_MS, backoff_ms
from tests.support.engine_world import TTL_MS, World

OOPS = WorkError(type="Oops", message="it broke")


def test_it_doubles_and_is_bounded() -> None:
    longest = [backoff_ms(failures, 0.999999999) + 1 for failures in range(1, 30)]
    assert longest[:4] == [FIRST_BACKOFF_MS * 2**doublings for doublings in range(4)]
    assert longest == sorted(longest)
    assert longest[-1] == MAX_BACKOFF_MS


@given(st.integers(1, MAX_ATTEMPTS), st.floats(0, 1, exclude_max=True))
def test_chance_spreads_it_over_the_upper_half(failures: int, chance: float) -> None:
    longest_ms = min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** min(failures - 1, 40))
    assert longest_ms // 2 <= backoff_ms(failures, chance) <= longest_ms


def test_each_handoff_gets_a_chance_of_its_own() -> None:
    world = World()
    chances = iter([0.0, 0.25, 0.75])
    world.engine.chance = lambda: next(chances)
    waits = []
    for _ in range(3):
        handoff, fence = world.held()
        world.run(Fail(handoff=handoff, fence=fence, error=OOPS))
        with pytest.raises(NotClaimable) as caught:
            world.claim(handoff)
        waits.append(caught.value.after_ms)
    assert waits == [100, 125, 175]


def test_failed_work_is_claimable_once_its_wait_is_over_and_waiters_get_it_then() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Fail(handoff=handoff, fence=fence, error=OOPS))
    wait_ms = backoff_ms(1, 0.5)
    call = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    world.advance(wait_ms - 1)
    assert not call.answered
    world.advance(1)
    assert call.result().handoff == handoff


def test_it_outlives_a_restart() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Fail(handoff=handoff, fence=fence, error=OOPS))
    world.restart(after_ms=100)
    with pytest.raises(NotClaimable) as caught:
        world.claim(handoff)
    assert caught.value.after_ms == backoff_ms(1, 0.5) - 100


def test_a_delay_that_is_given_wins_and_zero_is_at_once() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_attempts":9}'))
    world.run(Fail(handoff=handoff, fence=fence, error=OOPS, delay_ms=0))
    fence = world.claim(handoff)
    world.run(Fail(handoff=handoff, fence=fence, error=OOPS, delay_ms=70_000))
    world.advance(69_999)
    with pytest.raises(NotClaimable) as caught:
        world.claim(handoff)
    assert caught.value.after_ms == 1
    world.advance(1)
    world.claim(handoff)


def test_crashes_count_towards_it_and_are_taken_over_at_once() -> None:
    world = World()
    handoff, _ = world.held(budget=Raw(b'{"max_attempts":9}'))
    world.advance(TTL_MS)
    fence = world.claim(handoff)
    world.run(Fail(handoff=handoff, fence=fence, error=OOPS))
    assert world.facts(handoff).not_before_ms - world.now.wall_ms == backoff_ms(2, 0.5)


def test_releases_wait_only_as_long_as_they_say() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Release(handoff=handoff, fence=fence))
    fence = world.claim(handoff)
    world.run(Release(handoff=handoff, fence=fence, delay_ms=500))
    with pytest.raises(NotClaimable) as caught:
        world.claim(handoff)
    assert caught.value.after_ms == 500


def test_the_same_failure_reported_again_waits_no_longer() -> None:
    world = World()
    handoff, fence = world.held()
    request = Fail(handoff=handoff, fence=fence, error=OOPS)
    world.run(request)
    world.advance(100)
    assert world.run(request).duplicate
    facts = world.facts(handoff)
    assert (facts.failures, facts.not_before_ms - world.now.wall_ms) == (1, backoff_ms(1, 0.5) - 100)
