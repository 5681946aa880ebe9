"""How 500 clients come back when their daemon is restarted: `python bench/restarts.py [--clients N] [--ttl-ms N] [--down-s S]`.

Each has a live lease, and two connections: for its calls and for its heartbeats. The daemon is killed, and another time
ended by SIGTERM, and started again after `--down-s`. Prints when the connections were back, counted from the daemon's being ready, as
percentiles and as a histogram, and the share of the fullest 10 ms. Exit code 1 where a lease was lost, one came back later than
half of the ttl, or more than a tenth of them within any 10 ms.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.daemon_process import DaemonProcess
from tests.support.many_clients import ManyClients, all_back, leases_lost
from tests.support.wire_client import WireClient

PROCESSES = 5
MOST_IN_10_MS = 0.1
BAR_MS = 100


def restart(daemon: DaemonProcess, crews: list[ManyClients], end: str, down_s: float) -> list[float]:
    """Ends it in that way and starts it again; when each connection was back, in seconds from the daemon's being ready."""
    if end == "kill -9":
        daemon.kill()
    else:
        daemon.terminate()
    gone_s = time.monotonic()
    time.sleep(down_s)
    daemon.start()
    ready_s = time.monotonic()
    print(f"\n{end}: the daemon was away for {ready_s - gone_s:.2f} s")
    moments = all_back(crews, gone_s)
    start_s = min(ready_s, moments[0])  # It takes connections shortly before it says so.
    return [moment - start_s for moment in moments]


def show(moments: list[float]) -> float:
    """Prints the distribution; the share of the fullest 10 ms."""
    for share in (0.5, 0.9, 0.99, 1.0):
        print(f"  {share:4.0%} are back after {moments[int(share * (len(moments) - 1))] * 1000:6.0f} ms")
    bars = Counter(int(moment * 1000) // BAR_MS for moment in moments)
    for number in range(max(bars) + 1):
        print(f"  {number * BAR_MS:5} ms {bars[number]:5} {'#' * (bars[number] * 200 // len(moments))}")
    fullest = max(Counter(int(moment * 100) for moment in moments).values()) / len(moments)
    print(f"  in the fullest 10 ms: {fullest:.1%}")
    return fullest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--ttl-ms", type=int, default=6_000)
    parser.add_argument("--down-s", type=float, default=0.0)
    options = parser.parse_args()
    bad = False
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        daemon = stack.enter_context(DaemonProcess(Path(folder) / "data"))
        with WireClient(daemon.tcp) as client:
            for number in range(options.clients):
                client.dispatch(key=str(number))
        share = options.clients // PROCESSES
        counts = [share] * (PROCESSES - 1) + [options.clients - share * (PROCESSES - 1)]
        crews = [stack.enter_context(ManyClients(daemon.tcp, "work", count, ttl_ms=options.ttl_ms)) for count in counts]
        for crew in crews:
            crew.await_ready()
        print(f"{options.clients} clients with {2 * options.clients} connections, ttl {options.ttl_ms} ms")
        for end in ("kill -9", "SIGTERM"):
            moments = restart(daemon, crews, end, options.down_s)
            fullest = show(moments)
            time.sleep(1.5 * options.ttl_ms / 1000)  # Until any lease that wasn't renewed would have ended.
            lost = leases_lost(daemon, options.clients)
            saved = sum(crew.save() for crew in crews)
            print(f"  leases lost: {len(lost)}; clients that go on under their lease: {saved}")
            bad |= bool(lost) or saved != options.clients
            bad |= moments[-1] * 1000 > options.ttl_ms / 2 or fullest > MOST_IN_10_MS
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
