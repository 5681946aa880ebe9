"""`dhp mcp` as an agent's host starts it: a process on a pipe. What becomes of one that is killed, tests/pages/test_mcp_page.py shows."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.types import JSONRPCError

import dhp_client
from dhp_client.mcp.stdio import Lines
from tests.client.waiting import until_async
from tests.support.daemon_process import DaemonProcess

DHP = str(Path(sys.executable).with_name("dhp"))


async def test_reading_ends_with_the_input_or_when_it_is_told_to() -> None:
    refused: list[JSONRPCError] = []

    async def refuse(error: JSONRPCError) -> None:
        refused.append(error)

    for ends_itself in (True, False):
        reading, writing = os.pipe()
        lines = Lines(reading)
        os.write(writing, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n\nno message\n')
        messages = lines.messages(refuse)
        assert "ping" in await anext(messages)
        if ends_itself:
            os.close(writing)
        else:
            lines.end()  # While its thread still reads.
        assert [message async for message in messages] == []
        if not ends_itself:
            os.close(writing)
        os.close(reading)
    assert refused[0].id is None


class Host:
    """An agent's host that says just what it is told to."""

    def __init__(self, address: str, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [DHP, "mcp", "--connect", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )

    def say(self, line: str | bytes | dict[str, Any]) -> None:
        assert self.process.stdin is not None
        text = json.dumps(line) if isinstance(line, dict) else line
        self.process.stdin.write((text if isinstance(text, bytes) else text.encode()) + b"\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def call(self, number: int, tool: str, **arguments: Any) -> Any:
        self.say(
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"name": tool, "arguments": arguments},
            }
        )
        found = self.hear()
        assert found["id"] == number
        return found["result"]["structuredContent"]


@pytest.fixture
def host(daemon: DaemonProcess, tmp_path: Path) -> Iterator[Host]:
    started = Host(daemon.address, {"XDG_STATE_HOME": str(tmp_path)})
    with started.process:
        yield started
        started.process.kill()


async def test_every_line_is_answered_and_the_end_of_input_hands_everything_back(
    host: Host, other: dhp_client.Client, kind: str, tmp_path: Path
) -> None:
    implementation = {"name": "host", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": implementation}
    host.say({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    assert host.hear()["result"]["serverInfo"]["name"] == "dhp"
    host.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    for line, request_id, code in (
        ("no JSON", None, -32700),
        (b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"\\ud800"}}', 2, -32600),
        (b'{"jsonrpc":"2.0","id":"a","method":"x","params":' + b'{"a":' * 400 + b"1" + b"}" * 400 + b"}", "a", -32600),
        ('{"jsonrpc":"2.0","id":3}', 3, -32600),
        ("", 4, -32601),
    ):
        host.say(line)
        if request_id == 4:  # An empty line is nothing.
            host.say({"jsonrpc": "2.0", "id": 4, "method": "no/such"})
        answer = host.hear()
        assert (answer["id"], answer["error"]["code"]) == (request_id, code)
    handoff = host.call(5, "dispatch", kind=kind, inputs={})["handoff"]
    assert host.call(6, "claim", kinds=[kind])["work"]["handoff"] == handoff
    # The host has turned away just before the answer came, and so doesn't know what it holds.
    host.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 6}})

    async def is_given_back() -> bool:
        return (await other.status(handoff)).status == "pending"

    await until_async(is_given_back, "the claim is given back")
    assert host.call(7, "claim", kinds=[kind])["work"]["attempt"] == 2
    assert host.process.stdin is not None
    host.process.stdin.close()
    assert host.process.wait(20) == 0
    assert (tmp_path / "dhp" / "mcp.key").stat().st_mode & 0o777 == 0o600
    assert (await other.status(handoff)).status == "pending"
    assert (await other.status(handoff)).failures == 0


async def test_it_ends_and_hands_back_when_nobody_reads_its_answers(
    host: Host, other: dhp_client.Client, kind: str
) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    handoff = (await other.dispatch(kind, {})).handoff
    claim = {"name": "claim", "arguments": {"kinds": [kind]}, "_meta": meta}
    host.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": claim})
    assert "error" not in host.hear()
    assert (await other.status(handoff)).status == "running"
    assert host.process.stdout is not None
    host.process.stdout.close()
    host.say({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": meta}})
    assert host.process.wait(20) == 0
    assert host.process.stderr is not None
    assert host.process.stderr.read() == b"nobody reads the answers any more, so this ends\n"
    found = await other.status(handoff)
    assert (found.status, found.failures) == ("pending", 0)
