"""The pages about agents do what they say: a program is killed, run again, and prints each time what is shown.

`$DHP_CONNECT` leads all of them to one daemon, rather than to one of each program's own.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.in_process_daemon import InProcessDaemon
from .blocks import block

AGENTS = "docs/agents.md"
LANGGRAPH = "docs/langgraph.md"
RESUMED = "Killed, and resumed"

KILLED = {
    "langgraph": (
        block(LANGGRAPH, RESUMED, "python"),
        [block(LANGGRAPH, RESUMED, "text", 0), block(LANGGRAPH, RESUMED, "text", 1)],
    ),
    "while": (
        block(AGENTS, "A while loop", "python"),
        [block(AGENTS, "A while loop", "text", 0), block(AGENTS, "A while loop", "text", 1)],
    ),
    "pydantic-ai": (
        block(AGENTS, "Pydantic AI", "python"),
        [block(AGENTS, "Pydantic AI", "text", 0), block(AGENTS, "Pydantic AI", "text", 1)],
    ),
    "openai-agents": (
        block(AGENTS, "OpenAI Agents SDK", "python"),
        [block(AGENTS, "OpenAI Agents SDK", "text", 0), block(AGENTS, "OpenAI Agents SDK", "text", 1)],
    ),
}
"""A program, and what it prints the first time and the second time."""

LEFT_ALONE = {
    "sync": (block(LANGGRAPH, "Without await", "python"), block(LANGGRAPH, "Without await", "text")),
    "journal": (block(AGENTS, "A framework of your own", "python"), block(AGENTS, "A framework of your own", "text")),
    "conversations": (block(LANGGRAPH, "Conversations", "python"), block(LANGGRAPH, "Conversations", "text")),
}

FRAMEWORKS = {
    "langgraph": "langgraph.graph, dhp_client.langgraph",
    "while": "dhp_client.sync",
    "pydantic-ai": "pydantic_ai.models.function, dhp_client.pydantic_ai",
    "openai-agents": "agents.testing, dhp_client",
}
RUN_TWICE = """
import os, runpy, sys, traceback
for n in (1, 2):
    if not (child := os.fork()):
        os.dup2(os.open(f"printed-{n}", os.O_CREAT | os.O_WRONLY), 1)
        code = 1
        try:
            runpy.run_path("program.py", run_name="__main__")
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Each run is a process of its own, which dies its own death. Only the imports, which take most of the time, are made once."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with InProcessDaemon(tmp_path_factory.mktemp("agents")) as daemon:
        yield daemon.address


@pytest.mark.parametrize("name", KILLED)
def test_a_killed_program_goes_on_when_it_is_run_again(name: str, address: str, tmp_path: Path) -> None:
    source, printed = KILLED[name]
    (tmp_path / "program.py").write_text(source)
    ran = subprocess.run(
        [sys.executable, "-c", f"import {FRAMEWORKS[name]}\n{RUN_TWICE}"],
        cwd=tmp_path,
        env={**os.environ, "DHP_CONNECT": address},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert ran.stderr == ""
    assert ran.stdout.split() == [str(-signal.SIGKILL), "0"]
    assert [(tmp_path / f"printed-{n}").read_text() for n in (1, 2)] == printed


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_a_program_prints_what_is_shown(
    name: str, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DHP_CONNECT", address)
    source, printed = LEFT_ALONE[name]
    exec(compile(source, name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == printed
