"""The three numbers: percentiles are as said, what must hold is held against them, and each part works when it is run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.figures import Figure
from bench.reliability.__main__ import AT_MOST, missed
from bench.reliability.resuming import quantile

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_a_quantile_is_the_smallest_value_that_so_large_a_share_does_not_pass(share: float, expected: float) -> None:
    assert quantile([float(n) for n in range(100, 0, -1)], share) == expected


def test_what_must_hold_everywhere_is_missed_by_one_more_than_that() -> None:
    reached = [Figure(name, bound, "count") for name, bound in AT_MOST.items()]
    assert missed(reached) == []
    assert missed([Figure(name, bound + 1, "count") for name, bound in AT_MOST.items()]) == list(AT_MOST)
    assert missed([Figure("kill to resume/unix socket/claim granted/p50", 1e9, "ms")]) == []


def test_kills_and_orphanings_are_measured_on_real_processes(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "bench.reliability", "--only", "resuming", "orphaning"]
    command += ["--kills", "1", "--minutes", "0.02", "--json", str(report)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert report.exists(), ran.stdout + ran.stderr
    told = json.loads(report.read_bytes())
    assert told["failed"] == {}
    figures = {figure["name"]: figure["value"] for figure in told["figures"]}
    for way in ("unix socket", "loopback"):
        granted, accepted = (
            figures[f"kill to resume/{way}/{what}/p99"] for what in ("claim granted", "first checkpoint accepted")
        )
        assert 0 < granted < accepted
    assert {name for name in AT_MOST if name.startswith("false")} <= figures.keys()
    assert "kill to resume/loopback/claim granted/p50" in ran.stdout
