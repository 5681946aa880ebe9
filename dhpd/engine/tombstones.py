"""What was forgotten lately: so that nothing brings it back, and nobody is told too early that it is gone.

Owns up to which position a handoff's records are void. Until the record that forgets it is on disk, its absence is something
that a crash could take back; and facts that were read before that are of something that is no more. Pure.
"""

from collections import OrderedDict

MAX_TOMBSTONES = 4_096


class Tombstones:
    def __init__(self) -> None:
        self._positions: OrderedDict[str, int] = OrderedDict()
        self._dropped = 0
        """Handoffs that aren't named any more were forgotten at this position at the latest."""

    def add(self, handoff: str, position: int, durable: int) -> None:
        """It is forgotten by the record at `position`; what has been on disk for long needn't be named any more."""
        self._positions[handoff] = position
        self._positions.move_to_end(handoff)
        while len(self._positions) > MAX_TOMBSTONES and next(iter(self._positions.values())) <= durable:
            self._dropped = max(self._dropped, self._positions.popitem(last=False)[1])

    def position_of(self, handoff: str) -> int:
        """The record that forgot it (0: none that would still matter)."""
        return self._positions.get(handoff, 0)

    def outdated(self, handoff: str, read_after: int) -> bool:
        """Whether facts of it, read when the disk was at `read_after`, may be of what has been forgotten since."""
        return read_after < self._positions.get(handoff, self._dropped)

    def rolled_back(self, durable: int) -> None:
        """Nothing after `durable` has happened."""
        for handoff, position in self._positions.items():
            self._positions[handoff] = min(position, durable)
