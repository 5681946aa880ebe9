"""The simulated daemon's disk: when a batch is taken, what becomes of it, and every point at which a daemon may die around that.

Owns commits, their failures, settling, and what retention removes by itself. Does not own the store (`store_model`).
"""

from typing import Any

from dhpd.engine.journal import Batch
from dhpd.engine.moments import Now
from dhpd.engine.operations import Engine
from dhpd.engine.retention import retention_wall_ms
from dhpd.store.backend import DiskError

from .desk import now_of
from .faults import Dice
from .store_model import ModelStore, Outcome
from .world import World

RETIRED_AT_ONCE = 64
ROOM_AGAIN_MS = 300


class Committing:
    """What `SimulatedDaemon` does with its store. `_head` is where it believes the journal to end."""

    world: World
    store: ModelStore
    engine: Engine
    checks: Any
    dice: Dice
    retention_ms: int | None
    _life: int
    _head: int
    _noted: int
    _started: Now
    _on_its_way: Batch | None

    def _consider_commit(self) -> None:
        if not self.engine.available or self.engine.journal.in_flight or not self.engine.wants_commit(self._now()):
            return
        life, batch = self._life, self.engine.take_batch(self._now())
        if self.world.strikes("crash_before_append"):
            self.crash()
            return
        self._on_its_way = batch
        if self.world.strikes("crash_after_append"):
            self._reach_the_disk()
            self.crash()
            return
        self.world.at(self.dice.between(0, 15), lambda: self._commit(life, batch))

    def _reach_the_disk(self) -> None:
        """What is on the way gets there, and nobody hears of it."""
        if self._on_its_way is not None:
            now_of(self.store.append(self._on_its_way, self._head))
            self._on_its_way = None

    def _commit(self, life: int, batch: Batch) -> None:
        if life != self._life or self._after_pause(lambda: self._commit(life, batch)):
            return
        for outcome, kind in (
            (Outcome.FAILS, "commit_fails"),
            (Outcome.FAILS_BUT_KEPT, "commit_fails_but_kept"),
            (Outcome.POISON, "poison"),
        ):
            if self.world.strikes(kind):
                self.store.outcome = outcome
                break
        if (fault := self.world.strikes("disk_fills")) and not self.store.full:
            self._fill_up(fault)
        self._on_its_way = None
        try:
            appended = now_of(self.store.append(batch, self._head))
        except DiskError:
            self.engine.lost_touch()
            self._deliver()
            outage = self.world.strikes("outage")
            away_ms = self.dice.between(1, 400) if outage is None else outage.between(1_000, 6_000)
            self.world.at(away_ms, lambda: self._settle(life, batch))
            return
        self._head = appended.head
        self.engine.committed(self._now(), appended.failed)
        self._worked()

    def _settle(self, life: int, batch: Batch) -> None:
        if life != self._life or self._after_pause(lambda: self._settle(life, batch)):
            return
        if self.world.strikes("crash_in_settle"):
            self.crash()
            return
        self.store.settle_failures = 1 if self.world.strikes("settle_fails") else 0
        try:
            self._head = now_of(self.store.settle())
        except DiskError:
            self.world.at(self.dice.between(1, 400), lambda: self._settle(life, batch))
            return
        if self.world.strikes("crash_in_settle"):
            self.crash()
            return
        if batch.entries and self._head == batch.entries[-1].position:
            self.engine.committed(self._now())
        else:
            self.engine.rolled_back(self._now())
            self._noted = self.engine.journal.position
        self.checks.disturbed()
        self._tell_of_room()
        self.engine.back_in_touch(self._now())
        self._worked()

    def _fill_up(self, fault: Dice) -> None:
        """This commit finds no room. The ballast is given up for those that follow, until somebody makes some."""
        self.store.outcome = Outcome.FAILS
        self.store.full, self.store.room = True, False
        self.world.at(fault.between(500, 4_000), lambda: setattr(self.store, "room", True))

    def _tell_of_room(self) -> None:
        """The engine hears what the store has found out; a full disk is looked at again and again."""
        if self.store.full and not self.engine.disk_full:
            life = self._life
            self.engine.disk_filled()
            self.world.at(ROOM_AGAIN_MS, lambda: self._look_for_room(life))
        elif self.engine.disk_full and not self.store.full:
            self.engine.disk_has_room(self._now())

    def _look_for_room(self, life: int) -> None:
        if life != self._life or self._after_pause(lambda: self._look_for_room(life)):
            return
        if self.engine.available and not self.engine.journal.in_flight:
            now_of(self.store.find_room())
            self._tell_of_room()
            self._worked()
        if self.store.full or self.engine.disk_full:
            self.world.at(ROOM_AGAIN_MS, lambda: self._look_for_room(life))

    def _crash_at_start(self) -> bool:
        """Whether it dies before its first commit, or after that and before anybody heard."""
        fault = self.world.strikes("crash_at_start")
        if fault is None:
            return False
        if fault.chance(50) and self.engine.wants_commit(self._now()):
            self._on_its_way = self.engine.take_batch(self._now())
            self._reach_the_disk()
        self.crash()
        return True

    def _retire(self, life: int) -> None:
        """What was acknowledged long enough ago goes, once a second."""
        if life != self._life or self._after_pause(lambda: self._retire(life)):
            return
        assert self.retention_ms is not None
        self.world.at(1_000, lambda: self._retire(life))
        if not self.engine.available:
            return
        acked_before_ms = retention_wall_ms(self._started, self._now()) - self.retention_ms
        read_after = self.engine.journal.durable
        for facts in now_of(self.store.acked_before(acked_before_ms, (0, 0), RETIRED_AT_ONCE)):
            self.engine.retire(facts, acked_before_ms, read_after, self._now())
        self._worked()

    # --- the rest of the daemon ---------------------------------------------------------------------------------------

    def crash(self) -> None:
        raise NotImplementedError

    def _now(self) -> Now:
        raise NotImplementedError

    def _after_pause(self, what: Any) -> bool:
        raise NotImplementedError

    def _deliver(self) -> None:
        raise NotImplementedError

    def _worked(self) -> None:
        raise NotImplementedError
