"""What `stats` and `health` tell.

Owns the figures that a person at 3 a.m. looks at first.
"""

import asyncio
from copy import copy
from pathlib import Path

from dhp_protocol.replies import HealthReply, StatsReply
from dhpd import __version__
from dhpd.engine.facts import FINAL
from dhpd.engine.operations import Engine
from dhpd.engine.views import rfc3339
from dhpd.store.group_commit import GroupCommit

from .clock import Clock
from .commons import Commons
from .lateness import Lateness
from .memory import bound_bytes, taken_bytes

FIGURES_FOR_MS = 1_000


class Reporter:
    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        durability: str,
        commits: GroupCommit,
        commons: Commons,
        lateness: Lateness,
        log: Path,
    ) -> None:
        """`log` is the store's write-ahead log."""
        self._engine = engine
        self._clock = clock
        self._durability = durability
        self._commits = commits
        self._commons = commons
        self._lateness = lateness
        self._log = log
        self._figures: dict[str, int] = {}
        self._figures_until_ms = 0

    def stats(self) -> StatsReply:
        engine = self._engine
        return StatsReply(
            handoffs={str(status): count for status, count in engine.ledger.counts.items()},
            leases=engine.ledger.counts["running"],
            waiting_claims=engine.waiting.claims(),
            sessions=len(engine.sessions),
            connections=engine.sessions.connections(),
            position=engine.journal.position,
            durable_position=engine.journal.durable,
            commits=self._commits.commits,
            records=self._commits.records,
            uptime_ms=self._clock.uptime_ms(),
            loop_late_ms=round(self._lateness.p99_ms(), 1),
            loop_late_worst_ms=round(self._lateness.worst_ms, 1),
            buffered_bytes=self._commons.input.used_bytes,
            unsent_bytes=self._commons.unsent.used_bytes,
            memory_bound_bytes=bound_bytes(self._commons.config, self._live()),
            **self._process_figures(),
            limits_hit=copy(self._commons.hits),
            disk=self._disk(),
            time=rfc3339(self._clock.now().wall_ms),
            records_by_type={str(kind.__struct_config__.tag): n for kind, n in self._commits.records_by_type.items()},
        )

    def _process_figures(self) -> dict[str, int]:
        """Figures that take long to find, as they were a second ago at most."""
        now_ms = self._clock.uptime_ms()
        if now_ms >= self._figures_until_ms:
            self._figures_until_ms = now_ms + FIGURES_FOR_MS
            self._figures = {
                "tasks": len(asyncio.all_tasks()),
                "memory_bytes": taken_bytes(),
                "log_bytes": self._log.stat().st_size if self._log.exists() else 0,
            }
        return self._figures

    def _live(self) -> int:
        return sum(count for status, count in self._engine.ledger.counts.items() if status not in FINAL)

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
