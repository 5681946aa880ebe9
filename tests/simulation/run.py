"""Simulation by command: `python -m tests.simulation.run --seeds 1000 [--from N]`, or `--seed N` for one world.

Worlds are small ones, and every tenth a big one. All processors work, each on its own seeds: which those are, and so what comes
of it, depends on nothing else. A failing world is shrunk, and the command is printed that plays the small one again.
"""

import argparse
import multiprocessing
import queue
import sys
import time
from typing import Any

from msgspec.structs import replace

from .play import BIG, SIZES, SMALL, Case, case_of, play
from .shrinking import failure_of, replay_command, shrink

PROGRESS_EVERY_S = 10.0
TELL_EVERY_S = 1.0
SHRUNK_PER_PROCESS = 3
"""Where everything fails, a few shrunk worlds say as much as many."""
BIG_EVERY = 10


def usual_case(seed: int) -> Case:
    """The world of this seed in a long run."""
    return case_of(seed, SMALL if seed % BIG_EVERY else BIG)


def main() -> int:
    options = _options()
    if options.seed is not None:
        return _one(_case(options))
    return _many(options.first, options.seeds, options.processes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs simulated worlds and checks the invariants after each step.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count(), help="how many at once")
    one = parser.add_argument_group("one world")
    one.add_argument("--seed", type=int, help="only this one, with a traceback where it fails")
    one.add_argument("--size", choices=SIZES, default=None, help="what the world is like (as in a long run)")
    one.add_argument("--handoffs", type=int)
    one.add_argument("--workers", type=int)
    one.add_argument("--chaos-ms", type=int, help="how long things go wrong")
    one.add_argument("--only-faults", help="names of the faults that strike, with commas between them, or none")
    one.add_argument("--no-stranger", action="store_true", help="nobody sends garbage")
    return parser.parse_args()


def _case(options: argparse.Namespace) -> Case:
    case = usual_case(options.seed) if options.size is None else case_of(options.seed, SIZES[options.size])
    given = {name: getattr(options, name) for name in ("handoffs", "workers", "chaos_ms")}
    case = replace(case, **{name: value for name, value in given.items() if value is not None})
    if options.only_faults is not None:
        names = () if options.only_faults == "none" else tuple(options.only_faults.split(","))
        case = replace(case, only=names)
    return replace(case, stranger=not options.no_stranger)


def _one(case: Case) -> int:
    outcome = play(case)
    for name, count in sorted(outcome.counts.items()):
        print(f"{count:7} {name}")
    print(f"faults: {', '.join(outcome.struck)}")
    return 0


def _many(first: int, seeds: int, processes: int) -> int:
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    processes = max(1, min(processes, seeds))
    workers = [
        context.Process(target=_work, args=(first + number, first + seeds, processes, told), daemon=True)
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    began = shown = time.monotonic()
    done = failed = 0
    while done < seeds:
        try:
            played, line = told.get(timeout=PROGRESS_EVERY_S)
        except queue.Empty:
            if any(worker.exitcode for worker in workers):
                print("a process has died: the run is not whole", flush=True)
                return 1
            continue
        done += played
        if line is not None:
            failed += 1
            print(line, flush=True)
        now = time.monotonic()
        if now - shown >= PROGRESS_EVERY_S:
            shown = now
            print(f"{done} of {seeds} worlds, {failed} failed, {done / (now - began):.0f} a second", flush=True)
    for worker in workers:
        worker.join()
    print(f"{seeds} worlds from seed {first} on, {failed} failed, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


def _work(first: int, end: int, step: int, told: Any) -> None:
    """Every `step`-th seed from `first` on: tells how many were played, and of each that failed."""
    parent = multiprocessing.parent_process()
    played, shrunk, since = 0, 0, time.monotonic()
    for seed in range(first, end, step):
        case = usual_case(seed)
        failure = failure_of(case)
        played += 1
        if failure is not None:
            line = f"seed {seed}: {failure.message}\n  {replay_command(case)}"
            if shrunk < SHRUNK_PER_PROCESS:
                shrunk += 1
                small = shrink(case, failure)
                line += f"\n  shrunk ({small.attempts} worlds tried): {replay_command(small.case)}"
            told.put((played, line))
            played = 0
        elif time.monotonic() - since >= TELL_EVERY_S:
            if parent is None or not parent.is_alive():
                return  # Whoever wanted to know was killed.
            since = time.monotonic()
            told.put((played, None))
            played = 0
    told.put((played, None))


if __name__ == "__main__":
    sys.exit(main())
