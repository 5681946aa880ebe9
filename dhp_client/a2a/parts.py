"""JSON as A2A says it: a message's parts as a handoff's inputs, and a handoff's values as parts and metadata.

Owns both mappings. Pure. A2A's data are protobuf's: numbers are doubles there, as they are in inputs; a value that protobuf can't say
exactly goes out as JSON text, and so does one that has very many values.
"""

import base64
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from a2a.types import InvalidParamsError, Part
from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict, ParseDict

from dhp_protocol.limits import MAX_SAFE_INTEGER

JSON_TYPE = "application/json"
MAX_DEPTH = 90
"""Protobuf's JSON goes 100 deep, and what is around a value takes a few of them."""
MAX_VALUES = 50_000
"""Protobuf's JSON takes each value apart or puts it together on the event loop: a second's work at most, on a slow machine."""


def inputs_of(parts: Iterable[Part]) -> dict[str, Any]:
    """What a message's parts are as the inputs of a handoff.

    A single data part that is an object: its members. Other data parts: `data`, a list of their values. Text parts: `text`, their lines
    below each other. Files: `files`, a list of `{name?, media_type?, base64 | url}`. Raises `InvalidParamsError` where there are no
    parts, and where the object has a member of such a name itself.
    """
    data: list[Any] = []
    texts: list[str] = []
    files: list[dict[str, Any]] = []
    for part in parts:
        match part.WhichOneof("content"):
            case "data":
                data.append(MessageToDict(part.data))
            case "text":
                texts.append(part.text)
            case "raw" | "url" as content:
                files.append(_file(part, content))
    further = {"text": "\n".join(texts) if texts else None, "files": files or None}
    single = len(data) == 1 and isinstance(data[0], dict)
    inputs: dict[str, Any] = dict(data[0]) if single else {"data": data} if data else {}
    for name, value in further.items():
        if value is not None and name in inputs:
            raise InvalidParamsError(
                f"The data part has a member {name!r}, which the other parts would become: rename it."
            )
        if value is not None:
            inputs[name] = value
    if not data and not texts and not files:
        raise InvalidParamsError("The message has no parts: put what is to be done into a data part, or a text part.")
    return inputs


def _file(part: Part, content: str) -> dict[str, Any]:
    held = {"url": part.url} if content == "url" else {"base64": base64.b64encode(part.raw).decode()}
    known = {"name": part.filename, "media_type": part.media_type}
    return {**{name: value for name, value in known.items() if value}, **held}


def part_of(value: Any) -> Part:
    """A value as a part: text as text, anything else as data; as JSON text where data couldn't hold it exactly, or only slowly."""
    if not _is_exact(value):
        return Part(text=json.dumps(value), media_type=JSON_TYPE)
    if isinstance(value, str):
        return Part(text=value)
    return Part(data=ParseDict(value, struct_pb2.Value()), media_type=JSON_TYPE)


def metadata_of(members: Mapping[str, Any]) -> struct_pb2.Struct:
    """Metadata with one member `dhp`, which holds `members`; a value that can't be said exactly stands there as JSON text."""
    said = {name: value if _is_exact(value) else json.dumps(value) for name, value in members.items()}
    return ParseDict({"dhp": said}, struct_pb2.Struct())


def _is_exact(value: Any) -> bool:
    """Whether a protobuf value holds just this: text that is Unicode, whole numbers that a double has, no infinity, not too deep, not too much."""
    left, found = [(value, 0)], 1
    while left:
        value, depth = left.pop()
        match value:
            case bool() | None:
                exact = True
            case str():
                exact = value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
            case int():
                exact = abs(value) <= MAX_SAFE_INTEGER
            case float():
                exact = math.isfinite(value)
            case _:
                inner = [*value, *value.values()] if isinstance(value, dict) else value
                found += len(inner)
                exact = depth < MAX_DEPTH and found <= MAX_VALUES
                left += [(item, depth + 1) for item in inner] if exact else []
        if not exact:
            return False
    return True
