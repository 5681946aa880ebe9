"""What the engine does while the disk is full: nothing begins, what ends work goes on, and what waits is served afterwards."""

from collections.abc import Callable
from typing import Any, get_args

import pytest
from msgspec import Raw

from dhp_protocol.errors import Overloaded
from dhp_protocol.messages import (
    Ack,
    AnyRequest,
    Cancel,
    Checkpoint,
    Claim,
    Complete,
    Dispatch,
    EffectBegin,
    EffectDone,
    Export,
    Fail,
    Forget,
    GetStatus,
    Goodbye,
    Health,
    Heartbeat,
    LeaseRef,
    Recover,
    Release,
    Spend,
    Stats,
    Suspend,
    Unwatch,
    Watch,
    WorkError,
)
from dhpd.engine.dispatching import PreparedDispatch
from dhpd.engine.scarcity import GOES_ON
from tests.support.engine_world import TTL_MS, World

BY_THE_SERVER = {Watch, Unwatch, Stats, Health}
"""These never reach the engine, and write nothing."""
STATE = Raw(b'"state"')


def refused(world: World, request: Any) -> Overloaded:
    position = world.engine.journal.position
    with pytest.raises(Overloaded) as caught:
        world.run(request)
    assert world.engine.journal.position == position
    assert (caught.value.details, caught.value.after_ms) == ({"disk": "full"}, 1_000)
    return caught.value


def test_every_operation_goes_on_or_is_refused_on_purpose() -> None:
    refused = {kind.__struct_config__.tag for kind in get_args(AnyRequest) if kind not in GOES_ON | BY_THE_SERVER}
    assert refused == {
        "dispatch",  # Goes on as a `PreparedDispatch`, and asks for room itself.
        "resume",
        "redrive",
        "budget_add",
        "spend",
        "activity",
        "effect_begin",
        "approval_request",
        "approval_decide",
        "check_capability",
        "import",
    }
    assert PreparedDispatch in GOES_ON


@pytest.mark.parametrize(
    "begun",
    [
        lambda handoff, fence: Dispatch(kind="new", inputs=Raw(b"{}")),
        lambda handoff, fence: Claim(worker="bob", kinds=["work"], wait_ms=1_000),
        lambda handoff, fence: Checkpoint(handoff=handoff, fence=fence, state=STATE, seq=2),
        lambda handoff, fence: Checkpoint(handoff=handoff, fence=fence, state=STATE, seq=2, steps=1_000),
        lambda handoff, fence: Spend(handoff=handoff, fence=fence, usd=1),
        lambda handoff, fence: EffectBegin(handoff=handoff, fence=fence, step="s"),
    ],
)
def test_what_begins_or_continues_work_is_refused_and_writes_nothing(begun: Callable[[str, int], Any]) -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_steps":10}'))
    world.run(Checkpoint(handoff=handoff, fence=fence, state=STATE))
    world.dispatch()
    world.engine.disk_filled()
    assert "full" in str(refused(world, begun(handoff, fence)))
    assert world.facts(handoff).status == "running"


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda handoff, fence: Complete(handoff=handoff, fence=fence, result=STATE), "completed"),
        (lambda handoff, fence: Fail(handoff=handoff, fence=fence, error=WorkError(type="E")), "pending"),
        (lambda handoff, fence: Release(handoff=handoff, fence=fence), "pending"),
        (lambda handoff, fence: Suspend(handoff=handoff, fence=fence), "suspended"),
        (lambda handoff, fence: Cancel(handoff=handoff), "cancelled"),
        (lambda handoff, fence: Goodbye(), "pending"),
        (lambda handoff, fence: Export(handoff=handoff), "suspended"),
    ],
)
def test_what_ends_work_goes_on(end: Callable[[str, int], Any], status: str) -> None:
    world = World()
    handoff, fence = world.held()
    world.engine.disk_filled()
    world.run(end(handoff, fence))
    world.restart()
    assert world.status(handoff).status == status


def test_what_has_happened_outside_is_noted_and_what_nobody_needs_makes_room() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(EffectBegin(handoff=handoff, fence=fence, step="s"))
    world.engine.disk_filled()
    world.run(EffectDone(handoff=handoff, fence=fence, step="s", result=STATE))
    world.run(Complete(handoff=handoff, fence=fence, result=STATE))
    world.run(Ack(handoff=handoff))
    world.run(Forget(handoff=handoff))
    assert world.engine.ledger.get(handoff) is None


def test_what_was_done_before_is_told_again() -> None:
    world = World()
    request = Dispatch(kind="work", inputs=Raw(b"{}"))
    handoff = world.run(request).handoff
    granted = world.run(Claim(worker="ada", handoff=handoff, nonce="n"))
    world.run(Checkpoint(handoff=handoff, fence=granted.fence, state=STATE, seq=1))
    world.engine.disk_filled()
    assert not world.run(request).created
    assert world.run(Claim(worker="ada", handoff=handoff, nonce="n")).fence == granted.fence
    assert world.run(Checkpoint(handoff=handoff, fence=granted.fence, state=STATE, seq=1)).duplicate


def test_leases_are_renewed_and_end_and_nothing_is_granted_until_there_is_room() -> None:
    world = World()
    kept, fence = world.held()
    silent, _ = world.held()
    other = world.connect("other")
    waiting = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000), on=other)
    world.engine.disk_filled()
    world.advance(TTL_MS - 1_000)
    assert world.run(Heartbeat(leases=[LeaseRef(handoff=kept, fence=fence)])).renewed == [kept]
    world.advance(1_000)
    assert world.status(silent).status == "orphaned"
    assert world.status(kept).status == "running"
    refused(world, Recover(worker="bob", handoff=silent))
    assert not waiting.answered
    world.send(Release(handoff=kept, fence=fence))
    world.fail_commit()
    assert not waiting.answered, "a store that is back isn't one that has room"
    world.engine.disk_has_room(world.now)
    world.commit()
    assert waiting.result().handoff == silent
    assert world.run(GetStatus(handoff=kept)).status == "running"
