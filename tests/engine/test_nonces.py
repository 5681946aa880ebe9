"""A claim that is sent again isn't a second claim."""

from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.errors import LeaseLost
from dhp_protocol.messages import Cancel, Claim, Complete, Recover, Release
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
