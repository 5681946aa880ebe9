"""kill -9 at any moment of keeping and of sending what was kept: the next worker goes on from the last state that was told.

Nobody else is at work, so nothing may be void, and what the daemon has in the end is one chain without a gap or a double.
"""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dhp_client import sync
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

ROUNDS = int(os.environ.get("DHP_SPOOL_KILLS", "4"))
"""`make check-spool` takes more."""

WORKER = """
import sys, dhp_client.sync
address, spool, handoff = sys.argv[1:4]
client = dhp_client.sync.connect(address, spool=spool)
task = client.claim(handoff, wait_ms=30_000, ttl_ms=500)
assert task, "nothing came"
print(f"from {task.state or 0}", flush=True)
n = task.state or 0
while True:
    n += 1
    task.checkpoint(n)
    print(f"saved {n}", flush=True)
    task.spend(usd="0.01")
    print(f"spent {n}", flush=True)
"""


def test_killed_at_any_moment_of_a_partition_nothing_that_was_told_is_lost_and_nothing_is_doubled(
    daemon: DaemonProcess, proxy_to: Callable[[DaemonProcess], Proxy], tmp_path: Path, rng: random.Random
) -> None:
    proxy, spool = proxy_to(daemon), tmp_path / "spool"
    with sync.connect(daemon.address, spool=spool) as client:
        budget = {"max_attempts": 1_000_000}
        handoff = client.dispatch("k", {}, budget=budget, keep_checkpoints=10_000).handoff
        last = spent = 0
        for _ in range(ROUNDS):
            proxy.mend()
            last, spent = killed_worker(proxy, spool, handoff, rng, last, spent)
        proxy.mend()
        with client.claim(handoff, wait_ms=20_000) as task:
            assert task.state >= last, f"{last} was told, and {task.state} is what is left of it"
            last = task.state
            task.complete("done")
        assert states(client, handoff) == list(range(1, last + 1))
        status = client.status(handoff)
        assert status.steps == last
        assert spent <= round(status.usd * 100) <= last, "each amount that was told counts, and counts once"
        assert client.spooled() == []
        assert list(spool.glob("*")) == []


def states(client: sync.Client, handoff: str) -> list[Any]:
    found: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = client.checkpoints(handoff, after=after)
        found += [one.state for one in page.checkpoints]
        after = page.next
    return found


def killed_worker(
    proxy: Proxy, spool: Path, handoff: str, rng: random.Random, last: int, spent: int
) -> tuple[int, int]:
    """A worker's life through a few partitions, to a random moment; the last state, and how many amounts, that were told."""
    command = [sys.executable, "-c", textwrap.dedent(WORKER), proxy.address, str(spool), handoff]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        over = threading.Event()
        network = threading.Thread(target=_hurt, args=(proxy, random.Random(rng.random()), over))
        network.start()
        killer: threading.Timer | None = None
        for line in worker.stdout:
            what, n = line.split()
            if what == "from":
                assert int(n) >= last, f"{last} was told, and the next worker begins with {n}"
                killer = threading.Timer(rng.uniform(0, 1.5), worker.kill)
                killer.start()
            elif what == "spent":
                spent += 1
            else:
                last = int(n)
        over.set()
        network.join()
        assert killer is not None, "the worker ended before it had its work"
        killer.join()
        assert worker.wait() == -signal.SIGKILL, "the worker ended by itself"
    return last, spent


def _hurt(proxy: Proxy, rng: random.Random, over: threading.Event) -> None:
    """Partitions of random length, some of which begin with a lost answer."""
    while not over.wait(rng.uniform(0, 0.3)):
        if rng.random() < 0.5:
            proxy.lose_answer_to(rng.choice(("checkpoint", "spend", "claim")), then_cut=True)
        else:
            proxy.cut()
        over.wait(rng.uniform(0.1, 0.9))
        proxy.mend()
