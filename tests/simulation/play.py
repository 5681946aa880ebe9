"""One world from its beginning to its end: a time of faults, then quiet, in which all that was asked for must end.

Owns who is in a world, how long it lasts, and what must be so in the end.
"""

import gc
from collections.abc import Sequence
from typing import Any

import msgspec

from .checks import Checks
from .clients import Client
from .daemon import SimulatedDaemon
from .faults import NO_FAULTS, OFTEN, Faults
from .keepers import Approver, Dispatcher
from .store_model import ModelStore
from .stranger import Stranger
from .violations import Violation
from .workers import Worker
from .world import World

QUIET_MS = 120_000
ANSWERED_WITHIN_MS = 20_000
LOOKS_EVERY_MS = 50


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What a world is made of.

    `troubles_ms` is how often something may happen to whole parties; `only` are the faults that strike in it, by name (None:
    those that chance says).
    """

    seed: int
    handoffs: int = 12
    workers: int = 4
    chaos_ms: int = 25_000
    troubles_ms: int = 1_000
    ttl_ms: int = 3_000
    faults: Faults = Faults()
    only: tuple[str, ...] | None = None
    stranger: bool = True


BIG = Case(seed=0)
"""A long world with many parties, in which things go wrong now and then."""
SMALL = Case(seed=0, handoffs=3, workers=2, chaos_ms=4_000, troubles_ms=160, ttl_ms=1_000, faults=OFTEN)
"""A short world with few parties, in which much goes wrong."""
CALM = Case(seed=0, faults=NO_FAULTS)
"""A world in which nothing goes wrong."""
SIZES = {"big": BIG, "small": SMALL, "calm": CALM}


class Stuck(AssertionError):
    """After the faults ended, something that was dispatched did not end."""


class Outcome(msgspec.Struct, frozen=True):
    """What happened in a world, counted; which faults struck, by name; and how its journal reads in the end."""

    counts: dict[str, int]
    struck: tuple[str, ...]
    journal: tuple[tuple[int, str, bytes], ...]


class Play:
    """One world as it runs. `world.faults.struck` tells what has gone wrong so far, where it fails too."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.world = world = World(case.seed, case.faults, case.only, ttl_ms=case.ttl_ms)
        self.store = ModelStore()
        self.checks = Checks(world, self.store)
        dice = world.dice("retention")
        retention_ms = dice.between(1_000, 6_000) if dice.chance(40) else None
        self.daemon = SimulatedDaemon(world, self.store, self.checks, retention_ms)
        self._dispatcher = Dispatcher(world, self.daemon, self.checks, "dispatcher#0", case.handoffs)
        self._births = [0] * case.workers
        self._workers = [Worker(world, self.daemon, self.checks, f"worker{index}#0") for index in range(case.workers)]
        self._approver = Approver(world, self.daemon, self.checks, "approver#0")
        self._start_ms = world.now_ms
        if case.stranger:
            Stranger(world, self.daemon, self.checks, self._start_ms + case.chaos_ms)
        world.at(case.troubles_ms, self._trouble)

    def run(self) -> Outcome:
        """Plays it. Raises `Violation` where an invariant doesn't hold or somebody was told a lie, and `Stuck`."""
        world, case = self.world, self.case
        quiet_from_ms = self._start_ms + case.chaos_ms
        while world.now_ms < quiet_from_ms and world.step():
            pass
        world.faults.over = True
        ended, looked_ms = False, 0
        while not ended and world.now_ms < quiet_from_ms + QUIET_MS and world.step():
            if self.daemon.working and world.now_ms >= looked_ms + LOOKS_EVERY_MS:
                self.checks.overdue()
                looked_ms = world.now_ms
            ended = not self._dispatcher.left and len(self._dispatcher.ended) == case.handoffs
        self.checks.after_step()
        if not ended:
            self._stuck()
        self._all_answered([self._dispatcher, self._approver, *self._workers])
        for lie in self.checks.lies():
            raise Violation(f"history: {lie.kind}: {lie.what}")
        journal = tuple((row.position, row.handoff, row.body) for row in self.store.rows.values())
        return Outcome(self.checks.counts, tuple(world.faults.struck), journal)

    def _trouble(self) -> None:
        """What happens to whole parties; and whoever died is replaced."""
        world, daemon = self.world, self.daemon
        if (fault := world.strikes("daemon_pause")) and daemon.up:
            daemon.pause(fault.between(100, 3 * self.world.ttl_ms))
        if (fault := world.strikes("crash")) and daemon.up:
            daemon.killed(fault)
        if (fault := world.strikes("drain")) and daemon.up:
            daemon.drain(fault)
        if fault := world.strikes("wall_clock_step"):
            world.set_wall_clock(3_600_000 if fault.chance(10) else fault.between(-8_000, 8_000))
            self.checks.disturbed()
        for keeper in (self._dispatcher, self._approver):
            if fault := world.strikes("keeper_pause"):
                keeper.pause(fault.between(100, 3 * self.world.ttl_ms))
        for index, worker in enumerate(self._workers):
            if not worker.alive:
                self._births[index] += 1
                name = f"worker{index}#{self._births[index]}"
                self._workers[index] = Worker(world, daemon, self.checks, name)
        over = world.faults.over and all(worker.alive for worker in self._workers)
        if not over:
            world.at(self.case.troubles_ms, self._trouble)

    def _stuck(self) -> None:
        dispatcher, stories = self._dispatcher, self.checks.stories
        open_ones: dict[str, Any] = {
            handoff[:8]: stories[handoff].last for handoff in dispatcher.dispatched if handoff not in dispatcher.ended
        }
        raise Stuck(f"{len(dispatcher.ended)} of {self.case.handoffs} ended; open: {open_ones}")

    def _all_answered(self, clients: Sequence[Client]) -> None:
        """Whoever has asked gets an answer, waiters too, in a while after the faults ended."""
        world = self.world
        asked = [(client, name) for client in clients if client.alive for name in client.unanswered()]
        until_ms = world.now_ms + ANSWERED_WITHIN_MS
        while world.now_ms < until_ms and world.step():
            asked = [(client, name) for client, name in asked if client.alive and client.waits_for(name)]
            if not asked:
                return
        raise Stuck(f"never answered: {[self.checks.requests[name] for client, name in asked]}")


def play(case: Case) -> Outcome:
    """One world from its beginning to its end."""
    gc.disable()  # Next to nothing in it is garbage before it ends, and then all of it is.
    try:
        return Play(case).run()
    finally:
        gc.enable()


def case_of(seed: int, usual: Case = SMALL) -> Case:
    """The world of that seed, of the usual size."""
    return msgspec.structs.replace(usual, seed=seed)
