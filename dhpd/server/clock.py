"""The clocks: the only module of the daemon that reads time.

Owns the pairing of a lease-clock reading and a wall-clock reading. On Linux the monotonic clock stands still while the
machine sleeps, so a suspended machine ends no lease either.
"""

import time

from dhpd.engine.lease_clock import LeaseClock
from dhpd.engine.moments import Now


def monotonic_ms() -> int:
    """Milliseconds since some fixed moment."""
    return time.monotonic_ns() // 1_000_000


def monotonic_us() -> int:
    """Microseconds of the same clock, as other programs on this machine read it."""
    return time.monotonic_ns() // 1_000


monotonic_s = time.perf_counter
"""Seconds since some fixed moment, as exactly as can be told: for how long something takes."""


def wall_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


class Clock:
    """`now` is what one decision is made with."""

    def __init__(self) -> None:
        self.started_ms = monotonic_ms()
        self.lease = LeaseClock(self.started_ms)

    def now(self) -> Now:
        return Now(self.lease.read(time.monotonic_ns() // 1_000_000), time.time_ns() // 1_000_000)

    def uptime_ms(self) -> int:
        return monotonic_ms() - self.started_ms
