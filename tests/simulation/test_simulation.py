"""The invariants hold whatever goes wrong, and the simulation would notice if they didn't."""

import os
import random

import pytest
from msgspec.structs import replace

from dhp_protocol.errors import DHPError
from dhpd.engine import apply, core, holding, journal, settling
from dhpd.engine.outputs import Reply
from dhpd.engine.records import Change, Released

from .mutating import caught
from .run import simulate
from .world import NO_FAULTS

FIXED_SEEDS = range(80)
FRESH_SEEDS = 40


def test_invariants_hold_in_the_known_worlds() -> None:
    for seed in FIXED_SEEDS:
        _run(seed)


def test_invariants_hold_in_worlds_never_seen_before() -> None:
    first = int(os.environ.get("DHP_SEED", random.SystemRandom().randrange(10**9)))
    for seed in range(first, first + FRESH_SEEDS):
        _run(seed)


def test_a_world_without_faults_ends_all_that_was_asked_for() -> None:
    counts = simulate(7, NO_FAULTS)
    assert counts["dispatched"] - counts.get("forgotten", 0) == 12
    assert not counts.get("orphaned:expired", 0)


def test_a_seed_replays_exactly() -> None:
    assert simulate(11) == simulate(11)


def test_the_worlds_reach_what_they_are_meant_to_reach() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    total: dict[str, int] = {}
    for seed in range(16):
        for name, count in simulate(seed).items():
            total[name] = total.get(name, 0) + count
    for name in (
        "orphaned:expired",
        "orphaned:stalled",
        "released",
        "failed",
        "dead",
        "cancelled",
        "suspended",
        "resumed",
        "redriven",
        "forgotten",
        "budget_added",
        "result_refused",
        "effect_done",
        "effect_begun:approved",
        "checkpoint:lease_lost",
        "checkpoint:budget_exceeded",
        "checkpoint:store_unavailable",
        "spend:budget_exceeded",
        "spend:store_unavailable",
        "redrive:budget_exceeded",
        "effect_begin:wrong_state",
        "effect_done:effect_conflict",
        "approval_decide:already_decided",
        "approval_decide:approval_expired",
        "approval_decide:forbidden",
        "approval_wait:ok",
        "check_capability:ok",
        "claim:ok",
        "result:store_unavailable",
    ):
        assert total.get(name, 0) > 0, f"{name} never happened: {total}"


def test_an_answer_before_the_commit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal.Journal, "emit", lambda self, output: self.ready.append(output))
    assert caught()


def test_a_fence_that_a_release_does_not_raise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = holding._release

    def wrong(handoff, *arguments):  # type: ignore[no-untyped-def]
        change = right(handoff, *arguments)
        return Change(replace(change.record, fence=handoff.fence), change.payload)

    keeps = apply.KEEPS_FENCE | {Released}
    monkeypatch.setattr(holding, "_release", wrong)
    monkeypatch.setattr(apply, "KEEPS_FENCE", keeps)
    monkeypatch.setattr(settling, "KEEPS_FENCE", keeps)
    assert caught()


def test_a_refusal_that_shows_what_is_not_committed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = core.Core.reply

    def wrong(self, to, answer, facts=None, waiter=None):  # type: ignore[no-untyped-def]
        if isinstance(answer, DHPError):
            self.journal.ready.append(Reply(to, answer))
        else:
            right(self, to, answer, facts, waiter)

    monkeypatch.setattr(core.Core, "reply", wrong)
    assert caught()


def _run(seed: int) -> None:
    try:
        simulate(seed)
    except Exception:
        print(f"seed {seed}: replay with `python -m tests.simulation.run --seed {seed}`")
        raise
