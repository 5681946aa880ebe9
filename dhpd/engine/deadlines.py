"""Deadlines, corrected lazily: moving one later costs nothing until it would have come.

Owns the order. Whatever is minded keeps its deadline as `deadline_ms` and may move it later at will; to an earlier time
only through `add`. What is far off is sorted by the second only, and looked at again when that has come: so a million that
are minded take little room, and one that goes leaves nothing behind. Pure.
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, Protocol, TypeVar

SPAN_MS = 1_024
PASSED_AT_ONCE = 256
"""So many are looked at in a row that turn out not to be due."""


class HasDeadline(Hashable, Protocol):
    deadline_ms: int
    """When it is due."""
    deadline_entry: int
    """Where it is minded: the number of its one valid entry in the heap, or below 0 its span; 0: nowhere. Kept by `Deadlines`."""


T = TypeVar("T", bound=HasDeadline)


class _Span(Generic[T]):
    """What is due in a second that is far off."""

    __slots__ = ("items", "most")

    def __init__(self) -> None:
        self.items: dict[T, None] = {}
        self.most = 0  # That were in this dict, which doesn't shrink by itself.

    def add(self, item: T) -> None:
        self.items[item] = None
        self.most = max(self.most, len(self.items))

    def remove(self, item: T) -> None:
        del self.items[item]
        if self.most > 64 and self.most > 4 * len(self.items):
            self.items = dict(self.items)
            self.most = len(self.items)


class Deadlines(Generic[T]):
    def __init__(self) -> None:
        self._near: list[tuple[int, int, T]] = []  # A heap; an entry that counts no more is dropped when it comes up.
        self._near_until_ms = 0
        self._far: dict[int, _Span[T]] = {}  # What is due from then on, by spans; none is empty.
        self._spans: list[int] = []  # A heap of those; one that is there no more is dropped when it comes up.
        self._coming: list[T] = []  # What is left of the span that came last, the first at the end.
        self._coming_entry = 0
        self._number = 0

    def add(self, item: T) -> None:
        """Minds `item`'s present deadline from now on."""
        self.remove(item)
        self._file(item)

    def remove(self, item: T) -> None:
        """Never minds it any more, unless it is added again."""
        if item.deadline_entry < 0:
            number = -1 - item.deadline_entry
            span = self._far.get(number)
            if span is not None:  # Else it has come, and the item is passed over.
                span.remove(item)
                if not span.items:
                    del self._far[number]
        item.deadline_entry = 0

    def due(self, now_ms: int) -> Iterator[T | None]:
        """Each item whose deadline is at or before `now_ms`, once, the earliest first; they are no longer minded.

        None comes where none was found for a while, of many that had been there or had moved: others may have their turn.
        """
        passed = 0
        while True:
            if self._coming or self._next_span_comes(now_ms):
                self._file_one_coming()
            elif self._near and self._near[0][0] <= now_ms:
                _, entry, item = heapq.heappop(self._near)
                if item.deadline_entry == entry:
                    if item.deadline_ms <= now_ms:
                        item.deadline_entry = 0
                        yield item
                        continue
                    self._file(item)
            else:
                return
            passed += 1
            if passed % PASSED_AT_ONCE == 0:
                yield None

    def next_ms(self) -> int | None:
        """When to look again: at or before the first deadline."""
        near = self._near
        while near and near[0][2].deadline_entry != near[0][1]:
            heapq.heappop(near)
        if self._coming:
            return self._near_until_ms - SPAN_MS
        if near:
            return near[0][0]
        number = self._first_span()
        return None if number is None else number * SPAN_MS

    def _file(self, item: T) -> None:
        if item.deadline_ms < self._near_until_ms:
            self._number += 1
            item.deadline_entry = self._number
            heapq.heappush(self._near, (item.deadline_ms, self._number, item))
            return
        number = item.deadline_ms // SPAN_MS
        span = self._far.get(number)
        if span is None:
            span = self._far[number] = _Span()
            heapq.heappush(self._spans, number)
            if len(self._spans) > 64 and len(self._spans) > 4 * len(self._far):
                self._spans = sorted(self._far)
        span.add(item)
        item.deadline_entry = -1 - number

    def _first_span(self) -> int | None:
        while self._spans and self._spans[0] not in self._far:
            heapq.heappop(self._spans)
        return self._spans[0] if self._spans else None

    def _next_span_comes(self, now_ms: int) -> bool:
        """Whether the first span has come at `now_ms`: then its items are taken to where they belong now."""
        number = self._first_span()
        if number is None or number * SPAN_MS > now_ms:
            return False
        self._coming = list(self._far.pop(number).items)
        self._coming.reverse()
        self._coming_entry = -1 - number
        self._near_until_ms = max(self._near_until_ms, (number + 1) * SPAN_MS)
        return True

    def _file_one_coming(self) -> None:
        item = self._coming.pop()
        if item.deadline_entry == self._coming_entry:
            self._file(item)
