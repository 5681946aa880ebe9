"""How long an honest client's ping takes beside a stranger, by kind of stranger: `python bench/pings.py [KIND…]`.

Prints, in milliseconds, the median, the 99th percentile and the worst of many pings: alone, beside two strangers of each kind
who have a connection each, and beside one who has many (`40xstatuses`: forty). Exit code 1 where the 99th percentile passes the
bound.
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.strangers import CROWDS, KINDS, Stranger
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

BOUND_MS = 50
SECONDS = 10
PAUSE_S = 0.01


def pings(client: WireClient) -> list[float]:
    """Milliseconds, sorted."""
    times = []
    end = time.monotonic() + SECONDS
    while (start := time.monotonic()) < end:
        client.call("ping")
        times.append((time.monotonic() - start) * 1000)
        time.sleep(PAUSE_S)
    return sorted(times)


def main(kinds: list[str]) -> int:
    known = [*KINDS, *CROWDS]
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        print(f"There is no kind {unknown[0]!r}: {' '.join(known)}", file=sys.stderr)
        return 2
    missed = 0
    print(f"{'median':>8} {'p99':>8} {'worst':>8}  ms of a ping beside")
    for kind in ("nobody", *(kinds or known)):
        with tempfile.TemporaryDirectory(prefix="dhp-pings-") as folder, ExitStack() as stack:
            daemon = stack.enter_context(DaemonProcess(Path(folder) / "data"))
            if kind != "nobody":
                for _ in range(2 if kind in KINDS else 1):
                    stack.enter_context(Stranger(daemon.tcp, kind))
            times = pings(stack.enter_context(WireClient(daemon.tcp)))
        p99 = times[int(len(times) * 0.99)]
        missed += p99 > BOUND_MS
        print(f"{times[len(times) // 2]:8.2f} {p99:8.2f} {times[-1]:8.2f}  {kind}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
