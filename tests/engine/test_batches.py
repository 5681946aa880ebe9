"""Batches: as large as a commit may be, and no command split over two."""

import pytest
from msgspec import Raw

from dhp_protocol.limits import Limits
from dhp_protocol.messages import Cancel, Checkpoint, Dispatch, Goodbye
from dhpd.engine.journal import MAX_BATCH_BYTES, MAX_BATCH_ENTRIES
from tests.support.engine_world import TTL_MS, Outcome, World


def flood(world: World, count: int) -> None:
    for number in range(count):
        world.send(Dispatch(kind="work", inputs=Raw(b'{"n":%d}' % number)))


def batches(world: World) -> list[int]:
    """Commits all that waits, batch by batch; how many entries each had."""
    sizes = []
    while world.engine.wants_commit(world.now):
        sizes.append(len(world.take().entries))
        world.finish()
    return sizes


def test_a_batch_is_closed_when_it_is_full() -> None:
    world = World()
    flood(world, 2 * MAX_BATCH_ENTRIES + 10)
    assert batches(world) == [MAX_BATCH_ENTRIES, MAX_BATCH_ENTRIES, 10]


def test_a_batch_is_closed_by_bytes_too() -> None:
    state_bytes = 1 << 20
    world = World(limits=Limits(max_state_bytes=state_bytes))
    handoff, fence = world.held()
    for _ in range(20):
        world.send(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1" * state_bytes)))
    sizes = batches(world)
    assert sum(sizes) == 20
    assert max(sizes) == MAX_BATCH_BYTES // state_bytes


@pytest.mark.parametrize("command", ["cancel with children", "goodbye"])
def test_a_command_is_never_split(command: str) -> None:
    world = World()
    parent = world.dispatch()
    mine = world.connect("mine")
    children = [world.dispatch(parent=parent) for _ in range(100)]
    if command == "goodbye":
        for child in children:
            world.claim(child, on=mine)
    flood(world, MAX_BATCH_ENTRIES - 50)
    call = world.send(Goodbye() if command == "goodbye" else Cancel(handoff=parent, children=True), on=mine)
    flood(world, 2 * MAX_BATCH_ENTRIES)
    batch = world.take()
    own = [entry for entry in batch.entries if entry.handoff in children]
    assert len(own) == 100
    assert not call.answered
    world.finish(Outcome.KEPT)
    assert call.answered


def test_an_end_and_the_death_that_follows_it_are_in_one_batch() -> None:
    world = World()
    for _ in range(300):
        world.held(budget=Raw(b'{"max_attempts":1}'))
    flood(world, MAX_BATCH_ENTRIES - 301)
    world.jump(TTL_MS)
    world.tick()
    while world.engine.wants_commit(world.now):
        by_handoff: dict[str, list[str]] = {}
        for entry in world.take().entries:
            by_handoff.setdefault(entry.handoff, []).append(type(entry.record).__name__)
        assert all(names in (["Dispatched"], ["Orphaned", "Dead"]) for names in by_handoff.values())
        world.finish()
    assert world.engine.ledger.counts["dead"] == 300


def test_many_leases_that_end_at_one_tick_are_committed_in_pieces() -> None:
    world = World()
    handoffs = [world.dispatch() for _ in range(2 * MAX_BATCH_ENTRIES)]
    for handoff in handoffs:
        world.claim(handoff)
    world.jump(TTL_MS)
    world.tick()
    sizes = batches(world)
    assert sum(sizes) == len(handoffs)
    assert max(sizes) <= MAX_BATCH_ENTRIES + 1


def test_while_one_is_on_its_way_the_next_gathers() -> None:
    world = World()
    flood(world, 3)
    first = world.take()
    world.send(Dispatch(kind="later", inputs=Raw(b"{}")))
    assert len(first.entries) == 3, "what is on its way changes no more"
    world.finish()
    assert batches(world) == [1]


def test_positions_are_given_out_again_after_a_failure_and_never_twice() -> None:
    world = World()
    flood(world, 3)
    world.fail_commit()
    world.dispatch()
    flood(world, 3)
    world.commit()
    assert sorted(world.disk.rows) == [1, 2, 3, 4]


def test_nothing_to_write_is_no_commit() -> None:
    world = World()
    assert not world.engine.wants_commit(world.now)
    world.held()
    assert not world.engine.wants_commit(world.now)
    world.jump(999)
    assert not world.engine.wants_commit(world.now)
    world.jump(1)
    assert world.engine.wants_commit(world.now), "the table of facts is due"
    world.commit()
    assert not world.engine.wants_commit(world.now)
    assert world.disk.covered == world.engine.journal.durable
