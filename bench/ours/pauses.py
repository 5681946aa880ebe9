"""Pauses of the daemon's event loop, seen from outside: `python -m bench.ours.pauses PATH PID`.

A process of its own knocks every few milliseconds, beside whatever else is measured: it connects to the unix socket, says that
nothing will come, and waits for the daemon to hang up. The loop does that between its other work, without the disk and
without a place in the line of requests, in two or three of its passes; so a loop that stands still for 30 ms shows as a
knock that took 30 ms. It counts from the moment at which it was due.

This is an upper bound: two passes are in it, and the knocker's own waiting for a core (little, where it may run with
real-time priority), and the loop's. So beside the worst knock stands the worst without the time in which the loop's thread wanted
to run and had no core, by the kernel's account.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import msgspec
from msgspec import Struct

from bench.figures import Figure

ROOT = Path(__file__).parents[2]
NAME = "ours/pause"
INTERVAL_S = 0.010
"""A pause that begins between two knocks is longer than the worst knock in it, by so much at most."""
PATIENCE_S = 60


class Knocks(Struct, frozen=True):
    """Since the last report."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    waited_ms: float
    """So long had the loop's thread no core during the longest one."""
    own_max_ms: float
    """The longest, such waiting taken off each."""
    real_time: bool
    """Whether the knocker got a core whenever a knock was due."""


class Knocker:
    """`with Knocker(path, pid) as knocker:` knocks at the daemon `pid` until the end of the block."""

    def __init__(self, path: str, pid: int) -> None:
        command = [sys.executable, "-m", "bench.ours.pauses", path, str(pid)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._said()

    def __enter__(self) -> "Knocker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def report(self) -> Knocks:
        """What there was since the start or the last report."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._said(), type=Knocks)

    def _said(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the knocker has ended"
        return line


def figures(part: str, knocks: Knocks) -> list[Figure]:
    note = f"of {knocks.count:,} knocks; in this one the loop had no core for {knocks.waited_ms:.1f} ms"
    if not knocks.real_time:
        note += "; the knocker had no priority and may itself have waited"
    return [
        Figure(f"{NAME}/{part}/p50", knocks.p50_ms, "ms"),
        Figure(f"{NAME}/{part}/p99", knocks.p99_ms, "ms"),
        Figure(f"{NAME}/{part}/max", knocks.max_ms, "ms", note),
        Figure(f"{NAME}/{part}/own_max", knocks.own_max_ms, "ms"),
    ]


def worst(figures: list[Figure]) -> list[Figure]:
    """The worst of all parts and rounds, of those properties that any part told."""
    found = []
    for what in ("max", "own_max"):
        told = [each for each in figures if each.name.startswith(f"{NAME}/") and each.name.endswith(f"/{what}")]
        if told:
            longest = max(told, key=lambda each: each.value)
            found.append(Figure(f"{NAME}/{what}", longest.value, "ms", f"in {longest.name.split('/')[2]}"))
    return found


def knock_on(path: str, pid: int) -> None:
    """Until its input ends; an empty line there asks for a report."""
    real_time = _take_priority()
    account = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)
    times: list[tuple[float, float]] = []  # In seconds: how long it took, and how much of that the loop had no core.
    _knock(path)
    print("knocking", flush=True)
    due = time.monotonic()
    while True:
        waited_s = _without_core_s(account)
        _knock(path)
        times.append((time.monotonic() - due, _without_core_s(account) - waited_s))
        # Where the last one took longer than that, this one isn't late: nothing was to be knocked for meanwhile.
        due = max(due + INTERVAL_S, time.monotonic())
        if select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
            if not os.read(sys.stdin.fileno(), 1):
                return
            print(msgspec.json.encode(_summed(times, real_time)).decode(), flush=True)
            times = []
            due = time.monotonic()


def _knock(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(PATIENCE_S)
        door.connect(path)
        door.shutdown(socket.SHUT_WR)
        assert door.recv(1) == b"", "the daemon said something"


def _summed(times: list[tuple[float, float]], real_time: bool) -> Knocks:
    own_max = max(took - waited for took, waited in times)
    times.sort()
    return Knocks(
        count=len(times),
        p50_ms=times[len(times) // 2][0] * 1000,
        p99_ms=times[len(times) * 99 // 100][0] * 1000,
        max_ms=times[-1][0] * 1000,
        waited_ms=times[-1][1] * 1000,
        own_max_ms=own_max * 1000,
        real_time=real_time,
    )


def _take_priority() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    return True


def _without_core_s(descriptor: int) -> float:
    """So long has the thread so far wanted to run and had no core."""
    return int(os.pread(descriptor, 100, 0).split()[1]) / 1e9


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a word.
    knock_on(sys.argv[1], int(sys.argv[2]))
