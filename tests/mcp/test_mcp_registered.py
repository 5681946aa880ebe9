"""What `dhp mcp register` enters is what an agent can start, wherever it stands and whatever its search path is."""

import json
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from dhp_client.cli.main import exit_code
from tests.support.daemon_process import DaemonProcess

from .conftest import Agent


async def test_the_official_client_gets_the_tools_by_what_was_entered(
    daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    assert exit_code(["mcp", "register", "claude-code", "--connect", daemon.address]) == 0
    entry = json.loads((tmp_path / ".claude.json").read_text())["mcpServers"]["dhp"]
    environment = {"PATH": "/nowhere", "XDG_STATE_HOME": str(tmp_path / "state")}
    parameters = StdioServerParameters(command=entry["command"], args=entry["args"], env=environment, cwd="/")
    async with Client(parameters) as client:
        agent = Agent(client)
        assert (await agent.call("health"))["status"] == "ok"
        assert "recover" in {tool.name for tool in (await client.list_tools()).tools}
