"""From a frame's body to a typed request, or to the error that says what is wrong with it.

Owns the checks that a typed decoder leaves out: UTF-8, nesting, doubled names, and errors that name the member.
"""

import codecs
import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from .depth import DepthScan, nested_deeper
from .errors import BadJson, DHPError, InvalidRequest, UnknownOp
from .limits import MAX_ID_BYTES
from .messages import AnyRequest, BudgetAdd, Checkpoint, Dispatch, Fail, Heartbeat, Redrive, RequestId, Spend
from .money import nano_usd

OPS = frozenset(cls.__struct_config__.tag for cls in get_args(AnyRequest))
"""Every operation's name."""

TEXT_STEP_BYTES = 128 * 1024
_Utf8Decoder = codecs.getincrementaldecoder("utf-8")
_NOTHING = msgspec.Raw(b"")
_decode_request = msgspec.json.Decoder(AnyRequest).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_id = msgspec.json.Decoder(RequestId).decode
_encode = msgspec.json.Encoder().encode

_UNKNOWN_MEMBER = re.compile(r"unknown field `(.*?)`(?: - at `\$[^`]*`)?$")
_MISSING_MEMBER = re.compile(r"missing required field `(.*?)`")
_MEMBER_PATH = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_MEMBER_NAME = re.compile(rb'[\s,]*"((?:[^"\\]|\\.)*)"\s*:\s*')
_SURROGATE_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?|\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\."
)


class RequestFault(Exception):
    """A body that is no good request: the error to answer, and the `id` to answer it under (UNSET: without one)."""

    def __init__(self, error: DHPError, request_id: RequestId | msgspec.UnsetType = msgspec.UNSET) -> None:
        super().__init__(error.message)
        self.error = error
        self.request_id = request_id


def decode_request(body: bytes, max_depth: int) -> AnyRequest:
    """The request in `body`; raises `RequestFault`.

    The first of these that holds is told: `bad_json` where the body is no JSON object in UTF-8 or is nested deeper than
    `max_depth` (the body is level 1); `invalid_request` for a lone surrogate; `invalid_request` for a doubled name;
    `unknown_op`; `invalid_request` naming the member for everything else.
    """
    check_text(body)
    if body.count(b"{") + body.count(b"[") > max_depth and nested_deeper(body, max_depth):
        raise too_deep(max_depth)
    try:
        request = _decode_request(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _explained(body, error) from None
    check_members(request, body)
    return request


def check_in_steps(body: bytes, max_depth: int) -> Iterator[None]:
    """What `decode_request` checks before it decodes, for a long body: each step takes a fraction of a millisecond."""
    decoder = _Utf8Decoder()
    for at in range(0, len(body), TEXT_STEP_BYTES):
        piece = body[at : at + TEXT_STEP_BYTES]
        held = len(decoder.getstate()[0])
        try:
            decoder.decode(piece, at + TEXT_STEP_BYTES >= len(body))
        except UnicodeDecodeError as error:
            raise _not_utf8(at - held + error.start) from None
        check_line(piece)
        yield
    scan = DepthScan(body, max_depth)
    while not scan.step():
        yield
    if scan.too_deep:
        raise too_deep(max_depth)


class _Payloads(msgspec.Struct):
    """The members that stay text, so that it makes no difference how much of it there is."""

    inputs: msgspec.Raw = _NOTHING
    output_schema: msgspec.Raw = _NOTHING
    budget: msgspec.Raw = _NOTHING
    capabilities: msgspec.Raw = _NOTHING
    state: msgspec.Raw = _NOTHING
    result: msgspec.Raw = _NOTHING
    details: msgspec.Raw = _NOTHING


_OP_FIRST = re.compile(rb'\{"op":"([a-z_]+)"')
_PAYLOAD_ONLY = frozenset(("checkpoint", "complete", "effect_done", "approval_request"))
"""Operations that take no member of many parts."""
_decode_payloads = msgspec.json.Decoder(_Payloads).decode


def is_mostly_payload(body: bytes, rest_bytes: int) -> bool:
    """Whether all but `rest_bytes` of `body` is payload, so that decoding it makes few objects."""
    op = _OP_FIRST.match(body)
    if op is not None and op[1].decode() in _PAYLOAD_ONLY:
        return True
    try:
        payloads = _decode_payloads(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return len(body) - sum(len(bytes(raw)) for raw in msgspec.structs.astuple(payloads)) <= rest_bytes


class Unexplained(Exception):
    """A body that is no good request for a reason that takes a while to find: `decode_request` tells it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def decode_typed(body: bytes) -> AnyRequest:
    """The request, as far as its members' types tell; raises `Unexplained`."""
    try:
        return _decode_request(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unexplained(error) from None


def check_members(request: AnyRequest, body: bytes) -> None:
    """What the types don't tell: no name twice, an `id` and amounts within their bounds; raises `RequestFault`."""
    # Nothing is shorter than in its own encoding, so what is as long can't hold a name twice, in any order. But for an error
    # without a message: its encoding says an empty one.
    if type(request) is Fail or len(_encode(request)) != len(body):
        doubled = doubled_member(body) or _doubled_inside(request, body)
        if doubled is not None:
            raise _doubled(doubled, request.id)
    if type(request.id) is str and not _fits(request.id):
        raise RequestFault(InvalidRequest(f"An id may have {MAX_ID_BYTES} bytes.", member="id"))
    if isinstance(request, (Checkpoint, Spend)) and request.usd is not msgspec.UNSET:
        try:
            nano_usd(request.usd, member="usd")
        except InvalidRequest as error:
            raise RequestFault(error, request.id) from None
    elif isinstance(request, BudgetAdd):
        _check_caps(request.add, "add", request.id)
    elif isinstance(request, Redrive) and request.budget_add is not msgspec.UNSET:
        _check_caps(request.budget_add, "budget_add", request.id)


def _check_caps(raw: msgspec.Raw, member: str, request_id: RequestId | msgspec.UnsetType) -> None:
    """What the caps themselves are is looked at later, but that they are an object before anything is looked up."""
    if bytes(raw)[:1] != b"{":
        raise RequestFault(InvalidRequest(f"{member} must be a JSON object of caps.", member=member), request_id)


def check_text(body: bytes) -> None:
    """Raises `RequestFault` (`bad_json`) unless `body` is UTF-8 on one line."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise _not_utf8(error.start) from None
    check_line(body)


def check_line(text: bytes) -> None:
    """Raises `RequestFault` (`bad_json`) where there is more than one line."""
    if b"\n" in text or b"\r" in text:
        raise RequestFault(BadJson("The body holds a raw line feed or carriage return: write \\n or \\r instead."))


def _not_utf8(byte: int) -> RequestFault:
    return RequestFault(BadJson(f"The body isn't UTF-8 (byte {byte})."))


def too_deep(max_depth: int) -> RequestFault:
    """What is said of a body that is nested too deep."""
    sentence = f"The body is nested deeper than {max_depth} levels, or its brackets don't match."
    return RequestFault(BadJson(sentence))


def doubled_member(body: bytes) -> str | None:
    """The first member name that stands twice in the JSON object `body`, at its top level; None if there is none.

    `body` is known to be a valid object. A decoder keeps a doubled name's last value; so walking the text, each value
    is either the one that was kept, which tells where the next name begins, or belongs to a name that comes again.
    """
    members = _decode_members(body)
    if sum(map(len, members)) + sum(map(len, members.values())) + 4 * len(members) + 1 == len(body):
        return None  # No byte is left over that another member could be made of.
    values = {name: bytes(value) for name, value in members.items()}
    at = body.index(b"{") + 1
    seen = set()
    while (match := _MEMBER_NAME.match(body, at)) is not None:
        name = msgspec.json.decode(b'"' + match[1] + b'"', type=str)
        after = match.end() + len(values[name])
        if name in seen or body[match.end() : after] != values[name] or body[after : after + 1] not in _VALUE_END:
            return name
        seen.add(name)
        at = after
    return None


_VALUE_END = frozenset((b",", b"}", b" ", b"\t"))


def _doubled_inside(request: AnyRequest, body: bytes) -> str | None:
    """As `doubled_member`, within the members that have members of their own; payloads are none of them."""
    if isinstance(request, Heartbeat):
        raw = _decode_members(body)["leases"]
        # A lease's two names and its handoff hold no quote, so each lease has six unless a name comes again.
        if bytes(raw).count(b'"') == 6 * len(request.leases):
            return None
        names = (doubled_member(bytes(lease)) for lease in _decode_list(raw))
        return next((f"leases[{index}].{name}" for index, name in enumerate(names) if name is not None), None)
    if isinstance(request, Fail):
        return _prefixed("error", doubled_member(bytes(_decode_members(body)["error"])))
    if isinstance(request, Dispatch) and request.labels:
        return _prefixed("labels", doubled_member(bytes(_decode_members(body)["labels"])))
    return None


def _prefixed(member: str, name: str | None) -> str | None:
    return None if name is None else f"{member}.{name}"


def _doubled(member: str, request_id: RequestId | msgspec.UnsetType) -> RequestFault:
    error = InvalidRequest(f"{member} stands there twice: say it once.", member=member)
    return RequestFault(error, msgspec.UNSET if member == "id" else request_id)


def request_id_of(body: bytes) -> RequestId | msgspec.UnsetType:
    """The `id` of a request that isn't good otherwise; UNSET if that can't be told."""
    try:
        raw = _decode_members(body).get("id")
        found = msgspec.UNSET if raw is None else _decode_id(raw)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.UNSET
    return found if not isinstance(found, str) or _fits(found) else msgspec.UNSET


def _fits(text: str) -> bool:
    return 4 * len(text) <= MAX_ID_BYTES or len(text.encode()) <= MAX_ID_BYTES


def _explained(body: bytes, error: Exception) -> RequestFault:
    return _invalid(body, str(error)) if isinstance(error, msgspec.ValidationError) else _not_json(body, error)


def _invalid(body: bytes, problem: str) -> RequestFault:
    try:
        members = _decode_members(body)
    except msgspec.ValidationError:
        return RequestFault(BadJson("A request is one JSON object."))
    except (msgspec.DecodeError, RecursionError) as error:  # Behind the member that was wrong, it is no JSON at all.
        return _not_json(body, error)
    request_id = request_id_of(body)
    doubled = doubled_member(body)
    if doubled is not None:
        return _doubled(doubled, request_id)
    op = _op_of(members)
    if isinstance(op, str) and op not in OPS:
        return RequestFault(UnknownOp(f"There is no operation {op[:64]!r} in this version.", op=op[:64]), request_id)
    if (unknown := _UNKNOWN_MEMBER.search(problem)) is not None:
        member = _joined(problem, unknown[1])
        return RequestFault(InvalidRequest(f"{op} takes no member {member}: leave it out.", member=member), request_id)
    if (missing := _MISSING_MEMBER.search(problem)) is not None:
        member = _joined(problem, missing[1])
        return RequestFault(
            InvalidRequest(f"{op or 'A request'} needs the member {member}.", member=member), request_id
        )
    path = _MEMBER_PATH.search(problem)
    member = path[1] if path is not None else ""
    return RequestFault(InvalidRequest(f"{member}: {problem.split(' - at ')[0]}.", member=member), request_id)


def _op_of(members: dict[str, msgspec.Raw]) -> str | None:
    try:
        return msgspec.json.decode(members["op"], type=str)
    except (KeyError, msgspec.DecodeError):
        return None


def _joined(problem: str, name: str) -> str:
    path = _MEMBER_PATH.search(problem)
    return f"{path[1]}.{name}" if path is not None and path[1] else name


def _not_json(body: bytes, error: Exception) -> RequestFault:
    healed = _SURROGATE_ESCAPE.sub(_without_lone_surrogate, body)
    if healed != body:
        try:
            msgspec.json.decode(healed, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            sentence = (
                "The request holds text that is no Unicode (a lone surrogate): escape such bytes in a way of your own."
            )
            member = _member_with_surrogate(body)
            request_id = msgspec.UNSET if member == "id" else request_id_of(healed)
            return RequestFault(InvalidRequest(sentence, member=member), request_id)
    where = "" if isinstance(error, RecursionError) else f" ({error})"
    return RequestFault(BadJson(f"The body isn't one JSON object{where}."))


def _without_lone_surrogate(match: "re.Match[bytes]") -> bytes:
    escape = match[0]
    return b"\\ufffd" if len(escape) == 6 else escape


def _member_with_surrogate(body: bytes) -> str:
    """Which top-level member holds the lone surrogate: the one whose text the healing changes."""
    healed: dict[str, Any] = _decode_members(_SURROGATE_ESCAPE.sub(_without_lone_surrogate, body))
    marked: dict[str, Any] = _decode_members(
        _SURROGATE_ESCAPE.sub(lambda m: b"\\ufffc" if len(m[0]) == 6 else m[0], body)
    )
    return next((name for name, raw in healed.items() if bytes(marked.get(name, b"")) != bytes(raw)), "")
