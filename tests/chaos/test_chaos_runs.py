"""`dhp chaos` as a person runs it: against the real daemon, against one that forgets, and over books that were touched."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dhpd
from dhp_client.chaos.books import DAEMON, WORKERS
from dhp_client.chaos.plan import KINDS
from tests.support.ending import ended_half_way

DHP = [sys.executable, "-m", "dhp_client.cli"]

FORGETFUL = '''
"""A daemon that comes back with what it had at its start before: whatever was acknowledged in between is lost."""

import shutil
import sys
from pathlib import Path

__version__ = "0"
__path__ = [{real!r}]

data = Path(sys.argv[sys.argv.index("--data") + 1])
kept = data.with_name("kept")
if kept.exists():
    shutil.rmtree(data)
    shutil.copytree(kept, data)
elif data.exists():
    shutil.copytree(data, kept)
'''


def chaos(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    return subprocess.run([*DHP, "chaos", *arguments], capture_output=True, text=True, timeout=110, env=environment)


def outcome_of(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads(ran.stdout)
    return outcome


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One short run with every kind of fault in it."""
    kept = tmp_path_factory.mktemp("chaos")
    options = ["--handoffs", "6", "--workers", "3", "--steps", "20", "--seconds", "6", "--daemon-kills", "1"]
    ran = chaos(*options, "--dir", str(kept), "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Nothing was lost." in ran.stderr
    return outcome_of(ran)


def test_nothing_is_lost_whatever_is_done(good: dict[str, Any]) -> None:
    figures = good["figures"]
    faults = Counter(
        json.loads(line)["kind"] for line in (Path(good["folder"]) / "faults.jsonl").read_text().splitlines()
    )
    assert set(faults) == set(KINDS)
    assert figures["workers_killed"] == faults["kill worker"] == 6
    assert figures["daemon_killed"] == 1
    assert (figures["results"], figures["checkpoints_lost"]) == (6, 0)
    assert figures["take_overs"] > 0
    assert figures["most_redone"] <= 1
    assert all(check["ok"] for check in good["checks"])


def test_kept_books_are_judged_again_and_one_that_was_touched_is_found_out(
    good: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "books"
    shutil.copytree(good["folder"], folder)
    again = chaos("--judge", str(folder), "--json")
    assert again.returncode == 0, again.stdout + again.stderr
    assert outcome_of(again)["figures"] == good["figures"]

    lines = (folder / DAEMON).read_text().splitlines()
    (folder / DAEMON).write_text("\n".join(lines[1:]) + "\n")
    ran = chaos("--judge", str(folder))
    assert ran.returncode == 1
    assert "NOT SO  What was dispatched is what the daemon has" in ran.stdout
    assert "promises were broken" in ran.stdout


def test_a_daemon_that_forgets_what_it_acknowledged_is_found_out(tmp_path: Path) -> None:
    fake = tmp_path / "fake" / "dhpd"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text(FORGETFUL.format(real=str(Path(dhpd.__file__).parent)))
    options = ["--handoffs", "3", "--workers", "2", "--steps", "10", "--seconds", "3", "--daemon-kills", "2"]
    ran = chaos(*options, "--kill-every-ms", "0", "--dir", str(tmp_path / "kept"), path=fake.parent)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "NOT SO  No acknowledged checkpoint is lost" in ran.stdout
    assert list((tmp_path / "kept" / "run-1" / WORKERS).iterdir())


def test_a_run_that_is_ended_half_way_leaves_nobody_and_nothing_behind(tmp_path: Path) -> None:
    command = [*DHP, "chaos", "--seconds", "60", "--kill-every-ms", "300"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    seen = ended_half_way(command, "kill -9 of worker", environment)
    for pid in re.findall(r"process (\d+)", seen):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert list(tmp_path.iterdir()) == []


def test_a_daemon_that_does_not_start_is_told_in_a_sentence(tmp_path: Path) -> None:
    fake = tmp_path / "fake" / "dhpd"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("raise SystemExit(3)")
    ran = chaos("--dir", str(tmp_path / "kept"), path=fake.parent)
    assert ran.returncode == 1
    assert "dhpd ended (exit code 3)" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_folder_that_cannot_be_used_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = chaos("--dir", str(tmp_path / "file" / "folder"))
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert "--dir" in ran.stderr
