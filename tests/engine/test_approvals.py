"""Approvals: a person's word on exactly one action, given once, never by whoever asked."""

from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.errors import (
    AlreadyDecided,
    ApprovalExpired,
    Forbidden,
    InvalidRequest,
    LeaseLost,
    NotFound,
    StoreUnavailable,
    TooLarge,
)
from dhp_protocol.limits import Limits
from dhp_protocol.messages import (
    ApprovalDecide,
    ApprovalRequest,
    Approvals,
    ApprovalWait,
    Cancel,
    Checkpoint,
    Complete,
    EffectBegin,
    History,
    Redrive,
    Release,
    Suspend,
)
from tests.simulation.store_model import Outcome
from tests.support.engine_world import LIMITS, TTL_MS, Call, World

DAY_MS = 86_400_000


class Office(World):
    """A world with a worker that may ask, and a person who may decide."""

    def start(self) -> None:
        super().start()
        self.person = self.connect()

    def ask(
        self,
        handoff: str,
        fence: int,
        action: str = "pay",
        details: bytes = b"{}",
        *,
        timeout_ms: int = DAY_MS,
        on: int | None = None,
    ) -> str:
        request = ApprovalRequest(
            handoff=handoff, fence=fence, action=action, details=Raw(details), timeout_ms=timeout_ms
        )
        approval: str = self.run(request, on=on).approval
        return approval

    def decide(self, approval: str, decision: Any = "approve", *, on: int | None = None, **members: Any) -> Any:
        person = self.person if on is None else on
        return self.run(ApprovalDecide(approval=approval, decision=decision, **members), on=person)

    def decision(self, approval: str) -> str | None:
        said: str | None = self.run(ApprovalWait(approval=approval)).decision
        return said

    def waits(self, approval: str, wait_ms: int = 60_000, *, on: int | None = None) -> Call:
        return self.send(ApprovalWait(approval=approval, wait_ms=wait_ms), on=on)

    def listed(self, **members: Any) -> list[str]:
        """All pages."""
        found: list[str] = []
        after: int | None = 0
        while after is not None:
            page = self.run(Approvals(after=after, **members))
            found += [view.approval for view in page.approvals]
            after = page.next
        return found

    def records(self, handoff: str, record_type: str) -> list[dict[str, Any]]:
        records = self.run(History(handoff=handoff, limit=10)).records
        return [record for record in records if record["type"] == record_type]


# --- what it is bound to -------------------------------------------------------------------------------------------------


def test_the_same_question_again_is_the_same_approval_however_its_details_are_spelled() -> None:
    world = Office()
    handoff, fence = world.held()
    first = world.ask(handoff, fence, details=b'{"to":"ada","usd":1.0}')
    assert world.ask(handoff, fence, details=b' {"usd": 1, "to": "\\u0061da"}') == first
    assert len(world.records(handoff, "approval_requested")) == 1
    (view,) = world.run(Approvals(handoff=handoff)).approvals
    assert (view.action, bytes(view.details), view.decision) == ("pay", b'{"to":"ada","usd":1}', None)


def test_another_action_other_details_and_other_work_are_other_approvals() -> None:
    world = Office()
    handoff, fence = world.held()
    other, other_fence = world.held()
    approvals = [
        world.ask(handoff, fence),
        world.ask(handoff, fence, "refund"),
        world.ask(handoff, fence, details=b'{"usd":1}'),
        world.ask(other, other_fence),
    ]
    assert len(set(approvals)) == 4
    world.decide(approvals[0])
    assert [world.decision(approval) for approval in approvals] == ["approved", None, None, None]


@pytest.mark.parametrize("details", [b'{"a":1,"a":1}', b'{"a":9007199254740993}', b"1e999"])
def test_details_without_a_canonical_form_are_refused(details: bytes) -> None:
    world = Office()
    handoff, fence = world.held()
    with pytest.raises(InvalidRequest) as caught:
        world.ask(handoff, fence, details=details)
    assert caught.value.details["member"].startswith("details")
    assert world.listed(handoff=handoff) == []


def test_details_over_their_limit_are_refused_and_a_late_writer_hears_first_that_it_is_late() -> None:
    world = Office()
    handoff, fence = world.held()
    long = b'"' + b"x" * LIMITS.max_details_bytes + b'"'
    with pytest.raises(TooLarge) as caught:
        world.ask(handoff, fence, details=long)
    assert caught.value.details["member"] == "details"
    with pytest.raises(LeaseLost):
        world.ask(handoff, fence + 1, details=long)


def test_after_an_expiry_the_same_question_is_a_new_approval_each_time() -> None:
    world = Office()
    handoff, fence = world.held()
    seen = []
    for _ in range(3):
        seen.append(world.ask(handoff, fence, timeout_ms=1_000))
        world.jump(1_000)
    assert len(set(seen)) == 3
    assert [world.decision(approval) for approval in seen] == ["expired"] * 3
    assert world.ask(handoff, fence) not in seen


@pytest.mark.parametrize(("decision", "told"), [("approve", "approved"), ("deny", "denied")])
def test_a_decided_question_asked_again_has_its_decision(decision: str, told: str) -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence)
    world.decide(approval, decision)
    assert world.ask(handoff, fence) == approval
    world.advance(DAY_MS)  # A decision in time doesn't expire.
    assert world.decision(approval) == told


# --- who decides -------------------------------------------------------------------------------------------------------


def test_whoever_asked_never_decides_on_any_connection_of_the_session() -> None:
    world = Office()
    worker, same = world.connect("worker"), world.connect("worker")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=worker)
    approval = world.ask(handoff, fence, on=worker)
    for connection in (worker, same):
        for decision in ("approve", "deny"):
            with pytest.raises(Forbidden):
                world.decide(approval, decision, on=connection)
    world.run(Release(handoff=handoff, fence=fence), on=worker)
    with pytest.raises(Forbidden):
        world.decide(approval, on=worker)
    assert world.decision(approval) is None
    assert world.decide(approval).decision == "approved"


def test_a_connection_without_hello_never_decides_what_it_asked() -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence)
    with pytest.raises(Forbidden):
        world.decide(approval, on=world.home)
    assert world.decide(approval, on=world.connect()).decision == "approved"


def test_who_asked_is_remembered_over_a_restart() -> None:
    world = Office()
    handoff = world.dispatch()
    worker = world.connect("worker")
    approval = world.ask(handoff, world.claim(handoff, on=worker), on=worker)
    for _ in range(2):
        world.restart()
        with pytest.raises(Forbidden):
            world.decide(approval, on=world.connect("worker"))
        world.advance(2_000)  # The table of facts has it.
    assert world.decide(approval).decision == "approved"


def test_a_later_worker_that_asks_the_same_is_an_asker_too() -> None:
    world = Office()
    first, second = world.connect("first"), world.connect("second")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=first)
    approval = world.ask(handoff, fence, on=first)
    world.run(Release(handoff=handoff, fence=fence), on=first)
    fence = world.claim(handoff, "bob", on=second)
    assert world.ask(handoff, fence, on=second) == approval
    assert world.ask(handoff, fence, on=second) == approval
    assert len(world.records(handoff, "approval_requested")) == 2
    world.run(Release(handoff=handoff, fence=fence), on=second)
    world.restart()
    for session in ("first", "second"):
        with pytest.raises(Forbidden):
            world.decide(approval, on=world.connect(session))
    assert world.decide(approval).decision == "approved"


def test_asking_again_moves_no_expiry() -> None:
    world = Office()
    first, second = world.connect("first"), world.connect("second")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=first)
    approval = world.ask(handoff, fence, on=first, timeout_ms=1_000)
    world.run(Release(handoff=handoff, fence=fence), on=first)
    fence = world.claim(handoff, "bob", on=second)
    assert world.ask(handoff, fence, on=second, timeout_ms=DAY_MS) == approval
    world.jump(1_000)
    assert world.decision(approval) == "expired"


def test_whoever_holds_the_work_does_not_decide_even_if_another_asked() -> None:
    world = Office()
    first, second = world.connect("first"), world.connect("second")
    handoff = world.dispatch()
    fence = world.claim(handoff, on=first)
    approval = world.ask(handoff, fence, on=first)
    world.run(Release(handoff=handoff, fence=fence), on=first)
    world.claim(handoff, "bob", on=second)
    with pytest.raises(Forbidden):
        world.decide(approval, on=second)


def test_askers_without_a_token_are_remembered_up_to_a_bound() -> None:
    world = Office()
    handoff = world.dispatch()
    for number in range(40):
        worker = world.connect(f"worker {number}")
        fence = world.claim(handoff, on=worker)
        approval = world.ask(handoff, fence, on=worker)
        world.run(Release(handoff=handoff, fence=fence), on=worker)
    facts = (world.facts(handoff).approvals or {})[approval]
    assert len(facts.further_askers) == 32
    for session in ("worker 0", "worker 39", "worker 8"):  # The first one, and the newest.
        with pytest.raises(Forbidden):
            world.decide(approval, on=world.connect(session))


# --- one decision ------------------------------------------------------------------------------------------------------


def test_a_decision_stands_and_the_same_one_again_is_no_error() -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence)
    first = world.decide(approval, note="go on")
    assert world.decide(approval, note="another note", on=world.connect()) == first
    with pytest.raises(AlreadyDecided) as caught:
        world.decide(approval, "deny", on=world.connect())
    assert caught.value.details["decision"] == "approved"
    assert (first.decision, first.note) == ("approved", "go on")
    assert len(world.records(handoff, "approval_decided")) == 1
    world.restart()
    assert world.run(ApprovalWait(approval=approval)) == first


def test_a_decision_is_told_once_it_is_on_disk_and_not_before() -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence)
    waiter = world.waits(approval)
    decided = world.send(ApprovalDecide(approval=approval, decision="approve"), on=world.person)
    asked = world.send(ApprovalWait(approval=approval))
    assert [call.answered for call in (waiter, decided, asked)] == [False, False, False]
    world.fail_commit()
    with pytest.raises(StoreUnavailable):
        decided.result()
    assert not waiter.answered
    assert world.decision(approval) is None
    world.decide(approval, "deny")
    assert waiter.result().decision == "denied"


def test_an_unknown_approval_is_not_found() -> None:
    world = Office()
    handoff, _ = world.held()
    for approval in (f"{handoff}-{'0' * 16}", f"{'0' * 64}-{'0' * 16}"):
        with pytest.raises(NotFound):
            world.decide(approval)
        with pytest.raises(NotFound):
            world.waits(approval).result()


# --- expiry --------------------------------------------------------------------------------------------------------------


def test_an_approval_can_be_decided_until_it_expires_and_not_at_that_moment() -> None:
    world = Office()
    handoff, fence = world.held()
    early, late = world.ask(handoff, fence, "a", timeout_ms=1_000), world.ask(handoff, fence, "b", timeout_ms=1_000)
    world.jump(999)
    assert world.decide(early).decision == "approved"
    world.jump(1)
    with pytest.raises(ApprovalExpired) as caught:
        world.decide(late)
    assert caught.value.details["decision"] == "expired"
    (record,) = world.records(handoff, "approval_decided")[1:]
    assert (record["approval"], record["decision"]) == (late, "expired")


def test_an_expiry_is_no_denial_and_comes_by_itself() -> None:
    world = Office()
    handoff, fence = world.held(budget=Raw(b'{"max_attempts":9}'))
    approval = world.ask(handoff, fence, timeout_ms=1_000)
    waiter = world.waits(approval)
    world.advance(999)
    assert not waiter.answered
    world.advance(1)
    assert waiter.result().decision == "expired"
    assert waiter.result().at is not None
    assert world.facts(handoff).status == "running"


def test_several_expiries_one_after_the_other_come_each_at_its_moment() -> None:
    world = Office()
    handoff, fence = world.held(budget=Raw(b'{"max_attempts":9}'))
    approvals = [world.ask(handoff, fence, f"{number}", timeout_ms=1_000 * number) for number in (1, 2, 3)]
    for number in range(1, 4):
        world.advance(1_000)
        decided = world.records(handoff, "approval_decided")
        assert [record["approval"] for record in decided] == approvals[:number]
    world.advance(10_000)


def test_several_expiries_at_once_come_at_once() -> None:
    world = Office()
    handoff, fence = world.held(budget=Raw(b'{"max_attempts":9}'))
    approvals = [world.ask(handoff, fence, f"{number}", timeout_ms=1_000) for number in range(3)]
    world.advance(1_000)
    assert [world.decision(approval) for approval in approvals] == ["expired"] * 3


def test_an_expiry_that_is_on_record_stays_when_the_wall_clock_is_set_back() -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence, timeout_ms=1_000)
    world.jump(0, wall_ms=1_000)
    assert world.run(Approvals(status="expired")).approvals[0].approval == approval
    world.jump(0, wall_ms=-10_000)
    with pytest.raises(ApprovalExpired):
        world.decide(approval)


def test_approvals_run_out_while_the_daemon_is_down() -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence, timeout_ms=1_000)
    world.restart(after_ms=1_000)
    with pytest.raises(ApprovalExpired):
        world.decide(approval)


# --- the end of the work ------------------------------------------------------------------------------------------------


def test_the_end_of_the_work_cancels_what_is_open_and_leaves_what_is_decided() -> None:
    world = Office()
    handoff, fence = world.held()
    open_one, decided = world.ask(handoff, fence, "a"), world.ask(handoff, fence, "b")
    world.decide(decided)
    waiter = world.waits(open_one)
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    assert waiter.result().decision == "cancelled"
    for _ in range(2):
        assert [world.decision(each) for each in (open_one, decided)] == ["cancelled", "approved"]
        with pytest.raises(ApprovalExpired) as caught:
            world.decide(open_one)
        assert caught.value.details["decision"] == "cancelled"
        assert world.decide(decided).decision == "approved"
        world.restart(after_ms=2 * DAY_MS)  # It never becomes "expired" afterwards.
    assert world.listed(handoff=handoff) == [open_one, decided]
    assert world.listed() == []


def test_a_redrive_doesnt_take_up_what_its_death_cancelled() -> None:
    world = Office()
    handoff = world.dispatch(budget=Raw(b'{"max_attempts":1}'))
    approval = world.ask(handoff, world.claim(handoff))
    world.advance(TTL_MS)
    assert world.facts(handoff).status == "dead"
    assert world.decision(approval) == "cancelled"
    world.run(Redrive(handoff=handoff))
    assert world.decision(approval) == "cancelled"
    with pytest.raises(ApprovalExpired):
        world.decide(approval)
    again = world.ask(handoff, world.claim(handoff))
    assert again != approval
    assert world.decide(again).decision == "approved"


def test_an_end_that_was_undone_cancels_nothing() -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence)
    waiter = world.waits(approval)
    world.send(Cancel(handoff=handoff))
    world.fail_commit()
    assert not waiter.answered
    assert world.decide(approval).decision == "approved"
    assert waiter.result().decision == "approved"


# --- waiting -------------------------------------------------------------------------------------------------------------


def test_a_wait_ends_open_when_its_time_is_over_or_its_connection_is() -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence)
    assert world.run(ApprovalWait(approval=approval)).decision is None
    over = world.waits(approval, 1_000)
    gone = world.waits(approval, 60_000, on=world.person)
    world.advance(1_000)
    assert over.result().decision is None
    assert not gone.answered
    world.disconnect(world.person)
    assert gone.result().decision is None


def test_every_waiter_hears_of_the_decision_and_of_no_other_one() -> None:
    world = Office()
    handoff, fence = world.held()
    first, second = world.ask(handoff, fence, "a"), world.ask(handoff, fence, "b")
    waiters = [world.waits(first), world.waits(first, on=world.person)]
    other = world.waits(second)
    world.decide(first)
    assert [waiter.result().decision for waiter in waiters] == ["approved", "approved"]
    assert not other.answered
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
    assert not other.answered


@pytest.mark.parametrize("outcome", [Outcome.FAILS, Outcome.FAILS_BUT_KEPT])
def test_waiting_for_an_approval_that_may_have_been_lost(outcome: Outcome) -> None:
    """Its id can be told beforehand, so somebody may wait for it before it is on disk."""
    world = Office()
    handoff, fence = world.held()
    twin = Office()
    twin_handoff, twin_fence = twin.held()
    assert twin_handoff == handoff
    approval = twin.ask(twin_handoff, twin_fence)
    details = ApprovalRequest(handoff=handoff, fence=fence, action="pay", details=Raw(b"{}"), timeout_ms=DAY_MS)
    world.send(details)
    waiter = world.waits(approval)
    world.take()
    world.finish(outcome)
    if outcome is Outcome.FAILS:
        with pytest.raises(StoreUnavailable):
            waiter.result()
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))
    assert world.ask(handoff, fence) == approval
    world.decide(approval)
    if outcome is Outcome.FAILS_BUT_KEPT:
        assert waiter.result().decision == "approved"


# --- bounds and pages ------------------------------------------------------------------------------------------------


def test_open_approvals_are_bounded_and_a_decision_makes_room() -> None:
    world = Office(limits=Limits(max_open_approvals=3, max_page=10))
    handoff, fence = world.held()
    approvals = [world.ask(handoff, fence, f"{number}") for number in range(3)]
    with pytest.raises(TooLarge) as caught:
        world.ask(handoff, fence, "one more")
    assert caught.value.details["limit"] == 3
    assert world.ask(handoff, fence, "0") == approvals[0]
    world.decide(approvals[0], "deny")
    world.ask(handoff, fence, "one more")


def test_all_approvals_of_a_handoff_are_bounded_whatever_became_of_them() -> None:
    world = Office(limits=Limits(max_approvals=5, max_page=10))
    handoff, fence = world.held()
    for number in range(5):
        world.ask(handoff, fence, f"{number}", timeout_ms=1)
        world.jump(1)
    with pytest.raises(TooLarge) as caught:
        world.ask(handoff, fence, "one more")
    assert caught.value.details == {"member": "action", "limit": 5, "size": 6}


def test_approvals_come_in_pages_oldest_first_by_status() -> None:
    world = Office()
    asked = []
    for number in range(7):
        handoff, fence = world.held()
        asked += [world.ask(handoff, fence, "a"), world.ask(handoff, fence, "b", timeout_ms=1 + number)]
    world.decide(asked[0])
    world.decide(asked[2], "deny")
    world.jump(7)
    assert world.listed(limit=3) == asked
    assert world.listed(limit=2, status="open") == asked[4::2]
    assert world.listed(limit=2, status="expired") == asked[1::2]
    assert world.listed(status="approved") == asked[:1]
    assert world.listed(status="denied") == asked[2:3]
    assert world.listed(status="cancelled") == []
    assert world.listed(handoff=handoff, status="open") == asked[-2:-1]
    world.restart()
    assert world.listed(limit=3) == asked


def test_a_list_shows_nothing_that_a_crash_could_take_back() -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence)
    world.send(ApprovalDecide(approval=approval, decision="approve"), on=world.person)
    listed = world.send(Approvals(status="approved"))
    assert not listed.answered
    world.fail_commit()
    with pytest.raises(StoreUnavailable):
        listed.result()
    assert world.listed(status="open") == [approval]


# --- what a write is -------------------------------------------------------------------------------------------------------


def test_a_question_needs_the_fence() -> None:
    world = Office()
    handoff, fence = world.orphaned()
    with pytest.raises(LeaseLost) as caught:
        world.ask(handoff, fence)
    assert caught.value.details["why"] == "expired"


def test_the_same_question_again_renews_the_lease_and_leaves_no_record() -> None:
    world = Office()
    handoff, fence = world.held()
    world.ask(handoff, fence)
    n = world.facts(handoff).n
    world.jump(TTL_MS - 1)
    world.ask(handoff, fence)
    assert world.deadline_ms(handoff) == TTL_MS
    assert world.facts(handoff).n == n


def test_an_approval_goes_on_while_nobody_holds_the_work() -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence)
    world.run(Suspend(handoff=handoff, fence=fence))
    world.decide(approval)
    world.advance(DAY_MS)
    assert world.decision(approval) == "approved"


# --- who carries it out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart"])
def test_the_session_that_gave_an_approval_does_not_carry_the_action_out(restarted: bool) -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence)
    world.run(Suspend(handoff=handoff, fence=fence, approval=approval))
    world.decide(approval, on=world.connect("boss"))
    if restarted:
        world.restart()
    boss = world.connect("boss")
    fence = world.claim(handoff, on=boss)
    begin = EffectBegin(handoff=handoff, fence=fence, step="pay", approval=approval)
    for on in (boss, world.home):
        with pytest.raises(Forbidden):
            world.run(begin, on=on)
    assert world.facts(handoff).effects is None
    assert world.run(EffectBegin(handoff=handoff, fence=fence, step="look"), on=boss).state == "new"
    world.run(Release(handoff=handoff, fence=fence), on=boss)
    fence = world.claim(handoff)
    begin = EffectBegin(handoff=handoff, fence=fence, step="pay", approval=approval)
    with pytest.raises(Forbidden):
        world.run(begin, on=boss)  # With the fence of another one it would be the same.
    assert world.run(begin).state == "new"


def test_a_decision_that_could_not_be_kept_forbids_nothing() -> None:
    world = Office()
    handoff, fence = world.held()
    approval = world.ask(handoff, fence)
    boss, person = world.connect("boss"), world.connect("person")
    world.send(ApprovalDecide(approval=approval, decision="approve"), on=boss)
    world.fail_commit()
    world.decide(approval, on=person)
    world.run(Release(handoff=handoff, fence=fence))
    fence = world.claim(handoff, on=boss)
    assert world.run(EffectBegin(handoff=handoff, fence=fence, step="pay", approval=approval), on=boss).state == "new"
