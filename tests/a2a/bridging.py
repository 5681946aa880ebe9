"""The server in the test's own process, on a real socket, and the SDK's own client to talk to it."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from a2a.client import Client, ClientConfig, create_client
from a2a.types import (
    AgentCard,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)
from google.protobuf.json_format import MessageToDict

import dhp_client
from dhp_client.a2a.application import application
from dhp_client.a2a.bridge import Bridge
from dhp_client.a2a.cards import served_card
from dhp_client.a2a.parts import part_of
from dhp_client.cli.http_serving import HttpListener, HttpPlace


@dataclass
class Bridged:
    """`agent` is the SDK's client, which streams; `polling` returns what a single answer holds; `http` is for raw requests to `url`; `stop` ends the server."""

    url: str
    card: AgentCard
    http: httpx.AsyncClient
    agent: Client
    polling: Client
    stop: asyncio.Event

    async def rpc(self, method: str, version: str = "1.0", **params: Any) -> Any:
        """A raw request: its result, or its error."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        answer = (await self.http.post(self.url, content=body, headers={"A2A-Version": version})).json()
        return answer.get("result", answer.get("error"))

    async def send(self, request: SendMessageRequest) -> Task:
        """Sends, and gives the task of the one answer."""
        (answer,) = [answer async for answer in self.polling.send_message(request)]
        return answer.task


@contextlib.asynccontextmanager
async def bridged(client: dhp_client.Client, *kinds: str, **settings: Any) -> AsyncIterator[Bridged]:
    listener = HttpListener(HttpPlace(host="127.0.0.1", port=0))
    card = served_card(AgentCard(), kinds, listener.url, wants_token=False)
    stop = asyncio.Event()
    app = application(Bridge(client=client, kinds=kinds, **settings), card)
    serving = asyncio.create_task(listener.serve(app, stop=stop))
    try:
        async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
            agent = await create_client(card, ClientConfig(streaming=True, httpx_client=http))
            polling = await create_client(card, ClientConfig(streaming=False, httpx_client=http))
            yield Bridged(listener.url, card, http, agent, polling, stop)
    finally:
        stop.set()
        await serving


def message(*values: Any, **members: Any) -> Message:
    """A message of a user's; text as a text part, anything else as data."""
    parts = [value if isinstance(value, Part) else part_of(value) for value in values]
    return Message(**{"message_id": uuid.uuid4().hex, "role": Role.ROLE_USER, "parts": parts, **members})


def sending(*values: Any, at_once: bool = False, **members: Any) -> SendMessageRequest:
    return SendMessageRequest(
        message=message(*values, **members), configuration=SendMessageConfiguration(return_immediately=at_once)
    )


def state(status: Any) -> str:
    """A state's name without what all have in common."""
    return TaskState.Name(status.state).removeprefix("TASK_STATE_")


def dhp(of: Any) -> dict[str, Any]:
    """What is ours in the metadata."""
    found: dict[str, Any] = MessageToDict(of.metadata)["dhp"]
    return found


def text(of: Any) -> str:
    """The text of a status's message."""
    return " ".join(part.text for part in of.status.message.parts if part.WhichOneof("content") == "text")


def told(update: StreamResponse) -> tuple[str, Any]:
    """One item of a stream, in short."""
    match update.WhichOneof("payload"):
        case "task":
            return "task", state(update.task.status)
        case "artifact_update":
            return "artifact", MessageToDict(update.artifact_update.artifact.parts[0])["data"]
        case "status_update":
            changed = update.status_update
            return state(changed.status), dhp(changed).get("seq", dhp(changed)["type"])
    raise AssertionError(update)
