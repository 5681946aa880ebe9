"""Simulation by command: `python -m tests.simulation.run --seeds 1000 [--from N] [--seed N]`.

A failing seed is printed, and replays exactly with `--seed`.
"""

import argparse
import sys
import time
import traceback

from .checks import Checks
from .clients import Client
from .daemon import SimulatedDaemon
from .keepers import Approver, Dispatcher
from .store_model import ModelStore
from .workers import Worker
from .world import NO_FAULTS, Faults, World

CHAOS_MS = 25_000
QUIET_MS = 120_000
ANSWERED_WITHIN_MS = 20_000
WORKERS = 4
HANDOFFS = 12


class Stuck(AssertionError):
    """After the faults ended, something that was dispatched did not end."""


def simulate(seed: int, faults: Faults | None = None) -> dict[str, int]:
    """One run: a time of faults, then quiet, in which all that was dispatched must end. Gives what happened, counted."""
    world = World(seed, faults if faults is not None else Faults())
    checks = Checks(world)
    store = ModelStore()
    daemon = SimulatedDaemon(world, store, checks)
    dispatcher = Dispatcher(world, daemon, checks, "dispatcher#0", HANDOFFS)
    workers = [Worker(world, daemon, checks, f"worker{i}#0") for i in range(WORKERS)]
    approver = Approver(world, daemon, checks, "approver#0")
    births = WORKERS

    def trouble() -> None:
        nonlocal births
        if world.chance(world.faults.daemon_pause * 10) and daemon.up:
            daemon.pause()
        if world.chance(world.faults.crash * 5) and daemon.up:
            daemon.crash()
        if world.chance(world.faults.wall_clock_step):
            world.set_wall_clock()
            checks.disturbed()
        for index, worker in enumerate(workers):
            if not worker.alive:
                births += 1
                workers[index] = Worker(world, daemon, checks, f"worker{index}#{births}")
        world.at(1_000, trouble)

    world.at(500, trouble)
    start_ms = world.now_ms
    while world.now_ms < start_ms + CHAOS_MS and world.step():
        pass
    world.faults = NO_FAULTS
    ended = False
    while world.now_ms < start_ms + CHAOS_MS + QUIET_MS and world.step():
        if daemon.working:
            checks.overdue()
        ended = not dispatcher.left and len(dispatcher.ended) == HANDOFFS
        if ended:
            break
    checks.read(store)
    if not ended:
        open_ones = {
            handoff[:8]: checks.stories[handoff].last
            for handoff in dispatcher.dispatched
            if handoff not in dispatcher.ended
        }
        raise Stuck(f"{len(dispatcher.ended)} of {HANDOFFS} ended; open: {open_ones}")
    _all_answered(world, [dispatcher, approver, *workers])
    return checks.counts


def _all_answered(world: World, clients: list[Client]) -> None:
    """Whoever has asked gets an answer, waiters too, in a while after the faults ended."""
    asked = [(client, name) for client in clients if client.alive for name in client.unanswered()]
    until_ms = world.now_ms + ANSWERED_WITHIN_MS
    while world.now_ms < until_ms and world.step():
        asked = [(client, name) for client, name in asked if client.waits_for(name)]
        if not asked:
            return
    raise Stuck(f"never answered: {[client.checks.requests[name] for client, name in asked]}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs simulated worlds and checks the invariants after each step.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one, with a traceback")
    options = parser.parse_args()
    if options.seed is not None:
        for name, count in sorted(simulate(options.seed).items()):
            print(f"{count:7} {name}")
        return 0
    failures = 0
    began = time.monotonic()
    for seed in range(options.first, options.first + options.seeds):
        try:
            simulate(seed)
        except Exception as error:
            failures += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"seed {seed}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})", flush=True)
    print(f"{options.seeds} seeds, {failures} failed, {time.monotonic() - began:.1f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
