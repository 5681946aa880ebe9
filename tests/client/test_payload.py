"""JSON in and out."""

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pytest

from dhp_client import payload


class Point(msgspec.Struct):
    x: float
    y: int


@dataclass
class Row:
    number: int
    cells: list[Any]


class Color(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Direction(Enum):
    UP = "up"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, 1.5]}, b'{"b":1,"a":[true,null,1.5]}'),
        ("zwölf\n\u2028", '"zwölf\\n\u2028"'.encode()),
        (2**70, b"1180591620717411303424"),
        (Point(1.5, 2), b'{"x":1.5,"y":2}'),
        ([Point(1.5, 2)], b'[{"x":1.5,"y":2}]'),
        ((1, 2), b"[1,2]"),
        ({"a": Row(1, [None])}, b'{"a":{"number":1,"cells":[null]}}'),
        ({Color.RED: Level.LOW}, b'{"red":1}'),
    ],
)
def test_values_become_json_on_one_line(value: object, text: bytes) -> None:
    assert payload.encode(value, member="state") == text


NESTED: list[Any] = []
NESTED.append(NESTED)


@pytest.mark.parametrize(
    "value", [math.nan, [math.inf], {"a": -math.inf}, Point(math.nan, 1), "\ud800", {"\udfff": 1}, NESTED]
)
def test_what_json_cannot_say_is_refused_and_not_changed(value: object) -> None:
    with pytest.raises(ValueError, match="state"):
        payload.encode(value, member="state")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (object(), "inputs is a object: give what JSON has"),
        ({"rows": [{"seen": {"b", "a"}}]}, r"inputs\.rows\[0\]\.seen is a set: .*sorted list"),
        (frozenset(), "sorted list"),
        ({"body": b"x"}, r"inputs\.body is a bytes: give text, such as base64"),
        ([datetime(2026, 1, 2, tzinfo=UTC)], r"inputs\[0\] is a datetime: .*isoformat"),
        ((date(2026, 1, 2),), "isoformat"),
        (UUID(int=1), "UUID"),
        (Decimal("0.1"), "Decimal"),
        (Direction.UP, "Direction"),
        (MappingProxyType({}), "give a dict"),
        ({"pages": {1: "x"}}, r"inputs\.pages has the key 1: .*'1'"),
        ({None: 1}, "has the key None"),
        ({(1, 2): 1}, "has the key"),
        (Row(1, [{2: 3}]), r"inputs\.cells\[0\] has the key 2"),
        (Point({1}, 2), r"inputs\.x is a set"),
        (Row, "type"),
    ],
)
def test_what_would_come_back_as_something_else_is_a_type_error_that_says_where(value: object, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        payload.encode(value, member="inputs")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":[1,2.5,null]}', {"a": [1, 2.5, None]}),
        (b"1e999", math.inf),
        (b"[" + b"7" * 30 + b"]", [int("7" * 30)]),
        (b"7" * 5_000, math.inf),
        (b"123456789" * 400, int("123456789" * 400)),
    ],
)
def test_whatever_another_language_may_have_sent_is_read(text: bytes, value: object) -> None:
    assert payload.decode(text) == value


def test_the_hash_is_over_the_bytes() -> None:
    assert payload.sha256_hex(b"{}") == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
