"""The rules of draft 2020-12 written down a second time: slow, plain, and without anything of the daemon's.

A verdict is what the specification says word by word: whether the value fits, and which of its members were evaluated.
Values are those of `json.loads`, with decimal numbers as `Fraction`s.
"""

from fractions import Fraction
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    fits: bool
    evaluated: frozenset[str | int]


NOTHING: frozenset[str | int] = frozenset()


def judge(schema: Any, value: Any, root: Any) -> Verdict:
    if isinstance(schema, bool):
        return Verdict(schema, NOTHING)
    parts = [*_in_place(schema, value, root), *_members(schema, value, root)]
    evaluated = frozenset().union(*(part.evaluated for part in parts if part.fits))
    fits = all(part.fits for part in parts) and all(_assert(word, schema, value) for word in schema)
    for keyword, kind in (("unevaluatedProperties", dict), ("unevaluatedItems", list)):
        if keyword in schema and isinstance(value, kind):
            steps = value if kind is dict else range(len(value))
            left = [step for step in steps if step not in evaluated]
            fits = fits and all(judge(schema[keyword], value[step], root).fits for step in left)
            evaluated |= frozenset(left)
    return Verdict(fits, evaluated if fits else NOTHING)


def _in_place(schema: dict[str, Any], value: Any, root: Any) -> list[Verdict]:
    found = [judge(each, value, root) for each in schema.get("allOf", [])]
    if "$ref" in schema:
        found.append(judge(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root))
    for keyword, wanted in (("anyOf", lambda count: count > 0), ("oneOf", lambda count: count == 1)):
        if keyword in schema:
            choices = [judge(each, value, root) for each in schema[keyword]]
            fitting = [choice for choice in choices if choice.fits]
            evaluated = frozenset().union(*(choice.evaluated for choice in fitting))
            found.append(Verdict(wanted(len(fitting)), evaluated))
    if "not" in schema:
        found.append(Verdict(not judge(schema["not"], value, root).fits, NOTHING))
    if "if" in schema:
        condition = judge(schema["if"], value, root)
        branch = judge(schema.get("then" if condition.fits else "else", True), value, root)
        found += [Verdict(True, condition.evaluated), branch]
    for name, each in schema.get("dependentSchemas", {}).items():
        if isinstance(value, dict) and name in value:
            found.append(judge(each, value, root))
    return found


def _members(schema: dict[str, Any], value: Any, root: Any) -> list[Verdict]:
    found = []

    def below(subschema: Any, step: str | int) -> None:
        found.append(Verdict(judge(subschema, value[step], root).fits, frozenset((step,))))

    if isinstance(value, dict):
        named = schema.get("properties", {})
        for name in value:
            if name in named:
                below(named[name], name)
            elif "additionalProperties" in schema:
                below(schema["additionalProperties"], name)
            if "propertyNames" in schema:
                found.append(Verdict(judge(schema["propertyNames"], name, root).fits, NOTHING))
    if isinstance(value, list):
        prefix = schema.get("prefixItems", [])
        for index in range(len(value)):
            if index < len(prefix):
                below(prefix[index], index)
            elif "items" in schema:
                below(schema["items"], index)
        if "contains" in schema:
            holding = [index for index, item in enumerate(value) if judge(schema["contains"], item, root).fits]
            enough = schema.get("minContains", 1) <= len(holding) <= schema.get("maxContains", len(value))
            found.append(Verdict(enough, frozenset(holding)))
    return found


def _assert(word: str, schema: dict[str, Any], value: Any) -> bool:
    wanted = schema[word]
    if word == "type":
        return any(_is(name, value) for name in ([wanted] if isinstance(wanted, str) else wanted))
    if word == "const":
        return same(wanted, value)
    if word == "enum":
        return any(same(each, value) for each in wanted)
    if _is("number", value) and word in NUMBERS:
        return bool(NUMBERS[word](value, wanted))
    if isinstance(value, str) and word in ("minLength", "maxLength"):
        return len(value) >= wanted if word == "minLength" else len(value) <= wanted
    if isinstance(value, list) and word in ("minItems", "maxItems"):
        return len(value) >= wanted if word == "minItems" else len(value) <= wanted
    if isinstance(value, list) and word == "uniqueItems" and wanted:
        return not any(same(value[i], value[j]) for i in range(len(value)) for j in range(i))
    if isinstance(value, dict) and word in ("minProperties", "maxProperties"):
        return len(value) >= wanted if word == "minProperties" else len(value) <= wanted
    if isinstance(value, dict) and word == "required":
        return all(name in value for name in wanted)
    if isinstance(value, dict) and word == "dependentRequired":
        return all(other in value for name, others in wanted.items() if name in value for other in others)
    return True


NUMBERS: dict[str, Any] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, divisor: Fraction(value) % Fraction(divisor) == 0,
}


def _is(name: str, value: Any) -> bool:
    if name == "integer":
        return _is("number", value) and Fraction(value).denominator == 1
    if name == "number":
        return isinstance(value, (int, Fraction)) and not isinstance(value, bool)
    kinds: dict[str, Any] = {"null": type(None), "boolean": bool, "string": str, "array": list, "object": dict}
    return isinstance(value, kinds[name])


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
