"""Whose turn it is: of those who wait, whoever has used the least processor time lately.

Owns how much each has used and has waiting, and the order of what waits. Does not own what a turn is (`queueing`). Pure: time
is an argument.
"""

import heapq
import math
from collections import Counter
from typing import Generic, Protocol, TypeVar

from dhpd.engine.roles import Caller

Asker = int | str
"""Who asks: a token's name; where no token is in use, a connection's number."""


def asker_of(connection: int, caller: Caller) -> Asker:
    """Whose use it is: opening more connections gets nobody more where tokens are in use."""
    return connection if caller.token is None else caller.token


HALF_LIFE_S = 30.0
"""What was used so long ago counts half."""
FORGOTTEN_AFTER_S = 20 * HALF_LIFE_S


class Uses:
    """The processor time that each has used lately, in seconds."""

    def __init__(self) -> None:
        self._uses: dict[Asker, tuple[float, float]] = {}  # What had been used, and when; the oldest first.

    def of(self, asker: Asker, now_s: float) -> float:
        used_s, at_s = self._uses.get(asker, (0.0, now_s))
        return used_s * math.exp2((at_s - now_s) / HALF_LIFE_S)

    def add(self, asker: Asker, used_s: float, now_s: float) -> None:
        """It has used so much more."""
        total_s = self.of(asker, now_s) + used_s
        self._uses.pop(asker, None)
        self._uses[asker] = (total_s, now_s)
        while self._uses[oldest := next(iter(self._uses))][1] + FORGOTTEN_AFTER_S < now_s:
            del self._uses[oldest]


class Room:
    """How many bytes of each asker's wait, and of all together."""

    def __init__(self) -> None:
        self.taken = 0
        self._taken_by: Counter[Asker] = Counter()

    def of(self, asker: Asker) -> int:
        return self._taken_by[asker]

    def take(self, asker: Asker, size: int) -> None:
        self.taken += size
        self._taken_by[asker] += size

    def give_back(self, asker: Asker, size: int) -> None:
        self.taken -= size
        self._taken_by[asker] -= size
        if not self._taken_by[asker]:
            del self._taken_by[asker]

    def fullest(self) -> Asker:
        """Who has the most waiting."""
        return max(self._taken_by, key=self._taken_by.__getitem__)


class Waits(Protocol):
    """`number` is another one for each, in the order of arrival; `size` is in bytes."""

    asker: Asker
    size: int
    number: int


T = TypeVar("T", bound=Waits)


class Turns(Generic[T]):
    """What waits: whose asker has used the least comes first, then what is small, then what came early."""

    def __init__(self, uses: Uses, room: Room) -> None:
        self._uses = uses
        self._room = room
        self._lines: dict[Asker, list[tuple[int, int, T]]] = {}

    def add(self, item: T) -> None:
        heapq.heappush(self._lines.setdefault(item.asker, []), (item.size, item.number, item))
        self._room.take(item.asker, item.size)

    def next(self, now_s: float) -> T | None:
        """Takes out what comes first; None: nothing waits."""
        if not self._lines:
            return None
        asker = min(self._lines, key=lambda each: (self._uses.of(each, now_s), *self._lines[each][0][:2]))
        _, _, item = heapq.heappop(self._lines[asker])
        self._left(item)
        return item

    def last(self, asker: Asker) -> T | None:
        """What of this asker's would come last; None: nothing of it waits here."""
        line = self._lines.get(asker)
        return None if line is None else max(line)[2]

    def remove(self, item: T) -> bool:
        """It waits no more; tells whether it did."""
        line = self._lines.get(item.asker, [])
        entry = (item.size, item.number, item)
        if entry not in line:
            return False
        line.remove(entry)
        heapq.heapify(line)
        self._left(item)
        return True

    def _left(self, item: T) -> None:
        if not self._lines[item.asker]:
            del self._lines[item.asker]
        self._room.give_back(item.asker, item.size)
