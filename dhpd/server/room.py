"""Room: how much all connections together may hold of one thing, such as input, or answers that nobody reads.

Owns the sum, and who gives way where it is used up: whoever has got on the longest ago. So those who only hold what
they have can't keep out those who get on. Does not own what giving way is (`connection`).
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

FREE_BYTES = 16 * 1024
"""So little of each connection isn't counted: its own share, whatever the others hold."""

Holder = TypeVar("Holder", bound=Hashable)


class Room(Generic[Holder]):
    def __init__(self, max_bytes: int, give_way: Callable[[Holder], None]) -> None:
        """`give_way` has a holder let go of all that it holds; whatever it says to `hold` meanwhile counts."""
        self.used_bytes = 0
        self._max_bytes = max_bytes
        self._give_way = give_way
        self._held: OrderedDict[Holder, int] = OrderedDict()  # Who has got on the longest ago stands in front.

    def holders(self) -> list[Holder]:
        """Who holds more than what is everybody's own."""
        return list(self._held)

    def hold(self, holder: Holder, size_bytes: int, *, got_on: bool = True) -> None:
        """The holder has so much at this moment, and has got on since it last said so, or hasn't."""
        size_bytes = size_bytes if size_bytes > FREE_BYTES else 0
        before_bytes = self._held.get(holder, 0)
        if not (size_bytes or before_bytes):
            return
        self.used_bytes += size_bytes - before_bytes
        if not size_bytes:
            del self._held[holder]
            return
        self._held[holder] = size_bytes
        if got_on:
            self._held.move_to_end(holder)
        self._make_room()

    def work(self, change_bytes: int) -> None:
        """So much more (or less) is held by what is under way, which comes to its end and gives way to nobody."""
        self.used_bytes += change_bytes
        if change_bytes > 0:
            self._make_room()

    def _make_room(self) -> None:
        while self.used_bytes > self._max_bytes and self._held:
            holder, size_bytes = self._held.popitem(last=False)
            self.used_bytes -= size_bytes
            self._give_way(holder)
