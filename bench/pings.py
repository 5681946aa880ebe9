"""How long an honest client's ping takes beside a stranger, by kind of stranger: `python bench/pings.py [--abuse] [KIND…]`.

Prints, in milliseconds, the median, the 99th percentile and the worst of many pings: alone, beside two strangers of each kind
who have a connection each, and beside one who has many (`40xstatuses`: forty). With `--abuse` beside those who abuse the daemon at
a stated rate. Tells the most memory that the daemon took meanwhile, of what it says it takes at most, in MB. Exit code 1 where the
99th percentile or the memory passes its bound.
"""

import resource
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.strangers import ABUSES, ALL_ABUSES, CROWDS, KINDS, MIB, Stranger
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

BOUND_MS = 50
ABUSE_BOUND_MS = 20
SECONDS = 10
PAUSE_S = 0.01


def pings(client: WireClient, daemon: DaemonProcess) -> tuple[list[float], int]:
    """Milliseconds, sorted; and the most memory that the daemon took."""
    times = []
    most_bytes = 0
    end = time.monotonic() + SECONDS
    while (start := time.monotonic()) < end:
        client.call("ping")
        times.append((time.monotonic() - start) * 1000)
        most_bytes = max(most_bytes, daemon.rss_bytes)
        time.sleep(PAUSE_S)
    return sorted(times), most_bytes


def main(arguments: list[str]) -> int:
    of_abuse = "--abuse" in arguments
    kinds = [kind for kind in arguments if kind != "--abuse"]
    known = [*ABUSES, ALL_ABUSES] if of_abuse else [*KINDS, *CROWDS]
    bound_ms = ABUSE_BOUND_MS if of_abuse else BOUND_MS
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        print(f"There is no kind {unknown[0]!r}: {' '.join(known)}", file=sys.stderr)
        return 2
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    missed = 0
    print(f"{'median':>8} {'p99':>8} {'worst':>8}  {'MB':>6} {'of':>6}  ms of a ping beside")
    for kind in ("nobody", *(kinds or known)):
        with tempfile.TemporaryDirectory(prefix="dhp-pings-") as folder, ExitStack() as stack:
            daemon = stack.enter_context(DaemonProcess(Path(folder) / "data"))
            client = stack.enter_context(WireClient(daemon.tcp))
            if kind != "nobody":
                for _ in range(2 if kind in KINDS else 1):
                    stack.enter_context(Stranger(daemon.tcp, kind))
            client.pump()
            times, most_bytes = pings(client, daemon)
            may_bytes = client.call("stats")["memory_bound_bytes"]
        p99 = times[int(len(times) * 0.99)]
        missed += p99 > bound_ms or most_bytes > may_bytes
        figures = (
            f"{times[len(times) // 2]:8.2f} {p99:8.2f} {times[-1]:8.2f}  {most_bytes / MIB:6.0f} {may_bytes / MIB:6.0f}"
        )
        print(f"{figures}  {_told(kind)}", flush=True)
    return 1 if missed else 0


def _told(kind: str) -> str:
    if kind not in ABUSES:
        return kind
    abuse = ABUSES[kind]
    told = f"{kind}: {abuse.connections} connections"
    told += f", {abuse.bytes_per_s / MIB:g} MB/s" if abuse.bytes_per_s else ""
    return told + (f", {abuse.new_per_s} new ones a second" if abuse.new_per_s else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
