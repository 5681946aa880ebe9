"""How much a request may hold: the SDK takes each value apart on the event loop, where everybody's streams wait meanwhile.

Owns the bounds, and that a request beyond them costs nobody else time. How long a body may be is `http_guard`'s.
"""

import json
from typing import Any

from a2a.types import InvalidParamsError, SendMessageRequest
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf.message import Message as AnyMessage
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .parts import MAX_VALUES

MAX_PARTS = 1_000


class BoundedRequests:
    """`app`, for requests that hold no more than `MAX_VALUES`; their bodies come to it in one piece."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return  # The caller has gone.
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if holds_more_values(body, MAX_VALUES):
            told = f"A request may hold {MAX_VALUES} values: put large inputs elsewhere and name them.\n"
            await PlainTextResponse(told, status_code=413)(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replayed() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replayed, send)


def holds_more_values(text: bytes | bytearray, most: int) -> bool:
    """Whether JSON text holds more values than that; what is no JSON is judged by whoever reads it next.

    It is read as the SDK reads it: another reader might refuse what that one takes.
    """
    if text.count(b",") + text.count(b"[") + text.count(b"{") < most:  # Each value but one stands behind one of these.
        return False
    try:
        left: list[Any] = [json.loads(text)]
    except (ValueError, RecursionError):
        return False
    found = 0
    while left and found <= most:
        value = left.pop()
        found += 1
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
    return found > most


def check_required_fields(params: AnyMessage) -> None:
    """Raises `InvalidParamsError` where the request lacks what A2A wants of it, or a message has too many parts.

    As the SDK's `validate_request_params`, which takes a tenth of a millisecond for each value, those left aside that lack nothing ever:
    what stands in data and metadata.
    """
    checked = type(params)()
    checked.CopyFrom(params)
    _without_values(checked)
    if isinstance(checked, SendMessageRequest) and checked.HasField("message"):
        if len(checked.message.parts) > MAX_PARTS:
            raise InvalidParamsError(f"A message may have {MAX_PARTS} parts: put more into one of them.")
        for holder in (checked.message, *checked.message.parts):
            _without_values(holder)
    validate_proto_required_fields(checked)


def _without_values(holder: AnyMessage) -> None:
    for name in {"data", "metadata"} & {*holder.DESCRIPTOR.fields_by_name}:
        holder.ClearField(name)
