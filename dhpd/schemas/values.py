"""JSON values as a schema sees them: numbers exact, objects without doubled names, equality by JSON's rules.

Owns how text becomes values (`read`), when two are equal (`identity`) and how one is shown in a sentence. A whole number,
however it is written, is an `int`; any other number a `Decimal`; so `1.0` is 1 and nothing is ever rounded. Pure.
"""

import json
from collections.abc import Iterable
from decimal import Context, Decimal, InvalidOperation
from types import NoneType
from typing import Any, NoReturn

MAX_NUMBER_CHARS = 4_300
"""Python itself takes no longer integers; longer ones are refused rather than rounded."""

Kind = type
KINDS: tuple[Kind, ...] = (NoneType, bool, int, Decimal, str, list, dict)
"""What `type(value)` can be for a value that `read` gave."""

KINDS_BY_TYPE: dict[str, tuple[Kind, ...]] = {
    "null": (NoneType,),
    "boolean": (bool,),
    "integer": (int, Decimal),  # A Decimal only where it is whole, and too large to be worth writing out.
    "number": (int, Decimal),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}

MAX_POINTER_CHARS = 1_000
"""Names may be as long as a result is."""

_EXACT = Context(prec=MAX_NUMBER_CHARS + 1)
_SHOWN_CHARS = 60


class Unreadable(Exception):
    """Text that isn't one JSON value, or whose value another reader may see otherwise.

    `rule` is `json`, or `limit` where a number is longer than can be dealt with.
    """

    def __init__(self, sentence: str, rule: str = "json") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.rule = rule


def read(text: bytes) -> Any:
    """The value of `text`; raises `Unreadable`. Linear in its length, about 20 ms a MiB."""
    try:
        return _decode(text.decode())
    except json.JSONDecodeError as error:
        raise Unreadable(f"isn't JSON ({error.msg} at character {error.pos})") from None
    except UnicodeDecodeError:
        raise Unreadable("isn't UTF-8") from None
    except RecursionError:
        raise Unreadable("is nested too deep", "limit") from None
    except ValueError:  # What `int` says of too many digits.
        raise Unreadable(f"holds a number of more than {MAX_NUMBER_CHARS} digits", "limit") from None


def _number(text: str) -> int | Decimal:
    if len(text) > MAX_NUMBER_CHARS:
        raise Unreadable(f"holds a number of more than {MAX_NUMBER_CHARS} characters", "limit")
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise Unreadable(f"holds the number {text[:_SHOWN_CHARS]}, whose exponent is too large", "limit") from None
    if not number:
        return 0
    if number.adjusted() < MAX_NUMBER_CHARS and number == number.to_integral_value():
        return int(number)
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise Unreadable(f"holds the member name {shown(doubled)} twice, and readers differ on which one counts")
    return members


def _no_constant(name: str) -> NoReturn:
    raise Unreadable(f"holds {name}, which is no JSON")


_decode = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_no_constant).decode


def identity(value: Any) -> str:
    """Text that is the same for two values exactly if JSON holds them for equal (`1` and `1.0`, but not `1` and `true`)."""
    return _identity(value)


def _decimal_identity(value: Decimal) -> list[Any]:
    return [float("nan"), str(value.normalize(_EXACT))]  # No JSON value is written with a NaN.


_identity = json.JSONEncoder(
    ensure_ascii=True, check_circular=False, sort_keys=True, separators=(",", ":"), default=_decimal_identity
).encode


def is_whole(value: Decimal) -> bool:
    """Whether this number, which isn't an `int`, is an integer all the same: one like 1e5000."""
    return bool(value == value.to_integral_value())


def is_multiple(value: int | Decimal, divisor: int | Decimal) -> bool:
    """Whether `value` / `divisor`, which is above 0, is whole; exact, and quick for any exponents."""
    if isinstance(value, int) and isinstance(divisor, int):
        return value % divisor == 0
    digits, exponent = _digits(value)
    divisor_digits, divisor_exponent = _digits(divisor)
    shift = exponent - divisor_exponent
    if shift >= 0:
        return bool(digits * pow(10, shift, divisor_digits) % divisor_digits == 0)
    if -shift > 2 * MAX_NUMBER_CHARS:  # Far below the divisor, and not 0.
        return digits == 0
    return bool(digits % (divisor_digits * 10**-shift) == 0)


def _digits(number: int | Decimal) -> tuple[int, int]:
    """`number` as (digits, exponent): digits * 10 ** exponent."""
    if isinstance(number, int):
        return number, 0
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "there are no infinities here"
    whole = int("".join(map(str, digits)))
    return -whole if sign else whole, exponent


def shown(value: Any) -> str:
    """`value` in a sentence: whole where it is short."""
    if isinstance(value, dict):
        return f"an object with {_counted(len(value), 'member')}"
    if isinstance(value, list):
        return f"an array of {_counted(len(value), 'item')}"
    if isinstance(value, str):
        text = json.dumps(value[: _SHOWN_CHARS + 1], ensure_ascii=False)
        return text if len(value) <= _SHOWN_CHARS else f'{text[:_SHOWN_CHARS]}…" ({len(value)} characters)'
    text = str(value) if isinstance(value, Decimal) else json.dumps(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def pointer(steps: Iterable[str | int]) -> str:
    """A JSON Pointer; where names are so long that it would be too, it leads only as far as it may."""
    path = ""
    for step in steps:
        escaped = str(step).replace("~", "~0").replace("/", "~1")
        if len(path) + len(escaped) >= MAX_POINTER_CHARS:
            break
        path += f"/{escaped}"
    return path
