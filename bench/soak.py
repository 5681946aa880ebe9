"""A day's load in ten minutes: a steady, mixed load, and whether anything grows that should not: `python bench/soak.py`.

`--minutes N` (10), `--handoffs-per-s N` (20). Each handoff is dispatched, claimed, checkpointed five times, completed, asked for and
acknowledged, and forgotten by retention a few seconds later; every tenth is cancelled, fails once or is released once. Beside that a
hundred claims wait for what never comes, five watchers follow all and one reads too slowly, connections come and go, and an honest
client pings. Of the claims every tenth has a nonce: those are remembered for ten minutes, so that more of them would look like growth.

Prints, minute by minute, the medians of the daemon's memory, its write-ahead log and file, open files and tasks, and of the pings the
median and the 99th percentile; then what memory grows by in an hour, as the last four tenths of the time show it (a line of least
squares; caches fill before), and what that, and the operations, come to in a day. Exit code 1 where memory grows by more than
`--mb-per-hour` (12), the log is ever larger than its bound, or the pings' 99th percentile passes 20 ms.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.crowds import Pinger
from dhpd.store.wal import AUTOCHECKPOINT_PAGES, PAGE_BYTES
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import Refused, WireClient

MIB = 1024 * 1024
LOG_BOUND_BYTES = AUTOCHECKPOINT_PAGES * PAGE_BYTES + 2 * MIB
PINGS_BOUND_MS = 20
SAMPLE_EVERY_S = 2.0
SETTLED_AFTER_S = 300.0
"""Of a shorter time memory isn't judged: it says nothing about an hour."""
WARM_UP = 0.6
"""In this share of the time SQLite fills its page caches, and the file finds the size at which pages come free as fast as they are wanted."""
RETENTION_MS = 5_000
LONG_MS = 600_000
CHECKPOINTS = 5
STATE = {"page": 0, "text": "x" * 1_000}
WORKERS, WATCHERS, WAITERS, WAITS_EACH = 4, 5, 10, 10


class Sample(NamedTuple):
    """The daemon at one moment, in bytes and counts."""

    at_s: float
    memory: int
    log: int
    file: int
    open_files: int
    tasks: int
    records: int
    late_ms: float


class Load:
    """Users in threads, paced by the dispatcher. What one of them can't explain ends the run."""

    def __init__(self, address: str, handoffs_per_s: float) -> None:
        self.finished = 0
        self.operations = 0
        self.problem: str | None = None
        self._address = address
        self._every_s = 1 / handoffs_per_s
        self._stopping = threading.Event()
        users: list[Callable[[WireClient], None]] = [self._dispatcher, self._keeper, self._slow_watcher, self._comer]
        users += [self._worker] * WORKERS + [self._watcher] * WATCHERS + [self._waiter] * WAITERS
        self._threads = [threading.Thread(target=self._run, args=(user,), daemon=True) for user in users]
        self._ended: list[str] = []

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()

    def _run(self, user: Callable[[WireClient], None]) -> None:
        try:
            with WireClient(self._address) as client:
                client.call("hello", client=user.__name__)
                user(client)
        except Exception as error:
            if not self._stopping.is_set():
                self.problem = f"{user.__name__}: {error!r}"

    def _call(self, client: WireClient, op: str, **members: Any) -> dict[str, Any]:
        self.operations += 1
        return client.call(op, **members)

    def _dispatcher(self, client: WireClient) -> None:
        due_s = time.monotonic()
        number = 0
        while not self._stopping.is_set():
            number += 1
            members = {"labels": {"n": str(number)}, "budget": {"max_usd": 10, "max_attempts": 5}}
            handoff = self._call(client, "dispatch", kind="soak", inputs={"n": number}, **members)["handoff"]
            if number % 30 == 0:
                self._call(client, "cancel", handoff=handoff)
                self._ended.append(handoff)
            due_s += self._every_s
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _worker(self, client: WireClient) -> None:
        turn = 0
        while not self._stopping.is_set():
            turn += 1
            nonce = {"nonce": f"{id(client)}-{turn}"} if turn % 10 == 0 else {}
            granted = self._call(client, "claim", worker="w", kinds=["soak"], wait_ms=1_000, ttl_ms=30_000, **nonce)
            if granted["handoff"] is None:
                continue
            hold = {"handoff": granted["handoff"], "fence": granted["fence"]}
            try:
                self._work(client, hold, turn, granted["attempt"])
            except Refused as refusal:  # It was cancelled.
                if refusal.code != "lease_lost":
                    raise

    def _work(self, client: WireClient, hold: dict[str, Any], turn: int, attempt: int) -> None:
        for _ in range(CHECKPOINTS):
            self._call(client, "checkpoint", **hold, state=STATE, usd=0.001)
        self._call(client, "heartbeat", leases=[hold])
        self._call(client, "effect_begin", **hold, step="pay")
        self._call(client, "effect_done", **hold, step="pay", result={"paid": True})
        if attempt == 1 and turn % 10 in (3, 6):
            end = {"op": "release"} if turn % 10 == 3 else {"op": "fail", "error": {"type": "E"}, "delay_ms": 100}
            self._call(client, end.pop("op"), **hold, **end)  # type: ignore[arg-type]
            return
        self._call(client, "complete", **hold, result={"n": turn})
        self._ended.append(hold["handoff"])

    def _keeper(self, client: WireClient) -> None:
        while not self._stopping.is_set():
            ended, self._ended = self._ended, []
            for handoff in ended:
                self._call(client, "result", handoff=handoff)
                self._call(client, "history", handoff=handoff)
                self._call(client, "ack", handoff=handoff)
                self.finished += 1
            self._call(client, "list", status="running")
            self._stopping.wait(0.2)

    def _watcher(self, client: WireClient) -> None:
        client.call("watch")
        while not self._stopping.is_set():
            client.event()

    def _slow_watcher(self, client: WireClient) -> None:
        client.call("watch")
        while not self._stopping.is_set():
            client.event()
            self._stopping.wait(0.05)

    def _waiter(self, client: WireClient) -> None:
        for _ in range(WAITS_EACH):
            client.send("claim", worker="w", kinds=["never"], wait_ms=LONG_MS)
        while not self._stopping.wait(5.0):
            client.pump()

    def _comer(self, _: WireClient) -> None:
        while not self._stopping.wait(0.2):
            with WireClient(self._address) as passing:
                self._call(passing, "hello", session="comes and goes")
                self._call(passing, "stats")


def sample(daemon: DaemonProcess, client: WireClient, started_s: float) -> Sample:
    stats = client.call("stats")
    return Sample(
        at_s=time.monotonic() - started_s,
        memory=daemon.rss_bytes,
        log=size_of(daemon.data / "dhpd.sqlite-wal"),
        file=size_of(daemon.data / "dhpd.sqlite"),
        open_files=len(list(Path(f"/proc/{daemon.pid}/fd").iterdir())),
        tasks=stats["tasks"],
        records=stats["records"],
        late_ms=stats["loop_late_ms"],
    )


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def growth_per_hour(samples: list[Sample]) -> float:
    """Bytes of memory, by a line of least squares."""
    times = [each.at_s for each in samples]
    return statistics.linear_regression(times, [each.memory for each in samples]).slope * 3_600


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def show_minute(minute: int, samples: list[Sample], pings: list[float]) -> None:
    def middle(of: Callable[[Sample], float]) -> float:
        return statistics.median(map(of, samples))

    print(
        f"{minute:>6} {middle(lambda each: each.memory) / MIB:>9.1f} {middle(lambda each: each.log) / MIB:>7.1f} "
        f"{middle(lambda each: each.file) / MIB:>7.1f} {middle(lambda each: each.open_files):>6.0f} "
        f"{middle(lambda each: each.tasks):>6.0f} {percentile(pings, 0.5):>8.2f} {percentile(pings, 0.99):>8.2f} "
        f"{middle(lambda each: each.late_ms):>8.1f} {(samples[-1].records - samples[0].records) / max(1e-9, samples[-1].at_s - samples[0].at_s):>10.0f}",
        flush=True,
    )


def soak(minutes: float, handoffs_per_s: float, mb_per_hour: float) -> int:
    samples: list[Sample] = []
    all_pings: list[float] = []
    with tempfile.TemporaryDirectory(prefix="dhp-soak-") as folder, ExitStack() as stack:
        daemon = stack.enter_context(DaemonProcess(Path(folder) / "data", env={"DHPD_RETENTION_MS": str(RETENTION_MS)}))
        client = stack.enter_context(WireClient(daemon.unix if len(daemon.addresses) > 1 else daemon.tcp))
        pinger = Pinger(daemon.tcp)
        stack.callback(pinger.close)
        load = stack.enter_context(Load(daemon.tcp, handoffs_per_s))
        print(
            f"{'minute':>6} {'memory MB':>9} {'log':>7} {'file':>7} {'files':>6} {'tasks':>6} {'ping ms':>8} {'p99':>8} {'late p99':>8} {'records/s':>10}"
        )
        started_s = time.monotonic()
        minute = 1
        first = 0
        while (passed_s := time.monotonic() - started_s) < minutes * 60:
            if load.problem is not None:
                print(f"The load can't go on: {load.problem}", file=sys.stderr)
                return 1
            samples.append(sample(daemon, client, started_s))
            if passed_s >= minute * 60 - SAMPLE_EVERY_S:
                pings = pinger.cut()
                show_minute(minute, samples[first:], pings)
                all_pings += pings
                minute, first = minute + 1, len(samples)
            time.sleep(SAMPLE_EVERY_S)
        all_pings += pinger.cut()
        finished, operations = load.finished, load.operations
        hits = {name: count for name, count in client.call("stats")["limits_hit"].items() if count}
    return judge(samples, sorted(all_pings), finished, operations, hits, mb_per_hour)


def judge(
    samples: list[Sample],
    pings: list[float],
    finished: int,
    operations: int,
    hits: dict[str, int],
    mb_per_hour: float,
) -> int:
    """Says what it came to, and whether that is well."""
    passed_s = samples[-1].at_s
    growth = growth_per_hour([each for each in samples if each.at_s >= passed_s * WARM_UP]) / MIB
    most_log, p99 = max(each.log for each in samples), percentile(pings, 0.99)
    per_day = 86_400 / passed_s
    print(f"finished {finished} handoffs with {operations} requests; met bounds: {hits or 'none'}")
    print(f"in a day that is {finished * per_day:,.0f} handoffs, {operations * per_day:,.0f} requests")
    grown = (
        growth <= mb_per_hour,
        f"memory: {growth:+.1f} MB in an hour ({growth * 24:+.0f} in a day), at most {mb_per_hour:g}",
    )
    if passed_s < SETTLED_AFTER_S - 2 * SAMPLE_EVERY_S:
        grown = (True, f"memory: not judged in less than {SETTLED_AFTER_S / 60:.0f} minutes")
    verdicts = [
        grown,
        (
            most_log <= LOG_BOUND_BYTES,
            f"log: {most_log / MIB:.1f} MB at its largest, at most {LOG_BOUND_BYTES / MIB:.0f}",
        ),
        (p99 <= PINGS_BOUND_MS, f"pings: p99 {p99:.2f} ms, at most {PINGS_BOUND_MS}"),
    ]
    for good, told in verdicts:
        print(f"{'ok    ' if good else 'MISSED'}  {told}")
    return 0 if all(good for good, _ in verdicts) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="A steady load, and whether anything grows.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--handoffs-per-s", type=float, default=20.0)
    parser.add_argument("--mb-per-hour", type=float, default=12.0)
    arguments = parser.parse_args()
    return soak(arguments.minutes, arguments.handoffs_per_s, arguments.mb_per_hour)


if __name__ == "__main__":
    sys.exit(main())
