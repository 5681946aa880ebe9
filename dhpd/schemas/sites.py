"""What the builder of a keyword works on: one subschema in the making.

Owns reading keywords' values, refusing ill-formed ones by name, and collecting what the finished node will check. Pure.
"""

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from .drafts import Draft
from .nodes import Check, Mark, Node
from .references import Place, Resource, Target
from .values import KINDS, Kind, shown

Search = Callable[[str], object]
"""Whether a pattern is found in a string."""


class Workshop(Protocol):
    """Where nodes are made."""

    draft: Draft

    def node(self, target: Target) -> Node:
        """The node of that subschema: the same one whenever it is asked for again."""

    def resolve(self, reference: str, site: "Site", keyword: str) -> Target:
        """What a reference at `site` points at."""

    def search(self, source: str, place: Place, keyword: str) -> Search:
        """A pattern, compiled."""

    def marked(self, name: str) -> list[tuple[Resource, Target]]:
        """Where in each resource a dynamic reference of that name may come out."""


class Site:
    """One subschema, an object, that becomes `node`."""

    def __init__(self, workshop: Workshop, target: Target, node: Node) -> None:
        self.schema: dict[str, Any] = target.schema
        self.draft = workshop.draft
        self.place = target.place
        self.resource = target.resource
        self.node = node
        self._workshop = workshop
        self._checks: list[tuple[tuple[Kind, ...], Check]] = []
        self._only: dict[Kind, Check] = {}
        self._marks: list[Mark] = []
        self.asked: list[tuple[Node, Place]] = []
        """The nodes that are asked about the same value, and where the schema says so."""

    # --- what the schema says ----------------------------------------------------------------------------------------

    def get(self, keyword: str) -> Any:
        return self.schema[keyword]

    def count(self, keyword: str) -> int:
        """The value of a keyword that must be a whole number from 0 up."""
        value = self.schema[keyword]
        if type(value) is not int or value < 0:
            self.refuse(keyword, "is no whole number from 0 up")
        return int(value)

    def object(self, keyword: str) -> dict[str, Any]:
        """The value of a keyword that must be an object."""
        value = self.schema[keyword]
        if not isinstance(value, dict):
            self.refuse(keyword, "is no object")
        return dict(value)

    def names(self, keyword: str, value: Any) -> tuple[str, ...]:
        """A list of member names, each once."""
        if not isinstance(value, list) or any(not isinstance(name, str) for name in value):
            self.refuse(keyword, "is no list of member names")
        if len(set(value)) != len(value):
            self.refuse(keyword, "holds a name twice")
        return tuple(value)

    def refuse(self, keyword: str, clause: str) -> NoReturn:
        """Raises `SchemaInvalid`, naming the keyword and where it stands."""
        self.place.below(keyword).refuse(keyword, clause)

    def pointer(self, keyword: str) -> str:
        """Where a keyword stands, for a sentence."""
        return f"the schema at {self.place.below(keyword).pointer[-80:]}"

    # --- other nodes -------------------------------------------------------------------------------------------------

    def below(self, *steps: str | int) -> Node:
        """The node of the subschema at `steps` (a keyword first), which is asked about values inside of this one."""
        schema: Any = self.schema
        for step in steps:
            schema = schema[step]
        place = self.place.below(*steps)
        if not isinstance(schema, (dict, bool)):
            place.refuse(str(steps[0]), f"holds {shown(schema)} where a schema belongs")
        return self._workshop.node(Target(schema, place, self.resource))

    def beside(self, *steps: str | int) -> Node:
        """As `below`, for a subschema that is asked about the same value."""
        node = self.below(*steps)
        self.asked.append((node, self.place.below(*steps)))
        return node

    def named_below(self, keyword: str) -> dict[str, Node]:
        """The nodes of an object of subschemas; empty where the keyword isn't there."""
        return {name: self.below(keyword, name) for name in self.object(keyword)} if keyword in self.schema else {}

    def listed(self, keyword: str, *, beside: bool = False) -> list[Node]:
        """The nodes of a list of subschemas, of one at least."""
        members = self.schema[keyword]
        if not isinstance(members, list) or not members:
            self.refuse(keyword, "is no list of schemas")
        take = self.beside if beside else self.below
        return [take(keyword, index) for index in range(len(members))]

    def target(self, keyword: str) -> Target:
        """What the reference under `keyword` points at."""
        reference = self.schema[keyword]
        if not isinstance(reference, str):
            self.refuse(keyword, "is no string")
        return self._workshop.resolve(reference, self, keyword)

    def pointed(self, target: Target, keyword: str) -> Node:
        """The node that a reference under `keyword` points at; it is asked about the same value."""
        node = self._workshop.node(target)
        node.guarded = True
        self.asked.append((node, self.place.below(keyword)))
        return node

    def marked(self, name: str) -> list[tuple[Resource, Target]]:
        """Where in each resource a dynamic reference of that name may come out."""
        return self._workshop.marked(name)

    def pattern(self, keyword: str, source: Any) -> Search:
        if not isinstance(source, str):
            self.refuse(keyword, "is no string")
        return self._workshop.search(source, self.place.below(keyword), keyword)

    # --- what the node will do ---------------------------------------------------------------------------------------

    def add(self, check: Check, *kinds: Kind) -> None:
        """Checks values of these kinds, after what was added before."""
        self._checks.append((kinds, check))

    def only(self, kind: Kind, check: Check) -> None:
        """Values of this kind get this check and no other."""
        self._only[kind] = check

    def mark(self, mark: Mark) -> None:
        """Says what this keyword has evaluated, once a value fits."""
        self._marks.append(mark)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Those of the keywords so far."""
        return tuple(self._marks)

    def finish(self) -> None:
        """Gives the node all that was collected."""
        if self._checks or self._only:
            checks: dict[Kind, tuple[Check, ...]] = dict.fromkeys(KINDS, ())
            for kinds, check in self._checks:
                for kind in kinds:
                    checks[kind] += (check,)
            alone = {check: (check,) for check in self._only.values()}
            for kind, check in self._only.items():
                checks[kind] = alone[check]
            self.node.checks = checks
        self.node.marks = tuple(self._marks)
