"""What is plainly cheap is done at once, on the event loop; all else is asked of the worker process."""

import json
from typing import Any

import pytest

from dhp_protocol.errors import SchemaInvalid
from dhpd.server import output_schemas
from dhpd.server.output_schemas import NotHere, Schemas

from .support import text

PLAIN = text({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}})


def test_a_small_schema_is_checked_and_judged_at_once(schemas: Schemas) -> None:
    schemas.check_here("h", PLAIN)
    assert schemas.known("h")
    assert schemas.judge_here("h", b'{"n": 1}') is None
    refusal = schemas.judge_here("h", b'{"n": "1"}')
    assert refusal is not None
    assert refusal.details == {"path": "/n", "rule": "type"}


def test_a_small_schema_that_can_not_be_enforced_is_refused_at_once(schemas: Schemas) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        schemas.check_here("h", b'{"properties": {"n": {"$ref": "http://example.org/"}}}')
    assert caught.value.details == {"path": "/properties/n/$ref", "rule": "$ref"}
    assert not schemas.known("h")


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^a$"},
        {"properties": {"n": {"patternProperties": {"^a$": True}}}},
        {"description": "x" * 3_000},
        {"allOf": [{"type": "object"}] * 50},
    ],
    ids=["pattern", "patternProperties", "long", "many subschemas"],
)
async def test_other_schemas_are_asked_of_the_worker(schemas: Schemas, schema: Any) -> None:
    with pytest.raises(NotHere):
        schemas.check_here("h", text(schema))
    assert not schemas.known("h")
    await schemas.check("h", text(schema), asker=1)
    assert schemas.known("h")
    with pytest.raises(NotHere):
        schemas.judge_here("h", b"{}")
    assert await schemas.judge("h", b"{}", asker=1) is None


async def test_large_results_and_long_judging_are_asked_of_the_worker(schemas: Schemas) -> None:
    schemas.check_here("h", text({"items": {"items": {"allOf": [{"type": ["integer", "null"]}] * 10}}}))
    long_way = text([[1] * 50] * 10)
    for result in (text([[1] * 3_000]), long_way):
        with pytest.raises(NotHere):
            schemas.judge_here("h", result)
        assert await schemas.judge("h", result, asker=1) is None
    refusal = await schemas.judge("h", long_way.replace(b"1]]", b"true]]"), asker=1)
    assert refusal is not None
    assert refusal.details == {"path": "/9/49", "rule": "type"}


async def test_both_ways_come_to_the_same_verdict(schemas: Schemas) -> None:
    schemas.check_here("h", PLAIN)
    for result in (b"{}", b'{"n": 1.5}', b"[]", b'{"n": 1, "n": 2}', b"nonsense", b'{"n": 1.0}'):
        here, there = schemas.judge_here("h", result), await schemas.judge("h", result, asker=1)
        assert (here and (here.message, here.details)) == (there and (there.message, there.details))


async def test_a_schema_that_was_checked_is_not_checked_again(schemas: Schemas) -> None:
    await schemas.check("h", b'{"pattern": "^a"}', asker=1)
    schemas.check_here("other", b'{"pattern": "^a"}')
    assert schemas.known("other")


def test_a_schema_from_the_store_is_taken_as_it_is(schemas: Schemas) -> None:
    schemas.take_up("h", PLAIN)
    refusal = schemas.judge_here("h", b"{}")
    assert refusal is not None
    assert refusal.details == {"path": "", "rule": "required"}


async def test_no_result_fits_a_schema_that_can_not_be_enforced(schemas: Schemas) -> None:
    schemas.take_up("small", b'{"dependencies": {}}')
    schemas.take_up("pattern", b'{"dependencies": {}, "pattern": "a"}')
    here = schemas.judge_here("small", b"{}")
    there = await schemas.judge("pattern", b"{}", asker=1)
    for refusal in (here, there):
        assert refusal is not None
        assert refusal.code == "result_invalid"
        assert refusal.details["rule"] == "dependencies"


def test_what_is_kept_at_hand_is_bounded(schemas: Schemas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_schemas, "MAX_HELD_HANDOFFS", 3)
    monkeypatch.setattr(output_schemas, "MAX_HELD_BYTES", 200)
    for index in range(4):
        schemas.check_here(f"h{index}", b"{}")
    assert [index for index in range(4) if schemas.known(f"h{index}")] == [1, 2, 3]
    schemas.judge_here("h1", b"1")
    schemas.check_here("long", text({"title": "x" * 185}))
    assert [name for name in ("h1", "h2", "h3", "long") if schemas.known(name)] == ["h1", "long"]
    schemas.check_here("last", text({"title": "x" * 185}))
    assert [name for name in ("h1", "long", "last") if schemas.known(name)] == ["last"]


def test_a_validator_that_was_dropped_is_made_again(schemas: Schemas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_schemas, "MAX_COMPILED_SUBSCHEMAS", 1)
    for index in range(3):
        schemas.check_here(f"h{index}", json.dumps({"const": index}).encode())
    for index in range(3):
        assert schemas.judge_here(f"h{index}", b"%d" % index) is None
        assert schemas.judge_here(f"h{index}", b"7") is not None
