"""The intent's canonical form and id: the vectors, and what holds for every intent."""

import hashlib
import json

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from dhp_protocol.decoding import RequestFault, decode_request
from dhp_protocol.errors import DHPError, InvalidRequest
from dhp_protocol.intent import Intent, canonical, canonical_intent, handoff_id, parse_exact
from dhp_protocol.limits import Limits

from .vectors import Case, load, parameters


def intent_of(text: str) -> Intent:
    return msgspec.json.decode(text.encode(), type=Intent)


@pytest.mark.parametrize("case", [p for p in parameters("intents") if "id" in p.values[0]])
def test_vector_of_an_intent(case: Case) -> None:
    assert canonical_intent(intent_of(case["intent"])) == case["canonical"].encode()
    assert handoff_id(case["canonical"].encode()) == case["id"]


@pytest.mark.parametrize("case", [p for p in parameters("intents") if "id" in p.values[0]])
def test_a_canonical_form_is_its_own_canonical_form(case: Case) -> None:
    assert canonical_intent(intent_of(case["canonical"])) == case["canonical"].encode()


@pytest.mark.parametrize("case", [p for p in parameters("intents") if "refused" in p.values[0]])
def test_vector_of_a_refused_intent(case: Case) -> None:
    body = '{"op":"dispatch",' + case["intent"].lstrip("{")
    if (fault := fault_of(body.encode())) is not None:  # Not only no intent, but no good request either.
        assert fault.code == "bad_json" or (fault.code, fault.details["member"]) == ("invalid_request", case["refused"])
        return
    with pytest.raises(InvalidRequest) as refusal:
        canonical_intent(intent_of(case["intent"]))
    assert refusal.value.details == {"member": case["refused"]}


def fault_of(body: bytes) -> DHPError | None:
    try:
        decode_request(body, Limits().max_depth)
    except RequestFault as fault:
        return fault.error
    return None


@pytest.mark.parametrize("case", parameters("ids"))
def test_vector_of_an_id(case: Case) -> None:
    assert handoff_id(canonical_intent(intent_of(json.dumps(case["intent"])))) == case["id"]
    assert handoff_id(canonical_intent(intent_of(json.dumps(case["intent"], ensure_ascii=False)))) == case["id"]


def test_the_vectors_of_ids_are_different_intents() -> None:
    for name in ("ids", "intents"):
        ids = [case["id"] for case in load(name) if "id" in case]
        assert len(set(ids)) > len(ids) * 0.8


def test_text_from_a_client_that_is_no_unicode_is_refused_by_its_member() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        canonical_intent(Intent(kind="k", inputs=msgspec.Raw(b"{}"), key="\ud800"))
    assert refusal.value.details == {"member": "key"}
    with pytest.raises(InvalidRequest) as refusal:
        canonical_intent(Intent(kind="k", inputs=msgspec.Raw(b"{}"), output_schema=msgspec.Raw(b'{"title":"\\ud800"}')))
    assert refusal.value.details == {"member": "output_schema"}


@pytest.mark.parametrize("levels", [5_000, 500_000])
def test_what_is_nested_too_deep_for_the_parser_is_refused(levels: int) -> None:
    with pytest.raises(InvalidRequest):
        canonical(parse_exact(b"[" * levels + b"]" * levels, member="inputs"), member="inputs")


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_however_a_value_is_spelled_its_canonical_form_is_the_same(value: object) -> None:
    spellings = [
        json.dumps(value).encode(),
        json.dumps(value, ensure_ascii=False, indent=1).encode(),
        msgspec.json.encode(value),
        rfc8785.dumps(value),  # type: ignore[arg-type]
    ]
    forms = {canonical(parse_exact(text, member="inputs"), member="inputs") for text in spellings}
    assert forms == {rfc8785.dumps(value)}  # type: ignore[arg-type]


@given(st.integers(-(2**1100), 2**1100) | st.integers(2**53 - 3, 2**53 + 3) | st.integers(10**20, 10**22))
def test_an_integer_is_taken_if_and_only_if_it_survives(number: int) -> None:
    try:
        double = float(number)
    except OverflowError:
        double = float("inf")
    survives = double != float("inf") and (int(double) == number or rfc8785.dumps(double) == str(number).encode())
    try:
        parsed = parse_exact(str(number).encode(), member="inputs")
    except InvalidRequest:
        assert not survives
    else:
        assert survives
        assert parsed == double


def test_the_id_is_the_sha256_of_the_canonical_bytes() -> None:
    intent = Intent(kind="k", inputs=msgspec.Raw(b'{ "b":1.0, "a":[] }'))
    assert (
        canonical_intent(intent)
        == b'{"budget":{},"capabilities":{},"inputs":{"a":[],"b":1},"key":"","kind":"k","output_schema":{}}'
    )
    assert handoff_id(b"abc") == hashlib.sha256(b"abc").hexdigest()


def test_one_doubled_name_among_very_many_is_named() -> None:
    names = ",".join(f'"{number}":0' for number in range(200_000))
    with pytest.raises(InvalidRequest, match='"199999" twice'):  # Compared each with each, this would take an hour.
        parse_exact(f'{{{names},"199999":0}}'.encode(), member="inputs")
