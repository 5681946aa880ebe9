"""What stands behind the tools while they are served: one client of the daemon, the record of what agents hold, and the way in for persons.

Owns that the daemon is first connected to when something is asked of it, so that an agent which never hands anything off starts none, and
that a call finds all this by its context.
"""

import asyncio
import shlex
from collections.abc import Callable
from types import TracebackType
from typing import Any

import anyio
from mcp.server.mcpserver import Context
from starlette.requests import Request

from ..client import Client
from ..connecting import Connecting
from ..persons import Approver
from ..task import Task
from .record import Record

Call = Context[Any, Any]
"""The context of one call."""


class Bridge:
    """`connecting` makes a connection that is about to be made, anew for each try. `approver` None: nobody can decide through here.

    `decide_at` is the --connect of a person who decides on a terminal; None: theirs needs none.
    """

    def __init__(
        self,
        connecting: Callable[[], Connecting],
        record: Record,
        *,
        approver: Approver | None = None,
        decide_at: str | None = None,
    ) -> None:
        self.record = record
        self.approver = approver
        self._connecting = connecting
        self._decide_at = decide_at
        self._client: Client | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> "Bridge":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        if client is not None:
            with anyio.CancelScope(
                shield=True
            ):  # Serving may end by being cancelled, and what is held is handed back even so.
                await client.close()

    async def client(self) -> Client:
        """The client, connected. Raises what `dhp_client.connect` does; the next call tries again then."""
        async with self._turn:
            if self._client is None:
                self._client = await self._connecting()
            return self._client

    def decide_with(self, approval: str) -> str:
        """What a person types to decide it."""
        at = "" if self._decide_at is None else f" --connect {shlex.quote(self._decide_at)}"
        return f"dhp approve {approval}{at}   # or: dhp deny {approval}{at}"


def bridge_of(call: Call) -> Bridge:
    """The bridge that serves this call."""
    found: Bridge = call.request_context.lifespan_context
    return found


async def client_of(call: Call) -> Client:
    """Its client."""
    return await bridge_of(call).client()


async def is_broken_off(call: Call) -> bool:
    """Whether whoever made this call over HTTP has gone since: the era with a handshake doesn't take that for a cancelling."""
    request = call.request_context.request
    return isinstance(request, Request) and await request.is_disconnected()


def handle_given_out(call: Call, task: Task) -> str:
    """The handle of a task that was just claimed for this call. No other call may come between the claim and this."""
    return bridge_of(call).record.add(task, call.request_context.request_id)
