"""Which handoff a claim by kinds gets.

Owns the order: priority 9 first; within one, orphaned before pending; then the oldest. Holds what is claimable now, and
nothing else. Pure.
"""

from collections.abc import Callable, Iterable

from .facts import ORPHANED, PENDING, Handoff
from .positions import Positions


class ClaimQueue:
    def __init__(self, get: Callable[[str], Handoff | None]) -> None:
        """`get` gives a handoff's present facts."""
        self._get = get
        self._kinds: dict[str, dict[int, Positions[str]]] = {}
        """By kind and rank: the handoffs by their numbers. None is empty."""

    def holds(self, handoff: Handoff) -> bool:
        """Whether it is in the queue, in the place that these facts give it."""
        if handoff.status != PENDING and handoff.status != ORPHANED:
            return False
        places = self._kinds.get(handoff.kind, {}).get(_rank(handoff))
        return places is not None and handoff.number in places

    def add(self, handoff: Handoff) -> None:
        """It is claimable from now on; it wasn't."""
        ranks = self._kinds.get(handoff.kind)
        if ranks is None:
            ranks = self._kinds[handoff.kind] = {}
        places = ranks.get(rank := _rank(handoff))
        if places is None:
            places = ranks[rank] = Positions()
        places.add(handoff.number, handoff.id)

    def add_all(self, handoffs: Iterable[Handoff]) -> None:
        """As `add` of each, and quicker for many in the order of their numbers."""
        places: dict[tuple[str, int], tuple[list[int], list[str]]] = {}
        for handoff in handoffs:
            place = handoff.kind, _rank(handoff)
            here = places.get(place)
            if here is None:
                here = places[place] = [], []
            here[0].append(handoff.number)
            here[1].append(handoff.id)
        for (kind, rank), (numbers, names) in places.items():
            self._kinds.setdefault(kind, {}).setdefault(rank, Positions()).add_all(numbers, names)

    def remove(self, handoff: Handoff) -> None:
        """It is not claimable any more, as it was with these facts."""
        ranks = self._kinds.get(handoff.kind, {})
        places = ranks.get(rank := _rank(handoff))
        if places is not None:
            places.discard(handoff.number)
            if not places:
                del ranks[rank]
                if not ranks:
                    del self._kinds[handoff.kind]

    def first(self, kinds: Iterable[str]) -> Handoff | None:
        """The one to take next among `kinds`; it stays in the queue until it is removed."""
        best: tuple[int, tuple[int, str]] | None = None
        for kind in kinds:
            ranks = self._kinds.get(kind)
            if ranks is not None:
                rank = min(ranks)
                found = rank, ranks[rank].first()
                if best is None or found < best:
                    best = found
        return None if best is None else self._get(best[1][1])


def _rank(handoff: Handoff) -> int:
    """What comes before the age, the lowest first."""
    return (handoff.status != ORPHANED) - 2 * handoff.priority


def order(handoff: Handoff) -> tuple[int, int]:
    """Sorts claimable handoffs: the first is to be taken first."""
    return _rank(handoff), handoff.number
