"""Until when a holder may write: exactly until its deadline, which every sign of life moves."""

from collections.abc import Callable

import pytest
from msgspec import Raw

from dhp_protocol.errors import DHPError, LeaseLost
from dhp_protocol.messages import Cancel, Checkpoint, Complete, Heartbeat, LeaseRef, Request
from dhp_protocol.replies import CancelledEvent, HeartbeatReply, LeaseLostEvent
from tests.support.engine_world import TTL_MS, World


def checkpoint(handoff: str, fence: int, state: bytes = b"{}", **members: int) -> Checkpoint:
    return Checkpoint(handoff=handoff, fence=fence, state=Raw(state), **members)  # type: ignore[arg-type]


def heartbeat(*leases: tuple[str, int]) -> Heartbeat:
    return Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence) for handoff, fence in leases])


def test_a_write_just_before_the_deadline_is_taken() -> None:
    world = World()
    handoff, fence = world.held()
    world.jump(TTL_MS - 1)
    assert world.run(checkpoint(handoff, fence)).seq == 1


def test_a_write_at_the_deadline_is_refused_though_no_tick_has_come() -> None:
    world = World()
    handoff, fence = world.held()
    world.jump(TTL_MS)
    with pytest.raises(LeaseLost) as caught:
        world.run(checkpoint(handoff, fence))
    assert caught.value.details == {"why": "expired", "fence": fence + 1, "status": "orphaned", "handoff": handoff}


def test_a_tick_at_the_deadline_ends_the_lease_and_one_before_does_not() -> None:
    world = World()
    handoff, _ = world.held()
    world.jump(TTL_MS - 1)
    world.tick()
    assert world.facts(handoff).status == "running"
    world.jump(1)
    world.tick()
    assert world.facts(handoff).status == "orphaned"


def test_the_next_tick_is_wanted_at_the_first_deadline() -> None:
    world = World()
    world.held()
    world.claim(world.dispatch(), ttl_ms=700)
    deadline_ms = world.now.lease_ms + 700
    while (next_ms := world.engine.next_tick_ms(world.now)) < deadline_ms:
        world.jump(next_ms - world.now.lease_ms)
        world.tick()
    assert next_ms == deadline_ms


RENEWALS: dict[str, Callable[[str, int], Request]] = {
    "heartbeat": lambda handoff, fence: heartbeat((handoff, fence)),
    "write": lambda handoff, fence: checkpoint(handoff, fence, seq=2),
    "duplicate": lambda handoff, fence: checkpoint(handoff, fence, seq=1),
}


@pytest.mark.parametrize("renew", RENEWALS.values(), ids=RENEWALS.keys())
def test_a_sign_of_life_gives_a_full_ttl_from_then(renew: Callable[[str, int], Request]) -> None:
    world = World()
    handoff, fence = world.held()
    world.run(checkpoint(handoff, fence))
    world.advance(TTL_MS - 1)
    world.run(renew(handoff, fence))
    assert world.deadline_ms(handoff) == TTL_MS
    world.advance(TTL_MS - 1)
    assert world.facts(handoff).status == "running"
    world.advance(1)
    assert world.facts(handoff).status == "orphaned"


def test_a_refused_write_does_not_renew() -> None:
    world = World()
    handoff, fence = world.held()
    world.advance(1_000)
    for request in (checkpoint(handoff, fence + 1), checkpoint(handoff, fence, seq=7), checkpoint(handoff, fence - 1)):
        with pytest.raises(DHPError):
            world.run(request)
    assert world.deadline_ms(handoff) == TTL_MS - 1_000


def test_a_lease_is_as_long_as_asked_for() -> None:
    world = World()
    handoff = world.dispatch()
    world.claim(handoff, ttl_ms=90_000)
    world.advance(89_999)
    assert world.facts(handoff).status == "running"
    world.advance(1)
    assert world.facts(handoff).status == "orphaned"


def test_a_holder_that_renews_in_time_is_never_orphaned() -> None:
    world = World()
    handoff, fence = world.held()
    for _ in range(100):
        world.advance(TTL_MS // 3)
        assert world.run(heartbeat((handoff, fence))).renewed == [handoff]
    assert world.facts(handoff).fence == fence


def test_one_heartbeat_renews_many_leases_and_names_those_that_are_lost() -> None:
    world = World()
    kept = [world.held() for _ in range(3)]
    handoff, fence = world.held()
    world.run(Cancel(handoff=handoff))
    reply = world.run(heartbeat(*kept, (handoff, fence), ("0" * 64, 1)))
    assert reply == HeartbeatReply(renewed=[handoff for handoff, _ in kept], lost=[handoff, "0" * 64])


def test_a_heartbeat_at_the_deadline_ends_the_lease_and_the_next_one_tells() -> None:
    world = World()
    handoff, fence = world.held()
    world.jump(TTL_MS)
    assert world.run(heartbeat((handoff, fence))) == HeartbeatReply(renewed=[], lost=[]), "a crash could bring it back"
    assert world.facts(handoff).status == "orphaned"
    assert world.run(heartbeat((handoff, fence))).lost == [handoff]


def test_complete_ends_the_lease_and_the_deadline_means_nothing_any_more() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    assert world.engine.leases.get(handoff, fence) is None
    world.advance(2 * TTL_MS)
    assert world.facts(handoff).status == "completed"


def test_the_wall_clock_moves_no_lease() -> None:
    world = World()
    handoff, _ = world.held()
    world.jump(0, wall_ms=3_600_000)
    world.tick()
    assert world.facts(handoff).status == "running"
    world.jump(0, wall_ms=-7_200_000)
    world.jump(TTL_MS, wall_ms=0)
    world.tick()
    assert world.facts(handoff).status == "orphaned"


def test_every_connection_of_the_session_hears_that_its_lease_ended() -> None:
    world = World()
    one, two, other = world.connect("mine"), world.connect("mine"), world.connect("theirs")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=one)
    world.advance(TTL_MS)
    lost = LeaseLostEvent(handoff=handoff, fence=fence, why="expired", status="orphaned")
    assert (world.heard[one], world.heard[two], world.heard[other]) == ([lost], [lost], [])


def test_the_last_failure_is_told_as_dead() -> None:
    world = World()
    one = world.connect("mine")
    handoff = world.dispatch(budget=Raw(b'{"max_attempts":1}'))
    fence = world.claim(handoff, on=one)
    world.advance(TTL_MS)
    assert world.heard[one] == [LeaseLostEvent(handoff=handoff, fence=fence, why="expired", status="dead")]


def test_the_session_hears_that_its_work_was_cancelled() -> None:
    world = World()
    one = world.connect("mine")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=one)
    world.run(Cancel(handoff=handoff, reason="no need"))
    assert world.heard[one] == [CancelledEvent(handoff=handoff, fence=fence, reason="no need")]


@pytest.mark.parametrize("members", [{"detached": True}, {}], ids=["detached", "without hello"])
def test_whoever_named_no_session_hears_nothing(members: dict[str, bool]) -> None:
    world = World()
    handoff = world.dispatch()
    world.claim(handoff, **members)
    world.advance(TTL_MS)
    assert world.facts(handoff).status == "orphaned"
    assert world.heard[world.home] == []
