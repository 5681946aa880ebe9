"""Limits: what is clamped, what is refused, and what goes on while the daemon takes nothing new."""

from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.errors import Draining, IdentityMismatch, InvalidRequest, Overloaded, TooLarge
from dhp_protocol.messages import (
    Checkpoint,
    Checkpoints,
    Claim,
    Complete,
    Dispatch,
    Drain,
    GetResult,
    Heartbeat,
    Hello,
    History,
    LeaseRef,
    ListHandoffs,
    Ping,
    Recover,
    Release,
)
from dhp_protocol.replies import DrainingEvent, DrainReply, NothingToClaim, ResultReply
from tests.support.engine_world import LIMITS, TERMS, World

FAR = 10**12


@pytest.mark.parametrize(
    ("asked_ms", "given_ms"),
    [
        (1, TERMS.min_ttl_ms),
        (-5, TERMS.min_ttl_ms),
        (499, 500),
        (500, 500),
        (3_600_000, 3_600_000),
        (3_600_001, TERMS.max_ttl_ms),
        (2**62, TERMS.max_ttl_ms),
    ],
)
def test_the_ttl_is_clamped(asked_ms: int, given_ms: int) -> None:
    world = World()
    handoff = world.dispatch()
    reply = world.run(Claim(worker="ada", handoff=handoff, ttl_ms=asked_ms))
    assert reply.lease.ttl_ms == given_ms == world.deadline_ms(handoff)


@pytest.mark.parametrize("wait_ms", [FAR, LIMITS.max_wait_ms])
def test_a_wait_is_clamped_from_above(wait_ms: int) -> None:
    world = World()
    handoff = world.dispatch(delay_ms=2 * LIMITS.max_wait_ms)
    claim = world.send(Claim(worker="bob", kinds=["work"], wait_ms=wait_ms))
    result = world.send(GetResult(handoff=handoff, wait_ms=wait_ms))
    world.advance(LIMITS.max_wait_ms - 1)
    assert not claim.answered
    assert not result.answered
    world.advance(1)
    assert claim.result() == NothingToClaim()
    assert result.result() == ResultReply(status="pending")


@pytest.mark.parametrize("wait_ms", [0, -1, -FAR])
def test_a_wait_below_zero_is_none(wait_ms: int) -> None:
    world = World()
    assert world.run(Claim(worker="bob", kinds=["work"], wait_ms=wait_ms)) == NothingToClaim()


@pytest.mark.parametrize(("limit", "count"), [(-1, 1), (0, 1), (3, 3), (10, 10), (11, 10), (FAR, 10)])
def test_a_page_is_clamped(limit: int, count: int) -> None:
    world = World()
    handoffs = [world.dispatch(labels={"of": "these"}) for _ in range(15)]
    fence = world.claim(handoffs[0])
    for _ in range(15):
        world.run(Checkpoint(handoff=handoffs[0], fence=fence, state=Raw(b"1")))
    assert len(world.run(ListHandoffs(limit=limit)).handoffs) == count
    assert len(world.run(History(handoff=handoffs[0], limit=limit)).records) == count
    assert len(world.run(Checkpoints(handoff=handoffs[0], limit=limit)).checkpoints) == count


def test_pages_follow_each_other_to_the_end() -> None:
    world = World()
    handoffs = [world.dispatch() for _ in range(25)]
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        page = world.run(ListHandoffs(after=after, limit=10))
        seen += [status.handoff for status in page.handoffs]
        after = page.next
    assert seen == handoffs


def test_a_page_after_the_end_is_empty() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
    records, checkpoints = world.run(History(handoff=handoff)), world.run(Checkpoints(handoff=handoff))
    assert (len(records.records), records.next) == (3, None)
    assert (len(checkpoints.checkpoints), checkpoints.next) == (1, None)
    assert world.run(History(handoff=handoff, after=3)).records == []
    assert world.run(Checkpoints(handoff=handoff, after=1)).checkpoints == []


# --- draining -------------------------------------------------------------------------------------------------------


@pytest.fixture
def drained() -> World:
    world = World()
    world.run(Drain())
    return world


def test_drain_tells_how_many_leases_are_held_and_may_be_said_again() -> None:
    world = World()
    world.held()
    world.held()
    assert world.run(Drain()) == DrainReply(leases=2)
    assert world.run(Drain()) == DrainReply(leases=2)


def test_claims_that_wait_hear_of_it_and_results_wait_on() -> None:
    world = World()
    handoff, fence = world.held()
    claims = [
        world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000)),
        world.send(Recover(worker="bob", handoff=handoff, wait_ms=60_000)),
    ]
    result = world.send(GetResult(handoff=handoff, wait_ms=60_000))
    world.run(Drain())
    assert [call.answer.code for call in claims] == ["draining", "draining"]
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    assert result.result().status == "completed"


def test_a_claim_whose_grant_could_not_be_kept_is_not_granted_any_more() -> None:
    world = World()
    handoff, fence = world.held()
    claim = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    world.send(Release(handoff=handoff, fence=fence))
    world.engine.drain(world.now)
    world.fail_commit()
    assert claim.answer.code == "draining"
    world.run(Release(handoff=handoff, fence=fence))
    assert world.facts(handoff).status == "pending"


def test_a_claim_that_has_not_heard_of_it_yet_is_granted_nothing_when_the_disk_has_room_again() -> None:
    world = World(steps_at_once=1)
    handoff, fence = world.held()
    claims = [world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000)) for _ in range(3)]
    world.engine.disk_filled()
    world.run(Release(handoff=handoff, fence=fence))
    world.engine.drain(world.now)
    world.engine.disk_has_room(world.now)
    world.advance(1_000)
    assert [claim.answer.code for claim in claims] == ["draining"] * 3
    assert world.facts(handoff).status == "pending"


def test_every_session_hears_of_it_once() -> None:
    world = World()
    one, two, silent = world.connect("one"), world.connect("one"), world.connect()
    world.run(Drain())
    world.run(Drain())
    assert [world.heard[connection] for connection in (one, two, silent)] == [[DrainingEvent()], [DrainingEvent()], []]
    late = world.connect("late")
    assert world.heard[late] == [DrainingEvent()]


def test_nothing_new_is_taken(drained: World) -> None:
    for request in (
        Dispatch(kind="work", inputs=Raw(b"{}")),
        Claim(worker="bob", kinds=["work"]),
        Claim(worker="bob", kinds=["work"], wait_ms=60_000),
    ):
        with pytest.raises(Draining):
            drained.run(request)


def test_what_is_held_goes_on_and_what_is_there_is_found() -> None:
    world = World()
    dispatch = Dispatch(kind="work", inputs=Raw(b"{}"))
    handoff = world.run(dispatch).handoff
    claim = Claim(worker="bob", kinds=["work"], nonce="n1")
    fence = world.run(claim).fence
    world.run(Drain())
    assert world.run(dispatch).created is False
    assert world.run(claim).fence == fence
    assert world.run(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)])).renewed == [handoff]
    assert world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1"))).seq == 1
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))


def test_what_is_freed_stays_where_it_is() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Drain())
    world.run(Release(handoff=handoff, fence=fence))
    assert world.facts(handoff).status == "pending"


# --- overload -------------------------------------------------------------------------------------------------------


def test_what_adds_to_a_full_queue_is_refused_and_what_ends_work_is_not() -> None:
    world = World(max_queued_bytes=4_000)
    held = [world.held() for _ in range(3)]
    handoff, fence = held[0]
    while world.engine.journal.queued_bytes <= 4_000:
        world.send(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1" * 900)))
    adding: list[Any] = [
        Dispatch(kind="work", inputs=Raw(b"{}")),
        Claim(worker="bob", kinds=["work"]),
        Recover(worker="bob", handoff=handoff),
        Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")),
        Complete(handoff=handoff, fence=fence, result=Raw(b"1")),
    ]
    for request in adding:
        call = world.send(request)
        assert isinstance(call.answer, Overloaded)
        assert (call.answer.retry, call.answer.after_ms) == ("later", 100)
    released = world.send(Release(handoff=held[1][0], fence=held[1][1]))
    assert world.send(Ping()).answered
    assert world.send(Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)])).answered
    world.commit()
    assert released.result().duplicate is False
    assert world.engine.journal.queued_bytes == 0
    assert world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1"))).duplicate is False


@pytest.mark.parametrize("outcome", ["kept", "lost"])
def test_the_queue_is_counted_down_whatever_becomes_of_it(outcome: str) -> None:
    world = World()
    handoff, fence = world.held()
    for _ in range(5):
        world.send(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1" * 900)))
    assert world.engine.journal.queued_bytes >= 5 * 900
    if outcome == "kept":
        world.commit()
    else:
        world.fail_commit()
    assert world.engine.journal.queued_bytes == 0


# --- intents --------------------------------------------------------------------------------------------------------


def test_a_client_that_computed_another_id_is_told() -> None:
    with pytest.raises(IdentityMismatch) as caught:
        World().run(Dispatch(kind="work", inputs=Raw(b"{}"), handoff="0" * 64))
    assert caught.value.details["got"] == "0" * 64


def test_an_intent_may_have_its_limit_of_bytes() -> None:
    with pytest.raises(TooLarge) as caught:
        World().dispatch(inputs=Raw(b'{"a":"%s"}' % (b"x" * LIMITS.max_intent_bytes)))
    assert caught.value.details["limit"] == LIMITS.max_intent_bytes


@pytest.mark.parametrize(
    ("members", "member"),
    [
        ({"budget": Raw(b'{"max_step":1}')}, "budget.max_step"),
        ({"budget": Raw(b'{"max_attempts":true}')}, "budget.max_attempts"),
        ({"capabilities": Raw(b'{"net":"*"}')}, "capabilities"),
        ({"inputs": Raw(b"[]")}, "inputs"),
        ({"inputs": Raw(b'{"a":9007199254740993}')}, "inputs"),
    ],
)
def test_what_could_not_be_enforced_is_refused_by_name(members: dict[str, Raw], member: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        World().dispatch(**members)
    assert caught.value.details["member"] == member


def test_hello_tells_the_terms() -> None:
    world = World()
    reply = world.run(Hello(session="mine"))
    assert (reply.protocol, reply.session, reply.limits, reply.lease) == ("dhp/1", "mine", LIMITS, TERMS)
