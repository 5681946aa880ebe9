"""A line: whoever has the lowest number comes first, in whatever order they came to stand in it.

Owns the order, and nothing else. Joining (also far in front, by somebody who comes back), leaving and asking who is
first cost next to nothing, however long the line is. Pure.
"""

import heapq
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Numbered(Protocol):
    number: int
    """Its place: unlike any other's, and always the same while it stands in a line."""


N = TypeVar("N", bound=Numbered)


class Line(Generic[N]):
    def __init__(self) -> None:
        self._waiting: dict[int, N] = {}
        self._numbers: list[int] = []  # A heap; whoever left is skipped when they come up.

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[N]:
        """All of them, the first one first; the line may change meanwhile."""
        return iter([self._waiting[number] for number in sorted(self._waiting)])

    def add(self, one: N) -> None:
        """Stands in the line from now on, at its place."""
        self._waiting[one.number] = one
        heapq.heappush(self._numbers, one.number)
        self._shrink()

    def remove(self, one: N) -> bool:
        """Leaves the line; tells whether it stood there."""
        found = self._waiting.pop(one.number, None) is not None
        self._shrink()
        return found

    def first(self) -> N | None:
        """Who comes first; they stay in the line until they are removed."""
        numbers = self._numbers
        while numbers and numbers[0] not in self._waiting:
            heapq.heappop(numbers)
        return self._waiting[numbers[0]] if numbers else None

    def _shrink(self) -> None:
        if len(self._numbers) > 64 and len(self._numbers) > 4 * len(self._waiting):
            self._numbers = sorted(self._waiting)
