"""What goes wrong in a world, and how often.

Owns the kinds of faults, and the one source that says which of them strike. Each kind has a stream of chance of its own, and
each opportunity its number in it: so a fault has a name (`crash.3`: at the third chance for a crash), it can be left out
(`only`) without changing what chance says of the others, and a world in which some are left out replays exactly. Does not
own what a fault does: that is its place's.
"""

import random
from collections.abc import Collection

import msgspec


class Dice(random.Random):
    """A stream of chance. Each party of a world has one, so that one who does less changes nothing about another's luck."""

    def chance(self, percent: float) -> bool:
        return self.random() * 100 < percent

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How often, of a hundred chances, each thing goes wrong.

    Messages: `cut` loses a request with its connection, `reset` with all that is on the way besides, `reply_cut` a reply or
    event with its connection; `late` holds one up, and what comes behind it; `doubled` sends a request twice; with
    `half_open` a client comes back over a new connection and says all again, while what it said over the old one is still
    on its way, and the old one isn't known to be over.
    The disk: a commit fails, and is on it all the same or isn't; what it holds of one handoff can't be stored; it fails again
    when it is asked what it has kept, and it stays away for long (`outage`); it fills up, and is full for a while.
    Crashes of the daemon: at any moment; around a commit before or after its append; between two answers of one batch; when
    the store is asked what it has kept, before and after; at a start, before or after its first commit; between two ends of a tick.
    Parties: each may be paused, workers die, or renew their lease too late. From outside: what people do at any moment.
    """

    cut: float = 1.0
    reset: float = 0.3
    reply_cut: float = 0.5
    late: float = 0.6
    doubled: float = 3.0
    half_open: float = 0.5
    commit_fails: float = 4.0
    commit_fails_but_kept: float = 3.0
    poison: float = 2.0
    settle_fails: float = 40.0
    outage: float = 12.0
    disk_fills: float = 0.7
    crash: float = 5.0
    crash_before_append: float = 0.7
    crash_after_append: float = 0.7
    crash_between_answers: float = 0.3
    crash_in_settle: float = 5.0
    crash_at_start: float = 5.0
    crash_in_tick: float = 0.3
    daemon_pause: float = 12.0
    late_tick: float = 0.3
    worker_pause: float = 3.0
    worker_death: float = 2.0
    lazy_beat: float = 4.0
    keeper_pause: float = 4.0
    wall_clock_step: float = 4.0
    drain: float = 2.0
    cancel: float = 4.0
    suspend: float = 6.0
    export: float = 4.0


KINDS = tuple(Faults.__struct_fields__)
NO_FAULTS = Faults(**dict.fromkeys(KINDS, 0.0))
OFTEN = Faults(
    **{kind: min(50.0, 3 * getattr(Faults(), kind)) for kind in KINDS if kind not in ("crash", "settle_fails", "drain")}
)
"""For short worlds: so that much goes wrong in little time."""


class Striking:
    """Says of each chance whether the fault strikes. `only`: those with these names, and no others.

    `struck` names those that did, in order; nothing strikes any more once `over` is set.
    """

    def __init__(self, seed: int, faults: Faults, only: Collection[str] | None = None) -> None:
        self.struck: list[str] = []
        self.over = False
        self._seed = seed
        self._percents = {kind: getattr(faults, kind) for kind in KINDS}
        self._only = None if only is None else frozenset(only)
        self._streams = {kind: Dice(f"{seed} {kind}") for kind in KINDS} if only is None else {}
        self._chances = dict.fromkeys(KINDS, 0)

    def strikes(self, kind: str) -> Dice | None:
        """The fault's own source of chance, if it strikes; None if it doesn't."""
        if self.over:
            return None
        number = self._chances[kind] = self._chances[kind] + 1
        if self._only is None:
            if self._streams[kind].random() * 100 >= self._percents[kind]:
                return None
        elif f"{kind}.{number}" not in self._only:
            return None
        name = f"{kind}.{number}"
        self.struck.append(name)
        return Dice(f"{self._seed} {name}")
