"""Each cell of the life cycle's table: what every operation does in every status, and by how much the fence rises."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.errors import AlreadyClaimed, DHPError, LeaseLost, NotClaimable, WrongState
from dhp_protocol.messages import (
    Ack,
    Cancel,
    Checkpoint,
    Claim,
    Complete,
    Fail,
    Goodbye,
    Heartbeat,
    LeaseRef,
    Recover,
    Release,
    WorkError,
)
from dhpd.engine.apply import KEEPS_FENCE, TRANSITIONS
from tests.support.engine_world import TTL_MS, World

Case = tuple[World, str, int]
"""A world, a handoff in it, and the fence of its newest claim (0: none yet)."""

ERROR = WorkError(type="Oops")


def pending() -> Case:
    world = World()
    return world, world.dispatch(), 0


def delayed() -> Case:
    world = World()
    return world, world.dispatch(delay_ms=10_000), 0


def running(budget: bytes = b"{}") -> Case:
    world = World()
    return world, *world.held(budget=Raw(budget))


def last_attempt() -> Case:
    return running(b'{"max_attempts":1}')


def orphaned() -> Case:
    world = World()
    return world, *world.orphaned()


def completed() -> Case:
    world, handoff, fence = running()
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b'"result"')))
    return world, handoff, fence


def cancelled() -> Case:
    world, handoff, fence = running()
    world.run(Cancel(handoff=handoff))
    return world, handoff, fence


def dead() -> Case:
    world, handoff, fence = running()
    world.run(Fail(handoff=handoff, fence=fence, error=ERROR, retry=False))
    return world, handoff, fence


def released() -> Case:
    world, handoff, fence = running()
    world.run(Release(handoff=handoff, fence=fence))
    return world, handoff, fence


def failed() -> Case:
    world, handoff, fence = running()
    world.run(Fail(handoff=handoff, fence=fence, error=ERROR, delay_ms=0))
    return world, handoff, fence


def lease_ends(world: World, handoff: str, fence: int) -> None:
    world.advance(TTL_MS)


OPERATIONS: dict[str, Callable[[World, str, int], Any]] = {
    "claim": lambda world, handoff, fence: world.run(Claim(worker="bob", handoff=handoff)),
    "recover": lambda world, handoff, fence: world.run(Recover(worker="bob", handoff=handoff)),
    "checkpoint": lambda world, handoff, fence: world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"{}"))),
    "complete": lambda world, handoff, fence: world.run(
        Complete(handoff=handoff, fence=fence, result=Raw(b'"another"'))
    ),
    "release": lambda world, handoff, fence: world.run(Release(handoff=handoff, fence=fence)),
    "fail": lambda world, handoff, fence: world.run(Fail(handoff=handoff, fence=fence, error=ERROR, delay_ms=0)),
    "fail for good": lambda world, handoff, fence: world.run(
        Fail(handoff=handoff, fence=fence, error=ERROR, retry=False)
    ),
    "lease ends": lease_ends,
    "goodbye": lambda world, handoff, fence: world.run(Goodbye()),
    "cancel": lambda world, handoff, fence: world.run(Cancel(handoff=handoff)),
    "ack": lambda world, handoff, fence: world.run(Ack(handoff=handoff)),
}

STATES = (pending, delayed, running, last_attempt, orphaned, completed, cancelled, dead, released, failed)
LOST = LeaseLost
STAYS = ("", 0)
AGAIN = STAYS  # The same end reported again: nothing changes.

# By operation, a cell for each of STATES: the status afterwards and how far the fence rose, or the refusal.
TABLE: dict[str, tuple[tuple[str, int] | type[DHPError], ...]] = {
    "claim": (
        ("running", 1),
        NotClaimable,
        AlreadyClaimed,
        AlreadyClaimed,
        ("running", 1),
        NotClaimable,
        NotClaimable,
        NotClaimable,
        ("running", 1),
        ("running", 1),
    ),
    "recover": (
        WrongState,
        WrongState,
        AlreadyClaimed,
        AlreadyClaimed,
        ("running", 1),
        NotClaimable,
        NotClaimable,
        NotClaimable,
        WrongState,
        WrongState,
    ),
    "checkpoint": (LOST, LOST, STAYS, STAYS, LOST, LOST, LOST, LOST, LOST, LOST),
    "complete": (LOST, LOST, ("completed", 0), ("completed", 0), LOST, LOST, LOST, LOST, LOST, LOST),
    "release": (LOST, LOST, ("pending", 1), ("pending", 1), LOST, LOST, LOST, LOST, AGAIN, LOST),
    "fail": (LOST, LOST, ("pending", 1), ("dead", 2), LOST, LOST, LOST, AGAIN, LOST, AGAIN),
    "fail for good": (LOST, LOST, ("dead", 2), ("dead", 2), LOST, LOST, LOST, AGAIN, LOST, AGAIN),
    "lease ends": (STAYS, STAYS, ("orphaned", 1), ("dead", 2), STAYS, STAYS, STAYS, STAYS, STAYS, STAYS),
    "goodbye": (STAYS, STAYS, ("pending", 1), ("pending", 1), STAYS, STAYS, STAYS, STAYS, STAYS, STAYS),
    "cancel": (*[("cancelled", 1)] * 5, STAYS, STAYS, STAYS, ("cancelled", 1), ("cancelled", 1)),
    "ack": (*[WrongState] * 5, STAYS, STAYS, STAYS, WrongState, WrongState),
}

CELLS = [
    pytest.param(state, operation, expected, id=f"{operation} while {state.__name__}")
    for operation, cells in TABLE.items()
    for state, expected in zip(STATES, cells, strict=True)
]


@pytest.mark.parametrize(("state", "operation", "expected"), CELLS)
def test_cell(state: Callable[[], Case], operation: str, expected: tuple[str, int] | type[DHPError]) -> None:
    world, handoff, fence = state()
    before = world.facts(handoff)
    if isinstance(expected, tuple):
        OPERATIONS[operation](world, handoff, fence)
        status, rise = expected
    else:
        with pytest.raises(expected):
            OPERATIONS[operation](world, handoff, fence)
        status, rise = STAYS
    after = world.facts(handoff)
    assert (after.status, after.fence) == (status or before.status, before.fence + rise)


@pytest.mark.parametrize("state", STATES)
def test_a_heartbeat_renews_what_runs_and_nothing_else(state: Callable[[], Case]) -> None:
    world, handoff, fence = state()
    before = world.facts(handoff)
    reply = world.run(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)]))
    assert (handoff in reply.renewed, handoff in reply.lost) == (before.status == "running", before.status != "running")
    assert world.facts(handoff) == before, "a heartbeat changes no facts"


def test_every_change_of_status_but_complete_raises_the_fence() -> None:
    changing = {record for (status, record), after in TRANSITIONS.items() if after != status}
    assert {record.__name__ for record in changing & KEEPS_FENCE} == {"Completed"}


@pytest.mark.parametrize("state", [completed, cancelled, dead])
def test_ack_is_noted_once(state: Callable[[], Case]) -> None:
    world, handoff, _ = state()
    world.run(Ack(handoff=handoff))
    noted = world.facts(handoff)
    assert noted.acked
    world.run(Ack(handoff=handoff))
    assert world.facts(handoff) == noted


def test_nothing_changes_what_is_final_when_time_goes_by() -> None:
    world, handoff, _ = completed()
    before = world.facts(handoff)
    world.advance(10 * TTL_MS)
    assert world.facts(handoff) == before
