"""What the process can be asked to do: by name, bytes in and bytes out, a `DHPError` for a refusal.

Owns the schemas that were compiled lately. Everything here is pure but for that.
"""

import gc
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from dhp_protocol.decoding import RequestFault, decode_request
from dhp_protocol.errors import DHPError
from dhp_protocol.intent import canonical, parse_exact
from dhp_protocol.limits import Limits
from dhp_protocol.messages import Dispatch, RequestId
from dhpd.engine.dispatching import NamedIntent, name_intent
from dhpd.engine.sizes import check_payloads
from dhpd.schemas.compiling import Validator, compile_schema
from dhpd.schemas.patterns import compile_pattern
from dhpd.schemas.references import MAX_SUBSCHEMAS
from dhpd.schemas.verdicts import judge, schema_beyond_bounds

DEEP = 50_000
"""Frames of Python: a value 128 levels deep, each asked about by many subschemas in turn, needs more than usual."""

_decode_dispatch = msgspec.json.Decoder(Dispatch).decode
_decode_limits = msgspec.json.Decoder(Limits).decode
_encode_named = msgspec.msgpack.Encoder().encode
decode_named = msgspec.msgpack.Decoder(NamedIntent).decode
"""What `name` answers."""


class Tasks:
    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._validators: OrderedDict[bytes, Validator] = OrderedDict()
        self.by_name: dict[str, Callable[..., bytes]] = {
            "name": name,
            "canonical": canonical_form,
            "explain": explain,
            "check": self.check,
            "judge": self.judge,
        }

    def check(self, schema: bytes) -> bytes:
        """Raises `SchemaInvalid` unless the schema can be enforced."""
        self._validator(schema)
        return b""

    def judge(self, schema: bytes, result: bytes) -> bytes:
        """Raises `ResultInvalid` unless the result fits, and `SchemaInvalid`."""
        verdict = judge(self._validator(schema), result, self._steps, _deep_recursion)
        if verdict is not None:
            raise verdict
        return b""

    def _validator(self, schema: bytes) -> Validator:
        validator = self._validators.get(schema)
        if validator is not None:
            self._validators.move_to_end(schema)
            return validator
        try:
            validator = self._validators[schema] = compile_schema(schema, compile_pattern)
        except (RecursionError, MemoryError):
            raise schema_beyond_bounds() from None
        # Counted anew each time: a task may be left unfinished between any two lines.
        while len(self._validators) > 1 and sum(each.size for each in self._validators.values()) > MAX_SUBSCHEMAS:
            self._validators.popitem(last=False)
            gc.collect()  # Its nodes refer to one another.
        return validator


def name(request: bytes, limits: bytes) -> bytes:
    """Names the intent of a dispatch; raises as `name_intent` does."""
    return _encode_named(name_intent(_decode_dispatch(request), _decode_limits(limits)))


def canonical_form(text: bytes, member: bytes) -> bytes:
    """The canonical form of a JSON value; raises `InvalidRequest` naming the member."""
    named = member.decode()
    return canonical(parse_exact(text, member=named), member=named)


class Explanation(msgspec.Struct, omit_defaults=True):
    """What is wrong with a request, and the `id` to answer it under; no `code`: nothing is."""

    id: RequestId | msgspec.UnsetType = msgspec.UNSET
    code: str = ""
    message: str = ""
    details: dict[str, Any] = {}


decode_explanation = msgspec.json.Decoder(Explanation).decode
"""What `explain` answers."""


def explain(body: bytes, max_depth: bytes, limits: bytes) -> bytes:
    """Why a frame's body is no good request, or what of it is too long."""
    explanation = Explanation()
    try:
        request = decode_request(body, int(max_depth))
    except RequestFault as fault:
        error = fault.error
        explanation = Explanation(fault.request_id, error.code, error.message, error.details)
    else:
        try:
            check_payloads(request, _decode_limits(limits))
        except DHPError as error:
            explanation = Explanation(request.id, error.code, error.message, error.details)
    return msgspec.json.encode(explanation)


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Only where every call is one of Python's own, which takes no room on C's stack."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(DEEP)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)
