"""Which draft a schema is written in, and what that draft says of each keyword.

Owns the drafts 7, 2019-09 and 2020-12, where their subschemas are, and what becomes of a keyword that isn't enforced. Each
keyword is one of three: enforced; annotation, which the draft itself says has no part in the verdict; or refused by name.

A keyword that no draft knows is annotation, as the standard has it, with two exceptions that would leave a constraint
unenforced without a word: one that another draft or dialect enforces, and one that is a slip of the pen for a keyword
(`minlength`, `require`). Names that begin with `x-` are never taken for slips. Pure.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from .values import shown


@dataclass(frozen=True, eq=False)
class Draft:
    """One draft's words. `one`, `many` and `named` say how the subschemas under a keyword are held."""

    name: str
    one: frozenset[str]
    many: frozenset[str]
    named: frozenset[str]
    other: frozenset[str]
    """Enforced keywords without subschemas, and those that name things."""
    refused: dict[str, str]
    """Keywords that this draft passes over though they are constraints elsewhere, and what to write instead."""
    dynamic_anchor: str
    """The keyword that marks what a dynamic reference may come out at; "" where there is none."""
    contains_evaluates: bool
    """Whether items that `contains` found count as evaluated."""

    words: frozenset[str] = field(init=False)
    """All keywords that aren't annotation."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", self.one | self.many | self.named | self.other)


ANNOTATIONS = frozenset(
    (
        *("title", "description", "default", "examples", "$comment", "readOnly", "writeOnly", "deprecated"),
        *("format", "contentMediaType", "contentEncoding", "contentSchema", "$vocabulary", "discriminator"),
    )
)
"""`format` is annotation in every draft's default; `discriminator` is OpenAPI's, a hint beside an `anyOf` that decides."""

_ONE = frozenset(("additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else"))
_MANY = frozenset(("allOf", "anyOf", "oneOf"))
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_OTHER = frozenset(
    (
        *("$schema", "$id", "$ref", "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum"),
        *("exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems"),
        *("maxProperties", "minProperties", "required"),
    )
)
_NEWER_OTHER = frozenset(("$anchor", "dependentRequired", "minContains", "maxContains"))
_NEWER_ONE = frozenset(("unevaluatedItems", "unevaluatedProperties"))

_OF_OTHERS = {
    "nullable": 'write "type": ["string", "null"] or anyOf with {"type": "null"}',
    "disallow": "write not",
    "divisibleBy": "write multipleOf",
    "extends": "write allOf",
}
_NOT_IN_7 = "leave out $schema, or name the draft 2020-12"
_SPLIT = "write dependentRequired or dependentSchemas"

DRAFT_7 = Draft(
    name="draft 7",
    one=_ONE | {"additionalItems"},
    many=_MANY,
    named=_NAMED | {"dependencies"},
    other=_OTHER,
    refused={
        **_OF_OTHERS,
        **dict.fromkeys(
            ("prefixItems", "dependentRequired", "dependentSchemas", "minContains", "maxContains"), _NOT_IN_7
        ),
        **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "$anchor"), _NOT_IN_7),
        **dict.fromkeys(("$recursiveRef", "$recursiveAnchor", "$dynamicRef", "$dynamicAnchor"), _NOT_IN_7),
    },
    dynamic_anchor="",
    contains_evaluates=False,
)
DRAFT_2019_09 = Draft(
    name="draft 2019-09",
    one=_ONE | _NEWER_ONE | {"additionalItems"},
    many=_MANY,
    named=_NAMED | {"dependentSchemas"},
    other=_OTHER | _NEWER_OTHER | {"$recursiveRef", "$recursiveAnchor"},
    refused={
        **_OF_OTHERS,
        "dependencies": _SPLIT,
        **dict.fromkeys(("prefixItems", "$dynamicRef", "$dynamicAnchor"), _NOT_IN_7),
    },
    dynamic_anchor="$recursiveAnchor",
    contains_evaluates=False,
)
DRAFT_2020_12 = Draft(
    name="draft 2020-12",
    one=_ONE | _NEWER_ONE,
    many=_MANY | {"prefixItems"},
    named=_NAMED | {"dependentSchemas"},
    other=_OTHER | _NEWER_OTHER | {"$dynamicRef", "$dynamicAnchor"},
    refused={
        **_OF_OTHERS,
        "dependencies": _SPLIT,
        "additionalItems": "write items, with prefixItems before it",
        "$recursiveRef": "write $dynamicRef",
        "$recursiveAnchor": "write $dynamicAnchor",
    },
    dynamic_anchor="$dynamicAnchor",
    contains_evaluates=True,
)

_BY_URI = {
    "json-schema.org/draft-07/schema": DRAFT_7,
    "json-schema.org/draft/2019-09/schema": DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": DRAFT_2020_12,
}


def draft_of(uri: object) -> Draft | None:
    """The draft that `$schema` names; None where it is none of these."""
    if not isinstance(uri, str):
        return None
    for scheme in ("http://", "https://"):
        if uri.startswith(scheme):
            return _BY_URI.get(uri.removeprefix(scheme).removesuffix("#"))
    return None


def why_refused(draft: Draft, keyword: str) -> str | None:
    """What is wrong with a keyword that `draft` doesn't know, as a clause; None where it is annotation."""
    if keyword in ANNOTATIONS or keyword.startswith("x-"):
        return None
    instead = draft.refused.get(keyword)
    if instead is not None:
        return f"isn't a constraint in {draft.name}: {instead}"
    meant = _meant(keyword, draft)
    return None if meant is None else f"is no keyword: {meant} may be meant; a note of your own begins with x-"


@lru_cache(maxsize=1_024)
def _slips(draft_name: str) -> tuple[dict[str, str], tuple[str, ...]]:
    draft = {each.name: each for each in _BY_URI.values()}[draft_name]
    known = sorted(draft.words - {"$schema", "$id", "$defs", "definitions"})
    return {_plain(word): word for word in known}, tuple(word for word in known if len(word) >= 6)


def _meant(keyword: str, draft: Draft) -> str | None:
    """The keyword that this one is a slip for: another case or hyphen, or one letter off in a long one."""
    if len(keyword) > 24:
        return None
    plain_forms, long_words = _slips(draft.name)
    same = plain_forms.get(_plain(keyword))
    return same or next((word for word in long_words if _one_edit_apart(keyword, word)), None)


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "").replace("$", "")


def _one_edit_apart(word: str, other: str) -> bool:
    """One letter more, less, or other, or two neighbours swapped."""
    if abs(len(word) - len(other)) > 1:
        return False
    shorter = min(len(word), len(other))
    start = next((at for at in range(shorter) if word[at] != other[at]), shorter)
    rest, other_rest = word[start:], other[start:]
    if rest[1:] == other_rest[1:] or rest[1:] == other_rest or rest == other_rest[1:]:
        return True
    return rest[:2] == other_rest[:2][::-1] and rest[2:] == other_rest[2:]


def unknown_draft(uri: object) -> str:
    """The sentence for a `$schema` that is none of the drafts."""
    return f"names {shown(uri)}: this daemon knows the drafts 7, 2019-09 and 2020-12 and fetches no other"
