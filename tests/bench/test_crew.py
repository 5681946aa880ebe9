"""Counting what several processes get done within one window."""

import json
import subprocess
import sys
from pathlib import Path

from bench.peers.crew import Done, done

ROOT = Path(__file__).parents[2]

TWO_PROCESSES = """
import dataclasses, json
from bench.peers.crew import crew

def work(number, turns):
    for turn, _ in enumerate(turns()):
        pass

print(json.dumps(dataclasses.asdict(crew(2, work, 0.5, 0.01))))
"""

ONE_FAILS = """
from bench.peers.crew import CrewFault, crew

def work(number, turns):
    for _ in turns():
        if number == 1:
            raise ValueError("the store is locked")

try:
    crew(2, work, 0.05, 0.01)
except CrewFault as fault:
    print(fault)
"""


def run(script: str) -> str:
    # In a process of its own: a crew forks, which one with threads should not.
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return ended.stdout


def test_a_rate_is_what_all_processes_did_in_the_window() -> None:
    assert done(2, [0.001] * 30, seconds=2.0).per_second == 15.0


def test_percentiles_are_over_all_operations() -> None:
    took = [n / 1000 for n in range(1, 101)]
    result = done(1, took, seconds=1.0)
    assert (result.p50_us, result.p99_us, result.max_us) == (51_000, 100_000, 100_000)


def test_nothing_done_is_a_rate_of_zero() -> None:
    assert done(1, [], seconds=1.0) == Done(1, 0, 1.0, 0.0, 0.0, 0.0, 0.0)


def test_processes_count_what_ends_within_their_common_window() -> None:
    result = json.loads(run(TWO_PROCESSES))
    assert result["ops"] > 0
    assert result["per_second"] == result["ops"] / 0.5


def test_a_process_that_fails_ends_the_crew_with_what_it_said() -> None:
    assert "ValueError: the store is locked" in run(ONE_FAILS)
