"""Deadlines, corrected lazily: moving one later costs nothing until it would have come.

Owns the heap. Whatever is minded keeps its deadline as `deadline_ms` and may move it later at will; to an earlier time
only through `add`. Entries that count no more are dropped when they come up, or when they are most of the heap. Pure.
"""

import heapq
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class HasDeadline(Protocol):
    deadline_ms: int
    """When it is due."""
    deadline_entry: int
    """The number of its one valid entry in the heap, 0 while it isn't minded; kept by `Deadlines`."""


T = TypeVar("T", bound=HasDeadline)


class Deadlines(Generic[T]):
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T]] = []
        self._number = 0
        self._minded = 0

    def add(self, item: T) -> None:
        """Minds `item`'s present deadline from now on."""
        if not item.deadline_entry:
            self._minded += 1
        self._push(item)
        self._shrink()

    def remove(self, item: T) -> None:
        """Never minds it any more, unless it is added again."""
        if item.deadline_entry:
            item.deadline_entry = 0
            self._minded -= 1
            self._shrink()

    def due(self, now_ms: int) -> Iterator[T]:
        """Each item whose deadline is at or before `now_ms`, once; they are no longer minded."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            _, entry, item = heapq.heappop(heap)
            if item.deadline_entry != entry:
                continue
            if item.deadline_ms > now_ms:
                self._push(item)
                continue
            item.deadline_entry = 0
            self._minded -= 1
            yield item

    def next_ms(self) -> int | None:
        """When to look again: at or before the first deadline."""
        heap = self._heap
        while heap and heap[0][2].deadline_entry != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _push(self, item: T) -> None:
        self._number += 1
        item.deadline_entry = self._number
        heapq.heappush(self._heap, (item.deadline_ms, self._number, item))

    def _shrink(self) -> None:
        heap = self._heap
        if len(heap) > 64 and len(heap) > 4 * self._minded:
            heap[:] = [entry for entry in heap if entry[2].deadline_entry == entry[1]]
            heapq.heapify(heap)
