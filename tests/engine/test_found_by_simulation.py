"""Faults that the simulation found, each reduced to a few requests."""

import pytest
from msgspec import Raw

from dhp_protocol.messages import (
    Ack,
    ApprovalDecide,
    ApprovalRequest,
    ApprovalWait,
    Cancel,
    Checkpoint,
    GetStatus,
    Spend,
)
from dhpd.engine import ledger
from tests.support.engine_world import Outcome, World


def family(world: World, **members: object) -> tuple[str, str, int]:
    """A parent that waits, and its child that runs: both names, and the child's fence."""
    parent = world.dispatch(kind="parent", **members)
    child = world.dispatch(parent=parent)
    return parent, child, world.claim(child)


def sums(world: World, *handoffs: str) -> list[tuple[int, float]]:
    return [(status.steps, status.usd) for status in map(world.status, handoffs)]


def test_spending_that_cannot_be_stored_for_the_handoff_counts_for_no_ancestor() -> None:
    world = World()
    parent, child, fence = family(world)
    call = world.send(Spend(handoff=child, fence=fence, usd=Raw(b"0.5"), steps=2, nonce="n"))
    world.take()
    world.finish(Outcome.POISON)  # The first one's, which is the child's.
    assert call.answer.code == "store_unavailable"
    assert sums(world, parent, child) == [(0, 0.0), (0, 0.0)]
    world.run(Spend(handoff=child, fence=fence, usd=Raw(b"0.5"), steps=2, nonce="n"))
    assert sums(world, parent, child) == [(2, 0.5), (2, 0.5)]


def test_spending_that_cannot_be_stored_for_an_ancestor_does_not_count_for_the_handoff() -> None:
    world = World()
    parent, child, fence = family(world, budget=Raw(b'{"max_steps":1}'))
    parent_fence = world.claim(parent)
    own = world.send(Spend(handoff=parent, fence=parent_fence, usd=Raw(b"0.1")))
    bound = world.send(Checkpoint(handoff=child, fence=fence, state=Raw(b"1")))
    looked = world.send(GetStatus(handoff=child))
    world.take()
    world.finish(Outcome.POISON)  # The first one's, which is the parent's.
    assert [call.answer.code for call in (own, bound, looked)] == ["store_unavailable"] * 3
    assert sums(world, parent, child) == [(0, 0.0), (0, 0.0)]
    assert world.run(Checkpoint(handoff=child, fence=fence, state=Raw(b"1"))).seq == 1
    assert sums(world, parent, child) == [(1, 0.0), (1, 0.0)]


def test_what_is_spent_on_top_of_an_ancestor_that_cannot_be_stored_is_undone_in_all_of_them() -> None:
    world = World()
    parent, child, fence = family(world)
    alone, fence_alone = world.held()
    first = world.send(Spend(handoff=parent, fence=world.claim(parent), steps=1))
    world.take()
    later = world.send(Spend(handoff=child, fence=fence, steps=1, nonce="n"))
    other = world.send(Spend(handoff=alone, fence=fence_alone, steps=1))
    world.finish(Outcome.POISON)
    assert [call.answer.code for call in (first, later)] == ["store_unavailable"] * 2
    world.commit()
    assert other.result().steps == 1
    assert sums(world, parent, child, alone) == [(0, 0.0), (0, 0.0), (1, 0.0)]
    world.restart()
    assert sums(world, parent, child, alone) == [(0, 0.0), (0, 0.0), (1, 0.0)]


def test_a_refusal_at_the_cap_of_an_ancestor_that_cannot_be_stored_is_undone_with_it() -> None:
    """Nobody dies for what was never used."""
    world = World()
    parent, child, fence = family(world, budget=Raw(b'{"max_steps":2}'))
    sibling = world.dispatch(kind="sibling", parent=parent)
    sibling_fence = world.claim(sibling)
    used = world.send(Spend(handoff=sibling, fence=sibling_fence, steps=2))
    refused = world.send(Checkpoint(handoff=child, fence=fence, state=Raw(b"1")))
    world.take()
    world.finish(Outcome.POISON)
    assert [call.answer.code for call in (used, refused)] == ["store_unavailable"] * 2
    assert world.status(child).status == "running"
    assert world.run(Checkpoint(handoff=child, fence=fence, state=Raw(b"1"))).seq == 1


def test_an_expiry_that_is_not_on_record_is_told_to_nobody() -> None:
    """The clock may be set back before it is, and then a person decides after all."""
    world = World()
    parent, child, fence = family(world)
    asker = world.connect("asker")
    parent_fence = world.claim(parent, on=asker, ttl_ms=60_000)
    request = ApprovalRequest(handoff=parent, fence=parent_fence, action="pay", details=Raw(b"{}"), timeout_ms=1_000)
    approval = world.run(request, on=asker).approval
    waiting = world.send(ApprovalWait(approval=approval, wait_ms=60_000))
    world.jump(1, wall_ms=1_000)
    world.run(Spend(handoff=child, fence=fence, steps=1))  # Counts for the parent, which nobody has looked at.
    assert not waiting.answered
    world.jump(1, wall_ms=-500)
    assert world.run(ApprovalDecide(approval=approval, decision="approve")).decision == "approved"
    assert waiting.result().decision == "approved"


def test_an_ancestor_that_is_about_to_leave_memory_counts_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """One ancestor had left and was read anew, and made the other one leave: its cap was passed over."""
    monkeypatch.setattr(ledger, "MAX_COLD_HANDOFFS", 3)
    world = World()
    eldest = world.dispatch(budget=Raw(b'{"max_steps":2}'))
    parent = world.dispatch(parent=eldest)
    child = world.dispatch(parent=parent)
    fence = world.claim(child, ttl_ms=600_000)
    for handoff in (parent, eldest):
        world.run(Cancel(handoff=handoff))
        world.run(Ack(handoff=handoff))
    world.advance(2_000)  # The table of facts has them.
    for _ in range(2):
        world.run(Cancel(handoff=world.dispatch()))
    world.advance(2_000)
    assert sum(world.engine.ledger.get(handoff) is None for handoff in (parent, eldest)) == 1
    world.run(Spend(handoff=child, fence=fence, steps=1))
    assert sums(world, eldest, parent, child) == [(1, 0.0)] * 3
