"""Whatever is sent again changes nothing, and says so."""

import hashlib
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dhp_protocol.errors import CheckpointConflict, InvalidRequest, LeaseLost, OutOfOrder, ResultInvalid, TooLarge
from dhp_protocol.limits import MAX_SAFE_INTEGER, MAX_STEPS
from dhp_protocol.messages import Checkpoint, Complete, Dispatch, Fail, Release, WorkError
from dhp_protocol.replies import CheckpointReply, DispatchReply, FailReply, ReleaseReply
from tests.support.engine_world import LIMITS, World

OOPS = WorkError(type="Oops")


def sha256(state: bytes) -> str:
    return hashlib.sha256(state).hexdigest()


class Holder:
    """Writes to one held handoff."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.handoff, self.fence = world.held()

    def checkpoint(self, state: bytes, **members: Any) -> CheckpointReply:
        reply: CheckpointReply = self.world.run(
            Checkpoint(handoff=self.handoff, fence=self.fence, state=Raw(state), **members)
        )
        return reply

    @property
    def seq_and_steps(self) -> tuple[int, int]:
        facts = self.world.facts(self.handoff)
        return facts.seq, facts.steps


@pytest.fixture
def holder() -> Holder:
    return Holder(World())


# --- checkpoints ----------------------------------------------------------------------------------------------------


def test_checkpoints_are_numbered_from_one(holder: Holder) -> None:
    assert holder.checkpoint(b"1") == CheckpointReply(seq=1, sha256=sha256(b"1"), duplicate=False)
    assert holder.checkpoint(b"2", seq=2, steps=5) == CheckpointReply(seq=2, sha256=sha256(b"2"), duplicate=False)
    assert holder.seq_and_steps == (2, 6)


def test_the_newest_sent_again_is_a_duplicate_and_its_other_members_are_ignored(holder: Holder) -> None:
    holder.checkpoint(b"1", seq=1)
    assert holder.checkpoint(b"1", seq=1, steps=99) == CheckpointReply(seq=1, sha256=sha256(b"1"), duplicate=True)
    assert holder.seq_and_steps == (1, 1)


def test_an_older_one_sent_again_is_a_duplicate_too(holder: Holder) -> None:
    for state in (b"1", b"2", b"3"):
        holder.checkpoint(state)
    assert holder.checkpoint(b"1", seq=1) == CheckpointReply(seq=1, sha256=sha256(b"1"), duplicate=True)
    assert holder.seq_and_steps == (3, 3)


@pytest.mark.parametrize("seq", [1, 2], ids=["older", "newest"])
def test_other_bytes_under_a_stored_seq_are_a_conflict(holder: Holder, seq: int) -> None:
    holder.checkpoint(b"1")
    holder.checkpoint(b"2")
    with pytest.raises(CheckpointConflict) as caught:
        holder.checkpoint(b"another", seq=seq)
    expected = sha256(b"%d" % seq)
    assert caught.value.details == {"seq": seq, "expected": expected, "got": sha256(b"another")}
    assert holder.seq_and_steps == (2, 2)


def test_a_gap_is_out_of_order(holder: Holder) -> None:
    holder.checkpoint(b"1")
    with pytest.raises(OutOfOrder) as caught:
        holder.checkpoint(b"3", seq=3)
    assert caught.value.details == {"seq": 3, "expected": 2, "first_kept": None}


def test_one_that_was_pruned_is_out_of_order_and_the_first_kept_is_told(holder: Holder) -> None:
    for state in (b"1", b"2", b"3", b"4"):
        holder.checkpoint(state)
    world = holder.world
    for row in [row for row in world.disk.left.values() if row.payload in (b"1", b"2")]:
        del world.disk.left[row.position]
    with pytest.raises(OutOfOrder) as caught:
        holder.checkpoint(b"1", seq=1)
    assert caught.value.details == {"seq": 1, "expected": 5, "first_kept": 3}
    assert holder.checkpoint(b"3", seq=3).duplicate


def test_a_wrong_sha256_is_a_conflict_and_a_right_one_is_not(holder: Holder) -> None:
    with pytest.raises(CheckpointConflict) as caught:
        holder.checkpoint(b"1", sha256=sha256(b"2"))
    assert caught.value.details == {"expected": sha256(b"2"), "got": sha256(b"1")}
    assert holder.checkpoint(b"1", sha256=sha256(b"1")).seq == 1


def test_equal_states_under_different_numbers_are_different_checkpoints(holder: Holder) -> None:
    assert [holder.checkpoint(b"same").seq for _ in range(3)] == [1, 2, 3]


def test_a_successor_may_send_its_predecessors_checkpoint_again(holder: Holder) -> None:
    world = holder.world
    holder.checkpoint(b"1")
    world.run(Release(handoff=holder.handoff, fence=holder.fence))
    holder.fence = world.claim(holder.handoff, "bob")
    assert holder.checkpoint(b"1", seq=1).duplicate
    assert holder.checkpoint(b"2", seq=2).seq == 2


def test_a_state_may_have_its_limit_of_bytes_and_no_more(holder: Holder) -> None:
    limit = LIMITS.max_state_bytes
    with pytest.raises(TooLarge) as caught:
        holder.checkpoint(b"1" * (limit + 1))
    assert (caught.value.details["limit"], caught.value.details["size"]) == (limit, limit + 1)
    assert holder.checkpoint(b"1" * limit).seq == 1


def test_the_sum_of_steps_stays_exact(holder: Holder) -> None:
    world, handoff = holder.world, holder.handoff
    holder.checkpoint(b"1", steps=MAX_STEPS)
    assert world.status(handoff).steps == MAX_STEPS
    nearly_full = replace(world.facts(handoff), steps=MAX_SAFE_INTEGER - 1)
    world.engine.ledger.put(handoff, nearly_full, world.now.wall_ms)
    assert holder.checkpoint(b"2", steps=1).seq == 2
    with pytest.raises(InvalidRequest) as caught:
        holder.checkpoint(b"3", steps=1)
    assert caught.value.details["member"] == "steps"
    assert holder.checkpoint(b"3", steps=0).seq == 3


def test_a_duplicate_under_an_ended_fence_is_refused_like_any_write(holder: Holder) -> None:
    holder.checkpoint(b"1")
    holder.world.run(Release(handoff=holder.handoff, fence=holder.fence))
    with pytest.raises(LeaseLost):
        holder.checkpoint(b"1", seq=1)


# --- ends -----------------------------------------------------------------------------------------------------------


def complete(holder: Holder, result: bytes, fence: int | None = None) -> bool:
    request = Complete(handoff=holder.handoff, fence=holder.fence if fence is None else fence, result=Raw(result))
    duplicate: bool = holder.world.run(request).duplicate
    return duplicate


def test_the_same_result_again_is_a_duplicate(holder: Holder) -> None:
    assert not complete(holder, b'{"a":1}')
    before = holder.world.facts(holder.handoff)
    assert complete(holder, b'{"a":1}')
    holder.world.restart()
    assert complete(holder, b'{"a":1}')
    assert holder.world.facts(holder.handoff) == before


def test_the_same_value_in_other_bytes_is_another_result(holder: Holder) -> None:
    complete(holder, b'{"a":1}')
    with pytest.raises(LeaseLost) as caught:
        complete(holder, b'{"a": 1}')
    assert caught.value.details["why"] == "completed"


def test_the_same_result_under_another_fence_is_late(holder: Holder) -> None:
    complete(holder, b"1")
    for fence in (holder.fence + 1, holder.fence - 1):
        with pytest.raises(LeaseLost):
            complete(holder, b"1", fence)


def test_a_result_may_have_its_limit_of_bytes_and_no_more(holder: Holder) -> None:
    with pytest.raises(TooLarge):
        complete(holder, b"1" * (LIMITS.max_result_bytes + 1))
    complete(holder, b"1" * LIMITS.max_result_bytes)


def test_a_result_that_does_not_fit_its_schema_leaves_the_lease_alive(holder: Holder) -> None:
    world = holder.world
    verdict = ResultInvalid("It doesn't fit.", path="/a", rule="type")
    request = Complete(handoff=holder.handoff, fence=holder.fence, result=Raw(b"1"))
    with pytest.raises(ResultInvalid):
        world.run(request, verdict=verdict)
    late = Complete(handoff=holder.handoff, fence=holder.fence + 1, result=Raw(b"1"))
    with pytest.raises(LeaseLost):  # The fence comes first.
        world.run(late, verdict=verdict)
    assert not complete(holder, b"2")


@pytest.mark.parametrize(
    ("request_type", "members", "first", "again"),
    [
        (Release, {}, ReleaseReply(duplicate=False), ReleaseReply(duplicate=True)),
        (Fail, {"error": OOPS}, FailReply(status="pending"), FailReply(status="pending", duplicate=True)),
        (
            Fail,
            {"error": OOPS, "retry": False},
            FailReply(status="dead"),
            FailReply(status="dead", duplicate=True),
        ),
    ],
    ids=["release", "fail", "fail for good"],
)
def test_what_ends_a_hold_repeated_is_a_duplicate(
    holder: Holder, request_type: Any, members: dict[str, Any], first: Any, again: Any
) -> None:
    world = holder.world
    request = request_type(handoff=holder.handoff, fence=holder.fence, **members)
    assert world.run(request) == first
    before = world.facts(holder.handoff)
    assert world.run(request) == again
    world.restart()
    assert world.run(request) == again
    assert world.facts(holder.handoff) == before


@pytest.mark.parametrize(
    ("request_type", "members"), [(Release, {}), (Fail, {"error": OOPS, "delay_ms": 0})], ids=["release", "fail"]
)
def test_after_the_next_claim_it_is_late(holder: Holder, request_type: Any, members: dict[str, Any]) -> None:
    world = holder.world
    request = request_type(handoff=holder.handoff, fence=holder.fence, **members)
    world.run(request)
    world.claim(holder.handoff, "bob")
    with pytest.raises(LeaseLost) as caught:
        world.run(request)
    assert caught.value.details["why"] == "superseded"


def test_the_same_intent_is_one_handoff_and_its_first_circumstances_stand() -> None:
    world = World()
    parent = world.dispatch()
    first = world.run(Dispatch(kind="work", inputs=Raw(b'{"a":1}'), priority=7, labels={"team": "red"}))
    again = world.run(Dispatch(kind="work", inputs=Raw(b'{ "a": 1.0 }'), priority=1, parent=parent, delay_ms=99))
    assert first == DispatchReply(handoff=first.handoff, created=True, status="pending")
    assert again == DispatchReply(handoff=first.handoff, created=False, status="pending")
    status = world.status(first.handoff)
    assert (status.priority, status.labels, status.parent) == (7, {"team": "red"}, None)
    assert world.claim(first.handoff) == 1, "not delayed"


def test_a_key_tells_two_equal_intents_apart() -> None:
    world = World()
    one = world.run(Dispatch(kind="work", inputs=Raw(b"{}"), key="one"))
    two = world.run(Dispatch(kind="work", inputs=Raw(b"{}"), key="two"))
    assert one.created
    assert two.created
    assert one.handoff != two.handoff
