"""Heartbeats as fast as they come, while others checkpoint at a steady pace."""

from collections.abc import Iterator

from bench.figures import Figure
from bench.generator import run, start
from bench.setting import Setting

from .rates import SMALL_BYTES, latencies
from .subject import Subject

BESIDE_PER_S = 5_000
BESIDE_CONNECTIONS = 16


def measure(setting: Setting) -> Iterator[Figure]:
    with Subject(setting, "heartbeats") as subject:
        for depth in (1, 16):
            name = f"ours/heartbeats/64x{depth}"
            beside = start(
                setting,
                "dhp-checkpoint",
                subject.address,
                connections=BESIDE_CONNECTIONS,
                bytes=SMALL_BYTES,
                rate=BESIDE_PER_S,
            )
            yield from latencies(name, run(setting, "dhp-heartbeat", subject.address, connections=64, depth=depth))
            yield Figure(f"{name}/checkpoints_beside", beside.result().per_second, "1/s")
        yield from subject.pauses()
