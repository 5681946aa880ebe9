"""The vectors that come with the protocol, read."""

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

Case = dict[str, Any]


@lru_cache
def load(name: str) -> list[Case]:
    """The cases of one vector file, as they are shipped. Nobody changes them."""
    cases: list[Case] = json.loads((files("dhp_protocol") / "vectors" / f"{name}.json").read_text("utf-8"))["cases"]
    return cases


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
