"""What a checkpoint costs on a handoff with a long history, against a fresh one: one connection, taking turns."""

import time
from collections.abc import Iterator

from bench.figures import Figure
from bench.setting import Setting
from dhp_protocol.limits import DEFAULT_KEEP_CHECKPOINTS
from tests.support.wire_client import WireClient

from .rates import SMALL_BYTES
from .raw_line import RawLine, framed
from .subject import Subject

LONG = 100_000
QUICK_LONG = 5_000
IN_FLIGHT = 500
PAIRS = 2_000
TTL_MS = 3_600_000
KEEPING = {"": DEFAULT_KEEP_CHECKPOINTS, "-all-kept": 1_000_000}


def measure(setting: Setting) -> Iterator[Figure]:
    long, pairs = (QUICK_LONG, PAIRS // 10) if setting.quick else (LONG, PAIRS)
    with (
        Subject(setting, "history") as subject,
        WireClient(subject.address) as client,
        RawLine(subject.address) as line,
    ):
        for suffix, keep in KEEPING.items():
            old, fresh = (_checkpoint(client, f"{which}{suffix}", keep) for which in ("old", "fresh"))
            for _ in range(long // IN_FLIGHT):
                line.exchange(old * IN_FLIGHT, IN_FLIGHT)
            times: dict[bytes, list[float]] = {old: [], fresh: []}
            for number in range(pairs):
                # Neither is always the one that comes after the other.
                for request in (old, fresh) if number % 2 else (fresh, old):
                    begun = time.perf_counter()
                    line.exchange(request)
                    times[request].append(time.perf_counter() - begun)
            note = f"{keep:,} checkpoints kept"
            for request, name in ((fresh, f"fresh{suffix}"), (old, f"{long // 1000}k{suffix}")):
                took = sorted(times[request])
                yield Figure(f"ours/history/{name}/p50", took[len(took) // 2] * 1000, "ms", note)
        yield from subject.pauses()


def _checkpoint(client: WireClient, key: str, keep: int) -> bytes:
    """The bytes of a checkpoint on a handoff that was claimed for it."""
    handoff = client.dispatch("history", key=key, keep_checkpoints=keep)
    fence = client.claim(handoff=handoff, ttl_ms=TTL_MS)["fence"]
    return framed("checkpoint", handoff=handoff, fence=fence, state="x" * (SMALL_BYTES - 2))
