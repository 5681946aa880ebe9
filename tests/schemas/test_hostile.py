"""Schemas and results made to hang, to fill memory, or to reach out: a refusal each, and the next one is served."""

import json
import socket
from typing import Any

import pytest

from dhp_protocol.errors import SchemaInvalid
from dhpd.sandbox.bounds import Bounds
from dhpd.sandbox.queueing import Queue
from dhpd.server.output_schemas import Schemas

from .support import SOON, text


async def verdict(schemas: Schemas, schema: Any, result: Any) -> str:
    """The rule that speaks against `result`; "" where it fits. Always by the worker process."""
    await schemas.check("handoff", text(schema), asker=1)
    refusal = await schemas.judge("handoff", text(result), asker=1)
    return "" if refusal is None else str(refusal.details["rule"])


async def refusal_of(schemas: Schemas, schema: Any) -> str:
    with pytest.raises(SchemaInvalid) as caught:
        await schemas.check("handoff", text(schema), asker=1)
    return str(caught.value.details["rule"])


@pytest.mark.parametrize(
    ("pattern", "string"),
    [
        ("^(a+)+$", "a" * 40 + "!"),
        ("^(a|aa)+$", "a" * 60 + "!"),
        ("(.*)*x", "a" * 40),
        ("(a?){40}a{40}", "a" * 40),
        ("^([a-z]+)*$", "a" * 50 + "1"),
    ],
)
async def test_a_pattern_that_hangs_is_no_verdict_and_no_pass(schemas: Schemas, pattern: str, string: str) -> None:
    assert await verdict(schemas, {"pattern": pattern}, string) == "limit"
    assert await verdict(schemas, {"pattern": "^a"}, "ab") == "", "the worker is there again"


async def test_a_pattern_that_hangs_on_a_name_is_no_verdict(schemas: Schemas) -> None:
    assert await verdict(schemas, {"patternProperties": {"^(a+)+$": True}}, {"a" * 40 + "!": 1}) == "limit"


def chained(pairs: int, leaf: Any) -> dict[str, Any]:
    """Each subschema asks the next one twice."""
    defs = {f"a{at}": {"anyOf": [{"$ref": f"#/$defs/a{at + 1}"}] * 2} for at in range(pairs)}
    return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{pairs}": leaf}}


def doubled(levels: int) -> dict[str, Any]:
    return {"type": "string"} if levels == 0 else {"anyOf": [doubled(levels - 1), doubled(levels - 1)]}


def nested(levels: int, keyword: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {keyword: schema}
    return schema


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
async def test_choices_chained_by_references_take_no_time(schemas: Schemas, keyword: str) -> None:
    schema = json.loads(json.dumps(chained(40, {"type": "string"})).replace("anyOf", keyword))
    assert await verdict(schemas, schema, 1) == ("type" if keyword == "allOf" else keyword)


async def test_choices_chained_over_the_levels_of_a_value_take_no_time(schemas: Schemas) -> None:
    node = {"anyOf": [{"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}}}] * 2 + [{"const": 0}]}
    value: Any = 1
    for _ in range(50):
        value = {"a": value}
    assert await verdict(schemas, {"$ref": "#/$defs/node", "$defs": {"node": node}}, value) == "anyOf"


async def test_unevaluated_members_at_every_level_take_no_time(schemas: Schemas) -> None:
    branch = {"properties": {"a": {"$ref": "#/$defs/node"}}}
    node = {"anyOf": [branch, branch], "oneOf": [branch, False], "unevaluatedProperties": False}
    value: Any = {"b": 1}
    for _ in range(60):
        value = {"a": value}
    assert await verdict(schemas, {"$ref": "#/$defs/node", "$defs": {"node": node}}, value) in (
        "anyOf",
        "unevaluatedProperties",
    )


@pytest.mark.parametrize("levels", [12, 15])
async def test_choices_doubled_at_every_level_are_judged_or_refused(schemas: Schemas, levels: int) -> None:
    schema = doubled(levels)
    if levels == 15:
        assert await refusal_of(schemas, schema) == "limit"
    else:
        queue = Queue(SOON._replace(cpu_s=20.0))  # However slow the machine is.
        try:
            assert await verdict(Schemas(queue), schema, 1) in ("anyOf", "limit")
        finally:
            await queue.close()


@pytest.mark.parametrize("keyword", ["not", "items", "additionalProperties", "contains", "propertyNames", "if"])
async def test_deep_schemas_are_judged(schemas: Schemas, keyword: str) -> None:
    assert await verdict(schemas, nested(120, keyword), "a") == ""


async def test_values_deeper_than_any_frame_are_no_verdict(schemas: Schemas) -> None:
    assert await verdict(schemas, {"type": "array"}, b"[" * 5_000 + b"]" * 5_000) == "limit"
    assert await refusal_of(schemas, b'{"not":' * 5_000 + b"{}" + b"}" * 5_000) == "limit"


async def test_long_ways_about_every_level_of_a_deep_value_are_bounded(schemas: Schemas) -> None:
    defs = {f"a{at}": {"allOf": [{"$ref": f"#/$defs/a{at + 1}"}]} for at in range(90)}
    schema = {"$ref": "#/$defs/a0", "$defs": {**defs, "a90": {"items": {"$ref": "#/$defs/a0"}}}}
    assert await verdict(schemas, schema, b"[" * 120 + b"]" * 120) == "limit"
    assert await verdict(schemas, schema, b"[[[1]]]") == ""


@pytest.mark.parametrize(
    "result",
    [
        b"[" + b"{}," * 1_000_000 + b"{}]",
        b"[" + b"[[]]," * 700_000 + b"[]]",
        b'{"a":' * 100 + b"[" + b"0.5," * 800_000 + b"0.5]" + b"}" * 100,
        b"[" + b'{"a":[{"b":0}]},' * 200_000 + b"0]",
    ],
    ids=["objects", "arrays", "decimals", "mixed"],
)
async def test_results_that_swell_in_memory_are_judged_or_refused(result: bytes) -> None:
    queue = Queue(Bounds())
    schemas = Schemas(queue)
    schema = {"$ref": "#/$defs/any", "$defs": {"any": {"items": {"$ref": "#/$defs/any"}, "pattern": "x"}}}
    try:
        assert await verdict(schemas, schema, result) in ("", "limit")
    finally:
        await queue.close()


async def test_too_much_memory_is_no_verdict() -> None:
    queue = Queue(SOON._replace(memory_bytes=128 * 1024 * 1024, cpu_s=20.0))
    schemas = Schemas(queue)
    try:
        assert await verdict(schemas, {"type": "array"}, b"[" + b"[[]]," * 800_000 + b"[]]") == "limit"
        assert await verdict(schemas, {"type": "array"}, [1]) == "", "the worker is there again"
    finally:
        await queue.close()


async def test_too_many_steps_are_no_verdict(schemas: Schemas) -> None:
    assert await verdict(schemas, {"items": {"type": "integer"}}, [1] * 200_000) == "limit"
    assert await verdict(schemas, {"items": {"type": "integer"}}, [1] * 50_000) == ""


async def test_numbers_with_one_hash_do_not_collide(schemas: Schemas) -> None:
    numbers = [index * (2**61 - 1) for index in range(20_000)]
    assert await verdict(schemas, {"uniqueItems": True}, numbers) == ""


async def test_nothing_is_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        queue = Queue(Bounds())
        schemas = Schemas(queue)
        try:
            for schema in (
                {"$ref": f"{base}/a"},
                {"$id": f"{base}/", "properties": {"p": {"$ref": "a"}}},
                {"$schema": f"{base}/a"},
                {"$id": f"{base}/", "$dynamicRef": "a#b"},
                {"items": {"$id": f"{base}/a/", "items": {"$ref": "../b#c"}}},
            ):
                assert await refusal_of(schemas, schema) in ("$ref", "$schema", "$dynamicRef")
            assert await verdict(schemas, {"const": {"$ref": f"{base}/a"}, "default": {"$ref": base}}, 1) == "const"
        finally:
            await queue.close()
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_a_file_is_not_read(schemas: Schemas, tmp_path: Any) -> None:
    (tmp_path / "secret.json").write_text('{"const": "secret"}')
    for reference in (f"file://{tmp_path}/secret.json", f"{tmp_path}/secret.json", "secret.json"):
        assert await refusal_of(schemas, {"$ref": reference}) == "$ref"
        assert await refusal_of(schemas, {"$id": f"file://{tmp_path}/", "$ref": reference}) == "$ref"
