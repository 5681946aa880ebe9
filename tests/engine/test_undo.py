"""After a failed commit everything is as it was before, leases, waiters and sessions apart."""

import random
from collections.abc import Callable

import pytest
from msgspec import Raw

from dhp_protocol.errors import LeaseLost, StoreUnavailable
from dhp_protocol.messages import (
    Ack,
    Cancel,
    Checkpoint,
    Claim,
    Complete,
    Dispatch,
    Fail,
    GetResult,
    GetStatus,
    Goodbye,
    Heartbeat,
    Hello,
    LeaseRef,
    Ping,
    Release,
    Request,
    WorkError,
)
from dhp_protocol.replies import NothingToClaim
from tests.support.engine_world import TTL_MS, Outcome, World, deadlines, memory

OOPS = WorkError(type="Oops")


def dispatch(number: int, **members: object) -> Dispatch:
    return Dispatch(kind="work", inputs=Raw(b'{"fresh":%d}' % number), **members)  # type: ignore[arg-type]


def populated() -> tuple[World, dict[str, tuple[str, int]]]:
    """A world with a handoff in every status, waiters, a parent and its child."""
    world = World()
    parent = world.dispatch()
    cases = {
        "pending": (world.dispatch(priority=7), 0),
        "delayed": (world.dispatch(delay_ms=50_000), 0),
        "parent": (parent, 0),
        "child": (world.dispatch(parent=parent), 0),
        "running": world.held(),
        "last attempt": world.held(budget=Raw(b'{"max_attempts":1}')),
        "orphaned": (world.dispatch(), 1),
        "completed": world.held(),
    }
    for handoff, fence in (cases["running"], cases["last attempt"]):
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"0")))
    handoff, fence = cases["completed"]
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    world.claim(cases["orphaned"][0], ttl_ms=500)
    world.advance(500)
    others = world.connect()
    world.send(Claim(worker="wanda", kinds=["other"], wait_ms=600_000, ttl_ms=9_000), on=others)
    world.send(Claim(worker="wim", handoff=cases["running"][0], wait_ms=600_000), on=others)
    world.send(GetResult(handoff=cases["running"][0], wait_ms=600_000), on=others)
    return world, cases


CHANGES: dict[str, Callable[[dict[str, tuple[str, int]]], list[Request]]] = {
    "dispatch": lambda cases: [dispatch(1), dispatch(2, parent=cases["parent"][0]), dispatch(3, delay_ms=10)],
    "dispatch to a waiter": lambda cases: [Dispatch(kind="other", inputs=Raw(b"{}"))],
    "claim": lambda cases: [Claim(worker="bob", kinds=["work"], nonce="n1"), Claim(worker="bob", kinds=["work"])],
    "take over": lambda cases: [Claim(worker="bob", handoff=cases["orphaned"][0], ttl_ms=700)],
    "checkpoint": lambda cases: [
        Checkpoint(handoff=cases["running"][0], fence=1, state=Raw(b"%d" % number)) for number in range(1, 4)
    ],
    "complete": lambda cases: [Complete(handoff=cases["running"][0], fence=1, result=Raw(b"1"))],
    "release to a waiter": lambda cases: [Release(handoff=cases["running"][0], fence=1)],
    "fail": lambda cases: [Fail(handoff=cases["running"][0], fence=1, error=OOPS, delay_ms=1_000)],
    "last failure": lambda cases: [Fail(handoff=cases["last attempt"][0], fence=1, error=OOPS, delay_ms=0)],
    "cancel": lambda cases: [Cancel(handoff=handoff) for name, (handoff, _) in cases.items() if name != "completed"],
    "cancel with children": lambda cases: [Cancel(handoff=cases["parent"][0], children=True)],
    "ack": lambda cases: [Ack(handoff=cases["completed"][0])],
    "goodbye": lambda cases: [Goodbye()],
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_was_decided_is_undone(name: str) -> None:
    world, cases = populated()
    before, due_before = memory(world.engine), deadlines(world.engine)
    calls = [world.send(request) for request in CHANGES[name](cases)]
    assert memory(world.engine) != before, "it did something"
    world.fail_commit()
    assert memory(world.engine) == before
    due = deadlines(world.engine)
    assert due.keys() == due_before.keys()
    assert all((due[handoff] or 0) >= (due_before[handoff] or 0) for handoff in due), "no lease became shorter"
    assert [call.answer.code for call in calls] == ["store_unavailable"] * len(calls)


@pytest.mark.parametrize("name", CHANGES)
def test_later_decisions_on_top_of_it_are_undone_too(name: str) -> None:
    world, cases = populated()
    before = memory(world.engine)
    for request in CHANGES[name](cases):
        world.send(request)
    world.take()
    for later in CHANGES.values():
        for request in later(cases):
            world.send(request)
    world.finish(Outcome.FAILS)
    assert memory(world.engine) == before


@pytest.mark.parametrize("name", CHANGES)
def test_the_same_again_works_after_it(name: str) -> None:
    world, cases = populated()
    for request in CHANGES[name](cases):
        world.send(request)
    world.fail_commit()
    for request in CHANGES[name](cases):
        world.run(request)


def test_a_claim_in_flight_that_is_cancelled_meanwhile_is_undone_to_before_the_claim() -> None:
    world = World()
    handoff = world.dispatch()
    before = memory(world.engine)
    world.send(Claim(worker="bob", handoff=handoff))
    world.take()
    world.send(Checkpoint(handoff=handoff, fence=1, state=Raw(b"1")))
    world.send(Cancel(handoff=handoff))
    world.finish(Outcome.FAILS)
    assert memory(world.engine) == before
    assert world.engine.leases.get(handoff, 1) is None


def test_what_was_committed_before_stays() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
    world.send(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"2")))
    world.fail_commit()
    assert world.status(handoff).seq == 1
    assert world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"2"), seq=2)).duplicate is False


# --- leases and time lie outside ------------------------------------------------------------------------------------


def test_a_lease_whose_release_was_undone_has_its_deadline_still() -> None:
    world = World()
    handoff, fence = world.held()
    world.advance(1_000)
    world.send(Release(handoff=handoff, fence=fence))
    world.take()
    world.jump(1_000)
    world.finish(Outcome.FAILS)
    assert world.deadline_ms(handoff) == TTL_MS - 2_000
    world.advance(TTL_MS - 2_001)
    assert world.facts(handoff).status == "running"
    world.advance(1)
    assert world.facts(handoff).status == "orphaned"


def test_a_renewal_by_a_write_that_was_undone_still_counts() -> None:
    """The holder was alive: that isn't a fact of the disk's."""
    world = World()
    handoff, fence = world.held()
    world.advance(5_000)
    world.send(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
    world.fail_commit()
    assert world.deadline_ms(handoff) == TTL_MS


def test_an_expiry_that_cannot_be_committed_is_tried_again_and_the_old_holder_stays_refused() -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    fence = world.claim(handoff, on=mine)
    world.jump(TTL_MS)
    world.tick()
    for _ in range(3):
        world.take()
        world.lose_or_keep(Outcome.FAILS)
        late = world.send(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
        assert isinstance(late.answer, StoreUnavailable)
        world.find_out()
        assert world.facts(handoff).status == "orphaned", "decided again at once"
        late = world.send(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
        assert not late.answered
    world.commit()
    assert isinstance(late.answer, LeaseLost)
    assert len(world.heard[mine]) == 1, "told once, when it is so"


def test_a_lease_that_ends_while_the_store_is_away_ends_when_it_is_back() -> None:
    world = World()
    handoff, fence = world.held()
    world.send(dispatch(1))
    world.take()
    world.lose_or_keep(Outcome.FAILS)
    world.jump(TTL_MS)
    world.tick()
    assert world.facts(handoff).status == "running"
    heartbeat = world.send(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)]))
    assert handoff not in heartbeat.result().renewed
    world.find_out()
    world.commit()
    assert world.status(handoff).status == "orphaned"


# --- waiters go back to their places --------------------------------------------------------------------------------


def test_a_granted_waiter_goes_back_to_its_place_and_hears_nothing() -> None:
    world = World()
    calls = [world.send(Claim(worker=f"w{i}", kinds=["work"], wait_ms=60_000)) for i in range(3)]
    before = [waiter.worker for waiter in world.engine.waiting.every_claim()]
    world.send(dispatch(1))
    world.send(dispatch(2))
    assert len(world.engine.waiting.every_claim()) == 1
    world.fail_commit()
    assert [waiter.worker for waiter in world.engine.waiting.every_claim()] == before
    assert not any(call.answered for call in calls)
    handoff = world.dispatch()
    assert calls[0].result().handoff == handoff
    assert not calls[1].answered


def test_one_who_came_later_does_not_overtake_one_who_went_back() -> None:
    world = World()
    first = world.send(Claim(worker="first", kinds=["work"], wait_ms=60_000))
    world.send(dispatch(1))
    world.take()
    later = world.send(Claim(worker="later", kinds=["work"], wait_ms=60_000))
    world.finish(Outcome.FAILS)
    world.dispatch()
    assert first.answered
    assert not later.answered


def test_what_was_freed_while_the_store_was_away_goes_to_who_waits() -> None:
    world = World()
    handoff, _ = world.held()
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    world.send(dispatch(1))
    world.take()
    world.lose_or_keep(Outcome.FAILS)
    world.jump(TTL_MS)
    world.tick()
    world.find_out()
    world.commit()
    assert waiter.result().handoff == handoff


def test_a_wait_that_is_over_when_its_grant_is_undone_ends_empty() -> None:
    world = World()
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=1_000))
    world.send(dispatch(1))
    world.take()
    world.jump(1_000)
    world.tick()
    assert not waiter.answered
    world.finish(Outcome.FAILS)
    world.commit()
    assert waiter.result() == NothingToClaim()


def test_whoever_waits_for_an_end_that_is_undone_waits_on() -> None:
    world = World()
    handoff, fence = world.held()
    result = world.send(GetResult(handoff=handoff, wait_ms=60_000))
    claim = world.send(Claim(worker="bob", handoff=handoff, wait_ms=60_000))
    world.send(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    world.fail_commit()
    assert not result.answered
    assert not claim.answered
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"2")))
    assert bytes(result.result().result) == b"2"
    assert claim.answer.code == "not_claimable"


@pytest.mark.parametrize("ended", [False, True], ids=["", "and its end"])
def test_whoever_waits_for_a_handoff_that_is_undone_hears_so(ended: bool) -> None:
    world = World()
    handoff = world.dispatch(kind="before")
    world.send(Release(handoff=handoff, fence=0))
    fresh = Dispatch(kind="work", inputs=Raw(b"{}"))
    world.send(fresh)
    new = next(facts.id for facts in world.engine.ledger if facts.id != handoff)
    world.send(Claim(worker="ada", handoff=new))
    calls = [
        world.send(GetResult(handoff=new, wait_ms=60_000)),
        world.send(Claim(worker="bob", handoff=new, wait_ms=60_000)),
    ]
    if ended:
        world.send(Cancel(handoff=new))
    world.fail_commit()
    assert [call.answer.code for call in calls] == ["store_unavailable"] * 2
    world.advance(60_000)
    assert world.run(fresh).created


def test_a_waiter_whose_connection_went_meanwhile_is_still_answered() -> None:
    """Its input may have ended while it still reads."""
    world = World()
    waiting = world.connect("waiting")
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000), on=waiting)
    world.send(dispatch(1))
    world.take()
    world.disconnect(waiting)
    world.finish(Outcome.FAILS)
    assert waiter.answered
    assert world.engine.waiting.every_claim() == []


# --- nobody knows yet -----------------------------------------------------------------------------------------------


def in_doubt() -> tuple[World, dict[str, object]]:
    """The batch in flight failed, and whether it is on disk isn't known."""
    world = World()
    mine = world.connect("mine")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=mine)
    waiter = world.send(Claim(worker="bob", kinds=["new"], wait_ms=60_000))
    asked = world.send(Cancel(handoff=handoff))
    granting = world.send(Dispatch(kind="new", inputs=Raw(b"{}")))
    world.take()
    behind = world.send(dispatch(7))
    return world, {
        "mine": mine,
        "handoff": handoff,
        "fence": fence,
        "waiter": waiter,
        "asked": asked,
        "granting": granting,
        "behind": behind,
    }


@pytest.mark.parametrize("outcome", [Outcome.FAILS, Outcome.FAILS_BUT_KEPT])
def test_in_doubt_whoever_asked_hears_so_at_once_and_nothing_is_taken(outcome: Outcome) -> None:
    world, things = in_doubt()
    world.lose_or_keep(outcome)
    for name in ("asked", "granting", "behind"):
        assert things[name].answer.code == "store_unavailable", name  # type: ignore[attr-defined]
    assert not things["waiter"].answered, "it waits anyway"  # type: ignore[attr-defined]
    assert world.heard[things["mine"]] == []  # type: ignore[index]
    for request in (GetStatus(handoff=str(things["handoff"])), dispatch(8), Claim(worker="eve", kinds=["new"])):
        call = world.send(request)
        assert (call.answer.code, call.answer.after_ms) == ("store_unavailable", 200)
    assert world.send(Ping()).answered
    assert world.send(Hello(), on=world.connect()).answered


def test_kept_after_all_it_counts_and_those_who_waited_hear_of_it() -> None:
    world, things = in_doubt()
    world.lose_or_keep(Outcome.FAILS_BUT_KEPT)
    world.find_out()
    assert things["waiter"].result().fence == 1  # type: ignore[attr-defined]
    assert [type(event).__name__ for event in world.heard[things["mine"]]] == ["CancelledEvent"]  # type: ignore[index]
    world.commit()
    assert world.status(str(things["handoff"])).status == "cancelled"
    assert world.run(dispatch(7)).created is False, "what stood behind it was decided and is written now"


def test_not_kept_nothing_of_it_is_so() -> None:
    world, things = in_doubt()
    world.lose_or_keep(Outcome.FAILS)
    world.find_out()
    assert not things["waiter"].answered  # type: ignore[attr-defined]
    assert world.status(str(things["handoff"])).status == "running"
    assert world.run(dispatch(7)).created is True
    again = world.run(Dispatch(kind="new", inputs=Raw(b"{}")))
    assert again.created is True
    assert things["waiter"].result().handoff == again.handoff  # type: ignore[attr-defined]


@pytest.mark.parametrize("outcome", [Outcome.FAILS, Outcome.FAILS_BUT_KEPT])
def test_a_restart_in_doubt_finds_what_the_disk_has(outcome: Outcome) -> None:
    world, things = in_doubt()
    world.lose_or_keep(outcome)
    world.restart()
    kept = outcome is Outcome.FAILS_BUT_KEPT
    assert world.status(str(things["handoff"])).status == ("cancelled" if kept else "running")


# --- one that can't be stored ---------------------------------------------------------------------------------------


def test_one_that_cannot_be_stored_fails_alone() -> None:
    world = World()
    poison, fence = world.held()
    others = [world.held() for _ in range(3)]
    before = world.facts(poison)
    bad = world.send(Checkpoint(handoff=poison, fence=fence, state=Raw(b"1")))
    good = [world.send(Checkpoint(handoff=handoff, fence=f, state=Raw(b"1"))) for handoff, f in others]
    looked = world.send(GetStatus(handoff=poison))
    of_all = world.send(Claim(worker="bob", kinds=["other"]))
    world.take()
    on_top = world.send(Checkpoint(handoff=poison, fence=fence, state=Raw(b"2")))
    world.finish(Outcome.POISON)
    assert [call.result().seq for call in good] == [1, 1, 1]
    for call in (bad, looked, of_all, on_top):
        assert call.answer.code == "store_unavailable"
    assert world.facts(poison) == before
    world.commit()
    assert world.run(Checkpoint(handoff=poison, fence=fence, state=Raw(b"1"))).seq == 1
    assert [world.status(handoff).seq for handoff, _ in others] == [1, 1, 1]


def test_a_dispatch_that_cannot_be_stored_never_was() -> None:
    world = World()
    bad = world.send(dispatch(1))
    good = world.send(dispatch(2))
    world.take()
    world.finish(Outcome.POISON)
    assert bad.answer.code == "store_unavailable"
    assert world.engine.ledger.counts["pending"] == 1
    assert world.run(dispatch(1)).created is True
    assert world.run(dispatch(2)).handoff == good.result().handoff


def test_a_claim_that_cannot_be_stored_leaves_no_lease() -> None:
    world = World()
    handoff = world.dispatch()
    world.send(Claim(worker="bob", handoff=handoff, nonce="n1"))
    world.take()
    world.finish(Outcome.POISON)
    assert world.engine.leases.get(handoff, 1) is None
    assert world.run(Claim(worker="bob", handoff=handoff, nonce="n1")).fence == 1


@pytest.mark.parametrize("its_facts_are", ["in its batch", "in the batch behind it"])
@pytest.mark.parametrize("killed_after", ["one commit", "all commits"])
def test_what_could_not_be_stored_is_not_lost_with_what_was_stored_of_it_before(
    its_facts_are: str, killed_after: str
) -> None:
    """The table of facts is never said to hold records that it lacks."""
    world = World()
    handoff, fence = world.held()
    if its_facts_are == "in its batch":
        world.jump(1_000)
    world.send(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
    assert (handoff in world.take().flushed) == (its_facts_are == "in its batch")
    world.send(dispatch(-1))
    world.jump(1_000)
    for number in range(600):  # Enough for a batch that is closed, with its slice of the table, behind this one.
        world.send(dispatch(number))
    assert world.engine.journal.sealed
    world.finish(Outcome.POISON)
    if killed_after == "one commit":
        world.take()
        world.finish()
    else:
        world.commit()
    world.restart()
    assert world.status(handoff).fence == fence


def test_facts_that_were_on_their_way_twice_when_the_disk_failed_are_lacking_from_the_first_time_on() -> None:
    world = World()
    handoff, fence = world.held()
    for number in range(300):  # More than one slice of the table.
        world.send(dispatch(number))
    while world.engine.journal.sealed or world.engine.journal.gathering.entries:
        world.take()
        world.finish()
    world.jump(1_000)
    world.send(dispatch(-1))
    assert handoff in world.take().flushed
    world.send(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
    for number in range(1_000, 1_600):
        world.send(dispatch(number))
    assert world.engine.journal.sealed
    world.finish(Outcome.FAILS)
    world.take()
    world.finish()
    world.restart()
    assert world.status(handoff).fence == fence


# --- at random ------------------------------------------------------------------------------------------------------


def test_random_changes_are_undone_exactly(rng: random.Random) -> None:
    for _ in range(40):
        world, cases = populated()
        committed = rng.sample(sorted(CHANGES), 2)
        undone = rng.choices(sorted(CHANGES), k=4)
        print(f"committed {committed}, then undone {undone}")
        for name in committed:
            for request in CHANGES[name](cases):
                world.send(request)
                world.commit()
        before = memory(world.engine)
        taken = rng.randrange(4)
        for index, name in enumerate(undone):
            for request in CHANGES[name](cases):
                world.send(request)
            if index == taken and world.engine.wants_commit(world.now):
                world.take()
        if not world.engine.journal.in_flight:
            if not world.engine.wants_commit(world.now):
                continue
            world.take()
        world.finish(Outcome.FAILS)
        assert memory(world.engine) == before
