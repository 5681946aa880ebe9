"""A failing world is made smaller, and the small one fails in the same way, each time it is played."""

import shlex
import sys

import pytest

from dhpd.engine import lease_clock

from . import run, shrinking
from .mutating import caught, mutate
from .play import BIG, SMALL, Case, case_of
from .shrinking import Failure, failure_of, replay_command, shrink


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> tuple[Case, Failure]:
    """A world that fails, since a pause of the daemon costs holders their leases."""
    mutate(monkeypatch, lease_clock.LeaseClock, "tick", "self._offset_ms += lateness_ms", "return monotonic_ms")
    found = caught(57)
    assert found is not None
    return found


def test_a_failing_world_is_shrunk_to_few_faults_and_fails_still(
    failing: tuple[Case, Failure], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrinking, "MAX_ATTEMPTS", 80)
    case, failure = failing
    small = shrink(case, failure)
    assert small.case.only is not None
    assert 0 < len(small.case.only) < len(failure.struck)
    assert (small.case.handoffs, small.case.chaos_ms) < (case.handoffs, case.chaos_ms)
    assert small.failure.kind == failure.kind
    assert failure_of(small.case) == small.failure
    assert shrink(case, failure) == small, "the search gives the same each time"


def test_the_command_that_is_printed_plays_exactly_that_world(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        case_of(5),
        case_of(7, BIG),
        Case(seed=3, handoffs=2, workers=1, chaos_ms=700, only=("cut.3", "crash.17"), stranger=False),
        Case(seed=9, **{name: getattr(SMALL, name) for name in ("faults", "ttl_ms", "troubles_ms")}, only=()),
    ]
    for case in cases:
        monkeypatch.setattr(sys, "argv", shlex.split(replay_command(case))[2:])
        assert run._case(run._options()) == case


def test_what_only_chance_says_is_the_same_with_its_faults_named() -> None:
    """A world in which those faults strike that chance has chosen is the world that chance has chosen."""
    for seed in range(20, 24):
        case = case_of(seed)
        outcome = run.play(case)
        named = Case(**{name: getattr(case, name) for name in Case.__struct_fields__} | {"only": outcome.struck})
        assert run.play(named) == outcome
