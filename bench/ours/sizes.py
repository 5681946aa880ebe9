"""A store full of live handoffs: memory for each, how long a start takes, and whether anything stands still then.

The handoffs come over the wire and wait for somebody to claim them. Memory is the whole resident set of the daemon's process,
less what it held when it was ready with an empty store, so that caches count as well.
"""

from collections.abc import Iterator

from bench.figures import Figure
from bench.generator import run
from bench.setting import Setting

from .rates import SMALL_BYTES, latencies
from .subject import Subject

SIZES = {"100k": 100_000, "1M": 1_000_000}
QUICK_SIZES = {"5k": 5_000, "20k": 20_000}


def measure(setting: Setting) -> Iterator[Figure]:
    with Subject(setting, "sizes") as subject:
        yield Figure("ours/start/0/s", subject.restart(), "s", "after kill -9")
        empty = subject.settled_rss_bytes()
        before = 0
        for size, count in (QUICK_SIZES if setting.quick else SIZES).items():
            load = run(
                setting,
                "dhp-dispatch",
                subject.address,
                connections=16,
                depth=16,
                kind=f"up-to-{size}",
                count=count - before,
            )
            yield Figure(f"ours/dispatch/filling-{size}/rate", load.per_second, "1/s")
            before = subject.waiting()
            assert before == count, f"{before} handoffs wait instead of {count}"
            held = (subject.settled_rss_bytes() - empty) / count
            yield Figure(f"ours/memory/{size}/bytes_per_handoff", held, "bytes", "as they came in")
            yield from subject.pauses(f"filling-{size}")
            yield Figure(f"ours/start/{size}/s", subject.restart(), "s", "after kill -9")
            held = (subject.settled_rss_bytes() - empty) / count
            yield Figure(f"ours/memory/{size}/bytes_per_handoff_after_start", held, "bytes")
            subject.pauses()  # Of the time in which nothing was done.
            load = run(setting, "dhp-checkpoint", subject.address, connections=64, bytes=SMALL_BYTES)
            yield from latencies(f"ours/checkpoints/beside-{size}/64x1", load)
            yield from subject.pauses(f"beside-{size}")
