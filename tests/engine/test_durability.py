"""Nothing leaves before what it looked at is on disk: invariant 7, on the engine's side."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.messages import (
    Ack,
    Cancel,
    Checkpoint,
    Checkpoints,
    Claim,
    Complete,
    Dispatch,
    Fail,
    GetResult,
    GetStatus,
    Goodbye,
    Heartbeat,
    Hello,
    History,
    LastCheckpoint,
    LeaseRef,
    ListHandoffs,
    Ping,
    Recover,
    Release,
    Request,
    WorkError,
)
from tests.support.engine_world import TTL_MS, Outcome, World

Ask = Callable[[str, int], Request]
OOPS = WorkError(type="Oops")


def changes_of(handoff: str, fence: int) -> dict[str, Request]:
    return {
        "checkpoint": Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")),
        "complete": Complete(handoff=handoff, fence=fence, result=Raw(b"1")),
        "fail": Fail(handoff=handoff, fence=fence, error=OOPS),
        "release": Release(handoff=handoff, fence=fence),
        "cancel": Cancel(handoff=handoff),
        "dispatch": Dispatch(kind="work", inputs=Raw(b"{}")),
        "goodbye": Goodbye(),
    }


@pytest.mark.parametrize("name", sorted(changes_of("", 0)))
def test_a_change_is_answered_when_it_is_on_disk(name: str) -> None:
    world = World()
    handoff, fence = world.held()
    call = world.send(changes_of(handoff, fence)[name])
    world.take()
    assert not call.answered
    world.finish()
    assert call.result() is not None


@pytest.mark.parametrize("name", sorted(changes_of("", 0)))
def test_a_change_that_could_not_be_written_is_unavailable(name: str) -> None:
    world = World()
    handoff, fence = world.held()
    call = world.send(changes_of(handoff, fence)[name])
    world.fail_commit()
    assert (call.answer.code, call.answer.retry) == ("store_unavailable", "later")


READS: dict[str, Ask] = {
    "status": lambda handoff, fence: GetStatus(handoff=handoff),
    "result": lambda handoff, fence: GetResult(handoff=handoff),
    "history": lambda handoff, fence: History(handoff=handoff),
    "checkpoints": lambda handoff, fence: Checkpoints(handoff=handoff),
    "last_checkpoint": lambda handoff, fence: LastCheckpoint(handoff=handoff),
    "list": lambda handoff, fence: ListHandoffs(),
    "duplicate release": lambda handoff, fence: Release(handoff=handoff, fence=fence),
    "nothing to claim": lambda handoff, fence: Claim(worker="bob", kinds=["other"]),
}
REFUSALS: dict[str, Ask] = {
    "late checkpoint": lambda handoff, fence: Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")),
    "late complete": lambda handoff, fence: Complete(handoff=handoff, fence=fence, result=Raw(b"1")),
    "late fail": lambda handoff, fence: Fail(handoff=handoff, fence=fence, error=OOPS),
    "recover": lambda handoff, fence: Recover(worker="bob", handoff=handoff),
    "ack": lambda handoff, fence: Ack(handoff=handoff),
}


@pytest.mark.parametrize("name", [*READS, *REFUSALS])
def test_whoever_looks_at_what_is_on_its_way_waits_with_it(name: str) -> None:
    world = World()
    handoff, fence = world.held()
    world.send(Release(handoff=handoff, fence=fence))
    world.take()
    call = world.send({**READS, **REFUSALS}[name](handoff, fence))
    assert not call.answered
    world.finish()
    world.commit()  # `list` also waits for the table of facts.
    assert call.answered
    assert getattr(call.answer, "code", "") != "store_unavailable"


@pytest.mark.parametrize("name", [*READS, *REFUSALS])
def test_and_hears_nothing_of_it_when_it_fails(name: str) -> None:
    world = World()
    handoff, fence = world.held()
    world.send(Release(handoff=handoff, fence=fence))
    world.take()
    call = world.send({**READS, **REFUSALS}[name](handoff, fence))
    world.finish(Outcome.FAILS)
    assert call.answer.code == "store_unavailable"
    assert world.status(handoff).status == "running"


@pytest.mark.parametrize("name", [name for name in READS if name not in ("list", "nothing to claim")])
def test_whoever_looks_at_what_is_on_disk_is_answered_at_once(name: str) -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Release(handoff=handoff, fence=fence))
    other, other_fence = world.held()
    world.send(Release(handoff=other, fence=other_fence))
    world.take()
    assert world.send(READS[name](handoff, fence)).answered


@pytest.mark.parametrize(
    "request_of",
    [
        lambda handoff, fence: Ping(),
        lambda handoff, fence: Hello(session="mine"),
        lambda handoff, fence: Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)]),
    ],
    ids=["ping", "hello", "renewed"],
)
@pytest.mark.parametrize("store", ["is writing", "is away"])
def test_what_depends_on_nothing_leaves_at_once(request_of: Ask, store: str) -> None:
    world = World()
    handoff, fence = world.held()
    world.send(Dispatch(kind="work", inputs=Raw(b"{}")))
    world.take()
    if store == "is away":
        world.lose_or_keep(Outcome.FAILS)
    call = world.send(request_of(handoff, fence))
    assert call.answered
    assert call.result() is not None


def test_a_heartbeat_calls_lost_only_what_is_lost_on_disk_and_holds_back_nobody_for_the_rest() -> None:
    world = World()
    (kept, kept_fence), (gone, gone_fence) = world.held(), world.held()
    beat = Heartbeat(leases=[LeaseRef(kept, kept_fence), LeaseRef(gone, gone_fence), LeaseRef("0" * 64, 1)])
    world.send(Release(handoff=gone, fence=gone_fence))
    world.take()
    call = world.send(beat)
    assert (call.result().renewed, call.result().lost) == ([kept], ["0" * 64])
    world.finish()
    assert (world.run(beat).renewed, world.run(beat).lost) == ([kept], [gone, "0" * 64])


def test_a_lease_that_a_heartbeat_finds_over_is_called_lost_by_the_next_one() -> None:
    world = World()
    handoff, fence = world.held()
    beat = Heartbeat(leases=[LeaseRef(handoff, fence)])
    world.jump(TTL_MS)
    call = world.send(beat)
    assert (call.result().renewed, call.result().lost) == ([], [])
    world.commit()
    assert world.run(beat).lost == [handoff]


def test_a_loss_is_told_however_busy_the_next_holder_is() -> None:
    world = World()
    handoff, fence = world.orphaned()
    newer = world.claim(handoff, "bob")
    world.send(Checkpoint(handoff=handoff, fence=newer, state=Raw(b"1")))
    assert world.send(Heartbeat(leases=[LeaseRef(handoff, fence)])).result().lost == [handoff]


def test_a_loss_that_is_undone_was_never_told() -> None:
    world = World()
    handoff, fence = world.held()
    world.send(Release(handoff=handoff, fence=fence))
    world.take()
    beat = Heartbeat(leases=[LeaseRef(handoff, fence)])
    assert world.send(beat).result().lost == []
    world.finish(Outcome.FAILS)
    assert world.run(beat).renewed == [handoff]


def test_an_event_leaves_when_it_is_on_disk() -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    world.claim(handoff, on=mine)
    world.jump(TTL_MS)
    world.tick()
    world.take()
    assert world.heard[mine] == []
    world.finish()
    assert [type(event).__name__ for event in world.heard[mine]] == ["LeaseLostEvent"]


def test_an_event_about_what_failed_is_never_heard() -> None:
    world = World()
    mine, handoff = world.connect("mine"), world.dispatch()
    world.claim(handoff, on=mine)
    world.send(Cancel(handoff=handoff))
    world.fail_commit()
    assert world.heard[mine] == []


def test_a_waiter_hears_of_its_grant_when_that_is_on_disk() -> None:
    world = World()
    waiter = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    world.send(Dispatch(kind="work", inputs=Raw(b"{}")))
    world.take()
    assert not waiter.answered
    world.finish()
    assert waiter.result().fence == 1


def test_a_wait_that_ends_empty_waits_for_the_disk_like_any_answer_about_all() -> None:
    world = World()
    waiter = world.send(Claim(worker="bob", kinds=["other"], wait_ms=1_000))
    world.send(Dispatch(kind="work", inputs=Raw(b"{}")))
    world.take()
    world.jump(1_000)
    world.tick()
    assert not waiter.answered
    world.finish()
    assert waiter.answered


def test_answers_come_with_their_own_commit_and_not_with_the_one_before() -> None:
    world = World()
    first = world.send(Dispatch(kind="work", inputs=Raw(b'{"a":1}')))
    world.take()
    second = world.send(Dispatch(kind="work", inputs=Raw(b'{"a":2}')))
    world.finish()
    assert (first.answered, second.answered) == (True, False)
    world.take()
    world.finish()
    assert second.answered


def test_a_list_shows_every_change_up_to_its_position() -> None:
    """It is read from the table of facts, which is written behind."""
    world = World()
    handoffs = [world.dispatch() for _ in range(5)]
    fence = world.claim(handoffs[2])
    page: Any = world.run(ListHandoffs())
    assert [(status.handoff, status.status) for status in page.handoffs] == [
        (handoff, "running" if handoff == handoffs[2] else "pending") for handoff in handoffs
    ]
    assert page.position == world.engine.journal.durable
    world.run(Complete(handoff=handoffs[2], fence=fence, result=Raw(b"1")))
    assert [status.handoff for status in world.run(ListHandoffs(status="completed")).handoffs] == [handoffs[2]]
