"""Who waits: for work to claim, or for a handoff to end.

Owns the order of arrival, and who comes next when something is freed. Lives outside of what a failed commit undoes: a
waiter whose grant was undone goes back to its place. Pure.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, UnsetType

from dhp_protocol.messages import RequestId

from .deadlines import Deadlines
from .line import Line
from .roles import ADMIN, Caller


class Address(Struct, frozen=True, gc=False):
    """Where an answer goes: a connection, the request's `id`, and the form of its frame; and who asked."""

    connection: int
    request_id: RequestId | UnsetType
    counted: bool
    caller: Caller = ADMIN


class Waiter:
    """A request that waits until `deadline_ms` (lease time), or until what it waits for has come.

    `handoff` is the one that it waits for (None: any that fits).
    """

    __slots__ = ("address", "deadline_entry", "deadline_ms", "handoff", "number")

    def __init__(self, address: Address, deadline_ms: int, handoff: str | None) -> None:
        self.address = address
        self.handoff = handoff
        self.deadline_ms = deadline_ms
        self.deadline_entry = 0
        self.number = 0


class ClaimWaiter(Waiter):
    """A waiting claim: of one handoff, or of the first of some kinds. `only_orphaned`: of one handoff, once it is orphaned."""

    __slots__ = ("detached", "kinds", "nonce", "only_orphaned", "ttl_ms", "worker")

    def __init__(
        self,
        address: Address,
        deadline_ms: int,
        *,
        worker: str,
        handoff: str | None,
        kinds: tuple[str, ...],
        ttl_ms: int,
        nonce: str | None,
        detached: bool,
        only_orphaned: bool,
    ) -> None:
        super().__init__(address, deadline_ms, handoff)
        self.worker = worker
        self.kinds = kinds
        self.ttl_ms = ttl_ms
        self.nonce = nonce
        self.detached = detached
        self.only_orphaned = only_orphaned


class ResultWaiter(Waiter):
    """A waiting `result`."""

    __slots__ = ()

    def __init__(self, address: Address, deadline_ms: int, handoff: str) -> None:
        super().__init__(address, deadline_ms, handoff)


class ApprovalWaiter(Waiter):
    """A waiting `approval_wait`."""

    __slots__ = ("approval",)

    def __init__(self, address: Address, deadline_ms: int, handoff: str, approval: str) -> None:
        super().__init__(address, deadline_ms, handoff)
        self.approval = approval


class Waiting:
    def __init__(self) -> None:
        self._number = 0
        self._deadlines: Deadlines[Waiter] = Deadlines()
        self._by_kind: dict[str, Line[ClaimWaiter]] = {}
        self._by_handoff: dict[str, Line[ClaimWaiter]] = {}
        self._for_orphan: dict[str, Line[ClaimWaiter]] = {}
        self._for_result: dict[str, Line[ResultWaiter]] = {}
        self._for_decision: dict[str, Line[ApprovalWaiter]] = {}
        self._by_connection: dict[int, Line[Waiter]] = {}
        self._by_nonce: dict[tuple[str | None, str, str], ClaimWaiter] = {}
        self._claims = 0

    def claims(self) -> int:
        """How many claims wait."""
        return self._claims

    def add(self, waiter: Waiter) -> None:
        """Takes its place: at the end, or where it was before."""
        if not waiter.number:
            self._number += 1
            waiter.number = self._number
        self._deadlines.add(waiter)
        for lines, key in self._lines_of(waiter):
            line = lines.get(key)
            if line is None:
                line = lines[key] = Line()
            line.add(waiter)
        if isinstance(waiter, ClaimWaiter):
            self._claims += 1
            if waiter.nonce is not None:
                self._by_nonce[waiter.address.caller.token, waiter.worker, waiter.nonce] = waiter

    def remove(self, waiter: Waiter) -> bool:
        """It waits no more; tells whether it did."""
        found = False
        for lines, key in self._lines_of(waiter):
            line = lines.get(key)
            if line is not None and line.remove(waiter):
                found = True
                if not line:
                    del lines[key]
        self._deadlines.remove(waiter)
        if found and isinstance(waiter, ClaimWaiter):
            self._claims -= 1
            key = (waiter.address.caller.token, waiter.worker, waiter.nonce or "")
            if waiter.nonce is not None and self._by_nonce.get(key) is waiter:
                del self._by_nonce[key]
        return found

    def claim_with_nonce(self, worker: str, nonce: str, token: str | None = None) -> ClaimWaiter | None:
        """The same token's and worker's waiting claim with the same nonce."""
        return self._by_nonce.get((token, worker, nonce))

    def first_claim(self, kind: str, handoff: str, *, orphaned: bool) -> ClaimWaiter | None:
        """Who came first among those that would take this handoff."""
        lines = [self._by_kind.get(kind), self._by_handoff.get(handoff)]
        if orphaned:
            lines.append(self._for_orphan.get(handoff))
        firsts = (line.first() for line in lines if line is not None)
        return min((first for first in firsts if first is not None), key=_number, default=None)

    def claims_of(self, handoff: str) -> list[ClaimWaiter]:
        """The claims that wait for this handoff by name."""
        return sorted((*self._by_handoff.get(handoff, ()), *self._for_orphan.get(handoff, ())), key=_number)

    def every_claim(self) -> list[ClaimWaiter]:
        """All waiting claims in the order of arrival."""
        waiters = (w for line in self._by_connection.values() for w in line if isinstance(w, ClaimWaiter))
        return sorted(waiters, key=_number)

    def results_of(self, handoff: str) -> list[ResultWaiter]:
        """Who waits for this handoff's end."""
        return list(self._for_result.get(handoff, ()))

    def decisions_of(self, handoff: str) -> list[ApprovalWaiter]:
        """Who waits for the decision on an approval of this handoff."""
        return list(self._for_decision.get(handoff, ()))

    def of_connection(self, connection: int) -> list[Waiter]:
        """What waits on this connection."""
        return list(self._by_connection.get(connection, ()))

    def count_of(self, connection: int) -> int:
        """How many requests wait on this connection."""
        return len(self._by_connection.get(connection, ()))

    def awaited(self, handoff: str) -> bool:
        """Whether anybody waits for this handoff by name."""
        waited_for = (self._by_handoff, self._for_orphan, self._for_result, self._for_decision)
        return any(handoff in lines for lines in waited_for)

    def due(self, now_ms: int) -> Iterator[Waiter]:
        """Each waiter whose wait is over, once."""
        return self._deadlines.due(now_ms)

    def next_ms(self) -> int | None:
        """When to look again."""
        return self._deadlines.next_ms()

    def _lines_of(self, waiter: Waiter) -> Iterator[tuple[dict[Any, Line[Any]], object]]:
        yield self._by_connection, waiter.address.connection
        if isinstance(waiter, ApprovalWaiter):
            yield self._for_decision, waiter.handoff
        elif isinstance(waiter, ResultWaiter):
            yield self._for_result, waiter.handoff
        elif isinstance(waiter, ClaimWaiter):
            if waiter.handoff is not None:
                yield self._for_orphan if waiter.only_orphaned else self._by_handoff, waiter.handoff
            for kind in waiter.kinds:
                yield self._by_kind, kind


def _number(waiter: Waiter) -> int:
    return waiter.number
