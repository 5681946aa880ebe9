"""From the `kill -9` of a worker until the standby that waits has its work, over loopback.

The daemon sees the worker's connections end and waits a quarter of a second for a reconnection, which is most of it.
"""

from collections.abc import Iterator

from bench.check_times import killed_worker
from bench.figures import Figure
from bench.setting import Setting


def measure(setting: Setting) -> Iterator[Figure]:
    times = sorted(killed_worker(setting.folder / "resume"))
    note = f"of {len(times)} kills, over loopback, where the daemon sees the connections end: no lease is waited for"
    yield Figure("ours/resume/p50", times[len(times) // 2], "ms", note)
    yield Figure("ours/resume/max", times[-1], "ms", note)
