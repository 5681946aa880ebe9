"""JSON payloads: from the user's values to bytes, and back.

Owns what a payload may be made of, and that a value which JSON can't say is refused instead of changed. Does not own
canonical forms (`dhp_protocol.intent`) or sizes (the daemon's limits).
"""

import hashlib
import json
from collections.abc import Mapping, Set
from datetime import date, time
from typing import Any

import msgspec

_MAX_INTEGER_DIGITS = 4300
"""As many digits as Python turns into an int without being told to."""

_PLAIN = frozenset((str, int, float, bool, type(None)))


def encode(value: Any, *, member: str) -> bytes:
    """`value` as JSON text on one line: what a worker gets back, perhaps in another process, is what was given.

    Takes None, bool, int, float, str, lists, and dicts with str as keys; also tuples, which come back as lists, and
    msgspec Structs and dataclasses, which come back as dicts. In an intent, numbers are doubles: 1.0 comes back as 1.
    Raises TypeError for anything else, sets, bytes and datetimes among them, and ValueError for NaN, infinities, text
    that is no Unicode and values that hold themselves; both name `member`.
    """
    try:
        _check(value, member)
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=msgspec.to_builtins
        )
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{member} holds text that is no Unicode (a lone surrogate).") from None
    except RecursionError:
        raise ValueError(f"{member} is nested too deep.") from None
    except ValueError as error:
        raise ValueError(f"{member} can't be said in JSON: {error}.") from None
    except TypeError as error:
        raise TypeError(f"{error}.") from None


def _check(value: Any, where: str) -> None:
    """Raises TypeError, saying where in the payload, for what JSON would change without a word."""
    if value is None or isinstance(value, str | int | float):
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}: keys must be str in JSON, so write {str(key)!r}")
            if type(item) not in _PLAIN:
                _check(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            if type(item) not in _PLAIN:
                _check(item, f"{where}[{number}]")
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            if (item := getattr(value, name)) is not msgspec.UNSET:
                _check(item, f"{where}.{name}")
    elif hasattr(type(value), "__dataclass_fields__"):
        import dataclasses

        for field in dataclasses.fields(value):
            _check(getattr(value, field.name), f"{where}.{field.name}")
    else:
        raise TypeError(f"{where} is a {type(value).__name__}: {_instead_of(value)}")


def _instead_of(value: Any) -> str:
    if isinstance(value, Set):
        return "its order isn't the same twice, so give a sorted list"
    if isinstance(value, bytes | bytearray | memoryview):
        return "give text, such as base64.b64encode(…).decode()"
    if isinstance(value, date | time):
        return "give text, such as its isoformat()"
    if isinstance(value, Mapping):
        return "give a dict"
    return "give what JSON has: str, int, float, bool, None, list, dict"


def decode(text: bytes | msgspec.Raw) -> Any:
    """The value of JSON text that some client in some language sent: numbers too large for a double become infinities."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return json.loads(bytes(text), parse_int=_integer)


def sha256_hex(text: bytes | msgspec.Raw) -> str:
    """The lower-case hex SHA-256 of a payload's bytes."""
    return hashlib.sha256(text).hexdigest()


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else float(digits)
