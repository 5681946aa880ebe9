"""Deadlines, corrected lazily: moving one later costs nothing until it would have come.

Owns the heap. Whatever has a deadline keeps it as `deadline_ms` and may move it later at will, or to None; to an
earlier time only through `add`. Pure.
"""

import heapq
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class HasDeadline(Protocol):
    deadline_ms: int | None
    """When it is due; None: never mind it any more."""
    deadline_entry: int
    """The number of its one valid entry in the heap; kept by `Deadlines`."""


T = TypeVar("T", bound=HasDeadline)


class Deadlines(Generic[T]):
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T]] = []
        self._number = 0

    def add(self, item: T) -> None:
        """Minds `item`'s present deadline from now on."""
        if item.deadline_ms is not None:
            self._number += 1
            item.deadline_entry = self._number
            heapq.heappush(self._heap, (item.deadline_ms, self._number, item))

    def due(self, now_ms: int) -> Iterator[T]:
        """Each item whose deadline is at or before `now_ms`, once; they are no longer minded."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            _, entry, item = heapq.heappop(heap)
            if item.deadline_ms is None or item.deadline_entry != entry:
                continue
            if item.deadline_ms <= now_ms:
                yield item
            else:
                self.add(item)

    def next_ms(self) -> int | None:
        """When to look again: at or before the first deadline."""
        heap = self._heap
        while heap and (heap[0][2].deadline_ms is None or heap[0][2].deadline_entry != heap[0][1]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None
