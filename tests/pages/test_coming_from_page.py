"""The page for those who come from dhp-protocol: its programs run, and its tables name what both sides have, and leave nothing out."""

import contextlib
import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import dhp
import dhp.errors
import pytest

import dhp_client
import dhp_client.sync
from dhp_client.cli.main import dhp as commands

from ..support.embedded import end_embedded
from .blocks import ROOT, block
from .terminals import fits

PAGE = "docs/coming-from-dhp-protocol.md"
TEXT = (ROOT / PAGE).read_text()
BESIDE = "A program of theirs, and ours"
THEIRS = block(PAGE, BESIDE, "python", 0)
OURS = block(PAGE, BESIDE, "python", 1)
PRINTED = block(PAGE, BESIDE, "text")
MOVING = block(PAGE, "Taking live work along", "python")
MOVED = block(PAGE, "Taking live work along", "text")

THEIR_ROOTS = {"dhp": dhp, "ctx": dhp.TaskContext}
OUR_ROOTS = {
    "client": dhp_client.sync.Client,
    "task": dhp_client.sync.Task,
    "dhp_client": dhp_client,
    "connect": dhp_client.sync.connect,
}


def run(source: str, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DHP")}
    command = [sys.executable, "-c", source]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=90)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@contextlib.contextmanager
def embedded(folder: Path) -> Any:
    """Ends the daemon that a program has started there."""
    try:
        yield
    finally:
        end_embedded(folder)


def test_both_programs_print_the_same(tmp_path: Path) -> None:
    assert run(THEIRS, tmp_path) == PRINTED
    with embedded(tmp_path):
        assert run(OURS, tmp_path) == PRINTED


def test_live_work_is_taken_along_once_with_all_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def moved() -> str:
        exec(MOVING, {})
        return capsys.readouterr().out

    store = dhp.Store(str(tmp_path / "theirs"))
    dispatched = {"task_kind": "count", "output_schema": {"type": "object"}}
    done, live = (dhp.dispatch(store, inputs={"to": to}, budget={"max_spend_usd": 1.0}, **dispatched) for to in (5, 6))
    dhp.claim(store, done, worker_id="w").complete({"counted": 5})
    ctx = dhp.claim(store, live, worker_id="w")
    ctx.note_step(3)
    ctx.note_spend(0.25)
    ctx.record_effect("mail", {"sent": True})
    ctx.checkpoint({"n": 3})
    monkeypatch.chdir(tmp_path)
    with embedded(tmp_path):
        assert fits(moved(), MOVED.splitlines())
        assert fits(moved(), MOVED.splitlines())
        with dhp_client.sync.connect("./ours") as client:
            (work,) = client.list().handoffs
            assert (work.kind, work.status, work.failures, work.steps, work.usd) == ("count", "pending", 0, 3, 0.25)
            assert (work.budget["max_usd"], work.budget["max_attempts"], work.budget["max_stalls"]) == (1.0, 6, 3)
            with client.claim(work.handoff) as task:
                assert (task.inputs, task.state) == ({"to": 6}, {"n": 3})
                assert task.effect("mail", lambda key: {"sent": "again"}) == {"sent": True}
                task.complete({"counted": 6})
        assert moved() == ""  # What has ended here isn't begun again.


def tables() -> list[tuple[str, list[str]]]:
    """The rows of all tables, each with its section."""
    rows = []
    for section, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL):
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        rows += [(section, [cell.strip() for cell in line.strip("|").split("|")]) for line in lines[2:]]
    return rows


def names(column: int) -> list[tuple[str, str]]:
    """What stands in backquotes in that column of the tables, each with its section."""
    return [(section, name) for section, row in tables() for name in re.findall(r"`([^`]+)`", row[column])]


def found(name: str, roots: dict[str, Any]) -> Any:
    """What `root.member(argument=…)` names. AssertionError, AttributeError where there is none."""
    path, _, arguments = name.partition("(")
    root, *members = path.split(".")
    value = roots[root]
    for member in members:
        value = getattr(value, member)
    for word in re.findall(r"(\w+)=", arguments):
        assert word in inspect.signature(value).parameters, name
    return value


def test_each_name_of_theirs_is_there() -> None:
    for section, name in names(0):
        if section == "Errors":
            assert issubclass(getattr(dhp.errors, name), dhp.errors.DHPError)
        elif section == "Commands":
            assert name in their_commands()
        elif section == "MCP tools":
            assert name in their_tools()
        else:
            assert found(name, THEIR_ROOTS) is not None


def test_each_name_of_ours_is_there() -> None:
    for section, name in names(1):
        if name in OTHERS:
            continue
        if section == "Errors":
            assert issubclass(getattr(dhp_client, name), Exception)
        elif section == "Commands":
            group, command = name.split()
            assert group == "dhp"
            assert commands.get_command(click.Context(commands), command) is not None, name
        elif section == "MCP tools":
            assert name in our_tools()
        else:
            assert found(name, OUR_ROOTS) is not None


OTHERS = ("park", "why", "stalled", "dhpd", "dhpd backup")
"""Values, arguments, and what isn't Python."""


def test_nothing_of_theirs_is_left_out() -> None:
    told = {name.partition("(")[0] for _, name in names(0)}
    public = {f"dhp.{name}" for name in dhp.__all__ if not name.startswith("_")} - {"dhp.Runner3"}  # Its methods are.
    methods = {f"ctx.{name}" for name in vars(dhp.TaskContext) if not name.startswith("_")}
    errors = {name for name, value in vars(dhp.errors).items() if isinstance(value, type)}
    assert (public | methods | errors | their_commands() | their_tools()) - told == set()


def their_commands() -> set[str]:
    return {script.name for script in importlib.metadata.distribution("dhp-protocol").entry_points}


def test_every_tool_of_ours_is_told() -> None:
    (others,) = re.findall(r"^((?:`\w+`[,\s]*(?:and\s)?)+)have no counterpart there\.$", TEXT, re.MULTILINE)
    beside = {name for section, name in names(1) if section == "MCP tools"}
    assert beside | set(re.findall(r"`(\w+)`", others)) == our_tools()


def their_tools() -> set[str]:
    """Read, not imported: a second's work would be done for names."""
    source = (Path(dhp.__file__).parent / "mcp_server.py").read_text()
    return set(re.findall(r"^@mcp\.tool\(.*?^def (\w+)\(", source, re.MULTILINE | re.DOTALL))


def our_tools() -> set[str]:
    source = (ROOT / "dhp_client" / "mcp" / "tools.py").read_text()
    return set(re.findall(r'^    \("(\w+)", \w+\.\w+, [A-Z]+\),$', source, re.MULTILINE))
