"""A daemon for all of these tests, MCP servers before it in this process, and the official client as an agent."""

import functools
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import CallToolResult

import dhp_client
from dhp_client.mcp.bridge import Bridge
from dhp_client.mcp.record import Record
from dhp_client.mcp.server import Server
from dhp_client.persons import Approver
from tests.support.daemon_process import DaemonProcess

SECRET = b"s" * 32
ERAS = ("auto", "legacy")
"""The era without a handshake, and the one with it."""

_numbers = itertools.count(1)


class Agent:
    """What an agent does with the tools."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Any:
        """The structured answer of a call that is expected to go well."""
        found = await self.client.call_tool(tool, arguments)
        assert isinstance(found, CallToolResult)
        assert not found.is_error, text_of(found)
        return found.structured_content

    async def refused(self, tool: str, **arguments: Any) -> str:
        """What a call is told that is expected to be refused."""
        found = await self.client.call_tool(tool, arguments)
        assert isinstance(found, CallToolResult)
        assert found.is_error, found.structured_content
        return text_of(found)

    async def claim(self, **arguments: Any) -> Any:
        """The work that a claim brings."""
        return (await self.call("claim", **arguments))["work"]


def text_of(found: CallToolResult) -> str:
    return "\n".join(part.text for part in found.content if part.type == "text")


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One that no test may hurt."""
    with DaemonProcess(tmp_path_factory.mktemp("mcp") / "data") as running:
        yield running


@pytest.fixture
def kind() -> str:
    """A kind that no other test uses."""
    return f"kind-{next(_numbers)}"


@pytest.fixture
async def other(daemon: DaemonProcess) -> AsyncIterator[dhp_client.Client]:
    """Somebody else, without MCP."""
    async with dhp_client.connect(daemon.address, name="somebody else") as client:
        yield client


@functools.cache
def server_of(
    address: str,
    *,
    idle_ms: int | None = None,
    guessable: bool = True,
    approver: Approver | None = None,
    token_file: Path | None = None,
) -> Server:
    """An MCP server for the daemon at `address`; what stands behind its tools is made anew for each client in this process."""

    def bridge() -> Bridge:
        record = Record(idle_ms=idle_ms, guessable=guessable)
        connecting = partial(dhp_client.connect, address, token_file=token_file, connect_timeout_ms=2_000)
        return Bridge(connecting, record, approver=approver, decide_at=address)

    return Server(bridge, secret=SECRET)


Serving = Callable[..., Any]


@pytest.fixture
def agent_of(daemon: DaemonProcess) -> Serving:
    """`async with agent_of(mode=…, …) as agent:` an agent with a server of its own."""

    @asynccontextmanager
    async def served(
        mode: str = "legacy",
        *,
        elicitation_callback: Any = None,
        read_timeout_seconds: float | None = None,
        **settings: Any,
    ) -> AsyncIterator[Agent]:
        server = server_of(settings.pop("address", daemon.address), **settings)
        async with Client(
            server, mode=mode, elicitation_callback=elicitation_callback, read_timeout_seconds=read_timeout_seconds
        ) as client:
            yield Agent(client)

    return served
