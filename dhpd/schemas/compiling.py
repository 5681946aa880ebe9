"""From a schema's text to a validator, or to the reason why it can't be enforced.

Owns the order in which keywords are taken, that none is passed over in silence, and that no schema is accepted which asks
about one value without end. Pure.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from dhp_protocol.errors import SchemaInvalid

from .assertions import (
    build_array_sizes,
    build_dependent_required,
    build_number,
    build_object_sizes,
    build_text,
    build_type,
    build_values,
)
from .combinations import (
    build_all,
    build_any,
    build_condition,
    build_dependencies,
    build_dependent_schemas,
    build_not,
    build_one,
)
from .drafts import DRAFT_2020_12, Draft, draft_of, unknown_draft, why_refused
from .faults import Fault, Run
from .loops import Asked, refuse_loops
from .members import build_contains, build_elements, build_members, build_names, build_tags
from .nodes import Node
from .pointing import build_dynamic_reference, build_reference
from .references import MAX_SUBSCHEMAS, Document, Place, Resource, Target
from .sites import Search, Site
from .unevaluated import build_unevaluated
from .values import KINDS, Unreadable, read

Builder = Callable[[Site], None]
CompilePattern = Callable[[str], Search]
"""Raises `ValueError`, whose text is a clause, for a pattern that can't be enforced."""

_BUILDERS: list[tuple[Builder, tuple[str, ...]]] = [
    (build_type, ("type",)),
    (build_values, ("enum", "const")),
    (build_tags, ("properties",)),
    (build_number, ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")),
    (build_text, ("minLength", "maxLength", "pattern")),
    (build_array_sizes, ("minItems", "maxItems", "uniqueItems")),
    (build_object_sizes, ("minProperties", "maxProperties", "required")),
    (build_dependent_required, ("dependentRequired",)),
    (build_reference, ("$ref",)),
    (build_dynamic_reference, ("$dynamicRef", "$recursiveRef")),
    (build_members, ("properties", "patternProperties", "additionalProperties")),
    (build_names, ("propertyNames",)),
    (build_elements, ("prefixItems", "items", "additionalItems")),
    (build_contains, ("contains", "minContains", "maxContains")),
    (build_all, ("allOf",)),
    (build_any, ("anyOf",)),
    (build_one, ("oneOf",)),
    (build_not, ("not",)),
    (build_condition, ("if", "then", "else")),
    (build_dependencies, ("dependencies",)),
    (build_dependent_schemas, ("dependentSchemas",)),
    (build_unevaluated, ("unevaluatedProperties", "unevaluatedItems")),
]
"""In the order of their checks: cheap ones first, those that look at what the others left last."""

_RANKS: dict[str, list[int]] = {}
for _rank, (_, _keywords) in enumerate(_BUILDERS):
    for _keyword in _keywords:
        _RANKS.setdefault(_keyword, []).append(_rank)
_HOLDERS = ("$defs", "definitions")
_NAMES = frozenset(("$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", *_HOLDERS))


class Validator:
    """A schema that can be enforced. `size` is how many subschemas it has."""

    def __init__(self, root: Node, size: int) -> None:
        self.size = size
        self._root = root

    def judge(self, value: Any, steps: int) -> Fault | None:
        """None where `value`, as `values.read` gave it, fits; raises `Exhausted` and `RecursionError`."""
        fault = self._root.judge(value, Run(steps))
        return None if fault is None else fault.named("false")


def compile_schema(text: bytes, compile_pattern: CompilePattern, *, max_subschemas: int = MAX_SUBSCHEMAS) -> Validator:
    """Raises `SchemaInvalid` (details: `path` as JSON Pointer into the schema, `rule`), and what `compile_pattern` raises.

    The rule is a keyword, `json` where the text is no schema at all, or `limit` where it is too large. About 20 us a
    subschema.
    """
    try:
        value = read(text)
    except Unreadable as error:
        raise SchemaInvalid(f"The output schema {error.sentence}.", path="", rule=error.rule) from None
    if not isinstance(value, (dict, bool)):
        raise SchemaInvalid("The output schema is neither an object nor a boolean.", path="", rule="json")
    draft = _draft(value, DRAFT_2020_12, Place())
    return _Compiler(Document(value, draft, max_subschemas), compile_pattern, ambiguous=_is_ambiguous(value)).compile()


def _is_ambiguous(schema: Any) -> bool:
    """Whether it doesn't say its draft and looks like one of draft 7, which reads what stands beside `$ref` otherwise."""
    return isinstance(schema, dict) and "$schema" not in schema and "definitions" in schema and "$defs" not in schema


def _draft(schema: Any, default: Draft, place: Place) -> Draft:
    if not isinstance(schema, dict) or "$schema" not in schema:
        return default
    draft = draft_of(schema["$schema"])
    if draft is None:
        place.below("$schema").refuse("$schema", unknown_draft(schema["$schema"]))
    return draft


class _Compiler:
    """The workshop of one schema. Nodes are made when they are asked for, and filled one after the other."""

    def __init__(self, document: Document, compile_pattern: CompilePattern, *, ambiguous: bool) -> None:
        self._ambiguous = ambiguous
        self.draft = document.draft
        self._document = document
        self._compile_pattern = compile_pattern
        self._nodes: dict[int, Node] = {}  # By `id` of the dict; the document keeps them all alive.
        self._waiting: deque[tuple[Target, Node]] = deque()
        self._always = Node()
        self._asked: dict[Node, Asked] = {}
        self._searches: dict[str, Search] = {}
        self._scoped = document.is_dynamic and len(set(document.resources.values())) > 1

    def compile(self) -> Validator:
        document = self._document
        root = self.node(Target(document.root, document.top.place, document.top))
        while self._waiting:
            target, node = self._waiting.popleft()
            site = Site(self, target, node)
            self._fill(site)
            self._asked[node] = Asked(site.place, site.asked)
        refuse_loops(self._asked)
        return Validator(root, len(self._nodes))

    def node(self, target: Target) -> Node:
        schema = target.schema
        if schema is True:
            return self._always
        if schema is False:
            never = Node()
            never.checks = dict.fromkeys(KINDS, (_never,))
            return never
        node = self._nodes.get(id(schema))
        if node is None:
            resource = self._document.resource_of(schema) or target.resource
            node = self._nodes[id(schema)] = Node()
            node.scope = resource if self._scoped else None
            self._waiting.append((Target(schema, target.place, resource), node))
        return node

    def resolve(self, reference: str, site: Site, keyword: str) -> Target:
        return self._document.resolve(reference, site.resource, site.place.below(keyword), keyword)

    def marked(self, name: str) -> list[tuple[Resource, Target]]:
        resources = dict.fromkeys(self._document.resources.values())
        return [(resource, resource.dynamic[name]) for resource in resources if name in resource.dynamic]

    def search(self, source: str, place: Place, keyword: str) -> Search:
        search = self._searches.get(source)
        if search is None:
            try:
                search = self._searches[source] = self._compile_pattern(source)
            except ValueError as error:
                place.refuse(keyword, str(error))
        return search

    def _fill(self, site: Site) -> None:
        draft = self.draft
        if "$schema" in site.schema and _draft(site.schema, draft, site.place) is not draft:
            site.refuse("$schema", f"is another draft than the whole schema's ({draft.name})")
        ranks: set[int] = set()
        for keyword in site.schema:
            if keyword in draft.words:
                if keyword not in _NAMES:
                    ranks.update(_RANKS[keyword])
            elif clause := why_refused(draft, keyword):
                site.refuse(keyword, clause)
        for holder in _HOLDERS:
            if holder in site.schema:
                site.named_below(holder)
        if "$ref" in site.schema:
            self._refuse_siblings(site)
        for rank in sorted(ranks):
            _BUILDERS[rank][0](site)
        site.finish()

    def _refuse_siblings(self, site: Site) -> None:
        """What stands beside `$ref` and is passed over in draft 7, names apart."""
        for keyword in site.schema:
            constraint = keyword in _RANKS and keyword != "$ref" and keyword in self.draft.words
            if constraint and self.draft.name == "draft 7":
                site.refuse(keyword, "stands beside $ref, where draft 7 passes it over: put the $ref into an allOf")
            if self._ambiguous and (constraint or keyword == "$id") and site.schema is not self._document.root:
                site.refuse(keyword, "stands beside $ref, where some drafts pass it over: say which one with $schema")


def _never(value: Any, run: Run) -> Fault:
    return Fault("", lambda: "isn't allowed to be there")
