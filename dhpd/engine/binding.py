"""Which handoffs' records of one commit stand and fall together.

Owns one rule: what is used up is one change of a handoff and of all its ancestors, and a refusal at an ancestor's cap rests
on what that has used. So where one of them alone can't be stored, the others aren't either (invariant 6). Pure.
"""

from collections.abc import Iterable, Sequence

from .records import Dead, Entry, Spent


def bound_to(handoffs: frozenset[str], entries: Iterable[Entry]) -> frozenset[str]:
    """`handoffs`, and all those that these entries bind to them."""
    bound = set(handoffs)
    for group in groups(list(entries)):
        names = {entry.handoff for entry in group}
        if not bound.isdisjoint(names):
            bound |= names
    return frozenset(bound)


def groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The entries, apart by what stands and falls alone; each group in the order of its entries."""
    leaders = {entry.handoff: entry.handoff for entry in entries}

    def leader(handoff: str) -> str:
        while leaders[handoff] != handoff:
            leaders[handoff] = leaders[leaders[handoff]]
            handoff = leaders[handoff]
        return handoff

    for entry in entries:
        other = _bound_with(entry)
        if other in leaders:
            leaders[leader(entry.handoff)] = leader(other)
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(leader(entry.handoff), []).append(entry)
    return list(found.values())


def _bound_with(entry: Entry) -> str | None:
    """The handoff whose records this one goes with."""
    match entry.record:
        case Spent(by=by):
            return by
        case Dead(whose=whose):
            return whose
    return None
