"""Batches: as large as a commit may be, and no handoff's change split over two."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.limits import Limits
from dhp_protocol.messages import Cancel, Checkpoint, Claim, Dispatch, Goodbye, Heartbeat, LeaseRef, Request
from dhp_protocol.replies import HeartbeatReply
from dhpd.engine.journal import MAX_BATCH_BYTES, MAX_BATCH_ENTRIES
from dhpd.engine.serving import SERVED_AFTER_ENDS
from dhpd.engine.settling import SETTLED_AT_ONCE
from tests.support.engine_world import TTL_MS, Outcome, World


def dispatch(number: int, **members: Any) -> Dispatch:
    return Dispatch(kind="work", inputs=Raw(b'{"n":%d}' % number), **members)


def flood(world: World, count: int) -> None:
    for number in range(count):
        world.send(dispatch(number))


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


MANY: dict[str, Callable[[str], Request]] = {
    "cancel with children": lambda parent: Cancel(handoff=parent, children=True),
    "goodbye": lambda parent: Goodbye(),
}


@pytest.mark.parametrize("command", MANY)
def test_a_command_about_many_handoffs_is_committed_in_pieces_and_answered_after_the_last(command: str) -> None:
    world = World()
    parent, mine = world.dispatch(), world.connect("mine")
    calls = [world.send(dispatch(number, parent=parent)) for number in range(2 * MAX_BATCH_ENTRIES)]
    world.commit()
    leases = [world.send(Claim(worker="ada", handoff=call.result().handoff), on=mine) for call in calls]
    world.commit()
    call = world.send(MANY[command](parent), on=mine)
    sizes = []
    while not call.answered:
        world.tick()
        sizes += batches(world)
    assert sum(sizes) >= len(leases)
    assert max(sizes) <= MAX_BATCH_ENTRIES + 1
    assert world.engine.ledger.counts["running"] == 0


def test_a_heartbeat_of_much_that_is_over_ends_a_few_of_it_and_the_tick_the_rest() -> None:
    world = World()
    held = [LeaseRef(*world.held()) for _ in range(2 * SETTLED_AT_ONCE)]
    world.jump(TTL_MS)
    assert world.run(Heartbeat(leases=held)) == HeartbeatReply(renewed=[], lost=[])
    assert world.engine.ledger.counts["orphaned"] == SETTLED_AT_ONCE
    world.tick()
    world.commit()
    assert world.run(Heartbeat(leases=held)).lost == [ref.handoff for ref in held]


def test_a_crash_between_the_pieces_leaves_the_rest_to_the_same_request_again() -> None:
    world = World()
    parent = world.dispatch()
    for number in range(MAX_BATCH_ENTRIES):
        world.send(dispatch(number, parent=parent))
    world.commit()
    call = world.send(Cancel(handoff=parent, children=True))
    world.take()
    world.finish()
    assert not call.answered
    world.restart()
    assert world.engine.ledger.counts["pending"] > 0
    call = world.send(Cancel(handoff=parent, children=True))
    while not call.answered:
        world.tick()
        world.commit()
    assert world.engine.ledger.counts["pending"] == 0


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


def test_between_the_ends_of_one_tick_other_requests_are_carried_out() -> None:
    """What isn't due at the tick's reading may still be renewed, and what is may not."""
    world = World()
    due = [world.dispatch() for _ in range(3)]
    fences = [world.claim(handoff) for handoff in due]
    other, other_fence = world.held()
    lease = world.engine.leases.get(other, other_fence)
    assert lease is not None
    world.engine.leases.renew(lease, world.now.lease_ms + 1)
    world.jump(TTL_MS)
    steps = world.engine.tick_in_steps(world.now)
    next(steps)
    assert [world.facts(handoff).status for handoff in due] == ["orphaned", "running", "running"]
    refs = [LeaseRef(handoff=due[1], fence=fences[1]), LeaseRef(handoff=other, fence=other_fence)]
    assert world.send(Heartbeat(leases=refs)).result().renewed == [other]
    for _ in steps:
        pass
    assert {world.facts(handoff).status for handoff in due} == {"orphaned"}
    assert world.deadline_ms(other) == TTL_MS


def test_a_tick_ends_no_more_leases_once_the_store_is_away() -> None:
    world = World()
    held = [world.dispatch() for _ in range(3)]
    for handoff in held:
        world.claim(handoff)
    world.jump(TTL_MS)
    steps = world.engine.tick_in_steps(world.now)
    next(steps)
    world.take()
    world.lose_or_keep(Outcome.FAILS)
    for _ in steps:
        pass
    assert [world.facts(handoff).status for handoff in held] == ["orphaned", "running", "running"]
    world.find_out()
    world.commit()
    assert {world.status(handoff).status for handoff in held} == {"orphaned"}


def test_what_a_long_tick_frees_goes_to_who_waits_before_it_is_over() -> None:
    world = World()
    for _ in range(2 * SERVED_AFTER_ENDS):
        world.held()
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    world.jump(TTL_MS)
    for _ in world.engine.tick_in_steps(world.now):
        if not world.engine.waiting.every_claim():
            break
    assert world.engine.ledger.counts["running"] == SERVED_AFTER_ENDS + 1
    world.commit()
    assert waiter.answered


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
