"""The schemas that Pydantic 2 emits, as it emits them, are enforced."""

from typing import Any

import pytest

from .support import verdict

UNION = {
    "$defs": {
        "Cat": {
            "properties": {
                "kind": {"const": "cat", "default": "cat", "title": "Kind", "type": "string"},
                "lives": {"exclusiveMinimum": 0, "maximum": 9, "title": "Lives", "type": "integer"},
            },
            "required": ["lives"],
            "title": "Cat",
            "type": "object",
        },
        "Dog": {
            "additionalProperties": False,
            "properties": {
                "kind": {"const": "dog", "default": "dog", "title": "Kind", "type": "string"},
                "name": {"maxLength": 5, "minLength": 1, "pattern": "^[A-Z]", "title": "Name", "type": "string"},
            },
            "required": ["name"],
            "title": "Dog",
            "type": "object",
        },
        "Mood": {"enum": ["calm", "wild"], "title": "Mood", "type": "string"},
        "Node": {
            "properties": {
                "left": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None},
                "value": {"title": "Value", "type": "number"},
            },
            "required": ["value"],
            "title": "Node",
            "type": "object",
        },
    },
    "description": "What was found.",
    "properties": {
        "pet": {
            "discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}, "propertyName": "kind"},
            "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
            "title": "Pet",
        },
        "mood": {"$ref": "#/$defs/Mood", "default": "calm", "description": "As seen"},
        "point": {
            "maxItems": 2,
            "minItems": 2,
            "prefixItems": [{"type": "integer"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}],
            "title": "Point",
            "type": "array",
        },
        "scores": {"additionalProperties": {"type": "number"}, "title": "Scores", "type": "object"},
        "by_day": {
            "patternProperties": {"^\\d{4}-\\d\\d$": {"type": "integer"}},
            "additionalProperties": False,
            "title": "By Day",
            "type": "object",
        },
        "tags": {"items": {"type": "string"}, "title": "Tags", "type": "array", "uniqueItems": True},
        "price": {
            "anyOf": [
                {"type": "number", "multipleOf": 0.01},
                {"pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", "type": "string"},
            ],
            "title": "Price",
        },
        "at": {"format": "date-time", "title": "At", "type": "string"},
        "tree": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None},
        "anything": {"title": "Anything"},
    },
    "required": ["pet"],
    "title": "Found",
    "type": "object",
}

GOOD: dict[str, Any] = {
    "pet": {"kind": "cat", "lives": 9},
    "mood": "wild",
    "point": [1, None],
    "scores": {"a": 1, "b": 2.5},
    "by_day": {"2026-01": 3},
    "tags": ["x", "y"],
    "price": 19.99,
    "at": "yesterday",
    "tree": {"value": 1, "left": {"value": 2.5, "left": None}},
    "anything": [{}],
}


def test_what_the_model_takes_fits() -> None:
    assert verdict(UNION, GOOD) is None
    assert verdict(UNION, {**GOOD, "pet": {"kind": "dog", "name": "Rex"}, "price": "+012.50"}) is None


@pytest.mark.parametrize(
    ("member", "value", "path", "rule"),
    [
        ("pet", {"kind": "cat", "lives": 10}, "/pet/lives", "maximum"),
        ("pet", {"kind": "dog", "name": "Rex", "lives": 2}, "/pet/lives", "additionalProperties"),
        ("pet", {"kind": "dog", "name": "rex"}, "/pet/name", "pattern"),
        ("pet", {"kind": "cow"}, "/pet", "oneOf"),
        ("mood", "sad", "/mood", "enum"),
        ("point", [1, 2], "/point/1", "anyOf"),
        ("point", [1], "/point", "minItems"),
        ("scores", {"a": "1"}, "/scores/a", "type"),
        ("by_day", {"2026-1": 3}, "/by_day/2026-1", "additionalProperties"),
        ("by_day", {"2026-01\n": 3}, "/by_day/2026-01\n", "additionalProperties"),
        ("tags", ["x", "x"], "/tags", "uniqueItems"),
        ("price", 19.995, "/price", "multipleOf"),
        ("price", "-", "/price", "pattern"),
        ("tree", {"value": 1, "left": {"value": "2"}}, "/tree/left/value", "type"),
        ("tree", {"value": 1, "left": 5}, "/tree/left", "anyOf"),
    ],
)
def test_what_the_model_refuses_is_told_by_path_and_rule(member: str, value: Any, path: str, rule: str) -> None:
    assert verdict(UNION, {**GOOD, member: value}) == (path, rule)
