"""The simulation notices a mistake in each of the contract's rules."""

import pytest
from msgspec.structs import replace

from dhp_protocol.replies import SpendReply
from dhpd.engine import (
    apply,
    approval_operations,
    budget_operations,
    core,
    effect_operations,
    journal,
    ledger,
    notes,
    settling,
    suspending,
)
from dhpd.engine.outputs import Reply
from dhpd.engine.records import Change, Orphaned, Resumed, Suspended

from . import store_model
from .mutating import caught


def test_a_cap_of_an_ancestor_that_is_passed_over_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = budget_operations.refused_at_a_cap
    monkeypatch.setattr(
        budget_operations, "refused_at_a_cap", lambda facts, ancestors, amounts: right(facts, (), amounts)
    )
    assert caught(1)


def test_a_spend_that_counts_again_when_it_is_sent_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_operations, "done_before", lambda *arguments: False)
    assert caught()


def test_spending_that_only_some_of_the_ancestors_keep_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (journal, store_model):
        monkeypatch.setattr(module, "bound_to", lambda handoffs, entries: handoffs)
    assert caught(30, poison=30)


def test_a_spend_answered_before_its_commit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = core.Core.reply

    def wrong(self, to, answer, facts=None, waiter=None):  # type: ignore[no-untyped-def]
        if isinstance(answer, SpendReply):
            self.journal.ready.append(Reply(to, answer))
        else:
            right(self, to, answer, facts, waiter)

    monkeypatch.setattr(core.Core, "reply", wrong)
    assert caught()


def test_a_fence_that_a_suspend_does_not_raise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = suspending.decide_suspend

    def wrong(handoff, *arguments):  # type: ignore[no-untyped-def]
        return [Change(replace(change.record, fence=change.record.fence - 1)) for change in right(handoff, *arguments)]

    keeps = apply.KEEPS_FENCE | {Suspended}
    monkeypatch.setattr(approval_operations, "decide_suspend", wrong)
    monkeypatch.setattr(apply, "KEEPS_FENCE", keeps)
    monkeypatch.setattr(settling, "KEEPS_FENCE", keeps)
    assert caught()


def test_an_approval_that_is_not_used_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "_used", lambda handoff, record: handoff.approvals)
    assert caught()


def test_an_approval_that_outlives_the_work_it_was_asked_for_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "without_open_approvals", lambda handoff, at_ms: handoff)
    assert caught(1)


def test_an_effect_that_is_new_to_a_second_fence_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = effect_operations.decide_effect_begin

    def wrong(*arguments):  # type: ignore[no-untyped-def]
        decision = right(*arguments)
        return replace(decision, state="new") if decision.state == "in_doubt" else decision

    monkeypatch.setattr(effect_operations, "decide_effect_begin", wrong)
    assert caught()


def test_a_redrive_that_forgets_what_a_cap_refused_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = budget_operations.decide_redrive
    monkeypatch.setattr(
        budget_operations, "decide_redrive", lambda facts, *arguments: right(replace(facts, kept=None), *arguments)
    )
    assert caught()


def test_a_cap_on_time_that_only_a_look_enforces_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ledger.next_wall_ms

    def wrong(handoff, wall_ms):  # type: ignore[no-untyped-def]
        return right(replace(handoff, budget=replace(handoff.budget, max_wallclock_ms=None)), wall_ms)

    monkeypatch.setattr(ledger, "next_wall_ms", wrong)
    assert caught(8)


def test_a_sleeper_that_only_a_look_wakes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ledger.next_wall_ms
    monkeypatch.setattr(ledger, "next_wall_ms", lambda handoff, wall_ms: right(replace(handoff, wake_at_ms=0), wall_ms))
    assert caught(1)


def test_a_stall_that_counts_as_a_failure_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = core.decide_expiry

    def wrong(handoff, why, now):  # type: ignore[no-untyped-def]
        first, *rest = right(handoff, why, now)
        assert isinstance(first.record, Orphaned)
        return Change(replace(first.record, failures=handoff.failures + 1)), *rest

    monkeypatch.setattr(core, "decide_expiry", wrong)
    assert caught()


def test_work_that_resumes_before_the_approval_it_waits_for_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = suspending.decide_suspend

    def wrong(handoff, *arguments):  # type: ignore[no-untyped-def]
        changes = right(handoff, *arguments)
        suspended = changes[0].record
        assert isinstance(suspended, Suspended)
        if suspended.approval is None or len(changes) > 1:
            return changes
        again = Resumed(n=suspended.n + 1, at_ms=suspended.at_ms, fence=suspended.fence + 1, why="approval")
        return changes[0], Change(again)

    monkeypatch.setattr(approval_operations, "decide_suspend", wrong)
    assert caught()
