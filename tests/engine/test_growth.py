"""What a request or a tick costs the engine doesn't grow with what there is: counted in instructions, not in time."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec import Raw

import dhpd.engine
from dhp_protocol.messages import Cancel, Checkpoint, Claim, Complete, Heartbeat, LeaseRef, Spend
from tests.support.engine_world import World

ENGINE = str(Path(dhpd.engine.__file__).parent)
FEW, MANY = 20, 600
SLACK = 1.2
"""A path may differ by a branch or two."""


def instructions(act: Callable[[], object]) -> int:
    """How many the interpreter carries out in the engine's own code."""
    count = 0

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return local

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ENGINE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return local

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def test_what_does_grow_is_seen_to() -> None:
    """Whoever cancels a family pays for each of its members."""
    world = World()
    costs = []
    for children in (2, 20):
        parent = world.dispatch()
        for _ in range(children):
            world.dispatch(parent=parent)
        cancel = Cancel(handoff=parent, children=True)
        costs.append(instructions(lambda cancel=cancel: world.send(cancel)))  # type: ignore[misc]
        world.commit()
    assert costs[1] > 2 * costs[0] > 0


@pytest.mark.parametrize("op", ["checkpoint", "spend"])
def test_a_write_costs_the_same_however_long_its_handoffs_history_is(op: str) -> None:
    world = World()
    handoff, fence = world.held()
    written = 0

    def write() -> None:
        nonlocal written
        written += 1
        if op == "spend":
            world.send(Spend(handoff=handoff, fence=fence, steps=1, nonce=str(written)))
        else:
            world.send(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"%d" % written), seq=written))

    costs = []
    for length in (FEW, MANY):
        while written < length:
            write()
            world.commit()
        costs.append(instructions(write))
        world.commit()
    assert 0 < costs[1] <= SLACK * costs[0]


def test_a_tick_and_every_step_of_a_life_cost_the_same_however_many_others_there_are() -> None:
    world = World()
    there = 0
    costs: list[dict[str, int]] = []
    for number in (FEW, MANY):
        while there < number:
            world.held()
            world.dispatch()
            done, fence = world.held()
            world.run(Complete(handoff=done, fence=fence, result=Raw(b"1")))
            there += 1
        costs.append(_of_one_life(world))
    few, many = costs
    assert {name for name in few if not 0 < many[name] <= SLACK * few[name]} == set()


def _of_one_life(world: World) -> dict[str, int]:
    costs: dict[str, int] = {}
    kind = f"kind-{world.now.wall_ms}-{len(world.disk.left)}"
    handoff = world.dispatch(kind)
    held: list[Any] = []

    def step(name: str, act: Callable[[], object]) -> None:
        costs[name] = instructions(act)
        world.commit()

    step("claim", lambda: held.append(world.send(Claim(worker="bob", kinds=[kind], ttl_ms=60_000))))
    fence = held[0].result().fence
    step("heartbeat", lambda: world.send(Heartbeat(leases=[LeaseRef(handoff, fence)])))
    step("checkpoint", lambda: world.send(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1"))))
    step("tick", lambda: world.engine.tick(world.now))
    step("complete", lambda: world.send(Complete(handoff=handoff, fence=fence, result=Raw(b"1"))))
    return costs
