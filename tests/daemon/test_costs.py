"""Text whose canonical form takes long isn't cheap, however short it is; and what is ordinary is."""

import json
from typing import Any

import pytest

from dhpd.server.costs import HERE_AT_MOST_US, cost_us, is_cheap

DEAR: dict[str, Any] = {
    "numbers": [1e300] * 1_000,
    "small integers": [1] * 1_300,
    "objects": [{"a": 1}] * 600,
    "empty lists": [[]] * 1_000,
    "names": {str(number): 0 for number in range(400)},
    "names that are not ASCII": {chr(0x4E00 + number): 0 for number in range(400)},
    "escapes": "\n" * 4_000,
    "long text": "x" * 60_000,
}
ORDINARY: dict[str, Any] = {
    "nothing": {},
    "a page of prose": {"text": "Read this, then write what you think of it: briefly. " * 60},
    "prose that is not ASCII": {"text": "Größere Aufgaben, kürzer gesagt. " * 100},
    "a few settings": {f"setting-{number}": number / 7 for number in range(40)},
    "a schema": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(30)}},
}


def texts(value: Any) -> list[bytes]:
    return [json.dumps(value, ensure_ascii=ascii_only).encode() for ascii_only in (True, False)]


@pytest.mark.parametrize("value", DEAR.values(), ids=DEAR.keys())
def test_what_takes_long_is_not_cheap(value: Any) -> None:
    assert not any(is_cheap([text]) for text in texts(value))


@pytest.mark.parametrize("value", ORDINARY.values(), ids=ORDINARY.keys())
def test_what_is_ordinary_is_cheap(value: Any) -> None:
    assert all(is_cheap([text]) for text in texts(value))


def test_texts_are_looked_at_together() -> None:
    text = json.dumps(list(range(200))).encode()
    assert HERE_AT_MOST_US / 2 < cost_us(text) <= HERE_AT_MOST_US
    assert is_cheap([text])
    assert not is_cheap([text, text])
