"""Verdicts: where a result doesn't fit, by which keyword, and in words that help to mend it."""

from typing import Any

import pytest

from .support import DRAFT_7, DRAFT_2019_09, sentence, verdict

ORDER = {
    "type": "object",
    "required": ["id", "lines"],
    "properties": {
        "id": {"type": "string", "minLength": 3},
        "lines": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/line"}},
        "note": {"anyOf": [{"type": "string", "maxLength": 10}, {"type": "null"}], "default": None},
    },
    "additionalProperties": False,
    "$defs": {
        "line": {
            "type": "object",
            "properties": {"sku": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
            "required": ["sku", "count"],
        }
    },
}


@pytest.mark.parametrize(
    ("result", "path", "rule"),
    [
        ({"id": "abc"}, "", "required"),
        ({"id": "ab", "lines": [{"sku": "s", "count": 1}]}, "/id", "minLength"),
        ({"id": "abc", "lines": []}, "/lines", "minItems"),
        ({"id": "abc", "lines": [{"sku": "s", "count": 1}, {"sku": "s", "count": 0}]}, "/lines/1/count", "minimum"),
        ({"id": "abc", "lines": [{"sku": "s", "count": 1.5}]}, "/lines/0/count", "type"),
        ({"id": "abc", "lines": [{"sku": "s", "count": True}]}, "/lines/0/count", "type"),
        ({"id": "abc", "lines": [{"sku": "s", "count": 1}], "x/y~z": 1}, "/x~1y~0z", "additionalProperties"),
        ([], "", "type"),
    ],
)
def test_path_and_rule_name_what_is_wrong(result: Any, path: str, rule: str) -> None:
    assert verdict(ORDER, result) == (path, rule)


def test_what_fits_fits() -> None:
    assert verdict(ORDER, {"id": "abc", "lines": [{"sku": "s", "count": 1}], "note": None}) is None


def test_of_choices_the_one_that_was_meant_is_told() -> None:
    lines = [{"sku": "s", "count": 1}]
    assert verdict(ORDER, {"id": "abc", "lines": lines, "note": "longer than ten"}) == ("/note", "maxLength")
    assert verdict(ORDER, {"id": "abc", "lines": lines, "note": 5}) == ("/note", "anyOf")


def test_of_tagged_choices_the_one_with_the_right_tag_is_told() -> None:
    cat = {"properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind", "lives"]}
    dog = {"properties": {"kind": {"const": "dog"}, "barks": {"type": "boolean"}}, "required": ["kind", "barks"]}
    schema = {"discriminator": {"propertyName": "kind"}, "oneOf": [cat, dog]}
    assert verdict(schema, {"kind": "dog", "lives": 9, "barks": "loudly"}) == ("/barks", "type")


def test_the_sentence_says_what_is_there_and_what_must_be() -> None:
    result = {"id": "abc", "lines": [{"sku": "s", "count": "three"}]}
    assert sentence(ORDER, result) == (
        'The result doesn\'t fit: at /lines/0/count it is the string "three", and must be integer.'
    )
    assert sentence(ORDER, {"id": "abc"}) == 'The result doesn\'t fit: it lacks the member "lines".'
    assert sentence({"enum": ["a", 1]}, "b") == 'The result doesn\'t fit: it is "b", and must be one of "a", 1.'


def test_long_values_and_names_are_shortened() -> None:
    assert len(sentence({"type": "integer"}, "x" * 100_000)) < 200
    assert len(sentence({"additionalProperties": False}, {"n" * 100_000: 1})) < 200
    assert verdict({"properties": {"a": {"additionalProperties": False}}}, {"a": {"n" * 100_000: 1}}) == (
        "/a",
        "additionalProperties",
    )


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}, [1, "a"], [1, "a", 2]),
        ({"dependentRequired": {"card": ["street"]}}, {"card": 1, "street": 2}, {"card": 1}),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"b": 1}, {"a": 1}),
        ({"contains": {"const": 1}, "minContains": 2, "maxContains": 3}, [1, 1, 2], [1]),
        ({"if": {"const": 1}, "then": False, "else": {"type": "string"}}, "x", 2),
        ({"propertyNames": {"maxLength": 2}}, {"ab": 1}, {"abc": 1}),
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"x1": 1, "y": "a"}, {"x1": "a"}),
        ({"not": {"type": "null"}}, 0, None),
        (
            {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False},
            {"a": 1},
            {"a": 1, "b": 2},
        ),
        (
            {"anyOf": [{"prefixItems": [True]}, {"prefixItems": [True, {"const": 2}]}], "unevaluatedItems": False},
            [1, 2],
            [1, 3],
        ),
        ({"$ref": "#/$defs/a", "maximum": 5, "$defs": {"a": {"minimum": 3}}}, 4, 6),
        ({"$defs": {"a": {"$anchor": "here", "type": "string"}}, "$ref": "#here"}, "x", 1),
        ({"$id": "https://example.org/a", "$ref": "b", "$defs": {"b": {"$id": "b", "type": "null"}}}, None, 1),
        ({"$schema": DRAFT_7, "items": [{"type": "integer"}], "additionalItems": False}, [1], [1, 2]),
        ({"$schema": DRAFT_7, "dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"a": 1, "b": 1}, {"c": 1}),
        (
            {"$schema": DRAFT_2019_09, "properties": {"a": {"$recursiveRef": "#"}}, "additionalProperties": False},
            {"a": {"a": {}}},
            {"a": {"b": 1}},
        ),
        ({"const": {"a": [1, {"b": 2.0}]}}, {"a": [1.0, {"b": 2}]}, {"a": [1, {"b": 3}]}),
        ({"enum": [True, "1"]}, True, 1),
        (
            {"uniqueItems": True},
            [1, True, "1", [1], {"a": 1}, None, 0, False, "", 1.5],
            [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}],
        ),
        ({"maxLength": 1}, "😀", "ab"),
    ],
)
def test_keywords_of_all_drafts_are_enforced(schema: Any, good: Any, bad: Any) -> None:
    assert verdict(schema, good) is None
    assert verdict(schema, bad) is not None


TREE = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            },
            "required": ["name"],
        }
    },
}


def test_recursive_schemas_judge_to_any_depth_that_a_frame_can_have() -> None:
    deep: dict[str, Any] = {"name": "leaf"}
    for _ in range(60):
        deep = {"name": "node", "children": [deep]}
    assert verdict(TREE, deep) is None
    broken: dict[str, Any] = {"name": 1}
    for _ in range(60):
        broken = {"name": "node", "children": [broken]}
    assert verdict(TREE, broken) == ("/children/0" * 60 + "/name", "type")


@pytest.mark.parametrize(
    "keyword", ["title", "description", "default", "examples", "$comment", "readOnly", "deprecated", "contentEncoding"]
)
def test_annotations_have_no_part_in_the_verdict(keyword: str) -> None:
    assert verdict({keyword: "whatever", "type": "integer"}, 1) is None


def test_format_is_annotation() -> None:
    assert verdict({"type": "string", "format": "email"}, "no address") is None
    assert verdict({"type": "string", "format": "a-format-of-our-own"}, "x") is None


def test_defaults_are_not_written_into_results() -> None:
    assert verdict({"properties": {"a": {"default": 1}}, "required": ["a"]}, {}) == ("", "required")


def test_a_result_that_readers_could_read_differently_is_refused() -> None:
    assert verdict(True, b'{"a": 1, "a": 2}') == ("", "json")
    assert verdict(True, b'[{"b": {"a": 1, "a": 1}}]') == ("", "json")
    assert verdict(True, b"NaN") == ("", "json")
    assert verdict(True, b"[1,]") == ("", "json")
