"""The simulation notices a mistake in each of the engine's promises: who holds, until when, and what is told when."""

import pytest

from dhpd.engine import (
    apply,
    budget_operations,
    claim_operations,
    core,
    fencing,
    holding,
    journal,
    lease_clock,
    leases,
    retention,
    scarcity,
    serving,
    session_operations,
    settling,
    writing,
)
from dhpd.engine.records import Claimed, Completed, Orphaned, Released

from . import store_model
from .mutating import caught, mutate


def keeps_fence(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    """What `apply` holds against a record of this kind that leaves the fence is left out, too."""
    for module in (apply, settling):
        monkeypatch.setattr(module, "KEEPS_FENCE", apply.KEEPS_FENCE | {kind})


# --- the fence --------------------------------------------------------------------------------------------------------


def test_a_write_whose_fence_is_not_compared_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "hold is not None and handoff.status == RUNNING and hold.fence == fence == handoff.fence"
    mutate(monkeypatch, fencing, "check_fence", right, "hold is not None and handoff.status == RUNNING")
    assert caught(0)


def test_a_fence_that_an_expiry_does_not_raise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    keeps_fence(monkeypatch, Orphaned)
    mutate(monkeypatch, holding, "decide_expiry", "fence=handoff.fence + 1", "fence=handoff.fence")
    assert caught(0)


def test_a_fence_that_a_claim_does_not_raise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    keeps_fence(monkeypatch, Claimed)
    mutate(monkeypatch, holding, "decide_claim", "fence_floor) + 1", "fence_floor)")
    mutate(monkeypatch, serving.Serving, "grant", "assert facts.fence > handoff.fence", "pass")
    assert caught(0)


def test_a_fence_that_a_release_does_not_raise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    keeps_fence(monkeypatch, Released)
    mutate(monkeypatch, holding, "_release", "fence=handoff.fence + 1", "fence=handoff.fence")
    assert caught(0)


# --- the lease --------------------------------------------------------------------------------------------------------


def test_a_renewal_after_the_deadline_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "elif lease is not None and lease.live(now.lease_ms):"
    mutate(monkeypatch, session_operations, "heartbeat", right, "elif lease is not None:")
    assert caught(11)


def test_a_renewal_by_whoever_has_held_it_before_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = """
        lease = core.leases.get(ref.handoff, ref.fence)
        held = facts is not None and facts.status == RUNNING and facts.fence == ref.fence and may_hold(facts, to.caller)
"""
    wrong = """
        lease = core.leases.get(ref.handoff, facts.fence if facts is not None else 0)
        held = facts is not None and facts.status == RUNNING and may_hold(facts, to.caller)
"""
    mutate(monkeypatch, session_operations, "heartbeat", right, wrong)
    assert caught(0)


def test_a_lease_whose_session_gets_no_grace_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, leases.Leases, "shorten", "now_ms + grace_ms", "now_ms")
    assert caught(40)


def test_a_lease_that_outlives_its_session_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, leases.Leases, "shorten", "now_ms + grace_ms", "now_ms + lease.ttl_ms")
    assert caught(100)


def test_an_extension_that_each_restart_gives_anew_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "if extension is None or extension.fence != handoff.fence:"
    mutate(monkeypatch, settling.Settling, "_extend", right, "if True:")
    assert caught(8)


def test_an_extension_that_a_lost_connection_cuts_short_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, leases.Leases, "shorten", " and not lease.extension_open", "")
    assert caught(20, cut=8, crash=20)


def test_a_pause_that_costs_holders_their_leases_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, lease_clock.LeaseClock, "tick", "self._offset_ms += lateness_ms", "return monotonic_ms")
    assert caught(57)


def test_a_claim_that_is_granted_anew_when_it_is_sent_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, claim_operations, "_taken_before", "if grant is None or", "if True or")
    assert caught(8)


# --- what is told, and when -------------------------------------------------------------------------------------------


def test_an_answer_before_the_commit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, journal.Journal, "emit", "elif position <= self.durable:", "elif True:")
    assert caught(0)


def test_a_refusal_that_shows_what_is_not_committed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, core.Core, "refuse", "self.reply(to, error, self.looked_at)", "self.reply(to, error)")
    assert caught(0)


def test_a_failed_commit_that_is_answered_as_if_it_had_not_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(
        monkeypatch,
        journal.Journal,
        "rolled_back",
        "self._refuse(batch.outputs, back)",
        "self.ready.extend(batch.outputs)",
    )
    assert caught(101)


def test_work_that_begins_on_a_full_disk_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, scarcity, "check_room", "if core.disk_full:", "if False:")
    assert caught(0)


# --- what is kept, and what isn't -------------------------------------------------------------------------------------


def test_a_cap_that_is_not_looked_at_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_operations, "refused_at_a_cap", lambda *arguments: None)
    assert caught(0)


def test_a_result_that_an_expiry_takes_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease is left to run out, and nobody looks whether the work is done."""
    monkeypatch.setattr(settling, "_ENDS_HOLD", settling._ENDS_HOLD - {Completed})
    right = "and facts is not None and facts.status == RUNNING and facts.fence == lease.fence:"
    mutate(monkeypatch, serving.Serving, "ends", right, "and facts is not None and facts.fence == lease.fence:")
    monkeypatch.setitem(apply.TRANSITIONS, ("completed", Orphaned), "orphaned")
    assert caught(0)


def test_another_state_taken_for_one_that_is_stored_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, writing, "_sent_again", "if sha256 != newest.sha256:", "if False:")
    assert caught(2)


def test_an_undo_that_forgets_the_indexes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "self.ledger.put(handoff, before, now.wall_ms)"
    wrong = (
        "self.ledger._handoffs[handoff[0]].update({handoff: before}) if before else self.ledger.put(handoff, None, 0)"
    )
    mutate(monkeypatch, settling.Settling, "_restore", right, wrong)
    assert caught(64)


def test_a_checkpoint_that_goes_before_it_is_replaced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, retention, "replaced_seq", "handoff.seq - handoff.keep_checkpoints", "handoff.seq - 1")
    assert caught(0)


def test_a_result_that_goes_though_nobody_has_acknowledged_it_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, retention, "may_go", "handoff.acked and ", "")
    mutate(monkeypatch, store_model.ModelStore, "acked_before", "if facts.acked\n", "if facts.status == 'completed'\n")
    assert caught(155)


def test_fences_that_begin_again_after_what_was_forgotten_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "self.purged_fence = max(self.purged_fence, change.record.fence)"
    mutate(monkeypatch, core.Core, "forget", right, "pass")
    assert caught(0)
