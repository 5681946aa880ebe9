"""`dhp mcp --http`: many agents, told apart by nothing but their handles."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import dhp_client
from dhp_client.cli.http_serving import HttpListener, HttpPlace
from dhp_client.mcp import waiting
from dhp_client.mcp.http import application
from dhp_client.mcp.server import Server
from dhp_client.persons import approver_beside
from tests.client.waiting import until_async
from tests.support.daemon_process import DaemonProcess

from .conftest import ERAS, Agent, server_of
from .test_mcp_approvals import Person, asked
from .test_mcp_record import status_is


@contextlib.asynccontextmanager
async def served(server: Server, place: HttpPlace) -> AsyncIterator[str]:
    """The URL of the server, which is served until the end of the block."""
    listener, stop = HttpListener(place), asyncio.Event()
    serving = asyncio.create_task(listener.serve(application(server, hosts=listener.hosts), stop=stop))
    try:
        yield f"{listener.url}/mcp"
    finally:
        stop.set()
        await serving


HERE = HttpPlace(host="127.0.0.1", port=0)


@pytest.mark.parametrize("mode", ERAS)
async def test_agents_over_http_hold_by_handles_alone_and_lose_them_with_the_server(
    daemon: DaemonProcess, other: dhp_client.Client, kind: str, mode: str
) -> None:
    person = Person("accept", approve=True)

    def server() -> Server:
        return server_of(daemon.address, guessable=False, idle_ms=60_000, approver=approver_beside(daemon.address))

    async with served(server(), HERE) as url:
        async with Client(url, mode=mode, elicitation_callback=person) as first, Client(url, mode=mode) as second:
            agent, stranger = Agent(first), Agent(second)
            work, question = await asked(agent, kind)
            assert work["idle_ms"] == 60_000
            assert (await stranger.refused("complete", handle=work["handoff"], result=1)).startswith("unknown_handle")
            assert (await stranger.call("recover", kinds=[kind])) == {"waiting": False, "work": [], "claimable": []}
            decided = await agent.call("approval_wait", approval=question["approval"], handle=work["handle"])
            assert decided["decision"] == "approved"
            await agent.call("checkpoint", handle=work["handle"], state="x" * 900_000)
        # Whoever has the handle goes on, over whatever connection.
        async with Client(url, mode=mode) as again:
            assert (await Agent(again).call("heartbeat", handle=work["handle"]))["held"]
    await status_is(other, work["handoff"], "pending", "orphaned")
    async with served(server(), HERE) as url, Client(url, mode=mode) as client:
        agent = Agent(client)
        assert (await agent.refused("heartbeat", handle=work["handle"])).startswith("unknown_handle")
        (begun,) = (await agent.call("recover", kinds=[kind]))["claimable"]
        (again,) = (await agent.call("recover", handoff=begun["handoff"]))["work"]
        assert again["state"] == "x" * 900_000
        await agent.call("checkpoint", handle=again["handle"], state="x" * 3_000_000)
        (long,) = (await agent.call("recover", handle=again["handle"]))["work"]
        assert (long["state"], long["state_left_out"], long["seq"]) == (None, True, 2)
        await agent.call("complete", handle=again["handle"], result=None)
        await other.dispatch(kind, {"long": "x" * 1_010_000})
        assert (await agent.refused("claim", kinds=[kind])).startswith("too_large")
        assert (await agent.call("list", kind=kind, status="pending"))["handoffs"][0]["failures"] == 0


async def test_pages_of_other_hosts_and_callers_without_a_token_are_kept_out(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text("a-token-for-the-test")
    place = HttpPlace(host="127.0.0.1", port=0, token_file=str(tokens))
    good = {"Authorization": "Bearer a-token-for-the-test"}
    async with served(server_of(daemon.address, guessable=False), place) as url:
        async with httpx2.AsyncClient(trust_env=False) as raw:
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            for headers, code in (
                ({}, 401),
                ({"Authorization": "Bearer another-one-for-it"}, 401),
                ({**good, "Host": "evil.example"}, 421),
                ({**good, "Origin": "https://evil.example"}, 403),
            ):
                assert (await raw.post(url, json=ping, headers=headers)).status_code == code
        async with (
            httpx2.AsyncClient(headers=good, trust_env=False) as shown,
            Client(streamable_http_client(url, http_client=shown)) as client,
        ):
            assert (await Agent(client).call("health"))["status"] == "ok"


async def test_a_claim_whose_caller_has_gone_while_it_waited_takes_nothing(
    daemon: DaemonProcess, other: dhp_client.Client, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PROGRESS_EVERY_MS", 60_000)  # Else the caller hears something, and waits on.
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "a", "version": "1"},
    }
    claim = {"name": "claim", "arguments": {"kinds": [kind], "wait_ms": 20_000}}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    async with (
        served(server_of(daemon.address, guessable=False, idle_ms=60_000), HERE) as url,
        httpx2.AsyncClient(headers=headers, trust_env=False) as raw,
    ):
        met = await raw.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        raw.headers["mcp-session-id"] = met.headers["mcp-session-id"]
        await raw.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})

        async def is_ready() -> bool:
            answer = await raw.post(url, json={"jsonrpc": "2.0", "id": 3, "method": "tools/list"})
            return '"result"' in answer.text

        await until_async(is_ready, "the notification has been taken in")
        with pytest.raises(httpx2.ReadTimeout):
            await raw.post(url, json={"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": claim}, timeout=1)
        handoff = (await other.dispatch(kind, {})).handoff

        async def is_given_back() -> bool:
            return [one["type"] for one in (await other.history(handoff)).records][1:] == ["claimed", "released"]

        await until_async(is_given_back, "the claim is given back")
        assert (await other.status(handoff)).failures == 0
