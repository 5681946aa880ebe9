"""Values by their positions, in order: a sorted map of numbers.

Owns nothing but the order. Adding, taking out and finding a place cost next to nothing among a million, and never more at
once than a chunk takes. What isn't a dict of plain values the garbage collector would walk through time and again, so the
values of a chunk lie in one. Pure.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import lt
from typing import Generic, TypeVar

CHUNK = 512

V = TypeVar("V")


class _Chunk(Generic[V]):
    __slots__ = ("positions", "values")

    def __init__(self, positions: "array[int]", values: dict[int, V]) -> None:
        self.positions = positions  # Sorted.
        self.values = values


class Positions(Generic[V]):
    def __init__(self) -> None:
        self._chunks: list[_Chunk[V]] = []  # None is empty, and all of one come before all of the next.
        self._lasts: list[int] = []  # The last position of each.

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __contains__(self, position: int) -> bool:
        at = bisect_left(self._lasts, position)
        return at < len(self._chunks) and position in self._chunks[at].values

    def add(self, position: int, value: V) -> None:
        """It is one of them from now on; it wasn't."""
        lasts = self._lasts
        if not lasts or position > lasts[-1]:  # The usual case: it comes after all others.
            if not lasts or len(self._chunks[-1].positions) >= CHUNK:
                self._chunks.append(_Chunk(array("q"), {}))
                lasts.append(position)
            chunk = self._chunks[-1]
            chunk.positions.append(position)
            chunk.values[position] = value
            lasts[-1] = position
            return
        at = bisect_left(lasts, position)
        chunk = self._chunks[at]
        chunk.positions.insert(bisect_left(chunk.positions, position), position)
        chunk.values[position] = value
        if len(chunk.positions) > CHUNK:
            self._halve(at)

    def add_all(self, positions: Sequence[int], values: Sequence[V]) -> None:
        """As `add` of each with its value, and quicker where they come in order after all others."""
        if not self._come_after(positions):
            for position, value in zip(positions, values, strict=True):
                self.add(position, value)
            return
        start = 0
        while start < len(positions):
            if not self._lasts or len(self._chunks[-1].positions) >= CHUNK:
                self._chunks.append(_Chunk(array("q"), {}))
                self._lasts.append(0)
            chunk = self._chunks[-1]
            fitting = slice(start, start + CHUNK - len(chunk.positions))
            chunk.positions.extend(positions[fitting])
            chunk.values.update(zip(positions[fitting], values[fitting], strict=True))
            self._lasts[-1] = chunk.positions[-1]
            start = fitting.stop

    def _come_after(self, positions: Sequence[int]) -> bool:
        ascending = all(map(lt, positions, islice(positions, 1, None)))
        return ascending and (not self._lasts or not positions or positions[0] > self._lasts[-1])

    def discard(self, position: int) -> None:
        """It is none of them any more."""
        at = bisect_left(self._lasts, position)
        if at == len(self._chunks) or position not in (chunk := self._chunks[at]).values:
            return
        del chunk.values[position]
        if not chunk.values:
            del self._chunks[at], self._lasts[at]
            return
        del chunk.positions[bisect_left(chunk.positions, position)]
        self._lasts[at] = chunk.positions[-1]

    def first(self) -> tuple[int, V]:
        """The lowest; there is one."""
        chunk = self._chunks[0]
        position = chunk.positions[0]
        return position, chunk.values[position]

    def after(self, position: int) -> Iterator[tuple[int, V]]:
        """Those above `position`, the lowest first; they mustn't change meanwhile."""
        for at in range(bisect_right(self._lasts, position), len(self._chunks)):
            chunk = self._chunks[at]
            for place in range(bisect_right(chunk.positions, position), len(chunk.positions)):
                each = chunk.positions[place]
                yield each, chunk.values[each]

    def _halve(self, at: int) -> None:
        chunk = self._chunks[at]
        halves = (chunk.positions[: CHUNK // 2], chunk.positions[CHUNK // 2 :])
        self._chunks[at : at + 1] = [_Chunk(half, {each: chunk.values[each] for each in half}) for half in halves]
        self._lasts[at : at + 1] = [half[-1] for half in halves]
