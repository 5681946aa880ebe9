"""A claim that is sent again isn't a second claim."""

from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.errors import LeaseLost
from dhp_protocol.messages import Cancel, Claim, Complete, Goodbye, Hello, Recover, Release
from dhp_protocol.replies import NothingToClaim
from tests.support.engine_world import TTL_MS, World

TEN_MINUTES_MS = 600_000


def claim(worker: str = "bob", nonce: str = "n1", **members: Any) -> Claim:
    if "handoff" not in members:
        members.setdefault("kinds", ["work"])
    return Claim(worker=worker, nonce=nonce, **members)


def test_the_same_nonce_gets_the_same_lease_back_renewed() -> None:
    world = World()
    handoff = world.dispatch()
    world.dispatch()
    first = world.run(claim())
    world.advance(2_000)
    again = world.run(claim(), on=world.connect("another connection"))
    assert (again.handoff, again.fence, again.attempt) == (handoff, first.fence, 1)
    assert world.deadline_ms(handoff) == TTL_MS


def test_by_name_and_as_recover_too() -> None:
    world = World()
    handoff, _ = world.orphaned()
    first = world.run(Recover(worker="bob", handoff=handoff, nonce="n1"))
    assert world.run(Recover(worker="bob", handoff=handoff, nonce="n1")).fence == first.fence
    assert world.run(claim(handoff=handoff)).fence == first.fence


def test_another_worker_or_another_nonce_is_another_claim() -> None:
    world = World()
    handoffs = [world.dispatch() for _ in range(3)]
    got = [world.run(request).handoff for request in (claim(), claim(worker="eve"), claim(nonce="n2"))]
    assert got == handoffs


def test_it_takes_over_the_place_of_one_that_still_waits() -> None:
    world = World()
    first = world.send(claim(wait_ms=60_000), on=world.connect())
    behind = world.send(claim(worker="eve", wait_ms=60_000))
    again = world.send(claim(wait_ms=60_000), on=world.connect())
    assert first.result() == NothingToClaim(), "the old request ends as empty"
    handoff = world.dispatch()
    assert again.result().handoff == handoff
    assert not behind.answered


@pytest.mark.parametrize("end", ["release", "cancel", "complete", "expiry", "take-over"])
def test_once_the_lease_has_ended_it_is_lost(end: str) -> None:
    world = World()
    handoff = world.dispatch()
    fence = world.run(claim()).fence
    if end == "release":
        world.run(Release(handoff=handoff, fence=fence))
    elif end == "cancel":
        world.run(Cancel(handoff=handoff))
    elif end == "complete":
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    else:
        world.advance(TTL_MS)
        if end == "take-over":
            world.claim(handoff, "eve")
    with pytest.raises(LeaseLost):
        world.run(claim())


def test_it_is_lost_at_the_deadline_though_no_tick_has_come() -> None:
    world = World()
    world.dispatch()
    world.run(claim())
    world.jump(TTL_MS)
    with pytest.raises(LeaseLost) as caught:
        world.run(claim())
    assert caught.value.details["why"] == "expired"


def test_it_is_forgotten_ten_minutes_after_the_lease() -> None:
    world = World()
    handoff = world.dispatch()
    fence = world.run(claim()).fence
    world.run(Release(handoff=handoff, fence=fence))
    world.advance(TEN_MINUTES_MS)
    with pytest.raises(LeaseLost):
        world.run(claim())
    world.advance(1_001)
    assert world.run(claim()).fence == fence + 2


def test_it_survives_a_restart_of_the_daemon() -> None:
    world = World()
    handoff = world.dispatch()
    fence = world.run(claim()).fence
    world.restart()
    again = world.run(claim())
    assert (again.handoff, again.fence) == (handoff, fence)


def end_of(world: World, handoff: str, fence: int, end: str) -> None:
    if end == "release":
        world.run(Release(handoff=handoff, fence=fence))
    elif end == "complete":
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    else:
        world.advance(TTL_MS)


@pytest.mark.parametrize("end", ["release", "complete", "expiry"])
@pytest.mark.parametrize("in_the_table", [False, True], ids=["from the tail", "from the table of facts"])
def test_that_it_is_lost_survives_a_restart_while_the_handoff_lives_or_ended_just_now(
    end: str, in_the_table: bool
) -> None:
    world = World()
    handoff = world.dispatch()
    fence = world.run(claim()).fence
    end_of(world, handoff, fence, end)
    if in_the_table and end != "complete":
        world.advance(2_000)
    world.restart()
    with pytest.raises(LeaseLost):
        world.run(claim())
    world.advance(TEN_MINUTES_MS + 1_001)
    if end == "complete":
        assert world.run(claim()) == NothingToClaim()
    else:
        assert world.run(claim()).fence == fence + 2


def test_a_restart_forgets_what_ended_with_its_handoff_and_what_is_long_past() -> None:
    world = World()
    done = world.dispatch()
    fence = world.run(claim(nonce="done")).fence
    world.run(Complete(handoff=done, fence=fence, result=Raw(b"1")))
    world.advance(2_000)
    past = world.dispatch()
    world.run(Release(handoff=past, fence=world.run(claim(nonce="past")).fence))
    world.advance(TEN_MINUTES_MS + 1_001)
    world.restart()
    assert world.run(claim(nonce="done")).handoff == past
    assert world.run(claim(nonce="past")) == NothingToClaim()


def test_all_that_came_through_the_tail_are_forgotten_in_their_time() -> None:
    world = World()
    handoff = world.dispatch()
    for nonce in ("n1", "n2"):
        world.run(Release(handoff=handoff, fence=world.run(claim(nonce=nonce)).fence))
    world.restart()
    for nonce in ("n1", "n2"):
        with pytest.raises(LeaseLost):
            world.run(claim(nonce=nonce))
    world.advance(TEN_MINUTES_MS + 1_001)
    assert world.engine.ledger.nonce("bob", "n1") is world.engine.ledger.nonce("bob", "n2") is None


# --- from another connection ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("said_hello", [False, True], ids=["without hello", "with hello"])
def test_a_lease_whose_session_is_gone_comes_along_to_who_asks_for_it_again(said_hello: bool) -> None:
    world = World()
    handoff = world.dispatch()
    first = world.connect("first" if said_hello else None)
    fence = world.run(claim(), on=first).fence
    world.disconnect(first)
    second = world.connect("second" if said_hello else None)
    assert world.run(claim(), on=second).fence == fence
    assert world.deadline_ms(handoff) == TTL_MS
    if said_hello:
        world.connect("first")
    world.advance(TTL_MS - 1)
    assert world.facts(handoff).status == "running"
    world.disconnect(second)
    assert world.engine.sessions.of(second) is None
    world.run(claim(), on=world.connect("third"))
    assert world.deadline_ms(handoff) == TTL_MS


def test_a_lease_that_came_along_hangs_on_its_new_session() -> None:
    world = World()
    handoff = world.dispatch()
    first, second = world.connect("first"), world.connect("second")
    world.run(claim(), on=first)
    world.disconnect(first)
    world.run(claim(), on=second)
    again = world.connect("first")
    world.run(Goodbye(), on=again)
    assert world.facts(handoff).status == "running"
    world.run(Goodbye(), on=second)
    assert world.facts(handoff).status == "pending"


def test_a_lease_whose_session_is_connected_stays_there() -> None:
    world = World()
    handoff = world.dispatch()
    first, second = world.connect("first"), world.connect("second")
    world.run(claim(), on=first)
    world.run(claim(), on=second)
    world.run(Goodbye(), on=second)
    assert world.facts(handoff).status == "running"
    world.run(Hello(session="first"), on=second)
    world.disconnect(first)
    assert world.deadline_ms(handoff) == TTL_MS


def test_a_detached_lease_stays_detached() -> None:
    world = World()
    handoff = world.dispatch()
    first, second = world.connect("first"), world.connect("second")
    world.run(claim(detached=True), on=first)
    world.disconnect(first)
    world.run(claim(detached=True), on=second)
    world.disconnect(second)
    assert world.deadline_ms(handoff) == TTL_MS


def test_a_claim_in_flight_that_is_sent_again_gets_the_one_grant() -> None:
    world = World()
    handoff = world.dispatch()
    world.dispatch()
    first, again = world.send(claim()), world.send(claim())
    world.commit()
    assert first.result().fence == again.result().fence == 1
    assert first.result().handoff == again.result().handoff == handoff


def test_a_grant_that_was_undone_never_was() -> None:
    world = World()
    handoff = world.dispatch()
    assert world.send(claim()).answer is None
    world.fail_commit()
    assert world.run(claim()).fence == 1
    assert world.facts(handoff).attempt == 1


def test_a_grant_that_was_undone_is_not_called_lost_when_others_have_held_it_since() -> None:
    world = World()
    handoff = world.dispatch()
    world.send(claim())
    world.fail_commit()
    for _ in range(2):
        world.run(Release(handoff=handoff, fence=world.claim(handoff, "eve")))
    assert world.run(claim()).fence == 5
