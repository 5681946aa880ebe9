"""What time brings, judged from outside: neither early nor late.

Owns how soon after its moment a thing has to come, and that no lease and no stall's clock ends before its time.
"""

from typing import Any

from .contract_checks import ContractChecks
from .stories import FINAL, Story
from .violations import require
from .world import World

PROMPT_MS = 250
"""What time brings happens so soon after its moment, on a daemon that nothing disturbs."""
PROMPT_AFTER_DISTURBANCE_MS = 1_300
"""The wall clock is looked at every second."""
STOOD_MS = 250
"""While a tick does its work the lease clock stands; so much of that isn't made up for."""

LEAST_GRACE_MS = 250
"""So long at least a session that is gone may come back."""

MOVES = ("claimed", "checkpointed", "effect_begun", "effect_done", "approval_requested")
"""The stall clock begins anew with these."""


class ClockChecks(ContractChecks):
    """`held_up_ms` is when the daemon was last paused, late, or without its store, or the wall clock was set; `behind_ms` is by
    how much at most its lease clock was behind when a request was carried out, which a lease that it renewed may lose.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.interrupted_ms: dict[str, int] = {}
        self.first_interrupted_ms: dict[str, int] = {}
        self.restarted_ms = 0
        self.held_up_ms = 0
        self.behind_ms: dict[str, int] = {}
        self.renewals: dict[tuple[str, int], tuple[int, int, str]] = {}
        self.moved: dict[tuple[str, int], int] = {}
        self._decided: dict[int, tuple[int, int, int]] = {}
        self._calm_since = (0, 0)

    def disturbed(self) -> None:
        """The daemon was away, or the wall clock was set: what was due meanwhile comes late."""
        self.held_up_ms = self.world.now_ms
        self.begins_anew()

    def begins_anew(self) -> None:
        """What is due comes late from here on for a moment."""
        self._calm_since = (self.world.now_ms, self.world.wall_ms)

    def interrupted(self, session: str) -> None:
        """The session lost a connection: its leases may end by the disconnect grace."""
        self.interrupted_ms[session] = self.world.now_ms
        self.first_interrupted_ms.setdefault(session, self.world.now_ms)

    def note_decided(self, position: int) -> None:
        """This record has just been decided, whatever becomes of it."""
        self._decided[position] = (self.world.now_ms, self.world.wall_ms, self._calm_since[1])

    def overdue(self) -> None:
        """What is due by the wall clock has happened, in a world that has been quiet for a while."""
        quiet = self.world.now_ms - self._calm_since[0] > 2 * PROMPT_AFTER_DISTURBANCE_MS
        for story in self.stories.values() if quiet else ():
            for due_ms in story.dues() if story.status not in FINAL else ():
                late_ms = self.world.wall_ms - due_ms
                require(late_ms < PROMPT_AFTER_DISTURBANCE_MS, f"{story.last} is overdue by {late_ms} ms")

    def check_time(self, story: Story, position: int, record: dict[str, Any]) -> None:
        """The record comes neither late nor early."""
        if record["type"] in MOVES:
            key = (story.handoff, record["fence"])
            self.moved[key] = max(self.moved.get(key, 0), self._moment_of(position, record))
        self._check_promptness(story, position, record)
        if record["type"] == "orphaned":
            self._check_not_early(story, position, record)

    def _check_promptness(self, story: Story, position: int, record: dict[str, Any]) -> None:
        """What time brings comes at its moment, and not when somebody looks next."""
        due_ms = story.due_of(record)
        if due_ms is not None:
            allowed_ms = max(due_ms + PROMPT_MS, self._decided[position][2] + PROMPT_AFTER_DISTURBANCE_MS)
            late_ms = record["at_ms"] - due_ms
            require(record["at_ms"] <= allowed_ms, f"{record['type']} came {late_ms} ms after its moment")

    def _moment_of(self, position: int, record: dict[str, Any]) -> int:
        """When the record was decided: a tick takes some time, in which the clocks stand for it."""
        now_ms, wall_ms, _ = self._decided[position]
        stood_ms = wall_ms - int(record["at_ms"])
        return now_ms - stood_ms if 0 <= stood_ms <= PROMPT_MS else now_ms

    def _check_not_early(self, story: Story, position: int, record: dict[str, Any]) -> None:
        """A lease that was renewed lives for its ttl, unless its session or the daemon went away meanwhile."""
        at_ms = self._moment_of(position, record)
        if record["why"] == "stalled":
            moved_ms = self.moved.get((story.handoff, story.fence), 0)
            stall_ms = story.budget.get("stall_ms")
            stood = stall_ms is not None and at_ms + STOOD_MS >= moved_ms + stall_ms
            require(stood or "max_repeats" in story.budget, f"stalled {at_ms - moved_ms} ms after something new")
            return
        sent_ms, lasts_ms, session = self.renewals.get((story.handoff, story.fence), (0, 0, ""))
        away_ms = 0 if story.detached else self.interrupted_ms.get(session, 0)
        if self.restarted_ms < sent_ms and at_ms < sent_ms + lasts_ms:
            require(away_ms >= sent_ms, f"orphaned {at_ms - sent_ms} ms after a renewal was sent, of {lasts_ms}")
            away_for_ms = at_ms - self.first_interrupted_ms[session]
            require(away_for_ms >= LEAST_GRACE_MS, f"orphaned {away_for_ms} ms after its session's first absence")
