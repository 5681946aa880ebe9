"""Requests to bytes, bytes to replies and events; the client's side of the framing.

Owns telling a reply from an event and an error from a yes, and what can be told to be unsendable before it is sent. No
I/O: the asyncio link and the keep-alive thread use the same.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from dhp_protocol.depth import nested_deeper
from dhp_protocol.errors import BadJson, DHPError, FrameTooLarge, InvalidRequest, TooLarge, error_from_body
from dhp_protocol.framing import Fault, Framer, encode_frame
from dhp_protocol.limits import Limits
from dhp_protocol.messages import Request, RequestId
from dhp_protocol.replies import AnyEvent, ReplyHead

from .exceptions import BadReply

MAX_REPLY_BYTES = 64 * 1024 * 1024
"""Of one frame that the daemon sends; far above what a daemon with the default limits says at once."""

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(ReplyHead).decode
_decode_event: Any = msgspec.json.Decoder(AnyEvent).decode
_KNOWN_EVENTS = frozenset(event.__struct_config__.tag for event in AnyEvent.__args__)


class Reply(msgspec.Struct, frozen=True):
    """One answer: its body, or the error that it says; `id` is UNSET where the daemon couldn't tell which request."""

    id: RequestId | msgspec.UnsetType
    body: bytes
    error: DHPError | None


def encode_request(request: Request, limits: Limits) -> bytes:
    """The frame of `request`. Raises what the daemon would answer without an `id`, which nobody could match."""
    try:
        body = _encode(request)
    except UnicodeEncodeError:
        raise InvalidRequest("The request holds text that is no Unicode (a lone surrogate).", member="") from None
    if len(body) > limits.max_frame_bytes:
        check_payloads(request, limits)
        raise FrameTooLarge(
            f"A frame's body may have {limits.max_frame_bytes} bytes: send less at once.",
            limit=limits.max_frame_bytes,
            size=len(body),
        )
    if nested_deeper(body, limits.max_depth):
        raise BadJson(f"The request is nested deeper than {limits.max_depth} levels.")
    return encode_frame(body, counted=True)


def check_payloads(request: msgspec.Struct, limits: Limits) -> None:
    """Raises `TooLarge`, naming the member, where one payload alone has more than its own limit."""
    bounds = {"state": limits.max_state_bytes, "result": limits.max_result_bytes}
    for member in request.__struct_fields__:
        value = getattr(request, member)
        limit = bounds.get(member, limits.max_intent_bytes)
        if isinstance(value, msgspec.Raw) and len(bytes(value)) > limit:
            size = len(bytes(value))
            sentence = f"{member} has {size} bytes and may have {limit}: keep large data elsewhere and name it."
            raise TooLarge(sentence, member=member, limit=limit, size=size)


def decode_reply(body: bytes, shape: type[T]) -> T:
    """The reply in `body`; members that this version doesn't know are ignored. Raises `BadReply`."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadReply(f"The daemon sent no {shape.__name__}: {error}.") from None


class Inbox:
    """What one connection receives, cut into replies and events."""

    def __init__(self) -> None:
        self._framer = Framer(MAX_REPLY_BYTES)

    def feed(self, data: bytes) -> Iterator[Reply | AnyEvent]:
        """Takes in `data` and yields what it completes. Raises `BadReply`: then the connection is of no more use."""
        for item in self._framer.feed(data):
            if isinstance(item, Fault):
                raise BadReply(f"The daemon sent something that is no frame: {item.error}")
            found = _reply_or_event(item.body)
            if found is not None:
                yield found


def _reply_or_event(body: bytes) -> Reply | AnyEvent | None:
    try:
        head = _decode_head(body)
        if head.event is not msgspec.UNSET:
            event: AnyEvent | None = _decode_event(body) if head.event in _KNOWN_EVENTS else None
            return event
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadReply(f"The daemon sent neither a reply nor an event: {problem}.") from None
    error = None if head.error is msgspec.UNSET else error_from_body(head.error)
    if error is None and head.ok is not True:
        raise BadReply("The daemon sent a reply that says neither yes nor no.")
    return Reply(head.id, body, error)
