"""How often work is taken from a worker that is well, on a machine whose cores are all taken by others.

As many spinning processes as twice the cores; workers with the default lease, half of them idle, half computing in Python
without ever giving their event loop a turn, so that only the client's thread keeps their leases.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.figures import Figure
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

from .held import Holder

HOLDERS = ("idle", "idle", "busy", "busy")
LEASES_EACH = 4
LOOK_EVERY_S = 1.0


def measure(folder: Path, minutes: float) -> Iterator[Figure]:
    with ExitStack() as stack:
        daemon = stack.enter_context(DaemonProcess(folder / "store"))
        client = stack.enter_context(WireClient(daemon.tcp))
        handoffs = [client.dispatch(key=str(number)) for number in range(len(HOLDERS) * LEASES_EACH)]
        holders = []
        for number, manner in enumerate(HOLDERS):
            mine = handoffs[number * LEASES_EACH :][:LEASES_EACH]
            holders.append(stack.enter_context(Holder(daemon.tcp, mine, manner=manner)))
        spinners = 2 * len(os.sched_getaffinity(0))
        stack.enter_context(_spinning(spinners))
        least_ms = _watched(client, handoffs, minutes)
        orphaned = sum(record["type"] == "orphaned" for handoff in handoffs for record in client.history(handoff))
        told = [handoff for holder in holders for handoff in holder.lost()]
    note = (
        f"{minutes:g} min, {len(handoffs)} leases of the default 6 s in {len(HOLDERS)} processes, {spinners} spinners"
    )
    yield Figure("false orphanings/orphaned", orphaned, "count", note)
    yield Figure("false orphanings/losses told to workers", len(told), "count", note)
    yield Figure("false orphanings/least time left of any lease", least_ms, "ms", note)


def _watched(client: WireClient, handoffs: list[str], minutes: float) -> float:
    """The least that any lease had left whenever it was looked at, in milliseconds; 0 where one was gone."""
    least_ms, until = float("inf"), time.monotonic() + 60 * minutes
    while time.monotonic() < until:
        for handoff in handoffs:
            least_ms = min(least_ms, client.call("status", handoff=handoff)["lease_left_ms"] or 0)
        time.sleep(LOOK_EVERY_S)
    return least_ms


@contextmanager
def _spinning(count: int) -> Iterator[None]:
    spin = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    running = [subprocess.Popen(spin) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
