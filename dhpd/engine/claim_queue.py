"""Which handoff a claim by kinds gets.

Owns the order: priority 9 first; within one, orphaned before pending; then the oldest. Holds only what is claimable now,
and that lazily: an entry that is no longer true is skipped when it comes up. Pure.
"""

import heapq
from collections.abc import Callable, Iterable

from .facts import ORPHANED, Handoff

_Entry = tuple[int, bool, int, str]


class ClaimQueue:
    def __init__(self, get: Callable[[str], Handoff | None]) -> None:
        """`get` gives a handoff's present facts, against which entries are checked."""
        self._get = get
        self._heaps: dict[str, list[_Entry]] = {}
        self._claimable: dict[str, set[str]] = {}

    def holds(self, handoff: Handoff) -> bool:
        """Whether it is in the queue."""
        return handoff.id in self._claimable.get(handoff.kind, ())

    def add(self, handoff: Handoff) -> None:
        """It is claimable from now on."""
        claimable = self._claimable.setdefault(handoff.kind, set())
        claimable.add(handoff.id)
        heap = self._heaps.setdefault(handoff.kind, [])
        heapq.heappush(heap, order(handoff))
        if len(heap) > 64 and len(heap) > 4 * len(claimable):
            self._rebuild(handoff.kind)

    def remove(self, handoff: Handoff) -> None:
        """It is not claimable any more."""
        claimable = self._claimable.get(handoff.kind)
        if claimable is not None:
            claimable.discard(handoff.id)
            if not claimable:
                del self._claimable[handoff.kind], self._heaps[handoff.kind]

    def first(self, kinds: Iterable[str]) -> Handoff | None:
        """The one to take next among `kinds`; it stays in the queue until it is removed."""
        best: tuple[_Entry, Handoff] | None = None
        for kind in kinds:
            found = self._first_of(kind)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best[1] if best is not None else None

    def _first_of(self, kind: str) -> tuple[_Entry, Handoff] | None:
        heap = self._heaps.get(kind)
        claimable = self._claimable.get(kind, set())
        while heap:
            entry = heap[0]
            handoff = self._get(entry[3]) if entry[3] in claimable else None
            if handoff is not None and order(handoff) == entry:
                return entry, handoff
            heapq.heappop(heap)
        return None

    def _rebuild(self, kind: str) -> None:
        present = (self._get(handoff) for handoff in self._claimable[kind])
        self._heaps[kind] = [order(handoff) for handoff in present if handoff is not None]
        heapq.heapify(self._heaps[kind])


def order(handoff: Handoff) -> _Entry:
    """Sorts claimable handoffs: the first is to be taken first."""
    return (-handoff.priority, handoff.status != ORPHANED, handoff.number, handoff.id)
