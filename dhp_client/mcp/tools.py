"""The table of tools, and how a function becomes one.

Owns the four annotations of each, that arguments come as they were sent, that one which a tool doesn't know is refused, and the form of
answers. What a tool does is the function's.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools.base import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import ConfigDict, ValidationError, create_model

from ..payload import encode
from . import asking, claiming, dispatching, effects, looking, working
from .answers import Answer
from .failing import as_tool_errors
from .refusals import told

MAX_TEXT_CHARS = 256 * 1024
"""What is longer isn't sent twice: no model reads it, and a program reads the data."""

Body = Callable[..., Awaitable[Answer]]

LOOKS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
SETS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
ENDS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)

TABLE: tuple[tuple[str, Body, ToolAnnotations], ...] = (
    ("dispatch", dispatching.dispatch, SETS),
    ("claim", claiming.claim, ADDS),
    ("checkpoint", working.checkpoint, ADDS),
    ("complete", working.complete, SETS),
    ("recover", claiming.recover, SETS),
    ("status", looking.status, LOOKS),
    ("last_checkpoint", looking.last_checkpoint, LOOKS),
    ("list", looking.list_handoffs, LOOKS),
    ("result", dispatching.result, LOOKS),
    ("health", looking.health, LOOKS),
    ("heartbeat", working.heartbeat, SETS),
    ("fail", working.fail, ENDS),
    ("release", working.release, SETS),
    ("suspend", working.suspend, SETS),
    ("resume", dispatching.resume, SETS),
    ("cancel", dispatching.cancel, ENDS),
    ("ack", dispatching.ack, SETS),
    ("spend", working.spend, ADDS),
    ("activity", working.activity, ADDS),
    ("check_capability", working.check_capability, SETS),
    ("effect_begin", effects.effect_begin, SETS),
    ("effect_done", effects.effect_done, SETS),
    ("effects", effects.effects, LOOKS),
    ("approval_request", asking.approval_request, SETS),
    ("approval_wait", asking.approval_wait, SETS),
    ("approvals", asking.approvals, LOOKS),
)


class Verbatim(FuncMetadata):
    """Takes a payload as it was sent. The SDK's own would read a text that looks like JSON as what it looks like, since some hosts send objects
    so; where an object is wanted that is right, but a state may be the text "[1]".
    """

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        payloads = {name for name, known in self.arg_model.model_fields.items() if known.annotation is Any}
        others = {name: value for name, value in data.items() if name not in payloads}
        read = super().pre_parse_json(others)
        return {name: read.get(name, value) if name in others else value for name, value in data.items()}


class _Strict(ArgModelBase):
    model_config = ConfigDict(extra="forbid")


class Telling(Tool):
    """Tells each refusal in its own words: the SDK puts some before the code, and tells wrong arguments at length."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        try:
            return await super().run(arguments, context, convert_result)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            cause = error.__cause__
            text = told(cause) if isinstance(cause, ValidationError) else str(cause or error)
            return CallToolResult(content=[TextContent(type="text", text=text or "")], is_error=True)


@functools.cache
def tools() -> list[Tool]:
    """All of them. They hold nothing, so all servers of a process have the same."""
    return [_tool(name, body, annotations) for name, body, annotations in TABLE]


def _tool(name: str, body: Body, annotations: ToolAnnotations) -> Tool:
    description = inspect.cleandoc(body.__doc__ or "")
    made = Telling.from_function(_answering(body), name=name, description=description, annotations=annotations)
    known = made.fn_metadata
    # A misspelt cap, or a fence, must not be dropped in silence.
    strict = create_model(known.arg_model.__name__, __base__=(_Strict, known.arg_model))
    made.fn_metadata = Verbatim(
        arg_model=strict,
        output_schema=known.output_schema,
        output_model=known.output_model,
        wrap_output=known.wrap_output,
    )
    made.parameters = strict.model_json_schema(by_alias=True)
    return made


def _answering(body: Body) -> Callable[..., Awaitable[Any]]:
    """Answers with the model's members, as data, and as text on one line: the SDK's own text is many times as long."""
    body_or_error = as_tool_errors(body)

    @functools.wraps(body)
    async def answered(*args: Any, **kwargs: Any) -> CallToolResult:
        members = (await body_or_error(*args, **kwargs)).model_dump(mode="json")
        text = encode(members, member="answer").decode()
        if len(text) > MAX_TEXT_CHARS:
            text = f"The answer has {len(text)} characters: it stands in the structured content alone."
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=members)

    return answered
