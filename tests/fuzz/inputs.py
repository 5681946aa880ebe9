"""Inputs that nobody would send: made by a grammar, or by changing good ones byte by byte.

Owns randomness only as an argument, so that a seed is enough to have an input again. Does not own what is done with an input.
"""

import json
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from dhp_client.conform.rules.requests import OPERATIONS, sample
from tests.protocol.vectors import load, spelled

MOST_BYTES = 20_000
"""Longer vectors are about limits, not about forms, and would take all the time."""

TOKENS = (
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\\u", b"\\ud800", b"\\udc00", b"\\u0000", b"null", b"true"),
    *(b"0", b"-", b"1e400", b"-0.0", b"9007199254740993", b"18446744073709551616", b"1E", b".5", b"NaN", b"\x00", b"\xff"),
    *(b"\n", b"\r", b"\r\n", b" ", b"\t", b"\xc3\xa9", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8"),
    *(b'"op"', b'"id"', b'"handoff"', b'"fence"', b'"state"', b"[" * 150, b"]" * 150, b'{"a":' * 130, b"13 ", b"0 ", b"00"),
    *(b"9999999999 ", b"99999999999 ", b'"$ref"', b'"#"', b"(?", b"\\1", b"{1,99999}", b"[^", b"\\p{L}", b"*", b"++"),
)  # fmt: skip
NAMES = ("op", "id", "handoff", "fence", "state", "a", "", "é", "\U0001f600", "$ref")


@lru_cache
def vectors(name: str) -> tuple[bytes, ...]:
    """The inputs that the vectors of one file hold, but for the longest."""
    found: list[bytes] = []
    for case in load(name):
        if name == "frames":
            found.append(b"".join(spelled(chunk) for chunk in case["chunks"]))
        elif name == "requests":
            found.append(spelled(case["body"]))
        elif name == "intents":
            found.append(case["intent"].encode())
        elif name == "bundles":
            found.append("\n".join(case["lines"]).encode())
        elif name == "dialogues":
            found += [json.dumps(step["send"]).encode() for step in case["steps"] if "send" in step]
    return tuple(one for one in found if len(one) <= MOST_BYTES)


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """`data` changed in a few places."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        data = _changed(rng, data, others)
    return data


def _changed(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 1, 2, 4, 16, 64)))
    match rng.randrange(8):
        case 0:
            return data[:at] + bytes((rng.randrange(256),)) + data[at + 1 :]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:at] + data[at:end] * rng.choice((2, 2, 3, 40)) + data[end:]
        case 3 | 4:
            return data[:at] + rng.choice(TOKENS) + data[rng.choice((at, end)) :]
        case 5:
            other = rng.choice(others)
            return data[:at] + other[rng.randrange(len(other) + 1) :]
        case 6:
            begin = rng.randrange(len(data) + 1)
            return data[:at] + data[begin : begin + end - at] + data[end:]
        case _:
            digits = [index for index, byte in enumerate(data) if 0x30 <= byte <= 0x39]
            if not digits:
                return data
            place = rng.choice(digits)
            return data[:place] + str(rng.choice((0, 1, 9, 10, 2**31, 2**53, 2**64))).encode() + data[place + 1 :]


def json_value(rng: random.Random, depth: int = 4) -> Any:
    """A JSON value with all that is awkward in one."""
    if depth and rng.random() < 0.5:
        if rng.random() < 0.5:
            return [json_value(rng, depth - 1) for _ in range(rng.randrange(4))]
        return {rng.choice(NAMES): json_value(rng, depth - 1) for _ in range(rng.randrange(4))}
    return rng.choice(
        (None, True, False, 0, -1, 1, 1.0, -0.0, 0.1, 1e300, 5e-324, 2**53 - 1, 2**53, 2**53 + 1, -(2**63), 2**64, "", "a", "é", "\n")
    )  # fmt: skip


def json_text(rng: random.Random, value: Any) -> bytes:
    """`value` written in one of the ways that JSON leaves open: white space, escapes, order, doubled names."""
    if isinstance(value, dict):
        members = list(value.items())
        if members and rng.random() < 0.1:
            members.append(rng.choice(members))
        rng.shuffle(members)
        return b"{%b}" % _joined(rng, [json_text(rng, name) + b":" + json_text(rng, each) for name, each in members])
    if isinstance(value, list):
        return b"[%b]" % _joined(rng, [json_text(rng, each) for each in value])
    if isinstance(value, str) and rng.random() < 0.2:
        return b'"%b"' % "".join(f"\\u{unit:04x}" for unit in _units(value)).encode()
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode()


def _joined(rng: random.Random, parts: list[bytes]) -> bytes:
    between = rng.choice((b"", b"", b"", b" ", b"\t "))
    return between + (between + b"," + between).join(parts) + between


def _units(text: str) -> list[int]:
    data = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


_ALL_MEMBERS = {op: [field.encode_name for field in msgspec.structs.fields(cls)] for op, cls in OPERATIONS.items()}


def request(rng: random.Random) -> bytes:
    """A request of some operation with some of its members right, and some not."""
    op = rng.choice(sorted(OPERATIONS))
    body = sample(op, "k")
    for name in rng.sample(_ALL_MEMBERS[op], rng.randrange(min(4, len(_ALL_MEMBERS[op])) + 1)):
        body[name] = rng.choice((json_value(rng), json_value(rng, 0), {}, [], "k", [{"handoff": "0" * 64, "fence": 1}]))
    if rng.random() < 0.2:
        body[rng.choice(NAMES)] = json_value(rng, 2)
    if rng.random() < 0.2:
        del body[rng.choice(list(body))]
    return json_text(rng, body)


def intent(rng: random.Random) -> bytes:
    """The members of an intent, most of them right."""
    body: dict[str, Any] = {"kind": rng.choice(("k", "a.b/c:d_e-f", "", "a b")), "inputs": {"v": json_value(rng)}}
    for name in rng.sample(("output_schema", "budget", "capabilities", "key", "inputs"), rng.randrange(4)):
        body[name] = rng.choice((json_value(rng), {}, {"a": json_value(rng)}, "k"))
    return json_text(rng, body)


def frames(rng: random.Random) -> bytes:
    """Lines of every sort, one after the other."""
    return b"".join(_line(rng) for _ in range(rng.randrange(1, 7)))


def _line(rng: random.Random) -> bytes:
    body = rng.choice((b'{"op":"ping"}', b"{}", b"", b"x" * rng.randrange(40), request(rng)[:60]))
    off = rng.choice((0, 0, 0, 0, 1, -1, 7))
    ends = rng.choice((b"\n", b"\n", b"\n", b"\n", b"\r\n", b"", b"\r"))
    match rng.randrange(6):
        case 0 | 1 | 2:
            return b"%b%d %b%b" % (rng.choice((b"", b"", b"", b"0")), max(0, len(body) + off), body, ends)
        case 3:
            return b"{" + body.replace(b"\n", b"") + ends
        case 4:
            return rng.choice((b"\n", b"\r\n", b"\r", b"\r\r\n", b"\n\n\n"))
        case _:
            return rng.choice(TOKENS) + ends


SCHEMA_WORDS = (
    *("type", "const", "enum", "minimum", "maximum", "multipleOf", "minLength", "pattern", "items", "prefixItems"),
    *("properties", "patternProperties", "additionalProperties", "required", "allOf", "anyOf", "oneOf", "not", "if", "then"),
    *("$ref", "$defs", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$schema", "unevaluatedProperties", "contains"),
    *("uniqueItems", "dependentRequired", "dependentSchemas", "propertyNames", "minContains", "format", "title", "x-a", "Type"),
)  # fmt: skip


def schema(rng: random.Random, depth: int = 4) -> Any:
    """A schema, right more often than not."""
    if not depth or rng.random() < 0.1:
        return rng.choice((True, False, {}, json_value(rng, 1)))
    return {word: _schema_member(rng, word, depth - 1) for word in rng.sample(SCHEMA_WORDS, rng.randrange(5))}


def _schema_member(rng: random.Random, word: str, depth: int) -> Any:
    if rng.random() < 0.05:
        return json_value(rng, 2)
    if word in ("allOf", "anyOf", "oneOf", "prefixItems"):
        return [schema(rng, depth) for _ in range(rng.randrange(1, 4))]
    if word in ("properties", "$defs", "patternProperties", "dependentSchemas"):
        return {rng.choice(("a", "b", "^a", "x/y")): schema(rng, depth) for _ in range(rng.randrange(3))}
    if word in ("$ref", "$dynamicRef"):
        return rng.choice(
            ("#", "#/$defs/a", "#/properties/a", "#a", "#/allOf/0", "http://h/x", "", "#/~0~1", "#/%zz", "u:x#")
        )
    if word in ("$id", "$anchor", "$dynamicAnchor", "$schema"):
        return rng.choice(
            (
                "a",
                "#a",
                "u:x",
                "http://h/",
                "https://json-schema.org/draft/2020-12/schema",
                "http://json-schema.org/draft-07/schema#",
            )
        )
    if word == "pattern":
        return pattern(rng)
    plain = {
        "type": ("string", "integer", ["null", "array"], "object"),
        "required": (["a"], ["a", "b"], []),
        "enum": ([1, "a"], [1, 1.0], [{}]),
        "minLength": (0, 1, 1.0, -1),
        "multipleOf": (1, 0.01, 0, 1e-300),
        "uniqueItems": (True, False),
        "dependentRequired": ({"a": ["b"]}, {}),
        "minContains": (0, 2),
    }
    return rng.choice(plain[word]) if word in plain else schema(rng, depth)


def pattern(rng: random.Random) -> str:
    """Something like a pattern."""
    parts = ("a", "b*", "(", ")", "(?:", "(?=", "(?<!", "(?<n>", "|", "[", "]", "[^a-z]", "\\d", "\\b", "\\1", "\\k<n>", "\\p{Lu}", "\\u{1F600}", "\\u00e9", "{2,3}", "{", "}", "+?", "^", "$", ".", "\\", "-", "é", "\\cA", "\\x4", "[\\b]", "(?i)", "\\Z")  # fmt: skip
    return "".join(rng.choice(parts) for _ in range(rng.randrange(1, 8)))


def settings(rng: random.Random) -> bytes:
    """A file of settings or tokens in TOML, or nearly so."""
    lines = ("[[token]]", 'name = "ada"', f'sha256 = "{"0" * 64}"', 'roles = ["worker"]', "roles = []", 'roles = ["king"]', "ttl_ms = 6000", "ttl_ms = 0", 'listen = ["127.0.0.1:0"]', "max_depth = 1", "insecure = true", 'data = "é"', "x = 1", "name = 5", "[token]", "a.b.c = 1", "ttl_ms = 1e3", "d = 1979-05-27", 'name = "\\u0000"', 'name = "a\\nb"', "=", "[[", '"""', "ttl_ms = 99999999999999999999")  # fmt: skip
    return "\n".join(rng.choice(lines) for _ in range(rng.randrange(1, 8))).encode()
