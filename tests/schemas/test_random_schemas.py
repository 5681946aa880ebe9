"""Random schemas and values: our verdicts are those of the rules written down a second time, and of another validator."""

import json
from fractions import Fraction
from typing import Any

import fastjsonschema
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from . import oracle
from .support import DRAFT_7, verdict

NAMES = ("a", "b", "c")
NUMBERS = ("0", "1", "1.0", "2", "3", "-1", "0.5", "1.5", "0.1", "0.3", "1e2", "100", "1e-1", "9007199254740993")
STRINGS = ("", "a", "b", "ab", "abc", "😀", "1")


class Literal:
    """A number as it is written in JSON, so that it reaches both sides unrounded."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def written(value: Any) -> str:
    if isinstance(value, Literal):
        return value.text
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(name)}:{written(each)}' for name, each in value.items())}}}"
    return json.dumps(value)


def exact(text: str) -> Any:
    return json.loads(text, parse_float=Fraction)


numbers = st.sampled_from(NUMBERS).map(Literal)
names = st.sampled_from(NAMES)
leaves = st.one_of(st.none(), st.booleans(), numbers, st.sampled_from(STRINGS))
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
counts = st.integers(0, 3)
types = st.sampled_from(("null", "boolean", "integer", "number", "string", "array", "object"))
positive = st.sampled_from(("1", "2", "0.5", "0.1", "0.01", "3")).map(Literal)

ASSERTIONS: dict[str, st.SearchStrategy[Any]] = {
    "type": types | st.lists(types, min_size=1, max_size=3, unique=True),
    "const": values,
    "enum": st.lists(values, min_size=1, max_size=3),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), numbers),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), counts),
    "uniqueItems": st.booleans(),
    "required": st.lists(names, max_size=2, unique=True),
}
NEWER_ASSERTIONS = {
    "multipleOf": positive,
    "dependentRequired": st.dictionaries(names, st.lists(names, max_size=2, unique=True), max_size=2),
    "minContains": counts,
    "maxContains": counts,
}


def applicators(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    some = st.lists(inner, min_size=1, max_size=3)
    return {
        **dict.fromkeys(("allOf", "anyOf", "oneOf"), some),
        **dict.fromkeys(
            ("not", "if", "then", "else", "items", "contains", "propertyNames", "additionalProperties"), inner
        ),
        "properties": st.dictionaries(names, inner, max_size=3),
    }


def newer_applicators(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        **applicators(inner),
        **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), inner),
        "prefixItems": st.lists(inner, min_size=1, max_size=3),
        "dependentSchemas": st.dictionaries(names, inner, max_size=2),
    }


def picked(words: dict[str, st.SearchStrategy[Any]], *, most: int) -> st.SearchStrategy[Any]:
    """Objects of up to `most` of the words."""
    chosen = st.lists(st.sampled_from(sorted(words)), max_size=most, unique=True)
    return chosen.flatmap(lambda keywords: st.fixed_dictionaries({keyword: words[keyword] for keyword in keywords}))


def schemas(assertions: dict[str, Any], deeper: Any, leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    leaf = st.booleans() | picked(assertions, most=2) | leaves
    return st.recursive(leaf, lambda inner: picked({**assertions, **deeper(inner)}, most=4), max_leaves=8)


plain = schemas({**ASSERTIONS, **NEWER_ASSERTIONS}, newer_applicators, st.nothing())
references = st.sampled_from(("#/$defs/x", "#/$defs/y")).map(lambda pointer: {"$ref": pointer})
referring = schemas({**ASSERTIONS, **NEWER_ASSERTIONS}, newer_applicators, references)
older = schemas(ASSERTIONS, applicators, st.nothing())


@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(schema=referring, x=plain, y=plain, strict=st.booleans(), instances=st.lists(values, min_size=1, max_size=6))
def test_verdicts_are_those_of_the_specification(
    schema: Any, x: Any, y: Any, strict: bool, instances: list[Any]
) -> None:
    whole = {"allOf": [schema], "$defs": {"x": x, "y": y}}
    if strict:
        whole |= {"unevaluatedProperties": False, "unevaluatedItems": False}
    text = written(whole)
    root = exact(text)
    for instance in instances:
        expected = oracle.judge(root, exact(written(instance)), root).fits
        assert (verdict(text.encode(), written(instance).encode()) is None) is expected, (text, written(instance))


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(schema=older, instances=st.lists(values, min_size=1, max_size=6))
def test_a_second_validator_agrees_where_its_words_are_enough(schema: Any, instances: list[Any]) -> None:
    whole = {"$schema": DRAFT_7, "allOf": [schema]}
    text = written(whole)
    try:
        other = fastjsonschema.compile(json.loads(text), use_default=False, use_formats=False)
    except fastjsonschema.JsonSchemaDefinitionException:
        reject()  # It takes no schema that nothing can fit.
    for instance in instances:
        try:
            other(json.loads(written(instance)))
            expected = True
        except fastjsonschema.JsonSchemaValueException:
            expected = False
        assert (verdict(text.encode(), written(instance).encode()) is None) is expected, (text, written(instance))
