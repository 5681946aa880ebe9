"""The simulation itself: big worlds hold, runs replay exactly, and all that may go wrong does."""

import os
import random

import pytest
from msgspec.structs import replace

from . import daemon
from .expecting import expect_to_hold
from .faults import KINDS
from .play import BIG, CALM, case_of, play
from .run import usual_case

FRESH_BIG_WORLDS = 12
KNOWN_BIG_WORLDS = range(18)
SEEDS_TO_REACH_ALL = 200
MEANT = (
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
    "claim:draining",
    "claim:overloaded",
    "checkpoint:overloaded",
    "recover:ok",
    "export:ok",
    "exported",
    "heartbeat:ok",
)
"""Records, and answers by operation, that must come about."""


def test_the_invariants_hold_in_big_worlds() -> None:
    expect_to_hold(case_of(seed, BIG) for seed in KNOWN_BIG_WORLDS)


def test_what_a_renewal_loses_to_a_tick_that_is_a_little_late_is_no_early_end() -> None:
    expect_to_hold([case_of(261814061)])


def test_a_session_is_gone_only_once_the_daemon_believes_in_none_of_its_connections() -> None:
    expect_to_hold([case_of(704430, BIG)])


def test_the_invariants_hold_in_big_worlds_never_seen_before() -> None:
    first = int(os.environ.get("DHP_SEED") or random.SystemRandom().randrange(10**9))
    print(f"seeds from {first} on (run again with DHP_SEED={first})")
    expect_to_hold(case_of(seed, BIG) for seed in range(first, first + FRESH_BIG_WORLDS))


def test_a_world_without_faults_ends_all_that_was_asked_for() -> None:
    counts = play(case_of(7, CALM)).counts
    assert counts["dispatched"] - counts.get("forgotten", 0) <= 12
    assert not counts.get("orphaned:expired", 0)


def test_a_seed_replays_exactly() -> None:
    assert play(case_of(11)) == play(case_of(11))


def test_a_stranger_who_sends_garbage_changes_nothing_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 8: with and without one, all that others did and the journal are the same, byte for byte."""
    monkeypatch.setattr(daemon, "STEPS_AT_ONCE", (1, 2))  # Else the end of its connection is work for a tick.
    for seed in range(30):
        case = case_of(seed)
        same = play(case) == play(replace(case, stranger=False))
        assert same, f"seed {seed}"


def test_the_worlds_reach_what_they_are_meant_to_reach() -> None:
    """A simulation in which nothing goes wrong proves nothing: every fault strikes, and every one of these answers is given."""
    lacking = {*KINDS, *MEANT}
    for seed in range(SEEDS_TO_REACH_ALL):
        outcome = play(usual_case(seed))
        lacking -= {name.partition(".")[0] for name in outcome.struck} | outcome.counts.keys()
        if not lacking:
            return
    pytest.fail(f"never happened: {sorted(lacking)}")
