"""The page on MCP: its agent is killed, server and all, and goes on; its table is the server's; its lines work as printed."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from mcp import Client

from dhp_client import sync
from dhp_client.cli.main import exit_code
from dhp_client.mcp.refusals import told
from dhp_client.mcp.tools import TABLE
from dhp_protocol.errors import LeaseLost

from ..support.embedded import end_embedded
from .blocks import ROOT, block

PAGE = "docs/mcp.md"
DHP = Path(sys.executable).with_name("dhp")


def test_an_agent_and_its_server_are_killed_and_the_next_one_goes_on(tmp_path: Path) -> None:
    config = json.loads(block(PAGE, "One line to register", "json"))["mcpServers"]["dhp"]
    source = block(PAGE, "Killed and resumed", "python")
    assert f"StdioServerParameters(command={config['command']!r}, args={config['args']})".replace("'", '"') in source
    first = block(PAGE, "Killed and resumed", "text", 0).splitlines()
    second = block(PAGE, "Killed and resumed", "text", 1).splitlines()
    program, server = tmp_path / "agent.py", tmp_path / "server"
    program.write_text(source)
    # The server's process tells who it is.
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "dhp").write_text(f'#!/bin/sh\necho $$ > "{server}"\nexec "{DHP}" "$@"\n')
    (folder / "dhp").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    command = [sys.executable, str(program)]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, env=environment, text=True) as agent:
            assert agent.stdout is not None
            printed = [agent.stdout.readline().strip() for _ in first]
            os.kill(int(server.read_text()), signal.SIGKILL)
            agent.kill()
            printed += agent.stdout.read().split()
        again = subprocess.run(command, capture_output=True, timeout=90, cwd=tmp_path, env=environment, text=True)
        assert again.returncode == 0, again.stderr
        assert printed[: len(first)] == first
        # On a slow machine the kill comes later than on the page, and perhaps between a checkpoint and its print.
        whole, goes_on = [*first, *second], again.stdout.splitlines()
        assert goes_on == whole[-len(goes_on) :]
        assert len(whole) - len(goes_on) - len(printed) in (0, 1)
        with sync.connect(tmp_path / ".dhp") as client:
            (work,) = client.list(kind="count").handoffs
            assert [record["type"] for record in client.history(work.handoff).records].count("orphaned") == 1
    finally:
        end_embedded(tmp_path)


def test_the_table_of_tools_is_the_servers() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / PAGE).read_text(), re.MULTILINE)
    assert listed == [name for name, _, _ in TABLE]


def test_a_refusal_reads_as_shown() -> None:
    error = LeaseLost(
        "A newer holder has this handoff: stop this work.", why="superseded", fence=4, status="running", handoff="…"
    )
    assert f"{told(error)}\n" == block(PAGE, "The tools", "text")


def test_the_line_that_serves_http_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = block(PAGE, "Over HTTP", "sh")
    (name, *arguments) = shlex.split(line)
    assert name == "dhp"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("DHP_CONNECT", "tcp://127.0.0.1:9")
    found: list[str] = []

    async def look() -> None:
        while True:
            try:
                async with Client(f"http://{arguments[-1]}/mcp") as client:
                    found.extend(tool.name for tool in (await client.list_tools()).tools)
                    return
            except Exception:  # Nobody serves there yet.
                await asyncio.sleep(0.1)

    def agent() -> None:
        try:
            asyncio.run(asyncio.wait_for(look(), 30))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    calling = threading.Thread(target=agent)
    calling.start()
    code = exit_code(arguments)
    calling.join()
    assert (code, found) == (0, [name for name, _, _ in TABLE])
