"""What can't be enforced is refused when it is dispatched: by name, with the place where it stands."""

from typing import Any

import pytest

from .support import DRAFT_7, DRAFT_2019_09, DRAFT_2020_12, refused, verdict


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        *(("type", value) for value in ("text", ["string", "text"], [], 1, None, {}, [1])),
        *(("enum", value) for value in (1, {}, "a")),
        *((keyword, value) for keyword in ("minimum", "exclusiveMaximum") for value in ("1", True, None, [1])),
        *(("multipleOf", value) for value in (0, -1, "1", True)),
        *((keyword, value) for keyword in ("minLength", "maxItems", "minProperties") for value in (-1, 1.5, "1", True)),
        *(("minContains", value) for value in (-1, "1")),
        *(("uniqueItems", value) for value in (1, "true", None)),
        *(("required", value) for value in ("a", True, [1], ["a", "a"])),
        *(("dependentRequired", value) for value in ([], {"a": "b"}, {"a": [1]})),
        *((keyword, value) for keyword in ("allOf", "anyOf", "oneOf", "prefixItems") for value in ([], {}, True)),
        *(
            (keyword, value)
            for keyword in ("properties", "patternProperties", "dependentSchemas")
            for value in ([], True)
        ),
        *((keyword, value) for keyword in ("$defs", "definitions") for value in ([], True)),
        *(("$ref", value) for value in (1, None, {})),
        *(("$id", value) for value in (1, None, "#here", "http://[")),
        *(("$anchor", value) for value in (1, "", "a#b")),
    ],
)
def test_an_ill_formed_keyword_is_named(keyword: str, value: Any) -> None:
    path, rule = refused({"$defs": {"a": {keyword: value}}})
    assert rule == keyword
    assert path.startswith("/$defs/a")


@pytest.mark.parametrize(
    "keyword", ["not", "if", "then", "items", "contains", "additionalProperties", "unevaluatedItems"]
)
@pytest.mark.parametrize("value", [1, None, "string", []])
def test_what_should_be_a_schema_and_is_none_is_named(keyword: str, value: Any) -> None:
    assert refused({keyword: value}) == (f"/{keyword}", keyword)


@pytest.mark.parametrize("holder", ["allOf", "prefixItems"])
def test_the_place_within_a_list_is_told(holder: str) -> None:
    assert refused({holder: [True, {"properties": {"a/b": 1}}]}) == (f"/{holder}/1/properties/a~1b", "properties")


@pytest.mark.parametrize(
    ("draft", "keyword"),
    [
        *(("", keyword) for keyword in ("dependencies", "additionalItems", "$recursiveRef", "$recursiveAnchor")),
        *((DRAFT_2020_12, keyword) for keyword in ("dependencies", "additionalItems", "$recursiveRef")),
        *((DRAFT_2019_09, keyword) for keyword in ("dependencies", "prefixItems", "$dynamicRef", "$dynamicAnchor")),
        *((DRAFT_7, keyword) for keyword in ("prefixItems", "dependentRequired", "dependentSchemas", "minContains")),
        *((DRAFT_7, keyword) for keyword in ("unevaluatedItems", "unevaluatedProperties", "$anchor", "$dynamicRef")),
        *(("", keyword) for keyword in ("nullable", "disallow", "divisibleBy", "extends")),
    ],
)
def test_a_constraint_of_another_draft_is_not_passed_over(draft: str, keyword: str) -> None:
    schema = {"$schema": draft} if draft else {}
    assert refused({**schema, "properties": {"a": {keyword: {}}}}) == (f"/properties/a/{keyword}", keyword)


def test_lists_under_items_are_for_older_drafts() -> None:
    assert refused({"items": [{"type": "string"}]}) == ("/items", "items")
    assert verdict({"$schema": DRAFT_7, "items": [{"type": "string"}]}, [1]) == ("/0", "type")


@pytest.mark.parametrize(
    "keyword", ["minlength", "max-length", "Required", "require", "patterns", "propreties", "anyof"]
)
def test_a_slip_of_the_pen_is_named(keyword: str) -> None:
    assert refused({keyword: 1}) == (f"/{keyword}", keyword)


@pytest.mark.parametrize(
    "keyword", ["example", "x-minlength", "ui:widget", "unit", "note", "cost", "$comment", "ordering"]
)
def test_a_word_of_ones_own_is_annotation(keyword: str) -> None:
    assert verdict({keyword: 1, "type": "string"}, "a") is None


def test_members_named_like_keywords_are_members() -> None:
    schema = {"properties": {"minlength": {"type": "string"}, "$ref": {"type": "integer"}, "dependencies": True}}
    assert verdict(schema, {"minlength": "a", "$ref": 1, "dependencies": {}}) is None
    assert verdict(schema, {"$ref": "a"}) == ("/$ref", "type")


def test_what_looks_like_keywords_within_values_is_a_value() -> None:
    schema = {"const": {"$ref": "http://example.org/"}, "default": {"$id": 1}, "examples": [{"$ref": 5}]}
    assert verdict(schema, {"$ref": "http://example.org/"}) is None


@pytest.mark.parametrize(
    "uri",
    [
        *("http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#", "", 5, None),
        *("http://json-schema.org/schema#", "http://example.org/meta", "file:///etc/passwd", DRAFT_2020_12 + "/x"),
    ],
)
def test_another_draft_is_refused_by_name(uri: Any) -> None:
    assert refused({"$schema": uri}) == ("/$schema", "$schema")


def test_a_part_may_not_be_in_another_draft() -> None:
    part = {"$id": "https://example.org/part", "$schema": DRAFT_7}
    assert refused({"$defs": {"a": part}}) == ("/$defs/a/$schema", "$schema")
    assert verdict({"$schema": DRAFT_7, "definitions": {"a": part}, "type": "null"}, None) is None


@pytest.mark.parametrize(
    "reference",
    [
        *(
            "http://127.0.0.1:9/schema",
            "https://example.org/",
            "ftp://example.org/a",
            "file:///etc/passwd",
            "/etc/passwd",
        ),
        *("other.json", "other.json#/a", "../up", "//example.org/a", "data:application/json,{}", "urn:example:a", "?q"),
        *("#/nowhere", "#nowhere", "#/$defs/b", "#/$defs/a/type", "#/x-list/0", "#/x-list/5", "#/x-list/00"),
        *("http://[", "#/$defs/a%2Fb"),
    ],
)
def test_a_reference_to_what_is_not_there_is_refused_and_nothing_is_fetched(reference: str) -> None:
    schema = {"$defs": {"a": {"type": "string"}, "list": True}, "x-list": [1], "properties": {"p": {"$ref": reference}}}
    assert refused(schema) == ("/properties/p/$ref", "$ref")


@pytest.mark.parametrize("base", ["https://example.org/a/", "file:///etc/", "urn:example:base", "data:,x"])
def test_an_id_turns_no_reference_into_one_that_is_fetched(base: str) -> None:
    assert refused({"$id": base, "properties": {"p": {"$ref": "passwd"}}}) == ("/properties/p/$ref", "$ref")
    assert verdict({"$id": base, "$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, 1) == ("", "type")


def test_names_are_given_once() -> None:
    one, other = {"$id": "https://example.org/x"}, {"$id": "x"}
    assert refused({"$id": "https://example.org/", "$defs": {"a": one, "b": other}})[1] == "$id"
    assert refused({"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}})[1] == "$anchor"


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"$ref": "#"}, "/$ref"),
        ({"allOf": [{"$ref": "#"}]}, "/allOf/0/$ref"),
        ({"properties": {"a": {"not": {"$ref": "#/properties/a"}}}}, "/properties/a/not/$ref"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, "/$defs/a/$ref"),
        ({"$dynamicAnchor": "x", "if": {"$dynamicRef": "#x"}}, "/if/$dynamicRef"),
        ({"dependentSchemas": {"a": {"$ref": "#"}}}, "/dependentSchemas/a/$ref"),
    ],
)
def test_a_loop_that_consumes_nothing_is_refused(schema: Any, path: str) -> None:
    assert refused(schema) == (path, path.rpartition("/")[2])


def test_a_reference_that_comes_twice_is_no_loop() -> None:
    leaf = {"$ref": "#/$defs/leaf"}
    assert verdict({"allOf": [leaf, {"anyOf": [leaf]}], "$defs": {"leaf": {"type": "null"}}}, 1) == ("", "type")


def test_draft_7_passes_over_what_stands_beside_a_reference_so_it_may_not_stand_there() -> None:
    schema: dict[str, Any] = {"$schema": DRAFT_7, "definitions": {"a": {"type": "array"}}}
    reference = {"$ref": "#/definitions/a", "description": "annotation may"}
    assert verdict({**schema, "properties": {"p": reference}}, {"p": 1}) == ("/p", "type")
    assert refused({**schema, "properties": {"p": {**reference, "maxItems": 1}}}) == (
        "/properties/p/maxItems",
        "maxItems",
    )


def test_a_schema_that_could_be_draft_7_must_say_so_where_that_makes_a_difference() -> None:
    schema = {"definitions": {"a": {"type": "array"}}, "items": {"$ref": "#/definitions/a", "maxItems": 1}}
    assert refused(schema) == ("/items/maxItems", "maxItems")
    assert verdict({"$schema": DRAFT_2020_12, **schema}, [[1, 2]]) == ("/0", "maxItems")


@pytest.mark.parametrize("schema", [b"", b"{", b"[]", b"1", b"null", b'"a"', b"\xff", b'{"a": NaN}', b'{"a":1,"a":1}'])
def test_what_is_no_schema_at_all_is_refused(schema: bytes) -> None:
    assert refused(schema) == ("", "json")


def test_a_long_way_is_told_as_far_as_it_goes() -> None:
    assert refused({"properties": {"a": {"properties": {"n" * 100_000: {"type": 1}}}}}) == (
        "/properties/a/properties",
        "type",
    )


def test_too_large_schemas_are_refused() -> None:
    assert refused({"properties": {f"p{index}": {} for index in range(20_001)}})[1] == "limit"
    chain: dict[str, Any] = {f"a{index}": {"$ref": f"#/$defs/a{index + 1}"} for index in range(300)}
    assert refused({"$ref": "#/$defs/a0", "$defs": {**chain, "a300": True}})[1] == "limit"
