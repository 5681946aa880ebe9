"""The bounds on time that the daemon promises, measured on this machine: `python bench/check_times.py [NAME…]`.

Each is measured several times on a real daemon with real processes, and its median is held against the bound. They
depend on the machine and on what else it does, and so are no tests. Exit code 1 when one is missed.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.daemon_process import DaemonProcess
from tests.support.flooder import Flooder
from tests.support.wire_client import WireClient
from tests.support.worker_process import WorkerProcess

LONG_MS = 3_600_000
PENDING = 100_000
DHP = str(Path(sys.executable).parent / "dhp")


class Timer:
    """Milliseconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def ms(self) -> float:
        return (time.monotonic() - self._start) * 1000


def killed_worker(data: Path) -> Iterator[float]:
    """kill -9 of a worker, until the standby that waits has its claim."""
    with DaemonProcess(data) as daemon, WireClient(daemon.tcp) as standby:
        for number in range(10):
            standby.dispatch(key=str(number))
            with WorkerProcess(daemon.tcp) as worker:
                held = worker.client.claim(ttl_ms=LONG_MS)
                waiting = standby.send("claim", worker="standby", kinds=["work"], wait_ms=600_000)
                timer = Timer()
                worker.kill()
                taken = standby.result(waiting)
                yield timer.ms
            assert (taken["handoff"], taken["was"]) == (held["handoff"], "orphaned")
            standby.call("complete", handoff=taken["handoff"], fence=taken["fence"], result=None)


def silent_worker(data: Path) -> Iterator[float]:
    """How late a lease ends after its deadline, by the daemon's own records, on an idle machine."""
    with DaemonProcess(data) as daemon, WireClient(daemon.tcp) as client:
        for number in range(5):
            handoff = client.dispatch(key=str(number))
            client.claim(ttl_ms=500)
            client.result(client.send("claim", worker="standby", handoff=handoff, wait_ms=600_000))
            claimed, orphaned = (
                datetime.fromisoformat(record["at"]).timestamp() * 1000 for record in client.history(handoff)[1:3]
            )
            yield orphaned - claimed - 500


def grant(data: Path) -> Iterator[float]:
    """From sending a dispatch until the claim that waits for it has been granted."""
    with DaemonProcess(data) as daemon, WireClient(daemon.tcp) as client, WireClient(daemon.tcp) as worker:
        for number in range(50):
            waiting = worker.send("claim", worker="w", kinds=["work"], wait_ms=600_000)
            worker.pump()
            timer = Timer()
            client.send("dispatch", kind="work", inputs={}, key=str(number))
            worker.result(waiting)
            yield timer.ms


def heartbeat_behind_claims(data: Path) -> Iterator[float]:
    """A heartbeat's answer on a connection on which 200 claims wait."""
    with DaemonProcess(data) as daemon, WireClient(daemon.tcp) as client:
        handoff = client.dispatch()
        leases = [{"handoff": handoff, "fence": client.claim(ttl_ms=LONG_MS)["fence"]}]
        for _ in range(200):
            client.send("claim", worker="w", kinds=["none"], wait_ms=600_000)
        for _ in range(50):
            timer = Timer()
            client.call("heartbeat", leases=leases)
            yield timer.ms


def heartbeat_beside_a_flood(data: Path) -> Iterator[float]:
    """A heartbeat's answer while another connection sends nonsense as fast as it can."""
    with DaemonProcess(data) as daemon, WireClient(daemon.tcp) as client:
        handoff = client.dispatch()
        leases = [{"handoff": handoff, "fence": client.claim(ttl_ms=LONG_MS)["fence"]}]
        with Flooder(daemon.tcp, "nonsense"):
            for _ in range(50):
                timer = Timer()
                client.call("heartbeat", leases=leases)
                yield timer.ms


def restart(data: Path) -> Iterator[float]:
    """From the start of a process until the daemon is ready, where little is stored."""
    with DaemonProcess(data) as daemon:
        for _ in range(5):
            daemon.kill()
            timer = Timer()
            daemon.start()
            yield timer.ms


def restart_with_many(data: Path) -> Iterator[float]:
    """From the start of a process until the daemon is ready, with 100,000 pending handoffs, after kill -9."""
    with DaemonProcess(data) as daemon:
        with WireClient(daemon.tcp) as client:
            for first in range(0, PENDING, 1_000):
                framed = [client.framed("dispatch", kind="work", inputs={}, key=str(first + n)) for n in range(1_000)]
                client.send_bytes(b"".join(data for _, data in framed))
                for request, _ in framed:
                    client.result(request)
        for _ in range(3):
            daemon.kill()
            timer = Timer()
            daemon.start()
            yield timer.ms
            with WireClient(daemon.tcp) as client:
                assert client.call("stats")["handoffs"]["pending"] == PENDING


def stop(data: Path) -> Iterator[float]:
    """From SIGTERM until the process has ended, with claims that wait and leases that live."""
    with DaemonProcess(data) as daemon:
        for number in range(5):
            with WireClient(daemon.tcp) as client:
                client.dispatch(key=str(number))
                client.claim(ttl_ms=LONG_MS)
                for _ in range(100):
                    client.send("claim", worker="w", kinds=["none"], wait_ms=600_000)
                client.pump()
                timer = Timer()
                assert daemon.terminate() == 0
                yield timer.ms
            daemon.start()


def status(data: Path) -> Iterator[float]:
    """From the start of `dhp status ID` until its process has ended."""
    with DaemonProcess(data) as daemon, WireClient(daemon.tcp) as client:
        yield from _runs(DHP, "--connect", daemon.address, "status", client.dispatch())


def shown_help(data: Path) -> Iterator[float]:
    """From the start of `dhp --help` until its process has ended."""
    yield from _runs(DHP, "--help")


def imported(data: Path) -> Iterator[float]:
    """A Python process that does nothing but import dhp_client."""
    yield from _runs(sys.executable, "-c", "import dhp_client")


def _runs(*command: str) -> Iterator[float]:
    subprocess.run(command, check=True, capture_output=True)  # The first one may have to compile.
    for _ in range(20):
        timer = Timer()
        subprocess.run(command, check=True, capture_output=True)
        yield timer.ms


CHECKS: dict[str, tuple[float, Callable[[Path], Iterator[float]]]] = {
    "killed-worker": (600, killed_worker),
    "silent-worker": (100, silent_worker),
    "grant": (100, grant),
    "heartbeat-behind-claims": (50, heartbeat_behind_claims),
    "heartbeat-beside-a-flood": (100, heartbeat_beside_a_flood),
    "restart": (2_000, restart),
    "restart-with-many": (2_000, restart_with_many),
    "stop": (5_000, stop),
    "status": (150, status),
    "help": (150, shown_help),
    "import": (75, imported),
}
"""By name: the bound in milliseconds, and what gives the measurements."""


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(f"There is no check {unknown[0]!r}: {' '.join(CHECKS)}", file=sys.stderr)
        return 2
    print(f"{'bound ms':>8}  {'median':>8}  {'worst':>8}  runs")
    missed = 0
    for name in names or CHECKS:
        bound_ms, measure = CHECKS[name]
        with tempfile.TemporaryDirectory(prefix="dhp-times-") as folder:
            times = list(measure(Path(folder) / "data"))
        median = statistics.median(times)
        over = median > bound_ms
        missed += over
        meaning = (measure.__doc__ or "").rstrip(".")
        row = f"{bound_ms:8.0f}  {median:8.1f}  {max(times):8.1f}  {len(times):4}"
        print(f"{row}  {'MISSED  ' if over else ''}{name}: {meaning}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
