"""Decoding requests: the vectors, doubled names wherever they stand, and depth at its limit."""

import json
import random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dhp_protocol.decoding import OPS, RequestFault, decode_request, doubled_member, is_mostly_payload
from dhp_protocol.depth import SLICE_BYTES, DepthScan, nested_deeper
from dhp_protocol.limits import Limits

from .vectors import Case, load, parameters, spelled

MAX_DEPTH = Limits().max_depth


def value_of(member: object) -> object:
    """A decoded member as a JSON value."""
    return json.loads(bytes(member)) if isinstance(member, msgspec.Raw) else msgspec.to_builtins(member)


@pytest.mark.parametrize("case", [p for p in parameters("requests") if "op" in p.values[0]])
def test_vector_of_a_good_request(case: Case) -> None:
    request = decode_request(spelled(case["body"]), MAX_DEPTH)
    assert request.__struct_config__.tag == case["op"]
    for name, value in case["members"].items():
        assert value_of(getattr(request, name)) == value, name
    for name, text in case.get("raw", {}).items():
        assert bytes(getattr(request, name)) == text.encode(), name


@pytest.mark.parametrize("case", [p for p in parameters("requests") if "error" in p.values[0]])
def test_vector_of_a_refused_request(case: Case) -> None:
    with pytest.raises(RequestFault) as refusal:
        decode_request(spelled(case["body"]), MAX_DEPTH)
    error = refusal.value.error
    assert error.code == case["error"]
    assert error.details.get("member") == case.get("member")
    assert refusal.value.request_id == case.get("id", msgspec.UNSET)
    assert error.message


def test_the_vectors_hold_every_operation() -> None:
    assert {case["op"] for case in load("requests") if "op" in case} == OPS


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SPACES = st.sampled_from(["", " ", "\t", "  \t"])


@st.composite
def object_text(draw: st.DrawFn, members: list[tuple[str, object]]) -> str:
    """One JSON object of these members in this order, with white space and escapes as drawn."""

    def text(value: str) -> str:
        spelled = json.dumps(value, ensure_ascii=draw(st.booleans()))
        if value and draw(st.booleans()) and ord(value[0]) < 0x10000:
            spelled = f'"\\u{ord(value[0]):04X}{json.dumps(value[1:])[1:]}'
        return spelled

    parts = [
        draw(SPACES)
        + text(name)
        + draw(SPACES)
        + ":"
        + draw(SPACES)
        + json.dumps(
            value, ensure_ascii=draw(st.booleans()), separators=draw(st.sampled_from([(",", ":"), (", ", ": ")]))
        )
        + draw(SPACES)
        for name, value in members
    ]
    return draw(SPACES) + "{" + ",".join(parts) + (draw(SPACES) if not parts else "") + "}" + draw(SPACES)


@given(st.data(), st.dictionaries(NAMES, JSON_VALUES, max_size=6))
def test_names_that_differ_are_never_called_doubled(data: st.DataObject, members: dict[str, object]) -> None:
    text = data.draw(object_text(list(members.items())))
    assert doubled_member(text.encode()) is None


@given(st.data(), st.dictionaries(NAMES, JSON_VALUES, min_size=1, max_size=6), JSON_VALUES)
def test_a_doubled_name_is_always_found(data: st.DataObject, members: dict[str, object], other: object) -> None:
    name = data.draw(st.sampled_from(sorted(members)))
    pairs = list(members.items())
    again = data.draw(st.sampled_from([members[name], other]))
    pairs.insert(data.draw(st.integers(0, len(pairs))), (name, again))
    text = data.draw(object_text(pairs))
    assert doubled_member(text.encode()) == name


def is_nested_deeper(body: bytes, max_depth: int) -> bool:
    """The same the slow way: one character after the other."""
    depth = deepest = 0
    quoted = escaped = False
    for byte in body.decode():
        if quoted:
            quoted = escaped or byte != '"'
            escaped = byte == "\\" and not escaped
        elif byte == '"':
            quoted = True
        elif byte in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in "]}":
            depth -= 1
    return deepest > max_depth


def nested(rng: random.Random, levels: int) -> object:
    value: object = rng.choice([1, "]}", '["', "\\", '\\"', "[[[[{{{{", [], {}])
    for _ in range(levels):
        beside = rng.choice([0, '{"[', [[]], {"}": []}, "\\\\"])
        value = rng.choice([[value], [beside, value], {"a": value}, {'["': beside, "b": value}])
    return value


@pytest.mark.parametrize("levels", [1, 3, 4, 5, 15, 16, 17, 33, 100])
def test_depth_at_its_limit_with_text_full_of_brackets(levels: int, rng: random.Random) -> None:
    for _ in range(50):
        body = json.dumps(nested(rng, levels)).encode()
        for limit in range(max(1, levels - 2), levels + 5):
            assert nested_deeper(body, limit) == is_nested_deeper(body, limit), (body, limit)


@given(JSON_VALUES, st.integers(1, 6))
@example([["\\", "[[[["], '"'], 2)
def test_depth_of_anything(value: object, limit: int) -> None:
    body = json.dumps(value).encode()
    assert nested_deeper(body, limit) == is_nested_deeper(body, limit)


@pytest.mark.parametrize("text", ['"', "\\", '\\"', "[", "]", '"[', "\\\\"])
@pytest.mark.parametrize("shift", range(4))
def test_depth_across_the_edges_of_slices(text: str, shift: int) -> None:
    long_text = "x" * shift + text * SLICE_BYTES
    for levels in (6, 7):
        deep = json.loads("[" * (levels - 2) + "]" * (levels - 2))
        body = json.dumps(["[" * 7, [long_text] * 2, {"a": deep}]).encode()
        scan = DepthScan(body, 6)
        steps = 1
        while not scan.step():
            steps += 1
        assert steps > 2
        assert scan.too_deep == (levels > 6)


def test_what_is_mostly_payload_is_told_by_what_is_left() -> None:
    state = "x" * 10_000
    assert is_mostly_payload(json.dumps({"op": "checkpoint", "fence": 1, "state": state}).encode(), 100)
    assert not is_mostly_payload(json.dumps({"op": "checkpoint", "fence": 1, "sate": state}).encode(), 100)
    assert not is_mostly_payload(f'{{"state": "{state}", "state": 1}}'.encode(), 100)
    assert not is_mostly_payload(b'{"state": "x" "fence"}', 100)


REFUSALS = (None, "bad_json", "invalid_request", "unknown_op")


def refusal_of(body: bytes) -> str | None:
    """The code with which the body is refused; None for a good one."""
    try:
        decode_request(body, MAX_DEPTH)
    except RequestFault as fault:
        return fault.error.code
    return None


@given(st.binary(max_size=60) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
@example(b'{"op":"ping","id":"\\ud800","id":1}')
@example(b'{"op":"heartbeat","leases":[{"handoff":"' + b"a" * 64 + b'","fence":1,"fence":1}],"x":1}')
def test_whatever_the_bytes_are_the_answer_is_a_request_or_a_refusal(body: bytes) -> None:
    assert refusal_of(body) in REFUSALS


BODIES = [case["body"].encode() for case in load("requests") if isinstance(case["body"], str) and case["body"]]


@given(st.data())
def test_a_body_with_any_bytes_changed_is_a_request_or_a_refusal(data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from(BODIES)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        body = body or bytearray(b"{")
    assert refusal_of(bytes(body)) in REFUSALS


@pytest.mark.parametrize(
    ("members", "doubled"),
    [
        ('"error":{"type":"abc","type":"xyz"}', "error.type"),
        ('"id":123456,"id":789012,"error":{"type":"abc"}', "id"),
        ('"fence":45678,"error":{"type":"abc"},"retry":true', "fence"),
    ],
)
def test_a_doubled_name_is_found_where_a_failure_has_no_message(members: str, doubled: str) -> None:
    for spaces in range(32):  # So that the text is as long as whatever it might be taken for.
        text = f'{{"op":"fail","handoff":"{"a" * 64}","fence":1,{members}{" " * spaces}}}'
        with pytest.raises(RequestFault) as refusal:
            decode_request(text.encode(), MAX_DEPTH)
        assert refusal.value.error.details["member"] == doubled


@pytest.mark.parametrize("case", [p for p in parameters("requests") if "op" in p.values[0]])
def test_no_request_is_shorter_than_in_its_own_encoding(case: Case) -> None:
    """On this rests that one which is as long holds no name twice. (A failure is always looked into.)"""
    body = spelled(case["body"])
    if case["op"] == "fail":
        return
    assert len(msgspec.json.encode(decode_request(body, MAX_DEPTH))) <= len(body)
