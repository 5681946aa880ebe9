"""The intent: what is to be done, and the id that is the hash of it.

Owns the canonical form (RFC 8785), what an intent may hold, and the handoff id. Pure. Canonicalising costs about
0.1 ms per KB, so a caller on an event loop moves long intents elsewhere.
"""

import hashlib
import json
import re
from collections import Counter
from typing import Any, NoReturn

import msgspec
import rfc8785

from .errors import InvalidRequest
from .limits import MAX_KEY_CHARS, MAX_SAFE_INTEGER

KIND_PATTERN = r"^[A-Za-z0-9._:/-]{1,128}\Z"
HANDOFF_PATTERN = r"^[0-9a-f]{64}\Z"
ID_PREFIX_PATTERN = r"^[0-9a-f]{4,64}\Z"

MAX_SHOWN_CHARS = 64
"""So much of a text is repeated in an error."""

_KIND = re.compile(KIND_PATTERN)
_EMPTY_OBJECT = b"{}"


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """The six members that name a handoff. Payload members are raw JSON text."""

    kind: str
    inputs: msgspec.Raw
    output_schema: msgspec.Raw = msgspec.Raw(_EMPTY_OBJECT)
    budget: msgspec.Raw = msgspec.Raw(_EMPTY_OBJECT)
    capabilities: msgspec.Raw = msgspec.Raw(_EMPTY_OBJECT)
    key: str = ""


def canonical_intent(intent: Intent) -> bytes:
    """The intent's canonical bytes: RFC 8785, all six members present.

    Raises `InvalidRequest` (details: `member`) for what has no canonical form: a doubled member name, an infinity,
    an integer that no double equals, a lone surrogate, nesting too deep for the parser.
    """
    if not _KIND.match(intent.kind):
        raise InvalidRequest("A kind is 1 to 128 of the characters A-Z a-z 0-9 . _ : / -", member="kind")
    if len(intent.key) > MAX_KEY_CHARS:
        raise InvalidRequest(f"A key may have {MAX_KEY_CHARS} characters.", member="key")
    members = {"kind": b'"%b"' % intent.kind.encode(), "key": canonical(intent.key, member="key")}
    for name in ("inputs", "output_schema", "budget", "capabilities"):
        text = bytes(getattr(intent, name))
        members[name] = text if text == _EMPTY_OBJECT else _canonical_member(text, name)
    return b"{" + b",".join(b'"%b":%b' % (name.encode(), members[name]) for name in _IN_ORDER) + b"}"


_IN_ORDER = sorted(Intent.__struct_fields__)


def _canonical_member(text: bytes, name: str) -> bytes:
    value = parse_exact(text, member=name)
    if not isinstance(value, dict) and not (name == "output_schema" and isinstance(value, bool)):
        raise InvalidRequest(f"{name} must be a JSON object.", member=name)
    return canonical(value, member=name)


def handoff_id(canonical_bytes: bytes) -> str:
    """The id of the handoff whose intent has these canonical bytes: 64 lower-case hex digits."""
    return hashlib.sha256(canonical_bytes).hexdigest()


def canonical(value: Any, *, member: str) -> bytes:
    """`value` (as `parse_exact` gives it) in RFC 8785 form; raises `InvalidRequest` naming `member`."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        raise InvalidRequest(f"{member} holds text that is no Unicode: a lone surrogate.", member=member) from None
    except RecursionError:
        raise InvalidRequest(f"{member} is nested too deep.", member=member) from None


def parse_exact(text: bytes, *, member: str) -> Any:
    """The JSON value of `text`, or `InvalidRequest` (naming `member`) where another language might read another value."""
    try:
        return _read_exactly(text.decode("utf-8", "surrogatepass"))
    except _Inexact as problem:
        raise InvalidRequest(f"{member} {problem}", member=member) from None
    except RecursionError:
        raise InvalidRequest(f"{member} is nested too deep.", member=member) from None
    except ValueError:
        raise InvalidRequest(f"{member} is no JSON.", member=member) from None


class _Inexact(Exception):
    """What another language might read as another value, in words that follow the member's name."""


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        doubled = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise _Inexact(f"holds the member name {json.dumps(doubled[:MAX_SHOWN_CHARS])} twice: say each once.")
    return unique


def _integer(digits: str) -> int | float:
    if len(digits) > 400:
        raise _Inexact("holds a number that no double equals.")
    value = int(digits)
    if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return value
    try:
        double = float(value)
    except OverflowError:
        raise _Inexact("holds a number that no double equals.") from None
    # Digits that the canonical form writes for this double are taken too: it must read back as itself.
    if int(double) != value and rfc8785.dumps(double) != digits.encode():
        raise _Inexact(f"holds the integer {digits[:MAX_SHOWN_CHARS]}, which no double equals: send it as a string.")
    return double


def _number(digits: str) -> float:
    double = float(digits)
    if double in (float("inf"), float("-inf")):
        raise _Inexact(f"holds the number {digits[:MAX_SHOWN_CHARS]}, which is too large for a double.")
    return double


def _constant(name: str) -> NoReturn:
    raise _Inexact(f"holds {name}, which is no JSON.")


_read_exactly = json.JSONDecoder(
    object_pairs_hook=_without_doubles, parse_int=_integer, parse_float=_number, parse_constant=_constant
).decode
