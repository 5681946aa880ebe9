"""What goes, and what doesn't: replaced checkpoints, forget, and the end of what was acknowledged long ago."""

from collections.abc import Callable

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dhp_protocol.errors import BudgetExceeded, LeaseLost, NotFound, OutOfOrder, StoreUnavailable, WrongState
from dhp_protocol.messages import (
    Ack,
    Cancel,
    Checkpoint,
    Checkpoints,
    Claim,
    Complete,
    Dispatch,
    Fail,
    Forget,
    GetResult,
    GetStatus,
    Heartbeat,
    History,
    LeaseRef,
    ListHandoffs,
    Redrive,
    WorkError,
)
from dhp_protocol.replies import Empty
from dhpd.engine import ledger
from dhpd.engine.moments import Now
from dhpd.engine.retention import prune_once_below, replaced_seq, retention_wall_ms
from dhpd.engine.tombstones import MAX_TOMBSTONES, Tombstones
from tests.simulation.store_model import Outcome
from tests.support.engine_world import START, World, memory

DAY_MS = 86_400_000
INTENT = Raw(b'{"the same":"again"}')


def same(world: World, **members: object) -> str:
    """Dispatches the one intent that these tests dispatch again."""
    return world.dispatch(inputs=INTENT, **members)


def ended(world: World, *, ack: bool = True) -> tuple[str, int]:
    """The handoff of that intent, completed; gives the fence of its last hold."""
    handoff = same(world)
    fence = world.claim(handoff)
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b'"half"')))
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b'"done"')))
    if ack:
        world.run(Ack(handoff=handoff))
    return handoff, fence


def settled(world: World) -> None:
    """The table of facts has caught up, and what may go from the disk has gone."""
    world.advance(3_000)
    world.run(GetStatus(handoff=world.dispatch()))


# --- checkpoints ----------------------------------------------------------------------------------------------------


def test_those_beyond_the_number_kept_are_shown_no_more_whether_or_not_they_are_on_disk() -> None:
    world = World()
    handoff, fence = world.held(keep_checkpoints=3)
    for number in range(1, 11):
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"%d" % number)))
        page = world.run(Checkpoints(handoff=handoff)).checkpoints
        assert [found.seq for found in page] == list(range(max(1, number - 2), number + 1))
    assert sum(row.handoff == handoff and row.seq > 0 for row in world.disk.left.values()) == 10
    settled(world)
    assert sum(row.handoff == handoff and row.seq > 0 for row in world.disk.left.values()) == 3
    assert [found.seq for found in world.run(Checkpoints(handoff=handoff)).checkpoints] == [8, 9, 10]
    assert [record["n"] for record in world.run(History(handoff=handoff)).records] == [1, 2, 10, 11, 12]


def test_one_sent_again_that_is_kept_no_more_is_out_of_order_and_the_first_kept_is_told() -> None:
    world = World()
    handoff, fence = world.held(keep_checkpoints=3)
    for number in range(1, 6):
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"%d" % number)))
    for wait in (lambda: None, lambda: settled(world)):
        wait()
        for seq in (1, 2):
            with pytest.raises(OutOfOrder) as caught:
                world.run(Checkpoint(handoff=handoff, fence=fence, seq=seq, state=Raw(b"%d" % seq)))
            assert caught.value.details == {"seq": seq, "expected": 6, "first_kept": 3}
        assert world.run(Checkpoint(handoff=handoff, fence=fence, seq=3, state=Raw(b"3"))).duplicate
        world.run(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)]))


def test_a_standby_resumes_from_the_newest_after_pruning_and_a_restart() -> None:
    world = World()
    handoff, fence = world.held(keep_checkpoints=1)
    for number in range(1, 41):
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"%d" % number)))
        if number % 13 == 0:
            settled(world)
            world.run(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)]))
        if number % 7 == 0:
            world.restart()
    world.restart()
    world.advance(6_000)
    grant = world.run(Claim(worker="bob", handoff=handoff))
    assert (grant.checkpoint.seq, bytes(grant.checkpoint.state)) == (40, b"40")


def test_how_many_are_kept_and_when_it_is_worth_looking_for_more() -> None:
    world = World()
    handoff, fence = world.held(keep_checkpoints=16)
    facts = world.facts(handoff)
    for _ in range(40):
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
        facts = world.facts(handoff)
        assert replaced_seq(facts) == max(0, facts.seq - 16)
        assert prune_once_below(facts) == max(0, facts.seq - 16 - 4 + 1)
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    assert prune_once_below(world.facts(handoff)) == 24, "of what has ended, all that may go goes"


# --- forget ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["completed", "cancelled", "dead"])
@pytest.mark.parametrize("acked", [True, False])
def test_whatever_has_ended_can_be_forgotten(end: str, acked: bool) -> None:
    world = World()
    handoff, fence = world.held()
    if end == "completed":
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    elif end == "cancelled":
        world.run(Cancel(handoff=handoff))
    else:
        world.run(Fail(handoff=handoff, fence=fence, error=WorkError(type="Oops"), retry=False))
    assert world.status(handoff).status == end
    if acked:
        world.run(Ack(handoff=handoff))
    assert world.run(Forget(handoff=handoff)) == Empty()
    for request in (GetStatus, GetResult, Ack, Forget, History, Cancel):
        with pytest.raises(NotFound):
            world.run(request(handoff=handoff))
    assert sum(world.engine.ledger.counts.values()) == 0
    settled(world)
    assert all(row.handoff != handoff for row in world.disk.left.values())


@pytest.mark.parametrize("state", ["pending", "running", "orphaned"])
def test_what_has_not_ended_cannot(state: str) -> None:
    world = World()
    make: dict[str, Callable[[], str]] = {
        "pending": world.dispatch,
        "running": lambda: world.held()[0],
        "orphaned": lambda: world.orphaned()[0],
    }
    handoff = make[state]()
    with pytest.raises(WrongState) as caught:
        world.run(Forget(handoff=handoff))
    assert caught.value.details == {"handoff": handoff, "status": state}
    assert world.status(handoff).status == state


def test_a_parent_stays_while_a_descendant_lives() -> None:
    world = World()
    parent = world.dispatch()
    child = world.dispatch(parent=parent)
    grandchild = world.dispatch(parent=child)
    for handoff, descendants in ((parent, 2), (child, 1)):
        world.run(Cancel(handoff=handoff))
        with pytest.raises(WrongState) as caught:
            world.run(Forget(handoff=handoff))
        assert caught.value.details["descendants"] == descendants
    world.run(Cancel(handoff=grandchild))
    for handoff in (parent, child, grandchild):
        assert world.run(Forget(handoff=handoff)) == Empty()


@pytest.mark.parametrize("start", ["", "a restart", "a while and a restart"])
def test_a_parent_stays_while_a_dead_descendant_may_be_redriven(start: str) -> None:
    world = World()
    parent = world.dispatch(budget=Raw(b'{"max_steps":1}'))
    child = world.dispatch(parent=parent)
    grandchild, fence = world.held(parent=child)
    with pytest.raises(BudgetExceeded):
        world.run(Checkpoint(handoff=grandchild, fence=fence, state=Raw(b"1"), steps=2))
    for handoff in (parent, child):
        world.run(Cancel(handoff=handoff))
    if start == "a while and a restart":
        settled(world)
    if start:
        world.restart()
    for handoff in (parent, child):
        with pytest.raises(WrongState) as caught:
            world.run(Forget(handoff=handoff))
        assert caught.value.details["descendants"] == 1
    with pytest.raises(BudgetExceeded):
        world.run(Redrive(handoff=grandchild))
    world.run(Ack(handoff=parent))
    assert not retire(world, parent, world.now.wall_ms)
    world.run(Forget(handoff=grandchild))
    for handoff in (parent, child):
        assert world.run(Forget(handoff=handoff)) == Empty()


def test_a_dead_descendant_counts_once_whether_or_not_it_is_in_memory_and_no_more_once_it_ended_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "MAX_COLD_HANDOFFS", 1)
    world = World()
    parent = world.dispatch()
    child, fence = world.held(parent=parent)
    world.run(Fail(handoff=child, fence=fence, error=WorkError(type="Oops"), retry=False))
    settled(world)
    for _ in range(3):
        world.run(Cancel(handoff=world.dispatch()))
        settled(world)
    assert world.engine.ledger.get(child) is None
    assert world.engine.ledger.descendants_left(parent) == 1
    world.run(Redrive(handoff=child))
    assert world.engine.ledger.descendants_left(parent) == 1
    world.run(Cancel(handoff=child))
    assert world.engine.ledger.descendants_left(parent) == 0
    world.run(Cancel(handoff=parent))
    assert world.run(Forget(handoff=parent)) == Empty()


def test_that_it_is_gone_is_told_only_when_that_is_on_disk() -> None:
    world = World()
    handoff, fence = ended(world)
    world.take()
    world.finish()
    calls = [
        world.send(Forget(handoff=handoff)),
        world.send(GetStatus(handoff=handoff)),
        world.send(Dispatch(kind="child", inputs=Raw(b"{}"), parent=handoff)),
        world.send(Forget(handoff=handoff)),
    ]
    beat = world.send(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)]))
    assert beat.result().lost == [], "a later beat tells"
    assert not any(call.answered for call in calls)
    world.commit()
    assert calls[0].result() == Empty()
    for call in calls[1:]:
        with pytest.raises(NotFound):
            call.result()
    assert world.run(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)])).lost == [handoff]


def test_a_commit_that_fails_brings_it_back() -> None:
    world = World()
    handoff, _ = ended(world)
    before = memory(world.engine)
    calls = [
        world.send(Forget(handoff=handoff)),
        world.send(GetStatus(handoff=handoff)),
        world.send(Dispatch(kind="work", inputs=INTENT)),
    ]
    assert world.facts(handoff).status == "pending"
    world.fail_commit()
    for call in calls:
        with pytest.raises(StoreUnavailable):
            call.result()
    assert memory(world.engine) == before
    assert bytes(world.run(GetResult(handoff=handoff)).result) == b'"done"'
    world.advance(5_000)
    world.restart()
    assert bytes(world.run(GetResult(handoff=handoff)).result) == b'"done"'
    assert world.run(Forget(handoff=handoff)) == Empty()


def test_what_a_failed_commit_brought_back_may_leave_memory_and_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_COLD_HANDOFFS", 1)
    world = World()
    handoff, _ = ended(world)

    def pushed_out() -> bool:
        """Whether it leaves memory when another one has ended."""
        world.advance(3_000)
        world.run(Cancel(handoff=world.dispatch()))
        world.advance(3_000)
        return world.engine.ledger.get(handoff) is None

    assert pushed_out()
    for number in range(20):
        world.send(Dispatch(kind="other", inputs=Raw(b'{"number":%d}' % number)))
    world.send(Forget(handoff=handoff))
    world.fail_commit()
    assert world.facts(handoff).status == "completed"
    assert pushed_out()
    assert world.status(handoff).status == "completed", "though positions aren't where the forget was yet"


def test_the_table_covers_that_it_is_gone_even_if_nothing_else_happens() -> None:
    world = World()
    handoff, _ = ended(world)
    world.advance(3_000)
    world.run(Forget(handoff=handoff))
    assert world.engine.journal.covered < world.engine.journal.position
    world.advance(3_000)
    assert world.engine.journal.covered == world.engine.journal.position


def test_where_it_alone_could_not_be_stored_it_is_there_again() -> None:
    world = World()
    handoff, _ = ended(world)
    call = world.send(Forget(handoff=handoff))
    other = world.send(Dispatch(kind="other", inputs=Raw(b"{}")))
    world.take()
    world.finish(Outcome.POISON)
    with pytest.raises(StoreUnavailable):
        call.result()
    assert other.result().created
    assert world.status(handoff).status == "completed"
    world.restart()
    assert world.status(handoff).status == "completed"


# --- the same intent again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", ["nothing", "a commit", "a restart", "a while", "a while and a restart"])
def test_dispatched_again_it_begins_anew_above_all_fences_of_before(between: str) -> None:
    world = World()
    handoff, old_fence = ended(world)
    world.send(Forget(handoff=handoff))
    if between != "nothing":
        world.commit()
    if "while" in between:
        settled(world)
    if "restart" in between:
        world.restart()
    assert same(world) == handoff
    status = world.status(handoff)
    assert (status.status, status.attempt, status.seq, status.acked) == ("pending", 0, 0, False)
    assert status.fence >= old_fence
    for _ in range(2):
        with pytest.raises(LeaseLost):
            world.run(Checkpoint(handoff=handoff, fence=old_fence, state=Raw(b'"late"')))
        with pytest.raises(LeaseLost):
            world.run(Complete(handoff=handoff, fence=old_fence, result=Raw(b'"done"')))
        world.restart()
    grant = world.run(Claim(worker="bob", handoff=handoff))
    assert grant.fence > old_fence
    assert grant.checkpoint is None
    records = world.run(History(handoff=handoff)).records
    assert [(record["n"], record["type"]) for record in records] == [(1, "dispatched"), (2, "claimed")]


def test_all_new_fences_are_above_the_highest_that_was_forgotten() -> None:
    world = World()
    handoff, _ = world.held()
    for _ in range(5):
        world.run(Fail(handoff=handoff, fence=world.facts(handoff).fence, error=WorkError(type="Oops"), retry=False))
        world.run(Redrive(handoff=handoff))
        world.claim(handoff)
    world.run(Cancel(handoff=handoff))
    highest = world.facts(handoff).fence
    world.run(Forget(handoff=handoff))
    assert world.facts(world.dispatch()).fence == highest
    settled(world)
    world.restart()
    assert world.facts(world.dispatch()).fence == highest


@pytest.mark.parametrize("commits", range(8))
def test_a_start_finds_it_as_it_was_or_forgotten_wherever_the_daemon_was_killed(commits: int) -> None:
    world = World()
    handoff, _ = ended(world)
    if commits % 2:
        settled(world)
    world.send(Forget(handoff=handoff))
    world.take()
    if commits >= 2:
        world.finish()
        world.send(Dispatch(kind="work", inputs=INTENT))
        if commits >= 4:
            world.commit()
        if commits >= 6:
            settled(world)
    world.restart()
    facts = {status.handoff: status for status in world.run(ListHandoffs()).handoffs}
    if commits < 2:
        assert facts[handoff].status == "completed"
    elif commits < 4:
        assert handoff not in facts
    else:
        assert (facts[handoff].status, facts[handoff].attempt) == ("pending", 0)


def test_forgotten_and_dispatched_again_and_again_in_one_commit() -> None:
    world = World()
    handoff, _ = ended(world)
    for _ in range(3):
        calls = [
            world.send(Cancel(handoff=handoff)),
            world.send(Forget(handoff=handoff)),
            world.send(Dispatch(kind="work", inputs=INTENT)),
        ]
    world.commit()
    assert calls[-1].result().created
    world.restart()
    settled(world)
    world.restart()
    assert world.status(handoff).status == "pending"
    assert [record["type"] for record in world.run(History(handoff=handoff)).records] == ["dispatched"]


# --- readings that are older than a forget --------------------------------------------------------------------------


def test_facts_that_were_read_before_it_was_forgotten_bring_nothing_back() -> None:
    world = World()
    handoff, _ = ended(world)
    settled(world)
    facts, read_after = world.facts(handoff), world.engine.journal.durable
    world.send(Forget(handoff=handoff))
    assert world.engine.missing(GetStatus(handoff=handoff)) == [], "the store would tell the old"
    assert world.engine.admit(facts, world.now, read_after)
    assert world.engine.ledger.get(handoff) is None
    world.commit()
    assert not world.engine.admit(facts, world.now, read_after), "it is to be read again"
    assert world.engine.ledger.get(handoff) is None
    assert world.engine.missing(GetStatus(handoff=handoff)) == [handoff]
    again = replace(facts, attempt=7)
    assert world.engine.admit(again, world.now, world.engine.journal.durable)
    assert world.engine.ledger.get(handoff) == again


def test_a_forget_that_was_undone_makes_older_readings_doubtful_and_later_ones_not() -> None:
    tombstones = Tombstones()
    tombstones.add("a", 12, 10)
    assert tombstones.position_of("a") == 12
    tombstones.rolled_back(10)
    assert tombstones.position_of("a") == 10
    assert tombstones.outdated("a", 9)
    assert not tombstones.outdated("a", 10)
    assert not tombstones.outdated("b", 0)


def test_of_many_that_were_forgotten_the_oldest_on_disk_are_named_no_more() -> None:
    tombstones = Tombstones()
    for position in range(1, MAX_TOMBSTONES + 3):
        tombstones.add(str(position), position, 1)
    assert tombstones.position_of("1") == 0
    assert tombstones.position_of("2") == 2, "it isn't on disk yet"
    assert tombstones.outdated("1", 0), "whoever read so long ago reads again"
    assert tombstones.outdated("never heard of", 0)
    assert not tombstones.outdated("1", 1)


# --- what retention does by itself ----------------------------------------------------------------------------------


def retire(world: World, handoff: str, acked_before_ms: int) -> bool:
    done = world.engine.retire(world.facts(handoff), acked_before_ms, world.engine.journal.durable, world.now)
    world.commit()
    return done


def test_what_was_acknowledged_long_ago_goes() -> None:
    world = World()
    handoff, _ = ended(world)
    acked_at_ms = world.now.wall_ms
    assert world.facts(handoff).acked_at_ms == acked_at_ms
    assert not retire(world, handoff, acked_at_ms - 1)
    assert retire(world, handoff, acked_at_ms)
    with pytest.raises(NotFound):
        world.status(handoff)
    world.restart()
    with pytest.raises(NotFound):
        world.status(handoff)


def test_a_second_ack_and_what_is_noted_later_do_not_change_when() -> None:
    world = World()
    handoff, _ = ended(world)
    acked_at_ms = world.now.wall_ms
    world.advance(50_000)
    world.run(Ack(handoff=handoff))
    assert world.facts(handoff).acked_at_ms == acked_at_ms


def test_what_nobody_acknowledged_never_goes() -> None:
    world = World()
    handoff, _ = ended(world, ack=False)
    assert not retire(world, handoff, world.now.wall_ms + 10_000 * DAY_MS)
    assert bytes(world.run(GetResult(handoff=handoff)).result) == b'"done"'


def test_what_came_back_after_its_ack_does_not_go() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Fail(handoff=handoff, fence=fence, error=WorkError(type="Oops"), retry=False))
    world.run(Ack(handoff=handoff))
    world.run(Redrive(handoff=handoff))
    assert not retire(world, handoff, world.now.wall_ms + DAY_MS)
    world.run(Cancel(handoff=handoff))
    assert not retire(world, handoff, world.now.wall_ms + DAY_MS), "this end nobody has acknowledged"


def test_an_ancestor_that_a_live_descendant_needs_does_not_go() -> None:
    world = World()
    parent = world.dispatch()
    child = world.dispatch(parent=parent)
    grandchild = world.dispatch(parent=child)
    for handoff in (parent, child):
        world.run(Cancel(handoff=handoff))
        world.run(Ack(handoff=handoff))
    assert not retire(world, parent, world.now.wall_ms)
    assert not retire(world, child, world.now.wall_ms)
    world.run(Cancel(handoff=grandchild))
    assert retire(world, child, world.now.wall_ms)
    assert retire(world, parent, world.now.wall_ms)


def test_nothing_goes_while_the_store_is_away() -> None:
    world = World()
    handoff, _ = ended(world)
    world.send(Dispatch(kind="other", inputs=Raw(b"{}")))
    world.take()
    world.lose_or_keep(Outcome.FAILS)
    facts = world.facts(handoff)
    assert not world.engine.retire(facts, world.now.wall_ms, world.engine.journal.durable, world.now)
    world.find_out()
    assert world.facts(handoff) is facts


# --- by which clock -------------------------------------------------------------------------------------------------


YEAR_MS = 365 * DAY_MS


@pytest.mark.parametrize(
    ("lease_ms", "wall_ms", "counted_ms"),
    [
        (0, 0, 0),
        (DAY_MS, DAY_MS, DAY_MS),
        (DAY_MS, DAY_MS + YEAR_MS, DAY_MS),  # It was set a year ahead.
        (DAY_MS, DAY_MS - YEAR_MS, DAY_MS - YEAR_MS),  # Or back.
        (5 * DAY_MS, DAY_MS, DAY_MS),
    ],
)
def test_the_wall_clock_counts_as_far_as_time_has_really_gone_by(lease_ms: int, wall_ms: int, counted_ms: int) -> None:
    now = Now(START.lease_ms + lease_ms, START.wall_ms + wall_ms)
    assert retention_wall_ms(START, now) == START.wall_ms + counted_ms


def test_a_wall_clock_that_jumps_a_year_ahead_and_back_removes_nothing_early() -> None:
    world = World()
    started = world.now
    before, _ = ended(world)
    world.jump(1_000, wall_ms=YEAR_MS)
    during = world.dispatch()
    world.run(Cancel(handoff=during))
    world.run(Ack(handoff=during))
    for handoff in (before, during):
        assert not retire(world, handoff, retention_wall_ms(started, world.now) - 30 * DAY_MS)
    world.jump(1_000, wall_ms=1_000 - YEAR_MS)
    for handoff in (before, during):
        assert not retire(world, handoff, retention_wall_ms(started, world.now) - 30 * DAY_MS)
    world.jump(30 * DAY_MS)
    assert retire(world, before, retention_wall_ms(started, world.now) - 30 * DAY_MS)
    assert not retire(world, during, retention_wall_ms(started, world.now) - 30 * DAY_MS), "it is kept for longer"
