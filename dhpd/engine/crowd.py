"""A crowd: a line of lines, one for each connection; whoever has the lowest number of all comes first.

Owns the order. Joining, leaving and asking who is first cost as little as in one line (`line`); and all who came by one
connection leave at a stroke. Pure.
"""

import heapq
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from .line import Line


class Companion(Protocol):
    number: int
    """Its place, as in a `Line`."""

    @property
    def connection(self) -> int:
        """With whom it came."""


C = TypeVar("C", bound=Companion)


class Crowd(Generic[C]):
    def __init__(self) -> None:
        self._lines: dict[int, Line[C]] = {}
        # A heap: of each line one entry at least that isn't above its first number. Whatever isn't so is put right in `first`.
        self._fronts: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __iter__(self) -> Iterator[C]:
        """All of them, the first one first; the crowd may change meanwhile."""
        return iter(sorted((one for line in self._lines.values() for one in line), key=lambda one: one.number))

    def add(self, one: C) -> None:
        """Stands in the crowd from now on, at its place."""
        line = self._lines.get(one.connection)
        if line is None:
            line = self._lines[one.connection] = Line()
        line.add(one)
        if line.first() is one:
            heapq.heappush(self._fronts, (one.number, one.connection))
            if len(self._fronts) > 64 and len(self._fronts) > 4 * len(self._lines):
                self._line_up()

    def remove(self, one: C) -> None:
        """Leaves the crowd, if it stands there."""
        line = self._lines.get(one.connection)
        if line is not None and line.remove(one) and not line:
            del self._lines[one.connection]

    def leave(self, connection: int) -> None:
        """All who came by this connection leave."""
        self._lines.pop(connection, None)

    def first(self) -> C | None:
        """Who comes first; they stay in the crowd until they are removed."""
        fronts = self._fronts
        while fronts:
            number, connection = fronts[0]
            line = self._lines.get(connection)
            first = None if line is None else line.first()
            if first is not None and first.number == number:
                return first
            heapq.heappop(fronts)
            if first is not None and first.number > number:
                heapq.heappush(fronts, (first.number, connection))
        return None

    def _line_up(self) -> None:
        firsts = ((line.first(), connection) for connection, line in self._lines.items())
        self._fronts = [(first.number, connection) for first, connection in firsts if first is not None]
        heapq.heapify(self._fronts)
