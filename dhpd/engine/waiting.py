"""Who waits: for work to claim, for a handoff to end, or for a decision.

Owns the order of arrival, and who comes next when something is freed. Lives outside of what a failed commit undoes: a
waiter whose grant was undone goes back to its place. Pure.
"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, UnsetType

from dhp_protocol.messages import RequestId

from .crowd import Crowd
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

    @property
    def connection(self) -> int:
        """Where it was asked."""
        return self.address.connection


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
        self._by_kind: dict[str, Crowd[ClaimWaiter]] = {}
        self._by_handoff: dict[str, Crowd[ClaimWaiter]] = {}
        self._for_orphan: dict[str, Crowd[ClaimWaiter]] = {}
        self._for_result: dict[str, Line[ResultWaiter]] = {}
        self._for_decision: dict[str, dict[str, Line[ApprovalWaiter]]] = {}  # By handoff, and by approval.
        self._by_connection: dict[int, Line[Waiter]] = {}
        self._by_nonce: dict[tuple[str | None, str, str], ClaimWaiter] = {}
        self._claims = 0
        self._places = 0

    def places(self) -> int:
        """How many places are taken by all that wait: one for each, but by a claim of kinds one for each kind."""
        return self._places

    def claims(self) -> int:
        """How many claims wait."""
        return self._claims

    def add(self, waiter: Waiter) -> None:
        """Takes its place: at the end, or where it was before."""
        if not waiter.number:
            self._number += 1
            waiter.number = self._number
        self._places += _places_of(waiter)
        self._deadlines.add(waiter)
        self._by_connection.setdefault(waiter.connection, Line()).add(waiter)
        if isinstance(waiter, ClaimWaiter):
            for crowds, key in self._crowds_of(waiter):
                crowd = crowds.get(key)
                if crowd is None:
                    crowd = crowds[key] = Crowd()
                crowd.add(waiter)
            self._claims += 1
            if waiter.nonce is not None:
                self._by_nonce[waiter.address.caller.token, waiter.worker, waiter.nonce] = waiter
        else:
            lines, key = self._line_of(waiter)
            lines.setdefault(key, Line()).add(waiter)

    def remove(self, waiter: Waiter, *, gone: bool = False) -> bool:
        """It waits no more; tells whether it did. `gone`: nor does any claim of its connection, which are to be removed as well."""
        if not _leave(self._by_connection, waiter.connection, waiter):
            return False
        self._places -= _places_of(waiter)
        self._deadlines.remove(waiter)
        if not isinstance(waiter, ClaimWaiter):
            lines, key = self._line_of(waiter)
            _leave(lines, key, waiter)
            if isinstance(waiter, ApprovalWaiter) and not lines:
                self._for_decision.pop(waiter.handoff or "")
            return True
        for crowds, name in self._crowds_of(waiter):
            crowd = crowds.get(name)
            if crowd is not None:
                if gone:
                    crowd.leave(waiter.connection)
                else:
                    crowd.remove(waiter)
                if not crowd:
                    del crowds[name]
        self._claims -= 1
        nonce = (waiter.address.caller.token, waiter.worker, waiter.nonce or "")
        if waiter.nonce is not None and self._by_nonce.get(nonce) is waiter:
            del self._by_nonce[nonce]
        return True

    def claim_with_nonce(self, worker: str, nonce: str, token: str | None = None) -> ClaimWaiter | None:
        """The same token's and worker's waiting claim with the same nonce."""
        return self._by_nonce.get((token, worker, nonce))

    def first_claim(
        self, kind: str, handoff: str, *, orphaned: bool, gone: Callable[[int], bool]
    ) -> ClaimWaiter | None:
        """Who came first among those that would take this handoff; whoever asked on a connection that is `gone` is passed over."""
        places = [(self._by_kind, kind), (self._by_handoff, handoff)]
        if orphaned:
            places.append((self._for_orphan, handoff))
        while True:
            firsts = (crowds[key].first() for crowds, key in places if key in crowds)
            first = min((first for first in firsts if first is not None), key=_number, default=None)
            if first is None or not gone(first.connection):
                return first
            for crowds, key in places:
                if (crowd := crowds.get(key)) is not None:
                    crowd.leave(first.connection)
                    if not crowd:
                        del crowds[key]

    def claims_of(self, handoff: str) -> list[ClaimWaiter]:
        """The claims that wait for this handoff by name."""
        return sorted((*self._by_handoff.get(handoff, ()), *self._for_orphan.get(handoff, ())), key=_number)

    def first_for_end(self, handoff: str) -> Waiter | None:
        """One of those who wait for this handoff by name, and for nothing more once it has ended."""
        if (line := self._for_result.get(handoff)) is not None:
            return line.first()
        crowd = self._by_handoff.get(handoff) or self._for_orphan.get(handoff)
        return None if crowd is None else crowd.first()

    def first_for_decision(self, handoff: str, approval: str) -> Waiter | None:
        """One of those who wait for the decision on this approval of the handoff."""
        line = self._for_decision.get(handoff, {}).get(approval)
        return None if line is None else line.first()

    def approvals_awaited(self, handoff: str) -> list[str]:
        """The approvals of this handoff whose decision somebody waits for."""
        return list(self._for_decision.get(handoff, ()))

    def every_claim(self) -> list[ClaimWaiter]:
        """All waiting claims in the order of arrival."""
        waiters = (w for line in self._by_connection.values() for w in line if isinstance(w, ClaimWaiter))
        return sorted(waiters, key=_number)

    def results_of(self, handoff: str) -> list[ResultWaiter]:
        """Who waits for this handoff's end."""
        return list(self._for_result.get(handoff, ()))

    def decisions_of(self, handoff: str) -> list[ApprovalWaiter]:
        """Who waits for the decision on an approval of this handoff."""
        return [waiter for line in self._for_decision.get(handoff, {}).values() for waiter in line]

    def first_of(self, connection: int) -> Waiter | None:
        """What has waited longest on this connection."""
        line = self._by_connection.get(connection)
        return None if line is None else line.first()

    def claims_on(self, connection: int) -> list[ClaimWaiter]:
        """The claims that wait on this connection."""
        return [waiter for waiter in self._by_connection.get(connection, ()) if isinstance(waiter, ClaimWaiter)]

    def connections(self) -> list[int]:
        """Those on which anything waits."""
        return list(self._by_connection)

    def count_of(self, connection: int) -> int:
        """How many requests wait on this connection."""
        return len(self._by_connection.get(connection, ()))

    def awaited(self, handoff: str) -> bool:
        """Whether anybody waits for this handoff by name."""
        waited_for = (self._by_handoff, self._for_orphan, self._for_result, self._for_decision)
        return any(handoff in lines for lines in waited_for)

    def due(self, now_ms: int) -> Iterator[Waiter | None]:
        """Each waiter whose wait is over, once; None: none was found for a while (`Deadlines.due`)."""
        return self._deadlines.due(now_ms)

    def next_ms(self) -> int | None:
        """When to look again."""
        return self._deadlines.next_ms()

    def _line_of(self, waiter: Waiter) -> tuple[dict[str, Any], str]:
        assert waiter.handoff is not None, "only a claim may be of any handoff"
        if isinstance(waiter, ApprovalWaiter):
            return self._for_decision.setdefault(waiter.handoff, {}), waiter.approval
        return self._for_result, waiter.handoff

    def _crowds_of(self, waiter: ClaimWaiter) -> Iterator[tuple[dict[str, Crowd[ClaimWaiter]], str]]:
        if waiter.handoff is not None:
            yield self._for_orphan if waiter.only_orphaned else self._by_handoff, waiter.handoff
        for kind in waiter.kinds:
            yield self._by_kind, kind


def _places_of(waiter: Waiter) -> int:
    return len(waiter.kinds) or 1 if isinstance(waiter, ClaimWaiter) else 1


def _leave(lines: dict[Any, Line[Any]], key: object, waiter: Waiter) -> bool:
    """Leaves a line, which goes with its last; tells whether it stood there."""
    line = lines.get(key)
    if line is None or not line.remove(waiter):
        return False
    if not line:
        del lines[key]
    return True


def _number(waiter: Waiter) -> int:
    return waiter.number
