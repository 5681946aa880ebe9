"""Effects: a finished one is never carried out again, and an unfinished one is never taken for a new one."""

import hashlib
from typing import Any

import pytest
from msgspec import UNSET, Raw

from dhp_protocol.errors import DHPError, EffectConflict, InvalidRequest, LeaseLost, NotFound, TooLarge, WrongState
from dhp_protocol.limits import Limits
from dhp_protocol.messages import (
    ApprovalDecide,
    ApprovalRequest,
    Approvals,
    Cancel,
    Complete,
    EffectBegin,
    EffectDone,
    Effects,
    History,
    Redrive,
    Release,
)
from tests.support.engine_world import LIMITS, TTL_MS, World


def begin(world: World, handoff: str, fence: int, step: str = "send", **members: Any) -> Any:
    return world.run(EffectBegin(handoff=handoff, fence=fence, step=step, **members))


def done(world: World, handoff: str, fence: int, step: str = "send", result: bytes = b'"sent"') -> Any:
    return world.run(EffectDone(handoff=handoff, fence=fence, step=step, result=Raw(result)))


def approved(world: World, handoff: str, fence: int, action: str = "pay") -> str:
    asked = ApprovalRequest(handoff=handoff, fence=fence, action=action, details=Raw(b"{}"), timeout_ms=60_000)
    approval: str = world.run(asked).approval
    world.run(ApprovalDecide(approval=approval, decision="approve"), on=world.connect())
    return approval


def types(world: World, handoff: str) -> list[str]:
    return [record["type"] for record in world.run(History(handoff=handoff)).records]


def test_the_answer_to_one_fence_never_changes_until_the_effect_is_done() -> None:
    world = World()
    handoff, fence = world.held()
    assert [begin(world, handoff, fence).state for _ in range(3)] == ["new", "new", "new"]
    assert types(world, handoff).count("effect_begun") == 1
    done(world, handoff, fence)
    for _ in range(2):
        again = begin(world, handoff, fence)
        assert (again.state, bytes(again.result)) == ("done", b'"sent"')


def test_a_standby_is_told_that_an_earlier_worker_may_have_carried_it_out() -> None:
    world = World()
    handoff, fence = world.held()
    begin(world, handoff, fence)
    world.advance(TTL_MS)
    second = world.claim(handoff, "bob")
    assert [begin(world, handoff, second).state for _ in range(2)] == ["in_doubt", "in_doubt"]
    world.run(Release(handoff=handoff, fence=second))
    third = world.claim(handoff, "cyd")
    assert begin(world, handoff, third).state == "in_doubt"


def test_the_standby_settles_it_with_its_own_fence_and_the_earlier_worker_comes_too_late() -> None:
    world = World()
    handoff, fence = world.held()
    begin(world, handoff, fence)
    world.advance(TTL_MS)
    second = world.claim(handoff, "bob")
    begin(world, handoff, second)
    with pytest.raises(LeaseLost) as caught:
        done(world, handoff, fence, result=b'"late"')
    assert caught.value.details["why"] == "superseded"
    assert done(world, handoff, second).duplicate is False
    assert bytes(begin(world, handoff, second).result) == b'"sent"'


def test_the_earlier_worker_comes_too_late_even_while_nobody_has_taken_over() -> None:
    world = World()
    handoff, fence = world.held()
    begin(world, handoff, fence)
    world.jump(TTL_MS)
    with pytest.raises(LeaseLost):
        done(world, handoff, fence)
    assert world.run(Effects(handoff=handoff)).effects[0].state == "begun"


def test_a_done_effect_is_done_for_every_later_fence() -> None:
    world = World()
    handoff, fence = world.held()
    begin(world, handoff, fence)
    done(world, handoff, fence, result=b' {"receipt":1.50} ')
    world.advance(TTL_MS)
    second = world.claim(handoff, "bob")
    told = begin(world, handoff, second)
    assert (told.state, bytes(told.result)) == ("done", b' {"receipt":1.50} ')


def test_the_same_result_again_changes_nothing_and_another_one_is_a_conflict() -> None:
    world = World()
    handoff, fence = world.held()
    begin(world, handoff, fence)
    done(world, handoff, fence, result=b"[1]")
    before = world.facts(handoff)
    assert done(world, handoff, fence, result=b"[1]").duplicate is True
    with pytest.raises(EffectConflict) as caught:
        done(world, handoff, fence, result=b"[1 ]")
    expected, got = (hashlib.sha256(text).hexdigest() for text in (b"[1]", b"[1 ]"))
    assert caught.value.details == {"step": "send", "expected": expected, "got": got}
    assert world.facts(handoff) == before


def test_what_was_never_begun_cannot_be_done() -> None:
    world = World()
    handoff, fence = world.held()
    with pytest.raises(InvalidRequest) as caught:
        done(world, handoff, fence)
    assert caught.value.details["member"] == "step"


def test_a_result_over_its_limit_leaves_the_effect_unfinished() -> None:
    world = World()
    handoff, fence = world.held()
    begin(world, handoff, fence)
    with pytest.raises(TooLarge) as caught:
        done(world, handoff, fence, result=b'"' + b"x" * LIMITS.max_result_bytes + b'"')
    assert caught.value.details["member"] == "result"
    assert done(world, handoff, fence, result=b'"' + b"x" * (LIMITS.max_result_bytes - 2) + b'"').duplicate is False


def test_the_key_is_the_same_for_every_attempt_and_another_one_for_every_step_and_handoff() -> None:
    world = World()
    handoff, fence = world.held()
    other, other_fence = world.held()
    key = begin(world, handoff, fence).idempotency_key
    keys = {
        key,
        begin(world, handoff, fence, "send2").idempotency_key,
        begin(world, other, other_fence).idempotency_key,
    }
    assert len(keys) == 3
    world.restart()
    world.advance(TTL_MS)
    second = world.claim(handoff, "bob")
    assert begin(world, handoff, second).idempotency_key == key
    done(world, handoff, second)
    assert begin(world, handoff, second).idempotency_key == key


def test_effects_survive_a_restart_from_the_tail_and_from_the_table() -> None:
    world = World()
    handoff, fence = world.held()
    begin(world, handoff, fence, "begun")
    begin(world, handoff, fence, "done")
    done(world, handoff, fence, "done")
    before = world.facts(handoff)
    world.restart()
    assert world.facts(handoff) == before
    world.advance(2_000)  # The table of facts has them now.
    world.restart()
    assert world.facts(handoff) == before
    world.advance(TTL_MS)
    second = world.claim(handoff, "bob")
    assert begin(world, handoff, second, "begun").state == "in_doubt"
    assert begin(world, handoff, second, "done").state == "done"


def test_a_redrive_forgets_no_effect() -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"max_attempts":1}'))
    fence = world.claim(handoff)
    begin(world, handoff, fence, "begun")
    begin(world, handoff, fence, "done")
    done(world, handoff, fence, "done")
    world.advance(TTL_MS)
    assert world.facts(handoff).status == "dead"
    world.run(Redrive(handoff=handoff))
    second = world.claim(handoff)
    assert begin(world, handoff, second, "begun").state == "in_doubt"
    assert begin(world, handoff, second, "done").state == "done"


def test_an_effect_whose_record_was_undone_was_never_begun() -> None:
    world = World()
    handoff, fence = world.held()
    call = world.send(EffectBegin(handoff=handoff, fence=fence, step="send"))
    assert not call.answered
    world.fail_commit()
    with pytest.raises(DHPError, match="store"):
        call.result()
    assert world.run(Effects(handoff=handoff)).effects == []
    assert begin(world, handoff, fence).state == "new"


def test_nothing_says_done_before_the_result_is_on_disk() -> None:
    world = World()
    handoff, fence = world.held()
    begin(world, handoff, fence)
    said = world.send(EffectDone(handoff=handoff, fence=fence, step="send", result=Raw(b"1")))
    asked = world.send(EffectBegin(handoff=handoff, fence=fence, step="send"))
    listed = world.send(Effects(handoff=handoff))
    assert [call.answered for call in (said, asked, listed)] == [False, False, False]
    world.fail_commit()
    assert world.run(Effects(handoff=handoff)).effects[0].state == "begun"


# --- approvals ---------------------------------------------------------------------------------------------------------


def test_an_approval_is_used_up_by_the_one_step_that_it_was_named_for() -> None:
    world = World()
    handoff, fence = world.held()
    approval = approved(world, handoff, fence)
    assert begin(world, handoff, fence, "pay", approval=approval).state == "new"
    assert begin(world, handoff, fence, "pay", approval=approval).state == "new"  # The same step again.
    with pytest.raises(WrongState) as caught:
        begin(world, handoff, fence, "pay again", approval=approval)
    assert (caught.value.details["decision"], caught.value.details["used_by"]) == ("approved", "pay")
    assert [effect.step for effect in world.run(Effects(handoff=handoff)).effects] == ["pay"]


def test_after_a_take_over_the_same_step_may_use_it_again_and_no_other_may() -> None:
    world = World()
    handoff, fence = world.held()
    approval = approved(world, handoff, fence)
    begin(world, handoff, fence, "pay", approval=approval)
    world.advance(TTL_MS)
    world.restart()
    second = world.claim(handoff, "bob")
    assert begin(world, handoff, second, "pay", approval=approval).state == "in_doubt"
    with pytest.raises(WrongState):
        begin(world, handoff, second, "another", approval=approval)


def test_an_effect_cannot_begin_with_an_approval_that_is_open_denied_expired_or_unknown() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_attempts":9}'))
    asked = ApprovalRequest(handoff=handoff, fence=fence, action="pay", details=Raw(b"{}"), timeout_ms=1_000)
    approval = world.run(asked).approval
    with pytest.raises(WrongState) as caught:
        begin(world, handoff, fence, approval=approval)
    assert caught.value.details["decision"] is None
    world.jump(1_000)
    with pytest.raises(WrongState) as caught:
        begin(world, handoff, fence, approval=approval)
    assert caught.value.details["decision"] == "expired"
    denied = world.run(ApprovalRequest(handoff=handoff, fence=fence, action="x", details=Raw(b"1"), timeout_ms=9))
    world.run(ApprovalDecide(approval=denied.approval, decision="deny"), on=world.connect())
    with pytest.raises(WrongState) as caught:
        begin(world, handoff, fence, approval=denied.approval)
    assert caught.value.details["decision"] == "denied"
    other, other_fence = world.held()
    foreign = approved(world, other, other_fence)
    with pytest.raises(NotFound):
        begin(world, handoff, fence, approval=foreign)
    assert world.run(Effects(handoff=handoff)).effects == []
    assert "effect_begun" not in types(world, handoff)


def test_an_approval_named_for_a_step_that_was_begun_without_it_is_looked_at_and_used_up() -> None:
    world = World()
    handoff, fence = world.held()
    begin(world, handoff, fence, "pay")
    world.advance(TTL_MS)
    second = world.claim(handoff, "bob")
    asked = ApprovalRequest(handoff=handoff, fence=second, action="pay", details=Raw(b"{}"), timeout_ms=60_000)
    approval = world.run(asked).approval
    with pytest.raises(WrongState):
        begin(world, handoff, second, "pay", approval=approval)
    world.run(ApprovalDecide(approval=approval, decision="approve"), on=world.connect())
    assert begin(world, handoff, second, "pay", approval=approval).state == "in_doubt"
    assert begin(world, handoff, second, "pay").state == "in_doubt"
    assert world.run(Approvals(handoff=handoff)).approvals[0].used_by == "pay"
    with pytest.raises(WrongState):
        begin(world, handoff, second, "other", approval=approval)


def test_a_begin_that_was_undone_uses_no_approval_up() -> None:
    world = World()
    handoff, fence = world.held()
    approval = approved(world, handoff, fence)
    world.send(EffectBegin(handoff=handoff, fence=fence, step="pay", approval=approval))
    world.fail_commit()
    assert begin(world, handoff, fence, "refund", approval=approval).state == "new"


# --- bounds and pages --------------------------------------------------------------------------------------------------


def test_a_handoff_has_no_more_effects_than_it_may_and_those_it_has_go_on() -> None:
    world = World(limits=Limits(max_effects=3, max_page=10))
    handoff, fence = world.held()
    for step in "abc":
        begin(world, handoff, fence, step)
    with pytest.raises(TooLarge) as caught:
        begin(world, handoff, fence, "d")
    assert caught.value.details == {"member": "step", "limit": 3, "size": 4}
    assert begin(world, handoff, fence, "a").state == "new"
    assert done(world, handoff, fence, "a").duplicate is False


def test_effects_come_in_pages_in_the_order_in_which_they_were_begun() -> None:
    world = World()
    handoff, fence = world.held()
    steps = [f"step {number}" for number in reversed(range(23))]
    for step in steps:
        begin(world, handoff, fence, step)
    done(world, handoff, fence, steps[0])
    world.restart()
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        page = world.run(Effects(handoff=handoff, after=after, limit=9))
        assert 0 < len(page.effects) <= 9
        seen += [effect.step for effect in page.effects]
        after = page.next
    assert seen == steps
    assert world.run(Effects(handoff=handoff, after=100)).effects == []


def test_a_page_of_effects_fits_a_frame() -> None:
    world = World(limits=Limits(max_frame_bytes=8_192, max_page=1_000))
    handoff, fence = world.held()
    for number in range(20):
        begin(world, handoff, fence, f"{number:02}" + "\x01" * 254)
    page = world.run(Effects(handoff=handoff))
    assert page.next == len(page.effects) == 4


def test_effects_of_work_that_has_ended_can_still_be_read() -> None:
    world = World()
    handoff, fence = world.held()
    begin(world, handoff, fence)
    done(world, handoff, fence)
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    world.restart()
    (effect,) = world.run(Effects(handoff=handoff)).effects
    assert (effect.step, effect.state, effect.fence) == ("send", "done", fence)


# --- what a write is -----------------------------------------------------------------------------------------------------


def test_an_effect_moves_the_stall_clock_and_the_same_one_again_does_not() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"stall_ms":4000}'))
    world.jump(3_000)
    begin(world, handoff, fence)
    world.jump(3_000)
    assert begin(world, handoff, fence).state == "new"  # The lease is renewed, but nothing has moved.
    world.jump(1_000)
    with pytest.raises(LeaseLost) as caught:
        begin(world, handoff, fence)
    assert caught.value.details["why"] == "stalled"


def test_every_effect_operation_renews_the_lease() -> None:
    world = World()
    handoff, fence = world.held()
    for act in (begin, begin, done, done):
        world.jump(TTL_MS - 1)
        act(world, handoff, fence)
    assert world.deadline_ms(handoff) == TTL_MS


@pytest.mark.parametrize("operation", ["effect_begin", "effect_done"])
def test_a_cancelled_workers_effects_are_refused(operation: str) -> None:
    world = World()
    handoff, fence = world.held()
    begin(world, handoff, fence)
    world.run(Cancel(handoff=handoff))
    with pytest.raises(LeaseLost) as caught:
        (begin if operation == "effect_begin" else done)(world, handoff, fence)
    assert caught.value.details["why"] == "cancelled"


def test_an_effect_that_is_new_shows_no_result() -> None:
    world = World()
    handoff, fence = world.held()
    assert begin(world, handoff, fence).result is UNSET
