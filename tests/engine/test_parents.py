"""Parents and children: who may have some, and who goes with whom."""

import pytest
from msgspec import Raw

from dhp_protocol.errors import InvalidRequest, NotFound, WrongState
from dhp_protocol.limits import MAX_PARENT_DEPTH
from dhp_protocol.messages import Cancel, Complete, Dispatch
from tests.support.engine_world import World


def line(world: World, depth: int) -> list[str]:
    """A handoff, its child, its grandchild …: `depth` generations after the first."""
    handoffs = [world.dispatch()]
    for _ in range(depth):
        handoffs.append(world.dispatch(parent=handoffs[-1]))
    return handoffs


def test_children_may_be_thirty_two_deep() -> None:
    world = World()
    handoffs = line(world, MAX_PARENT_DEPTH)
    with pytest.raises(InvalidRequest) as caught:
        world.dispatch(parent=handoffs[-1])
    assert caught.value.details["member"] == "parent"
    assert world.status(handoffs[-1]).parent == handoffs[-2]


def test_a_parent_must_exist() -> None:
    with pytest.raises(NotFound) as caught:
        World().dispatch(parent="0" * 64)
    assert caught.value.details["handoff"] == "0" * 64


def test_a_final_parent_takes_no_more_children() -> None:
    world = World()
    parent, fence = world.held()
    child = world.dispatch(parent=parent)
    world.run(Complete(handoff=parent, fence=fence, result=Raw(b"1")))
    with pytest.raises(WrongState) as caught:
        world.dispatch(parent=parent)
    assert caught.value.details == {"handoff": parent, "status": "completed"}
    assert world.facts(child).status == "pending", "those that are there go on"


def test_a_final_parent_that_left_memory_takes_no_more_children_either() -> None:
    world = World()
    parent, fence = world.held()
    world.run(Complete(handoff=parent, fence=fence, result=Raw(b"1")))
    world.advance(2_000)
    world.restart()
    assert world.engine.ledger.get(parent) is None
    with pytest.raises(WrongState):
        world.dispatch(parent=parent)


def test_a_refusal_that_shows_the_parents_end_waits_until_that_is_durable() -> None:
    world = World()
    parent = world.dispatch()
    world.send(Cancel(handoff=parent))
    call = world.send(Dispatch(kind="work", inputs=Raw(b"{}"), parent=parent))
    assert not call.answered
    world.commit()
    assert call.answer.code == "wrong_state"


def test_cancel_leaves_the_children_alone() -> None:
    world = World()
    parent, child = line(world, 1)
    world.run(Cancel(handoff=parent))
    assert world.facts(child).status == "pending"


def test_cancel_with_children_takes_all_that_descend_from_it() -> None:
    world = World()
    parent, child, grandchild = line(world, 2)
    sibling = world.dispatch(parent=parent)
    stranger = world.dispatch()
    fence = world.claim(grandchild)
    reply = world.run(Cancel(handoff=parent, children=True, reason="enough"))
    assert reply.status == "cancelled"
    cancelled = [world.facts(handoff) for handoff in (parent, child, grandchild, sibling)]
    assert {(facts.status, facts.reason) for facts in cancelled} == {("cancelled", "enough")}
    assert world.facts(grandchild).fence == fence + 1
    assert world.facts(stranger).status == "pending"


def test_children_of_a_parent_that_is_final_can_be_cancelled_through_it() -> None:
    world = World()
    parent, child = line(world, 1)
    world.run(Cancel(handoff=parent))
    assert world.run(Cancel(handoff=parent, children=True)).status == "cancelled"
    assert world.facts(child).status == "cancelled"


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart"])
def test_grandchildren_are_reached_through_a_child_that_has_ended(restarted: bool) -> None:
    world = World()
    parent, child, grandchild = line(world, 2)
    fence = world.claim(child)
    world.run(Complete(handoff=child, fence=fence, result=Raw(b"1")))
    if restarted:
        world.advance(2_000)
        world.restart()
    world.run(Cancel(handoff=parent, children=True))
    assert world.facts(grandchild).status == "cancelled"


def test_a_cancel_with_children_that_the_disk_could_not_keep_is_undone_and_may_be_sent_again() -> None:
    world = World()
    handoffs = line(world, 20)
    world.send(Cancel(handoff=handoffs[0], children=True))
    world.fail_commit()
    assert {world.facts(handoff).status for handoff in handoffs} == {"pending"}
    world.run(Cancel(handoff=handoffs[0], children=True))
    assert {world.facts(handoff).status for handoff in handoffs} == {"cancelled"}
