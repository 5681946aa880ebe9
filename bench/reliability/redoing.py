"""How much work is done twice when workers are killed: what `dhp chaos` counts from its books, on a disk that is one."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.figures import Figure

ORDEAL = ("--handoffs", "300", "--workers", "6", "--seconds", "120", "--kill-every-ms", "1000", "--daemon-kills", "5")
QUICK = ("--handoffs", "20", "--workers", "4", "--seconds", "10", "--kill-every-ms", "1000", "--daemon-kills", "1")


def measure(folder: Path, options: Sequence[str]) -> Iterator[Figure]:
    """Raises `AssertionError` where the run broke a promise: figures of such a run mean nothing."""
    command = [sys.executable, "-m", "dhp_client.cli", "chaos", *options, "--dir", str(folder), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = msgspec.json.decode(ran.stdout)["figures"]
    note = f"dhp chaos {' '.join(options)}"
    yield Figure("redone/share of the work", found["redone_share"] * 100, "%", note)
    for name in (
        "workers_killed",
        "daemon_killed",
        "other_faults",
        "take_overs",
        "steps_begun",
        "steps_redone",
        "most_redone",
        "checkpoints_acknowledged",
        "checkpoints_lost",
        "late_writes_refused",
        "results",
    ):
        yield Figure(f"redone/{name.replace('_', ' ')}", found[name], "count", note)
    yield Figure("redone/time", found["seconds"], "s", note)
