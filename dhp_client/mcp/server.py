"""The MCP server: the tools, a handoff as a resource, and what agents are told at the start.

Owns putting it together. How it is served is `stdio`'s and `http`'s.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from importlib.metadata import version
from typing import Any

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.request_state import RequestStateSecurity
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from .asking import PERSON_WITHIN_MS
from .bridge import Bridge
from .looking import handoff_resource
from .tools import tools

INSTRUCTIONS = """\
Durable handoffs: work that outlives whoever is doing it.
dispatch asks for work. claim takes some, with the state of its last checkpoint, and gives a handle. checkpoint stores how far you are after
each step; complete ends the work with its result. After a crash, or when you have lost track, call recover first.
Your lease is kept for you while you think. When a call says lease_lost, stop that work: somebody else may have it.
Before you act on the outside world call effect_begin; where a person must agree, approval_request.\
"""


class Server(MCPServer[Bridge]):
    """`bridge` makes what stands behind the tools; it is entered when serving begins. `secret` (32 bytes or more) seals questions to persons, so
    that one which was asked before a restart can be answered after it.
    """

    def __init__(self, bridge: Callable[[], Bridge], *, secret: bytes) -> None:
        @contextlib.asynccontextmanager
        async def lifespan(_: MCPServer[Bridge]) -> AsyncGenerator[Bridge]:
            async with bridge() as entered:
                yield entered

        super().__init__(
            "dhp",
            title="Durable handoffs",
            instructions=INSTRUCTIONS,
            version=version("dhpd"),
            tools=tools(),
            lifespan=lifespan,
            request_state_security=RequestStateSecurity(keys=[secret], ttl=PERSON_WITHIN_MS / 1000),
            subscriptions=False,
            middleware=[_hears_of_cancelling],
            log_level="WARNING",
        )
        self.resource("dhp://handoffs/{id}", name="handoff", title="A handoff", mime_type="application/json")(
            handoff_resource
        )

    async def run_over(self, read: ReadStream[SessionMessage | Exception], write: WriteStream[SessionMessage]) -> None:
        """Serves one connection until `read` ends. `run_stdio_async` does the same over streams that it opens itself."""
        served = self._lowlevel_server
        await served.run(read, write, served.create_initialization_options())


async def _hears_of_cancelling(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """The SDK ends a call that is cancelled while it runs; of one that was answered just before, nobody else hears."""
    if ctx.method == "notifications/cancelled":
        request_id = (ctx.params or {}).get("requestId")
        if isinstance(request_id, str | int):
            ctx.lifespan_context.record.is_cancelled(request_id)
    return await call_next(ctx)
