"""The README does what it says: its program is killed and run again, and its tables name what there is."""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import dhp_client.sync
from dhp_client.cli.main import COMMANDS

from ..support.embedded import end_embedded
from .blocks import ROOT, block

PAGE = "README.md"
README = ROOT / PAGE
PROGRAM = block(PAGE, "A first program", "python")
FINAL_LINE = "completed {'counted': 6}"


def run_program(folder: Path) -> "subprocess.Popen[str]":
    program = folder / "program.py"
    program.write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if name != "DHP_CONNECT"}
    return subprocess.Popen(
        [sys.executable, str(program)], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )


def test_the_program_goes_on_where_it_was_killed_and_runs_once(tmp_path: Path) -> None:
    try:
        with run_program(tmp_path) as killed:
            assert killed.stdout is not None
            assert [killed.stdout.readline(), killed.stdout.readline()] == ["1\n", "2\n"]
            killed.kill()
        with run_program(tmp_path) as second:
            out, _ = second.communicate(timeout=60)
        *counted, result = out.splitlines()
        assert result == FINAL_LINE
        assert counted in (["3", "4", "5", "6"], ["2", "3", "4", "5", "6"])  # At most one step is done twice.
        with run_program(tmp_path) as third:
            out, _ = third.communicate(timeout=60)
        assert (third.returncode, out) == (0, f"{FINAL_LINE}\n")
    finally:
        end_embedded(tmp_path)


def test_the_program_in_a_second_terminal_waits_for_the_first(tmp_path: Path) -> None:
    try:
        with run_program(tmp_path) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "1\n"
            with run_program(tmp_path) as second:
                assert second.communicate(timeout=60)[0] == f"{FINAL_LINE}\n"
            assert first.communicate(timeout=60)[0].splitlines()[-1] == FINAL_LINE
        assert (first.returncode, second.returncode) == (0, 0)
    finally:
        end_embedded(tmp_path)


def test_sigterm_hands_the_programs_work_back_and_dead_work_is_told(tmp_path: Path) -> None:
    try:
        with run_program(tmp_path) as stopped:
            assert stopped.stdout is not None
            assert stopped.stdout.readline() == "1\n"
            stopped.terminate()
        assert stopped.returncode == 143
        with dhp_client.sync.connect(tmp_path / ".dhp") as client:
            (found,) = client.list(kind="count").handoffs
            assert (found.status, found.failures) == ("pending", 0)
            with client.claim(found.handoff) as task:
                task.fail("Broken", retry=False)
        with run_program(tmp_path) as last:
            assert last.communicate(timeout=60)[0] == "dead None\n"
        assert last.returncode == 0
    finally:
        end_embedded(tmp_path)


def test_every_command_is_listed_and_no_other() -> None:
    (section,) = re.findall(r"^## On a terminal\n(.*?)^## ", README.read_text(), re.MULTILINE | re.DOTALL)
    listed = [name for line in section.splitlines() if line.startswith("| ") for name in re.findall(r"`(\S+)`", line)]
    assert sorted(listed) == sorted(COMMANDS)


def test_the_two_commands_are_those_of_the_makefile() -> None:
    commands = block(PAGE, "DHP: work that outlives whoever is doing it", "").splitlines()
    recipes = {command.split()[1]: recipe_of(command.partition("#")[0]) for command in commands}
    assert recipes.keys() == {"demo", "test"}
    assert ".venv/bin/dhp demo" in recipes["demo"]
    assert ".venv/bin/python -m pytest" in recipes["test"]


def test_what_is_installed_is_what_the_pages_say() -> None:
    assert block(PAGE, "Install", "") == "pip install .\n"
    made, read, installed = block("docs/quick-start.md", "Install", "console").splitlines()
    assert (made, read) == ("$ python3 -m venv .venv", "$ . .venv/bin/activate")
    assert installed == f"$ {block(PAGE, 'Install', '').strip()}"
    recipe = recipe_of("make .venv/.installed")  # All of this runs in what that gave.
    assert "-m venv .venv && .venv/bin/pip install --quiet --editable ." in recipe
    scripts = importlib.metadata.distribution("dhpd").entry_points
    assert {script.name for script in scripts} == {"dhpd", "dhp"}


def recipe_of(command: str) -> str:
    """What `make` would run."""
    assert command.startswith("make ")
    told = [*command.split(), "--dry-run", "--always-make"]
    return subprocess.run(told, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
