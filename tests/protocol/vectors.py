"""The conformance vectors, read for the tests: bytes spelled out, one pytest parameter per case."""

import json
from importlib.resources import files
from typing import Any

import pytest

Case = dict[str, Any]


def load(name: str) -> list[Case]:
    """The cases of one vector file, as they are shipped."""
    document: dict[str, Any] = json.loads((files("dhp_protocol") / "vectors" / f"{name}.json").read_text("utf-8"))
    assert document["about"], "each file says what it is"
    cases: list[Case] = document["cases"]
    return cases


def parameters(name: str) -> list[Any]:
    """The cases of one vector file as pytest parameters under their names."""
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in load(name)]


def spelled(value: Any) -> bytes:
    """The bytes that a vector means: text, {"hex"}, {"repeat", "times"}, or a list of these."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return b"".join(spelled(part) for part in value)
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    text: str = value["repeat"]
    times: int = value["times"]
    return text.encode() * times
