"""JSON payloads: from the user's values to bytes, and back.

Owns what a payload may be made of, and that a value which JSON can't say is refused instead of changed. Does not own
canonical forms (`dhp_protocol.intent`) or sizes (the daemon's limits).
"""

import hashlib
import json
from typing import Any

import msgspec

_MAX_INTEGER_DIGITS = 4300
"""As many digits as Python turns into an int without being told to."""


def encode(value: Any, *, member: str) -> bytes:
    """`value` as JSON text on one line.

    Takes what `json` takes, and msgspec Structs, dataclasses, datetimes, UUIDs, decimals, sets, enums and bytes (base64).
    Raises TypeError for anything else; ValueError, naming `member`, for NaN, infinities, text that is no Unicode and
    values that hold themselves.
    """
    try:
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
        raise TypeError(f"{member} can't be said in JSON: {error}.") from None


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
