"""Sessions: whose leases go with a connection, when, and how they come back."""

from itertools import count

import pytest
from msgspec import Raw

from dhp_protocol.errors import LeaseLost
from dhp_protocol.messages import Checkpoint, Goodbye, Heartbeat, Hello, LeaseRef
from dhpd.engine.leases import Lease
from dhpd.engine.sessions import GRACE_LOCAL_MS, Sessions, disconnect_grace_ms
from tests.support.engine_world import TTL_MS, World


def test_the_grace_is_short_on_the_same_machine_and_a_good_third_of_the_ttl_elsewhere() -> None:
    assert disconnect_grace_ms(6_000, local=True) == 250
    assert disconnect_grace_ms(6_000, local=False) == 2_500


@pytest.mark.parametrize(("local", "grace_ms"), [(True, 250), (False, 2_500)])
def test_a_lost_connection_shortens_the_lease_to_the_grace(local: bool, grace_ms: int) -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    world.claim(handoff, on=mine)
    world.disconnect(mine, local=local)
    world.advance(grace_ms - 1)
    assert world.facts(handoff).status == "running"
    world.advance(1)
    assert world.facts(handoff).status == "orphaned"


def test_the_grace_never_lengthens_a_lease() -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    world.claim(handoff, on=mine)
    world.advance(TTL_MS - 100)
    world.disconnect(mine)
    world.advance(100)
    assert world.facts(handoff).status == "orphaned"


def test_a_lease_stays_while_another_connection_of_the_session_lives() -> None:
    world = World()
    one, two, handoff = world.connect("mine"), world.connect("mine"), world.dispatch()
    world.claim(handoff, on=one)
    world.disconnect(one)
    assert world.deadline_ms(handoff) == TTL_MS
    world.disconnect(two)
    assert world.deadline_ms(handoff) == GRACE_LOCAL_MS


def test_a_hello_of_the_same_session_within_the_grace_restores_the_lease() -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    world.claim(handoff, on=mine)
    world.advance(1_000)
    world.disconnect(mine)
    world.advance(249)
    world.connect("mine")
    assert world.deadline_ms(handoff) == TTL_MS - 1_249
    world.advance(TTL_MS - 1_250)
    assert world.facts(handoff).status == "running"


def test_a_hello_of_another_session_restores_nothing() -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    world.claim(handoff, on=mine)
    world.disconnect(mine)
    world.connect("yours")
    assert world.deadline_ms(handoff) == GRACE_LOCAL_MS


def test_a_hello_at_the_end_of_the_grace_is_too_late_though_no_tick_has_come() -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    fence = world.claim(handoff, on=mine)
    world.disconnect(mine)
    world.jump(GRACE_LOCAL_MS)
    again = world.connect("mine")
    with pytest.raises(LeaseLost):
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")), on=again)


def test_an_end_that_could_not_be_committed_is_not_taken_back_by_a_hello() -> None:
    """The old holder was refused already: it stays so."""
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    fence = world.claim(handoff, on=mine)
    world.disconnect(mine)
    world.jump(GRACE_LOCAL_MS)
    world.tick()
    again = world.connect()
    world.send(Hello(session="mine"), on=again)
    world.fail_commit()
    with pytest.raises(LeaseLost):
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")), on=again)


@pytest.mark.parametrize("left_ms", [5_000, 100], ids=["a lease longer than the grace", "a shorter one"])
def test_a_renewal_by_somebody_else_does_not_lengthen_the_grace(left_ms: int) -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    fence = world.claim(handoff, on=mine)
    world.advance(TTL_MS - left_ms)
    world.disconnect(mine)
    world.run(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)]))
    assert world.deadline_ms(handoff) == GRACE_LOCAL_MS
    world.connect("mine")
    assert world.deadline_ms(handoff) == TTL_MS, "the session is back, and the renewal counts"


def test_a_detached_lease_hangs_on_no_connection() -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    fence = world.claim(handoff, on=mine, detached=True)
    world.run(Goodbye(), on=mine)
    world.disconnect(mine)
    assert world.facts(handoff).fence == fence
    assert world.deadline_ms(handoff) == TTL_MS


def test_goodbye_releases_all_that_the_session_holds_at_once() -> None:
    world = World()
    mine, also_mine, theirs = world.connect("mine"), world.connect("mine"), world.connect("theirs")
    handoffs = [world.dispatch() for _ in range(3)]
    fences = [world.claim(handoff, on=on) for handoff, on in zip(handoffs, (mine, also_mine, theirs), strict=True)]
    world.run(Goodbye(), on=also_mine)
    assert [world.facts(handoff).status for handoff in handoffs] == ["pending", "pending", "running"]
    assert world.facts(handoffs[0]).failures == 0
    with pytest.raises(LeaseLost) as caught:
        world.run(Checkpoint(handoff=handoffs[0], fence=fences[0], state=Raw(b"1")), on=mine)
    assert caught.value.details["why"] == "released"


def test_goodbye_is_answered_when_it_is_durable() -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    world.claim(handoff, on=mine)
    call = world.send(Goodbye(), on=mine)
    assert not call.answered
    world.commit()
    assert call.answered


def test_a_connection_without_hello_is_a_session_of_its_own() -> None:
    world = World()
    mine, handoff = world.connect(), world.dispatch()
    world.claim(handoff, on=mine)
    world.disconnect(mine)
    assert world.deadline_ms(handoff) == GRACE_LOCAL_MS


def test_a_later_hello_takes_the_leases_along() -> None:
    world = World()
    first, handoff = world.connect(), world.dispatch()
    world.claim(handoff, on=first)
    other = world.connect("mine")
    world.run(Hello(session="mine"), on=first)
    world.disconnect(first)
    assert world.deadline_ms(handoff) == TTL_MS, "the session has another connection"
    world.disconnect(other)
    assert world.deadline_ms(handoff) == GRACE_LOCAL_MS


def test_a_hello_with_another_session_leaves_the_leases_where_they_were_claimed() -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    world.claim(handoff, on=mine)
    world.run(Hello(session="yours"), on=mine)
    world.run(Goodbye(), on=mine)
    assert world.facts(handoff).status == "running"
    assert world.deadline_ms(handoff) == GRACE_LOCAL_MS, "its session has no connection any more"


def test_hello_tells_the_grace_that_counts_for_the_connection() -> None:
    world = World()
    near, far = world.connect(), world.connect(local=False)
    assert world.run(Hello(session="mine"), on=near).lease.disconnect_grace_ms == 250
    assert world.run(Hello(session="mine"), on=far).lease.disconnect_grace_ms == TTL_MS // 3 + 500


def test_a_hello_without_a_name_gets_one_that_nobody_guesses() -> None:
    world = World()
    one, two = world.connect(), world.connect()
    names = {world.run(Hello(), on=one).session, world.run(Hello(), on=two).session}
    assert len(names) == 2
    assert all(name.startswith("fresh-") for name in names)


def test_a_second_hello_with_the_same_name_changes_nothing() -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    world.claim(handoff, on=mine)
    world.run(Hello(session="mine"), on=mine)
    assert world.deadline_ms(handoff) == TTL_MS
    world.run(Goodbye(), on=mine)
    assert world.facts(handoff).status == "pending"


# --- the table of sessions itself -----------------------------------------------------------------------------------


def table() -> Sessions:
    numbers = count(1)
    return Sessions(lambda: f"own-{next(numbers)}")


def lease(session: str, *, handoff: str = "h", fence: int = 1) -> Lease:
    return Lease(handoff, fence, TTL_MS, session, False, TTL_MS)


def test_a_session_is_forgotten_with_its_last_connection_and_lease() -> None:
    sessions = table()
    sessions.open(1)
    sessions.hello(1, "mine")
    held = lease("mine")
    sessions.attach(held)
    found = sessions.close(1)
    assert found is not None
    assert found[1], "that was its last connection"
    assert sessions.named("mine") is not None
    sessions.detach(held)
    assert sessions.named("mine") is None
    assert len(sessions) == 0


def test_a_connection_ends_once() -> None:
    sessions = table()
    sessions.open(1)
    assert sessions.close(1) is not None
    assert sessions.close(1) is None
    assert sessions.of(1) is None


def test_a_session_known_from_before_a_restart_waits_for_its_client() -> None:
    sessions = table()
    held = lease("mine")
    sessions.attach(held)
    sessions.open(1)
    session, left = sessions.hello(1, "mine")
    assert (list(session.leases), left) == ([held], None)
    assert sessions.connections() == 1
