"""From what the client raises to what an agent is told, for every tool alike.

Owns that an expected refusal reaches the agent with its code and what to do next, and that anything else doesn't: the SDK logs it, and says
only that the tool has failed; and that each call ends, whatever the daemon does.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError

from ..exceptions import InDoubt
from .record import Ended
from .refusals import told

P = ParamSpec("P")
T = TypeVar("T")

CALL_WITHIN_MS = 30_000
"""Many hosts give up on a call after a minute, and their agent learns nothing then. More than `waiting.MAX_WAIT_MS`."""


def as_tool_errors(body: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Has `body` raise `ToolError` for what can be told, and when it takes too long."""

    @functools.wraps(body)
    async def told_or_raised(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = asyncio.timeout(CALL_WITHIN_MS / 1000)
        try:
            async with bound:
                return await body(*args, **kwargs)
        except Ended as ended:
            raise ToolError(str(ended)) from None
        except Exception as error:
            if isinstance(error, TimeoutError) and bound.expired():
                error = InDoubt(f"The daemon hasn't answered for {CALL_WITHIN_MS} ms.")
            text = told(error)
            if text is None:
                raise
            raise ToolError(text) from None

    return told_or_raised
