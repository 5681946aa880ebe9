"""Which approvals live work has, in the order in which they were asked for.

Owns that order, of all and of the open ones; `Ledger.put` keeps it in step with the facts, for a change and for its undo
alike. Looking a page up costs as much as the page, however many approvals there are. Pure.
"""

from collections.abc import Iterator

from .facts import ApprovalFacts, Handoff
from .positions import Positions


class ApprovalIndex:
    def __init__(self) -> None:
        # By the position of the details: a handoff, and its approval.
        self._all: Positions[tuple[str, str]] = Positions()
        self._open: Positions[tuple[str, str]] = Positions()

    def update(self, handoff: str, before: Handoff | None, after: Handoff | None) -> None:
        """The handoff's facts were those, and are these; what has ended has no approvals here."""
        had, has = _approvals(before), _approvals(after)
        if had is has:
            return
        for name, approval in had.items():
            if has.get(name) is not approval:
                self._discard(approval)
        for name, approval in has.items():
            if had.get(name) is not approval:
                self._add(handoff, approval)

    def after(self, position: int, *, only_open: bool) -> Iterator[tuple[str, str]]:
        """The approvals asked for after `position`, each by its handoff and its own id; the index mustn't change meanwhile."""
        for _, name in (self._open if only_open else self._all).after(position):
            yield name

    def _add(self, handoff: str, approval: ApprovalFacts) -> None:
        position = approval.details_position
        name = handoff, approval.id
        self._all.add(position, name)
        if approval.decision is None:
            self._open.add(position, name)

    def _discard(self, approval: ApprovalFacts) -> None:
        position = approval.details_position
        self._all.discard(position)
        if approval.decision is None:
            self._open.discard(position)


_NONE: dict[str, ApprovalFacts] = {}


def _approvals(facts: Handoff | None) -> dict[str, ApprovalFacts]:
    return _NONE if facts is None or facts.final or not facts.approvals else facts.approvals
