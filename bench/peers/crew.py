"""Several processes that do the same work within one window of time, and what they got done in it.

Owns the processes, the common start, the counting and the percentiles. Does not own the work. Runs in the benchmark's own
environment, so it needs nothing but the standard library.

An operation counts when it ends within the window: that favours nobody, however long one operation takes.
"""

import argparse
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

FORK = multiprocessing.get_context("fork")
START_SOON_S = 0.02

Turns = Callable[[], Iterator[None]]
"""Called once when all is prepared. It waits until the others are ready too, then gives a turn for each operation; the
time of an operation runs from its turn to the asking for the next."""

Work = Callable[[int, Turns], None]
"""What one process does: given its number, it prepares, takes its turns and does one operation in each."""


def arguments(modes: Iterable[str]) -> argparse.ArgumentParser:
    """What every worker program is told: what to do and where, with how many processes, for how long, on how much."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=tuple(modes))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--checkpoints", type=int, default=10)
    return parser


class CrewFault(Exception):
    """A process of the crew failed or didn't end; holds what it said."""


@dataclass(frozen=True)
class Done:
    """What a crew got done: operations that ended in the window, and how long one took."""

    processes: int
    ops: int
    seconds: float
    per_second: float
    p50_us: float
    p99_us: float
    max_us: float


def crew(processes: int, work: Work, seconds: float, warmup_seconds: float, patience_s: float = 60.0) -> Done:
    """Forks, waits until all are ready, lets all begin at the same moment, and counts after the warm-up.

    Each process opens what it needs itself: nothing that was opened before the fork may be used in it.
    """
    members = [_begun(number, work) for number in range(processes)]
    try:
        for _, pipe in members:
            _heard(pipe, patience_s)
        begin = time.monotonic() + START_SOON_S
        window = (begin, begin + warmup_seconds, begin + warmup_seconds + seconds)
        for _, pipe in members:
            pipe.send(window)
        took = [duration for _, pipe in members for duration in _heard(pipe, warmup_seconds + seconds + patience_s)]
    finally:
        for process, _ in members:
            process.kill()
            process.join()
    return done(processes, took, seconds)


def done(processes: int, took: list[float], seconds: float) -> Done:
    """The figures of operations that took so many seconds each. All are 0 when there was none."""
    ordered = sorted(took) or [0.0]

    def microseconds(share: float) -> float:
        return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)] * 1_000_000, 1)

    rate = round(len(took) / seconds, 2)
    return Done(processes, len(took), seconds, rate, microseconds(0.5), microseconds(0.99), microseconds(1.0))


def described(result: Done, **more: object) -> dict[str, object]:
    """As the line of JSON that a worker script prints."""
    return {**asdict(result), **more}


def _begun(number: int, work: Work) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    here, there = FORK.Pipe()
    process = FORK.Process(target=_member, args=(number, work, there), daemon=True)
    process.start()
    there.close()
    return process, here


def _heard(pipe: Connection, patience_s: float) -> list[float]:
    if not pipe.poll(patience_s):
        raise CrewFault(f"a process said nothing for {patience_s:.0f} s")
    try:
        said: str | list[float] = pipe.recv()
    except EOFError:
        raise CrewFault("a process ended without a word") from None
    if isinstance(said, str):
        raise CrewFault(said)
    return said


def _member(number: int, work: Work, pipe: Connection) -> None:
    took: list[float] = []

    def turns() -> Iterator[None]:
        pipe.send([])
        begin, counted_from, end = pipe.recv()
        time.sleep(max(0.0, begin - time.monotonic()))
        started = time.monotonic()
        while started < end:
            yield
            ended = time.monotonic()
            if counted_from <= ended < end:
                took.append(ended - started)
            started = ended

    try:
        work(number, turns)
    except Exception:
        pipe.send(traceback.format_exc())
    else:
        pipe.send(took)
