"""What a check can end with besides being content: the daemon did otherwise, or the check couldn't be carried out.

Owns the two exceptions, the answers that raise one of them by themselves, and comparing.
"""

import json
from typing import Any, NoReturn

JSON = Any
MAX_SHOWN_CHARS = 600


class Unlike(AssertionError):
    """The daemon did otherwise than SPEC.md says: what was `expected`, and what `came`."""

    def __init__(self, expected: str, came: str) -> None:
        self.expected = shown(expected)
        self.came = shown(came)
        super().__init__(f"expected {self.expected}; came {self.came}")


class NotChecked(Exception):
    """The check can't be carried out here; the message says why."""


class Members(dict[str, JSON]):
    """A JSON object that came. Asking for a member that isn't there is `Unlike`."""

    def __missing__(self, name: str) -> JSON:
        raise Unlike(f"a member {name!r}", json.dumps(self))


def read_json(text: str) -> JSON:
    """The value that `text` stands for; ValueError where it is no JSON."""
    return json.loads(text, object_hook=Members)


def is_json(text: str) -> bool:
    """Whether it is JSON: NaN isn't, whatever this language's reader thinks."""
    try:
        json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return False
    return True


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def shown(value: object) -> str:
    """A value as text that isn't too long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


def same(what: str, came: JSON, expected: JSON) -> None:
    """Raises `Unlike` where the two JSON values aren't the same: 1 isn't true, nor 1.0."""
    if not is_same(expected, came):
        raise Unlike(f"{what} to be {shown(expected)}", shown(came))


def is_same(expected: JSON, came: JSON) -> bool:
    """Whether two JSON values are the same, types included."""
    if isinstance(expected, dict):
        return (
            isinstance(came, dict)
            and expected.keys() == came.keys()
            and all(is_same(expected[name], came[name]) for name in expected)
        )
    if isinstance(expected, list):
        return (
            isinstance(came, list)
            and len(expected) == len(came)
            and all(is_same(one, other) for one, other in zip(expected, came, strict=True))
        )
    return type(expected) is type(came) and bool(expected == came)


def holds(is_so: bool, expected: str, came: JSON) -> None:
    """Raises `Unlike` unless it is so."""
    if not is_so:
        raise Unlike(expected, shown(came))
