"""From the `kill -9` of a worker until a standby that waits has its work, and until its first checkpoint is accepted.

Both are programs with the client, as anybody's; the daemon sees the dead one's connections end and gives it a quarter of a
second to come back, which is most of the time.
"""

import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dhp_client.sync
from bench.figures import Figure
from tests.support.daemon_process import DaemonProcess

from .held import Holder

LONG_MS = 3_600_000
"""A lease that no deadline ends: what is measured is what the daemon sees, not what it waits for."""


def measure(folder: Path, sockets: Path, kills: int) -> Iterator[Figure]:
    """`sockets` is a folder with a short path."""
    with DaemonProcess(folder / "store", listen=("127.0.0.1:0", f"unix:{sockets}/s")) as daemon:
        for name, address in (("unix socket", daemon.unix), ("loopback", daemon.tcp)):
            with dhp_client.sync.connect(address) as client:
                took = [_one_kill(client, address, f"{name} {number}") for number in range(kills)]
            claims, writes = ([pair[which] for pair in took] for which in (0, 1))
            for what, times in (("claim granted", claims), ("first checkpoint accepted", writes)):
                yield Figure(f"kill to resume/{name}/{what}/p50", quantile(times, 0.5), "ms", f"{kills} kills")
                yield Figure(f"kill to resume/{name}/{what}/p99", quantile(times, 0.99), "ms", f"{kills} kills")


def quantile(values: list[float], share: float) -> float:
    """The smallest value that so large a share of them doesn't pass."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _one_kill(client: dhp_client.sync.Client, address: str, key: str) -> tuple[float, float]:
    """Milliseconds from the kill until the claim, and until the standby's first checkpoint."""
    work = client.dispatch("held", {}, key=key)
    moments: list[float] = []

    def stand_by() -> None:
        with client.claim(work.handoff, wait_ms=60_000) as task:
            moments.append(time.monotonic())
            assert task.was == "orphaned"
            task.checkpoint({"resumed": True})
            moments.append(time.monotonic())
            task.complete(None)

    with Holder(address, [work.handoff], ttl_ms=LONG_MS) as holder:
        standby = threading.Thread(target=stand_by)
        standby.start()
        while not client.stats().waiting_claims:
            time.sleep(0.005)
        killed = time.monotonic()
        holder.kill()
        standby.join()
    granted, accepted = ((moment - killed) * 1000 for moment in moments)
    return granted, accepted
