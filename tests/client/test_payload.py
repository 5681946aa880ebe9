"""JSON in and out."""

import math
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

from dhp_client import payload


class Point(msgspec.Struct):
    x: float
    y: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, 1.5]}, b'{"b":1,"a":[true,null,1.5]}'),
        ("zwölf\n\u2028", '"zwölf\\n\u2028"'.encode()),
        (2**70, b"1180591620717411303424"),
        (Point(1.5, 2), b'{"x":1.5,"y":2}'),
        ([Point(1.5, 2)], b'[{"x":1.5,"y":2}]'),
        ((1, 2), b"[1,2]"),
        (UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        (datetime(2026, 1, 2, tzinfo=UTC), b'"2026-01-02T00:00:00Z"'),
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


@pytest.mark.parametrize("value", [object(), {1, object()}, lambda: 1])
def test_a_value_without_a_json_form_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="inputs"):
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
