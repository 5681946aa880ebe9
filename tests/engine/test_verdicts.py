"""While the daemon judges a result, its holder's lease doesn't end by itself; whatever else ends a hold still does."""

import pytest
from msgspec import Raw

from dhp_protocol.errors import LeaseLost, ResultInvalid
from dhp_protocol.messages import Cancel, Complete
from dhpd.engine.leases import Lease
from dhpd.engine.roles import Caller
from dhpd.engine.waiting import Address
from tests.support.engine_world import TTL_MS, World

AT_MOST_MS = 100_000


def complete(handoff: str, fence: int) -> Complete:
    return Complete(handoff=handoff, fence=fence, result=Raw(b'"done"'))


def unfit() -> ResultInvalid:
    return ResultInvalid("It doesn't fit.", path="", rule="type")


def comes(world: World, handoff: str, fence: int, *, on: int | None = None) -> Lease | None:
    to = Address(world.home if on is None else on, 0, False)
    return world.engine.await_verdict(complete(handoff, fence), to, world.now, AT_MOST_MS)


def came(world: World, lease: Lease | None) -> None:
    assert lease is not None
    world.engine.verdict_came(lease, world.now)


def test_the_lease_outlives_its_ttl_until_the_verdict_has_come() -> None:
    world = World()
    handoff, fence = world.held()
    world.advance(TTL_MS - 1)
    lease = comes(world, handoff, fence)
    world.advance(10 * TTL_MS)
    assert world.facts(handoff).status == "running"
    world.run(complete(handoff, fence))
    came(world, lease)
    assert world.facts(handoff).status == "completed"


def test_after_a_verdict_there_is_a_full_ttl_to_mend_the_result() -> None:
    world = World()
    handoff, fence = world.held()
    lease = comes(world, handoff, fence)
    world.advance(3 * TTL_MS)
    with pytest.raises(ResultInvalid):
        world.run(complete(handoff, fence), verdict=unfit())
    came(world, lease)
    assert world.deadline_ms(handoff) == TTL_MS
    world.advance(TTL_MS)
    assert world.facts(handoff).status == "orphaned"


def test_a_verdict_that_comes_at_once_renews_too() -> None:
    world = World()
    handoff, fence = world.held()
    world.advance(TTL_MS - 1)
    with pytest.raises(ResultInvalid):
        world.run(complete(handoff, fence), verdict=unfit())
    assert world.deadline_ms(handoff) == TTL_MS


def test_a_verdict_that_does_not_come_holds_the_lease_for_a_bounded_time() -> None:
    world = World()
    handoff, fence = world.held()
    lease = comes(world, handoff, fence)
    world.advance(AT_MOST_MS - 1)
    assert world.facts(handoff).status == "running"
    world.advance(1)
    assert world.facts(handoff).status == "orphaned"
    assert world.facts(handoff).failures == 1
    again = world.claim(handoff, "ben")
    came(world, lease)
    assert world.deadline_ms(handoff) == TTL_MS
    with pytest.raises(LeaseLost):
        world.run(complete(handoff, fence))
    assert world.run(complete(handoff, again)).duplicate is False


def test_of_several_verdicts_the_last_counts() -> None:
    world = World()
    handoff, fence = world.held()
    first, second = comes(world, handoff, fence), comes(world, handoff, fence, on=world.connect())
    came(world, first)
    world.advance(2 * TTL_MS)
    assert world.facts(handoff).status == "running"
    came(world, second)
    assert world.deadline_ms(handoff) == TTL_MS


def test_the_stall_clock_stands_meanwhile() -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"stall_ms":3000}'))
    fence = world.claim(handoff, ttl_ms=TTL_MS)
    world.advance(1_000)
    lease = comes(world, handoff, fence)
    world.advance(20_000)
    assert world.facts(handoff).status == "running"
    came(world, lease)
    assert world.deadline_ms(handoff) == 2_000
    world.advance(2_000)
    assert (world.facts(handoff).status, world.facts(handoff).stalls) == ("orphaned", 1)


def test_a_session_that_is_gone_costs_the_lease_as_ever() -> None:
    world = World()
    connection = world.connect()
    handoff = world.dispatch()
    fence = world.claim(handoff, on=connection)
    comes(world, handoff, fence, on=connection)
    world.disconnect(connection)
    world.advance(250)
    assert world.facts(handoff).status == "orphaned"


def test_a_cancel_and_a_cap_on_time_hold_as_ever() -> None:
    world = World()
    cancelled, fence = world.held()
    lease = comes(world, cancelled, fence)
    assert world.run(Cancel(handoff=cancelled)).status == "cancelled"
    came(world, lease)
    capped, fence = world.held(budget=Raw(b'{"max_wallclock_ms":10000}'))
    comes(world, capped, fence)
    world.advance(10_000)
    assert world.facts(capped).status == "dead"


def test_only_its_holder_s_result_holds_a_lease() -> None:
    world = World()
    handoff, fence = world.held()
    stranger = Address(world.home, 0, False, Caller("other", ("worker",)))
    world.advance(1_000)
    assert world.engine.await_verdict(complete(handoff, fence), stranger, world.now, AT_MOST_MS) is None
    assert comes(world, handoff, fence + 1) is None
    assert comes(world, "0" * 64, fence) is None
    assert world.deadline_ms(handoff) == TTL_MS - 1_000
    world.jump(TTL_MS - 1_000)
    assert comes(world, handoff, fence) is None, "at the deadline it is lost, though no tick has come"
    world.tick()
    assert world.facts(handoff).status == "orphaned"
