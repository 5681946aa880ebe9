"""A claim by kinds finds what was dispatched before it on its connection.

Owns which claims stand behind which dispatches. A dispatch may take a while (its intent is named off the loop, or the
store is asked whether it is known); a claim by kinds names no handoff, so it can't line up behind a certain one.
"""

from collections import deque
from itertools import count

from dhp_protocol.messages import Claim
from dhpd.engine.waiting import Address


class ClaimOrder:
    def __init__(self) -> None:
        self._numbers = count(1)
        # By connection: when each dispatch came that is still being prepared. By identity: two may have the same `id`.
        self._undecided: dict[int, dict[int, int]] = {}
        self._held: dict[int, deque[tuple[int, Claim, Address]]] = {}

    def dispatch_came(self, to: Address) -> None:
        """A dispatch begins, to be answered at `to`; `decided` says when it is done."""
        self._undecided.setdefault(to.connection, {})[id(to)] = next(self._numbers)

    def holds_back(self, claim: Claim, to: Address) -> bool:
        """Whether the claim stands behind dispatches: it comes back from `decided` then."""
        if to.connection not in self._undecided:
            return False
        self._held.setdefault(to.connection, deque()).append((next(self._numbers), claim, to))
        return True

    def decided(self, to: Address) -> list[tuple[Claim, Address]]:
        """What was to be answered at `to` has taken effect, or was refused; gives the claims that stood behind it alone."""
        undecided = self._undecided.get(to.connection)
        if undecided is None or undecided.pop(id(to), None) is None:
            return []
        first = next(iter(undecided.values()), None)
        if first is None:
            del self._undecided[to.connection]
        held = self._held.get(to.connection, deque())
        free = []
        while held and (first is None or held[0][0] < first):
            free.append(held.popleft()[1:])
        if not held:
            self._held.pop(to.connection, None)
        return free
