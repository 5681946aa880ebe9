"""Rates of single operations and of whole lives, by how many connections and how much in flight on each.

Every answer of a write leaves once it is synced to the disk. Each family of figures has a fresh daemon.
"""

from collections.abc import Iterator

from bench.figures import Figure
from bench.generator import Load, run
from bench.setting import Setting

from .subject import Subject

CONNECTIONS = (1, 8, 64, 256)
DEPTHS = (1, 16)
SMALL_BYTES = 1024
LARGE_BYTES = 65536
LIFE_CHECKPOINTS = 10


def measure(setting: Setting) -> Iterator[Figure]:
    """Small checkpoints, and the steps of a life."""
    yield from _checkpoints(setting, "1KB", SMALL_BYTES)
    with Subject(setting, "lives") as subject:
        yield from _steps(setting, subject)
        yield from subject.pauses()


def measure_large(setting: Setting) -> Iterator[Figure]:
    """Large checkpoints."""
    yield from _checkpoints(setting, "64KB", LARGE_BYTES)


def latencies(name: str, load: Load) -> Iterator[Figure]:
    yield Figure(f"{name}/rate", load.per_second, "1/s")
    yield Figure(f"{name}/p50", load.p50_us / 1000, "ms")
    yield Figure(f"{name}/p99", load.p99_us / 1000, "ms")
    yield Figure(f"{name}/max", load.max_us / 1000, "ms")


def _checkpoints(setting: Setting, size: str, state_bytes: int) -> Iterator[Figure]:
    with Subject(setting, f"checkpoints-{size}") as subject:
        for connections in CONNECTIONS:
            for depth in DEPTHS:
                yield from _costed(
                    f"ours/checkpoints/{size}/{connections}x{depth}",
                    setting,
                    subject,
                    "dhp-checkpoint",
                    connections=connections,
                    depth=depth,
                    bytes=state_bytes,
                )
        yield from subject.pauses()


def _steps(setting: Setting, subject: Subject) -> Iterator[Figure]:
    dispatched = list(_costed("ours/dispatch/64x1", setting, subject, "dhp-dispatch", connections=64))
    yield from dispatched
    # What is claimed or completed must be there before: about as many as take so long.
    count = max(64, int(dispatched[0].value * setting.seconds))
    run(setting, "dhp-dispatch", subject.address, connections=64, depth=16, kind="claimed", count=count)
    yield from _costed("ours/claim/64x1", setting, subject, "dhp-claim", connections=64, kind="claimed", count=count)
    # What is completed is dispatched and claimed in the same run, before the clock, so that its cost isn't known.
    completed = run(setting, "dhp-complete", subject.address, connections=64, count=count)
    yield from latencies("ours/complete/64x1", completed)
    yield from _costed(
        "ours/life/64x1",
        setting,
        subject,
        "dhp-life",
        connections=64,
        life_checkpoints=LIFE_CHECKPOINTS,
        bytes=SMALL_BYTES,
    )


def _costed(name: str, setting: Setting, subject: Subject, mode: str, **options: object) -> Iterator[Figure]:
    with subject.cost() as cost:
        load = run(setting, mode, subject.address, **options)
    yield from latencies(name, load)
    yield from cost.figures(name, load.answered)
