"""What `stats` and `health` tell.

Owns the figures that a person at 3 a.m. looks at first.
"""

from collections.abc import Callable

from dhp_protocol.replies import HealthReply, StatsReply
from dhpd import __version__
from dhpd.engine.operations import Engine

from .clock import Clock


class Reporter:
    def __init__(self, engine: Engine, clock: Clock, durability: str, committed: Callable[[], tuple[int, int]]) -> None:
        """`committed` gives the numbers of commits and of records since the start."""
        self._engine = engine
        self._clock = clock
        self._durability = durability
        self._committed = committed

    def stats(self) -> StatsReply:
        engine = self._engine
        commits, records = self._committed()
        return StatsReply(
            handoffs={str(status): count for status, count in engine.ledger.counts.items()},
            leases=engine.ledger.counts["running"],
            waiting_claims=engine.waiting.claims(),
            sessions=len(engine.sessions),
            connections=engine.sessions.connections(),
            position=engine.journal.position,
            durable_position=engine.journal.durable,
            commits=commits,
            records=records,
            uptime_ms=self._clock.uptime_ms(),
            disk=self._disk(),
        )

    def health(self) -> HealthReply:
        engine = self._engine
        status = "disk_full" if engine.disk_full else "draining" if engine.draining else "ok"
        return HealthReply(
            status=status if engine.available else "store_unavailable",
            store="ok" if engine.available else "unavailable",
            disk=self._disk(),
            durability=self._durability,
            version=__version__,
            uptime_ms=self._clock.uptime_ms(),
            clock_offset_ms=self._clock.lease.offset_ms,
        )

    def _disk(self) -> str:
        return "full" if self._engine.disk_full else "ok"
