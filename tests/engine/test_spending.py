"""Spending: it counts against every ancestor, in one commit, once."""

from typing import Any

import pytest
from msgspec import UNSET, Raw

from dhp_protocol.errors import BudgetExceeded, DHPError, InvalidRequest, LeaseLost
from dhp_protocol.limits import MAX_PARENT_DEPTH
from dhp_protocol.messages import BudgetAdd, Cancel, Checkpoint, Complete, History, Redrive, Spend
from dhpd.engine.notes import KEPT_NONCES, MARK_BYTES, knows_nonce, with_nonce
from tests.support.engine_world import TTL_MS, World


def checkpoint(handoff: str, fence: int, usd: str | None = None, **members: Any) -> Checkpoint:
    money = UNSET if usd is None else Raw(usd.encode())
    return Checkpoint(handoff=handoff, fence=fence, state=Raw(b"{}"), usd=money, **members)


def spend(handoff: str, fence: int, usd: str = "0", **members: Any) -> Spend:
    return Spend(handoff=handoff, fence=fence, usd=Raw(usd.encode()), **members)


def used(world: World, handoff: str) -> tuple[int, float]:
    status = world.status(handoff)
    return status.steps, status.usd


# --- once --------------------------------------------------------------------------------------------------------------


def test_spend_tells_the_sums_so_far() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(checkpoint(handoff, fence, "0.25", steps=3))
    reply = world.run(spend(handoff, fence, "0.5", steps=4))
    assert (reply.usd, reply.steps) == (0.75, 7)
    assert used(world, handoff) == (7, 0.75)


def test_with_a_nonce_it_counts_once_however_often_it_is_sent() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_usd":1}'))
    for _ in range(5):
        assert world.run(spend(handoff, fence, "1", nonce="n")).usd == 1
    with pytest.raises(BudgetExceeded):
        world.run(spend(handoff, fence, "1", nonce="m"))


def test_the_nonces_of_as_many_spends_as_may_be_in_the_air_are_known() -> None:
    world = World()
    handoff, fence = world.held()
    sent = [spend(handoff, fence, "0.01", nonce=f"n{number}") for number in range(KEPT_NONCES)]
    for request in [*sent, *sent, *reversed(sent)]:
        reply = world.run(request)
    assert reply.usd == KEPT_NONCES / 100


def test_each_operation_has_nonces_of_its_own_to_remember() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_steps":1}'))
    more = BudgetAdd(handoff=handoff, add=Raw(b'{"max_steps":1}'), nonce="once")
    world.run(more)
    for number in range(KEPT_NONCES + 1):
        world.run(spend(handoff, fence, "0.01", nonce=f"n{number}"))
    world.restart()
    assert world.run(more).budget["max_steps"] == 2


def test_the_oldest_nonce_beyond_those_that_are_kept_is_forgotten() -> None:
    world = World()
    handoff, fence = world.held()
    for number in range(KEPT_NONCES + 1):
        world.run(spend(handoff, fence, "1", nonce=f"n{number}"))
    assert world.run(spend(handoff, fence, "1", nonce="n1")).usd == KEPT_NONCES + 1
    assert world.run(spend(handoff, fence, "1", nonce="n0")).usd == KEPT_NONCES + 2


def test_two_marks_side_by_side_are_no_third_one() -> None:
    marks = with_nonce(with_nonce(None, "spend", "a"), "spend", "b")
    assert marks is not None
    across = marks["spend"][3 : 3 + MARK_BYTES]
    assert not knows_nonce({"spend": marks["spend"]}, "spend", "c")
    assert across in marks["spend"]
    shifted = {"spend": b"abc" + marks["spend"][:MARK_BYTES] + b"defgh"}
    assert not knows_nonce(shifted, "spend", "a")
    assert knows_nonce({"spend": shifted["spend"] + marks["spend"]}, "spend", "a")


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart"])
def test_a_spend_that_a_redrive_applied_is_not_counted_when_it_is_sent_again(restarted: bool) -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_usd":1}'))
    with pytest.raises(BudgetExceeded):
        world.run(spend(handoff, fence, "3", nonce="n"))
    if restarted:
        world.restart()
    world.run(Redrive(handoff=handoff, budget_add=Raw(b'{"max_usd":9}')))
    if restarted:
        world.advance(2_000)
        world.restart()
    fence = world.claim(handoff)
    assert world.run(spend(handoff, fence, "3", nonce="n")).usd == 3
    assert world.run(spend(handoff, fence, "3", nonce="m")).usd == 6
    assert all("nonce" not in member for record in world.run(History(handoff=handoff)).records for member in record)


def test_nonces_outlive_a_restart() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(spend(handoff, fence, "1", nonce="n"))
    world.restart()
    assert world.run(spend(handoff, fence, "1", nonce="n")).usd == 1


def test_a_spend_whose_commit_failed_counts_when_it_is_sent_again() -> None:
    world = World()
    parent = world.dispatch()
    handoff, fence = world.held(parent=parent)
    world.send(spend(handoff, fence, "1", nonce="n"))
    world.fail_commit()
    assert used(world, parent) == used(world, handoff) == (0, 0)
    assert world.run(spend(handoff, fence, "1", nonce="n")).usd == 1
    assert used(world, parent) == (0, 1)


def test_the_same_checkpoint_again_adds_nothing() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_steps":1,"max_usd":1}'))
    for _ in range(3):
        world.run(checkpoint(handoff, fence, "1", seq=1))
    assert used(world, handoff) == (1, 1)
    assert world.run(checkpoint(handoff, fence, "9", seq=1, steps=9)).duplicate, "other members are ignored"
    assert used(world, handoff) == (1, 1)


def test_spending_nothing_leaves_no_record() -> None:
    world = World()
    handoff, fence = world.held()
    n = world.facts(handoff).n
    world.run(spend(handoff, fence))
    world.run(Spend(handoff=handoff, fence=fence))
    assert world.facts(handoff).n == n


@pytest.mark.parametrize("usd", ["-1", "-0.000000001", "1e400", '"1"', "null", "true"])
def test_an_amount_that_means_nothing_is_refused_and_nothing_of_the_write_is_kept(usd: str) -> None:
    world = World()
    handoff, fence = world.held()
    before = world.facts(handoff)
    for write in (spend(handoff, fence, usd, steps=1), checkpoint(handoff, fence, usd)):
        with pytest.raises(InvalidRequest) as caught:
            world.run(write)
        assert caught.value.details["member"] == "usd"
    assert world.facts(handoff) is before


def test_only_the_holder_can_spend() -> None:
    world = World()
    handoff, fence = world.orphaned()
    world.claim(handoff, "bob")
    for late in (spend(handoff, fence, "1", nonce="n"), spend(handoff, fence + 9, "1")):
        with pytest.raises(LeaseLost):
            world.run(late)
    assert used(world, handoff) == (0, 0)


# --- ancestors ---------------------------------------------------------------------------------------------------------


def test_it_counts_against_every_ancestor_in_the_same_commit() -> None:
    world = World()
    grandparent = world.dispatch()
    parent = world.dispatch(parent=grandparent)
    sibling = world.dispatch(parent=parent)
    child, fence = world.held(parent=parent)
    world.send(checkpoint(child, fence, "0.5", steps=2))
    batch = world.take()
    assert sorted(entry.handoff for entry in batch.entries) == sorted([grandparent, parent, child])
    world.finish()
    world.run(spend(child, fence, "0.25"))
    assert used(world, grandparent) == used(world, parent) == used(world, child) == (2, 0.75)
    assert used(world, sibling) == (0, 0)
    last = world.run(History(handoff=grandparent)).records[-1]
    assert (last["type"], last["by"], last["usd"], last["fence"]) == ("spent", child, 0.25, 0)


def test_as_deep_as_handoffs_may_be() -> None:
    world = World()
    line = [world.dispatch(budget=Raw(b'{"max_usd":0.3}'))]
    for _ in range(MAX_PARENT_DEPTH):
        line.append(world.dispatch(parent=line[-1]))
    fence = world.claim(line[-1])
    world.run(spend(line[-1], fence, "0.1"))
    world.run(spend(line[-1], fence, "0.2"))
    assert {used(world, handoff)[1] for handoff in line} == {0.3}
    with pytest.raises(BudgetExceeded) as caught:
        world.run(spend(line[-1], fence, "0.000000001"))
    assert caught.value.details["whose"] == line[0]


def test_the_nearest_cap_is_named_and_only_the_child_goes_dead() -> None:
    world = World()
    grandparent = world.dispatch(budget=Raw(b'{"max_steps":5}'))
    parent = world.dispatch(budget=Raw(b'{"max_steps":3}'), parent=grandparent)
    parent_fence = world.claim(parent)
    child, fence = world.held(parent=parent)
    world.run(checkpoint(parent, parent_fence, steps=2))
    with pytest.raises(BudgetExceeded) as caught:
        world.run(checkpoint(child, fence, steps=2))
    details = {"cap": "max_steps", "limit": 3, "used": 2, "asked": 2, "lacking": 1, "whose": parent}
    assert caught.value.details == details
    assert f"max_steps of its ancestor {parent}" in caught.value.message
    assert world.status(child).status == "dead"
    assert parent in world.status(child).reason
    assert (world.status(parent).status, world.status(grandparent).status) == ("running", "pending")
    assert used(world, parent) == used(world, grandparent) == (2, 0)
    assert world.run(checkpoint(parent, parent_fence)).seq == 2, "what the child was refused isn't counted"


def test_two_children_in_one_commit_share_one_cap() -> None:
    world = World()
    parent = world.dispatch(budget=Raw(b'{"max_usd":1}'))
    children = [world.held(parent=parent) for _ in range(2)]
    calls = [world.send(spend(child, fence, "0.6")) for child, fence in children]
    world.commit()
    assert calls[0].answer.usd == 0.6
    assert (calls[1].answer.code, calls[1].answer.details["used"]) == ("budget_exceeded", 0.6)
    assert used(world, parent) == (0, 0.6)


def test_a_refusal_shows_an_ancestors_sums_only_once_they_are_on_disk() -> None:
    world = World()
    parent = world.dispatch(budget=Raw(b'{"max_usd":1}'))
    first, second = world.held(parent=parent), world.held(parent=parent)
    with pytest.raises(BudgetExceeded):
        world.run(spend(*second, "2"))
    world.send(spend(*first, "0.5"))
    call = world.send(Redrive(handoff=second[0]))
    assert not call.answered
    world.fail_commit()
    assert call.answer.code == "store_unavailable"


@pytest.mark.parametrize("end", ["completed", "cancelled", "dead", "orphaned"])
def test_an_ancestors_cap_holds_whatever_has_become_of_it(end: str) -> None:
    world = World()
    parent, parent_fence = world.held(budget=Raw(b'{"max_steps":1,"max_wallclock_ms":1000000}'))
    child = world.dispatch(parent=parent)
    if end == "completed":
        world.run(Complete(handoff=parent, fence=parent_fence, result=Raw(b'"result"')))
    elif end == "cancelled":
        world.run(Cancel(handoff=parent))
    else:
        world.advance(1_000_000 if end == "dead" else TTL_MS)
    assert world.status(parent).status == end
    fence = world.claim(child)
    before = world.facts(parent).fence
    world.run(checkpoint(child, fence))
    assert (world.status(parent).status, world.facts(parent).fence) == (end, before)
    assert used(world, parent) == (1, 0)
    with pytest.raises(BudgetExceeded) as caught:
        world.run(checkpoint(child, fence))
    assert caught.value.details["whose"] == parent


def test_an_ancestor_that_has_left_memory_counts_all_the_same() -> None:
    world = World()
    parent = world.dispatch(budget=Raw(b'{"max_steps":1}'))
    child = world.dispatch(parent=parent)
    world.run(Cancel(handoff=parent))
    world.advance(2_000)
    world.restart(after_ms=2_000)
    assert world.engine.ledger.get(parent) is None
    fence = world.claim(child)
    world.run(checkpoint(child, fence))
    assert used(world, parent) == (1, 0)
    with pytest.raises(BudgetExceeded):
        world.run(checkpoint(child, fence))


def test_a_raised_cap_of_the_ancestor_lets_the_child_go_on() -> None:
    world = World()
    parent = world.dispatch(budget=Raw(b'{"max_usd":1}'))
    child, fence = world.held(parent=parent)
    with pytest.raises(BudgetExceeded):
        world.run(spend(child, fence, "1.5"))
    with pytest.raises(BudgetExceeded):
        world.run(Redrive(handoff=child))
    world.run(BudgetAdd(handoff=parent, add=Raw(b'{"max_usd":0.5}')))
    assert world.run(Redrive(handoff=child)).status == "pending"
    assert used(world, child) == used(world, parent) == (0, 1.5)


def test_sums_outlive_a_restart() -> None:
    world = World()
    parent = world.dispatch(budget=Raw(b'{"max_usd":1}'))
    child, fence = world.held(parent=parent)
    world.run(spend(child, fence, "0.7"))
    world.restart()
    assert used(world, parent) == used(world, child) == (0, 0.7)
    with pytest.raises(DHPError) as caught:
        world.run(spend(child, fence, "0.4"))
    assert caught.value.code == "budget_exceeded"
