"""Where things are in a schema: its places, its resources, and what a reference points at.

Owns `$id`, `$anchor`, their kin, and the resolving of references within one document. Nothing is fetched: a reference to
anything that isn't in the document is refused. Pure.
"""

from collections.abc import Iterator
from typing import Any, NoReturn
from urllib.parse import unquote, urljoin, urlsplit

from dhp_protocol.errors import SchemaInvalid

from .drafts import Draft
from .values import pointer, shown

MAX_SUBSCHEMAS = 20_000


class Place:
    """A place in the schema. Linked to the one above, so that it costs the same however deep it is."""

    __slots__ = ("above", "step")

    def __init__(self, above: "Place | None" = None, step: str | int = "") -> None:
        self.above = above
        self.step = step

    def below(self, *steps: str | int) -> "Place":
        place = self
        for step in steps:
            place = Place(place, step)
        return place

    @property
    def pointer(self) -> str:
        steps = []
        place = self
        while place.above is not None:
            steps.append(place.step)
            place = place.above
        return pointer(reversed(steps))

    def refuse(self, rule: str, clause: str) -> NoReturn:
        """Raises `SchemaInvalid`: at this place, `rule` (as a keyword, below it) `clause`."""
        path = self.pointer
        where = f" at {path}" if path else ""
        raise SchemaInvalid(f"The output schema can't be enforced{where}: {rule} {clause}.", path=path, rule=rule)


class Resource:
    """A schema with a name of its own: the document, or a part of it that has an `$id`."""

    __slots__ = ("anchors", "dynamic", "place", "root", "uri")

    def __init__(self, uri: str, root: Any, place: Place) -> None:
        self.uri = uri
        self.root = root
        self.place = place
        self.anchors: dict[str, Target] = {}
        self.dynamic: dict[str, Target] = {}


class Target:
    """A subschema that something points at."""

    __slots__ = ("place", "resource", "schema")

    def __init__(self, schema: Any, place: Place, resource: Resource) -> None:
        self.schema = schema
        self.place = place
        self.resource = resource


def subschemas(schema: dict[str, Any], draft: Draft, place: Place) -> Iterator[tuple[Any, Place]]:
    """Those right below `schema`, as the keywords of `draft` hold them; what is ill-formed holds none."""
    for keyword, value in schema.items():
        if not isinstance(value, (dict, list)):
            continue
        if keyword in draft.named and isinstance(value, dict):
            for name, member in value.items():
                yield member, place.below(keyword, name)
        elif (keyword in draft.many or keyword == "items") and isinstance(value, list):
            for index, member in enumerate(value):
                yield member, place.below(keyword, index)
        elif keyword in draft.one:
            yield value, place.below(keyword)


class Document:
    """A whole schema, with its resources and every dict in it that is a subschema."""

    def __init__(self, root: Any, draft: Draft, max_subschemas: int = MAX_SUBSCHEMAS) -> None:
        """Raises `SchemaInvalid` for names that are ill-formed or given twice, and for too many subschemas."""
        self.draft = draft
        self.root = root
        self._max_subschemas = max_subschemas
        self.resources: dict[str, Resource] = {}
        self.tracks_evaluation = False
        self.is_dynamic = False
        self._resource_of: dict[int, Resource] = {}  # By `id` of the dict; the document keeps them all alive.
        self.top = Resource("", root, Place())
        if isinstance(root, dict):
            self._walk(root, self.top.place, None)
        self.resources.setdefault("", self.top)

    def resource_of(self, schema: dict[str, Any]) -> Resource | None:
        return self._resource_of.get(id(schema))

    def resolve(self, reference: str, resource: Resource, place: Place, keyword: str) -> Target:
        """What `reference`, under `keyword` at `place`, points at; raises `SchemaInvalid`."""
        uri, _, fragment = _absolute(resource.uri, reference, place, keyword).partition("#")
        found = self.resources.get(uri)
        if found is None:
            place.refuse(
                keyword, f"points to {shown(reference)}: nothing is fetched, put it into $defs and point there"
            )
        fragment = unquote(fragment)
        is_pointer = not fragment or fragment.startswith("/")
        target = self._at(fragment, found) if is_pointer else found.anchors.get(fragment)
        if target is None or not isinstance(target.schema, (dict, bool)):
            place.refuse(keyword, f"points to {shown(reference)}, where there is no schema")
        if isinstance(target.schema, dict) and id(target.schema) not in self._resource_of:
            self._walk_unknown(target, place, keyword)
        return target

    def _at(self, fragment: str, resource: Resource) -> Target | None:
        value, place = resource.root, resource.place
        for escaped_step in fragment.split("/")[1:]:
            step = escaped_step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and step in value:
                value, place = value[step], place.below(step)
            elif isinstance(value, list) and _is_index(step, len(value)):
                value, place = value[int(step)], place.below(int(step))
            else:
                return None
            if isinstance(value, dict):
                resource = self._resource_of.get(id(value), resource)
        return Target(value, place, resource)

    def _walk_unknown(self, target: Target, place: Place, keyword: str) -> None:
        """Takes in a schema that stands where no keyword has one, such as under a word of the user's own."""
        count_before = len(self.resources), sum(len(each.anchors) for each in self.resources.values())
        self._walk(target.schema, target.place, target.resource)
        if count_before != (len(self.resources), sum(len(each.anchors) for each in self.resources.values())):
            place.refuse(keyword, "points to a schema with names of its own outside of $defs: move it into $defs")

    def _walk(self, schema: dict[str, Any], place: Place, resource: Resource | None) -> None:
        waiting: list[tuple[Any, Place, Resource | None]] = [(schema, place, resource)]
        while waiting:
            current, at, inside = waiting.pop()
            if not isinstance(current, dict) or id(current) in self._resource_of:
                continue
            inside = self._take_in(current, at, inside)
            if len(self._resource_of) > self._max_subschemas:
                at.refuse("limit", f"is passed: a schema may have {self._max_subschemas} subschemas")
            below: Iterator[tuple[Any, Place]] = subschemas(current, self.draft, at)
            if _only_reference(current, self.draft):
                below = (pair for name in ("definitions", "$defs") for pair in _held(current.get(name), at.below(name)))
            waiting.extend((member, member_place, inside) for member, member_place in below)

    def _take_in(self, schema: dict[str, Any], place: Place, inside: Resource | None) -> Resource:
        draft = self.draft
        named = "$id" in schema and not (inside is not None and _only_reference(schema, draft))
        name = schema["$id"] if named else ""
        if not isinstance(name, str):
            place.refuse("$id", "is not a string")
        anchors = _anchors(schema, draft, place)
        if draft.name == "draft 7" and name.startswith("#"):
            anchors.append(("$id", name[1:], False))
            name = ""
        if inside is None:
            inside = self.top
            inside.uri = _identifier(name, "", place) if name else ""
            self.resources[inside.uri] = inside
        elif name:
            uri = _identifier(name, inside.uri, place)
            if uri in self.resources:
                place.refuse("$id", f"gives the name {shown(uri)} a second time")
            inside = self.resources[uri] = Resource(uri, schema, place)
        self._resource_of[id(schema)] = inside
        target = Target(schema, place, inside)
        for keyword, anchor, dynamic in anchors:
            if keyword == "$recursiveAnchor" and schema is not inside.root:
                place.refuse(keyword, "belongs beside an $id or at the top")
            if inside.anchors.setdefault(anchor, target) is not target:
                place.refuse(keyword, f"gives the name {shown(anchor)} a second time")
            if dynamic:
                inside.dynamic[anchor] = target
                self.is_dynamic = True
        self.tracks_evaluation |= "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        return inside


def _anchors(schema: dict[str, Any], draft: Draft, place: Place) -> list[tuple[str, str, bool]]:
    """The names that `schema` has within its resource, as (keyword, name, whether it is a dynamic one)."""
    found = []
    if "$anchor" in schema and "$anchor" in draft.words:
        found.append(("$anchor", _anchor_name(schema["$anchor"], "$anchor", place), False))
    if "$dynamicAnchor" in schema and draft.dynamic_anchor == "$dynamicAnchor":
        found.append(("$dynamicAnchor", _anchor_name(schema["$dynamicAnchor"], "$dynamicAnchor", place), True))
    if "$recursiveAnchor" in schema and draft.dynamic_anchor == "$recursiveAnchor":
        if not isinstance(schema["$recursiveAnchor"], bool):
            place.refuse("$recursiveAnchor", "is neither true nor false")
        if schema["$recursiveAnchor"]:
            found.append(("$recursiveAnchor", "", True))
    return found


def _anchor_name(name: Any, keyword: str, place: Place) -> str:
    if not isinstance(name, str) or not name or name.startswith("/") or "#" in name:
        place.refuse(keyword, "is not a name")
    return str(name)


def _only_reference(schema: dict[str, Any], draft: Draft) -> bool:
    """Whether nothing beside its `$ref` counts: so it is in draft 7."""
    return draft.name == "draft 7" and "$ref" in schema


def _held(value: Any, place: Place) -> Iterator[tuple[Any, Place]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield member, place.below(name)


def _identifier(name: str, base: str, place: Place) -> str:
    uri, _, fragment = _absolute(base, name, place, "$id").partition("#")
    if fragment:
        place.refuse("$id", "holds a fragment: write $anchor")
    return uri


def _absolute(base: str, reference: str, place: Place, keyword: str) -> str:
    """`reference` seen from `base` (RFC 3986), also for schemes that have no hierarchy, such as `urn:`."""
    try:
        if reference.startswith("#") or not reference:
            return base.partition("#")[0] + reference
        if urlsplit(reference).scheme:
            return reference
        return urljoin(base, reference)
    except ValueError:
        place.refuse(keyword, f"holds {shown(reference)}, which is no URI")


def _is_index(step: str, length: int) -> bool:
    return (
        step.isascii() and step.isdigit() and (step == "0" or step[0] != "0") and len(step) < 9 and int(step) < length
    )
