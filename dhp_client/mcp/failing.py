"""From what the client raises to what an agent is told, for every tool alike.

Owns that an expected refusal reaches the agent with its code and what to do next, and that anything else doesn't: the SDK logs it, and says
only that the tool has failed.
"""

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError

from .record import Ended
from .refusals import told

P = ParamSpec("P")
T = TypeVar("T")


def as_tool_errors(body: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Has `body` raise `ToolError` for what can be told."""

    @functools.wraps(body)
    async def told_or_raised(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await body(*args, **kwargs)
        except Ended as ended:
            raise ToolError(str(ended)) from None
        except Exception as error:
            text = told(error)
            if text is None:
                raise
            raise ToolError(text) from None

    return told_or_raised
