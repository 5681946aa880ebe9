"""Ways through a schema that come back to where they began without going down into the value.

Owns that there is none, and that none is too long: so judging ends, and needs no more stack than there is. Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from .nodes import Node
from .references import Place

MAX_IN_TURN = 200
"""So many subschemas may be asked about one value, each by the one before."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class Asked(NamedTuple):
    """Where a node stands, and the nodes that it asks about its own value, each with the place that says so."""

    place: Place
    nodes: list[tuple[Node, Place]]


class _Step:
    """A node on the path, and which of those that it asks comes next."""

    __slots__ = ("asked", "at", "node")

    def __init__(self, node: Node, asked: list[tuple[Node, Place]]) -> None:
        self.node = node
        self.asked = asked
        self.at = 0


def refuse_loops(asked: Mapping[Node, Asked]) -> None:
    """Raises `SchemaInvalid` where a node is asked about a value by being asked about it, or by too many others in turn."""
    length: dict[Node, int] = {}
    for start in asked:
        path = [] if start in length else [_Step(start, asked[start].nodes)]
        on_path = {start}
        while path:
            step = path[-1]
            if step.at < len(step.asked):
                node, _ = step.asked[step.at]
                if node in on_path:
                    _refuse_loop(path, node)
                step.at += 1
                if node in asked and node not in length:
                    on_path.add(node)
                    path.append(_Step(node, asked[node].nodes))
                continue
            path.pop()
            on_path.discard(step.node)
            length[step.node] = 1 + max((length.get(node, 1) for node, _ in step.asked), default=0)
            if length[step.node] > MAX_IN_TURN:
                clause = f"is passed: more than {MAX_IN_TURN} subschemas are asked about one value in turn"
                asked[step.node].place.refuse("limit", clause)


def _refuse_loop(path: list[_Step], again: Node) -> NoReturn:
    start = next(index for index, step in enumerate(path) if step.node is again)
    places = [step.asked[step.at - (step is not path[-1])][1] for step in path[start:]]
    place = next(place for place in places if place.step in _REFERENCES)
    place.refuse(str(place.step), "leads back to itself and consumes nothing on the way")
