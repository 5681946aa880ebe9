"""Equal parts of many handoffs, kept in memory once.

Owns which parts those are: most work is of few kinds and budgets, and a worker holds much of it. Facts that were read anew,
from the wire or from the disk, bring copies of their own. A part that is shared is equal to the one that it stands for,
so nobody can tell but by the memory. Pure.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import force_setattr

from .facts import Handoff, Hold

MAX_SHARED = 8_192
"""So many parts are known at a time; names that are all different would fill the memory else."""


class SharedParts:
    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def in_new(self, several: Iterable[Handoff]) -> None:
        """Nobody else has these facts yet, which are the first of their handoffs in memory."""
        known = self._known
        one = known.setdefault
        for facts in several:
            kind, budget, labels, hold, newest = facts.kind, facts.budget, facts.labels, facts.hold, facts.checkpoint
            force_setattr(facts, "kind", one(kind, kind))
            force_setattr(facts, "budget", one(budget, budget))
            if labels is not None:
                force_setattr(facts, "labels", one(tuple(labels.items()), labels))
            if hold is not None:
                self.in_hold(hold)
                if hold.claimed_at_ms == facts.first_claimed_at_ms:
                    force_setattr(hold, "claimed_at_ms", facts.first_claimed_at_ms)
            if newest is not None and newest.position == facts.position:
                force_setattr(newest, "position", facts.position)
                if newest.at_ms == facts.updated_at_ms:
                    force_setattr(newest, "at_ms", facts.updated_at_ms)
            if len(known) > MAX_SHARED:
                known.clear()

    def in_hold(self, hold: Hold) -> None:
        """Nobody else has this hold yet."""
        one = self._known.setdefault
        force_setattr(hold, "worker", one(hold.worker, hold.worker))
        force_setattr(hold, "session", one(hold.session, hold.session))
        force_setattr(hold, "ttl_ms", one(hold.ttl_ms, hold.ttl_ms))
        if len(self._known) > MAX_SHARED:
            self._known.clear()
