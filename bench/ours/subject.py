"""The daemon that is measured: a process of its own, watched all the while, with an account of what it used.

Owns starting and hurting it, and reading its counters and the kernel's. Does not own what is done to it.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from msgspec import Struct

from bench.figures import Figure
from bench.setting import Setting
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

from .pauses import Knocker, figures

READY_WITHIN_S = 120.0


class Cost(Struct):
    """What a stretch of work cost the daemon; filled in at the end of the stretch."""

    records: int = 0
    commits: int = 0
    loop_s: float = 0.0
    """CPU of the thread with the event loop."""
    writer_s: float = 0.0
    """CPU of the busiest other thread, which is the one that commits."""

    def figures(self, name: str, operations: int) -> list[Figure]:
        """CPU for each of so many operations, which are what the stretch consisted of but for a few."""
        return [
            Figure(f"{name}/loop_us", self.loop_s / max(1, operations) * 1e6, "us"),
            Figure(f"{name}/writer_us", self.writer_s / max(1, operations) * 1e6, "us"),
            Figure(f"{name}/rows_per_commit", self.records / max(1, self.commits), "count"),
        ]


class Subject:
    """`with Subject(setting, "rates") as subject:` has it ready and watched; `part` names its folder and its pauses."""

    def __init__(self, setting: Setting, part: str) -> None:
        setting.folder.mkdir(parents=True, exist_ok=True)
        # A socket's path must be short, and a folder's may be long.
        self._sockets = tempfile.TemporaryDirectory(prefix="dhp-bench-")
        listen = ("127.0.0.1:0", f"unix:{self._sockets.name}/dhpd.sock")
        self._daemon = DaemonProcess(setting.folder / part, listen=listen, ready_within_s=READY_WITHIN_S)
        self._part = part

    def __enter__(self) -> "Subject":
        self._daemon.start()
        with WireClient(self.address) as client:  # What isn't synced before it is answered isn't what is measured here.
            assert client.call("health")["durability"] == "power loss"
        self._meet()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._part_from()
        self._daemon.close()
        self._sockets.cleanup()

    @property
    def address(self) -> str:
        return self._daemon.tcp

    @property
    def rss_bytes(self) -> int:
        return self._daemon.rss_bytes

    def settled_rss_bytes(self) -> int:
        """Once it has stopped changing: what was answered may still be on its way to tables."""
        before, deadline = 0, time.monotonic() + 10
        while abs((now := self.rss_bytes) - before) > now // 500 and time.monotonic() < deadline:
            before = now
            time.sleep(0.5)
        return now

    def restart(self) -> float:
        """kill -9, and a start on the same data; seconds from the start of the process until it is ready."""
        self._part_from()
        self._daemon.kill()
        begun = time.monotonic()
        self._daemon.start()
        took = time.monotonic() - begun
        self._meet()
        return took

    def pauses(self, part: str | None = None) -> list[Figure]:
        """Of the time since the start, or since this was last asked."""
        return figures(part or self._part, self._knocker.report())

    def waiting(self) -> int:
        """How many handoffs nobody has claimed yet."""
        return int(self._client.call("stats")["handoffs"]["pending"])

    @contextmanager
    def cost(self) -> Iterator[Cost]:
        """`with subject.cost() as cost:` has the cost of the block once it is over."""
        cost = Cost()
        records, commits = self._counters()
        threads = self._cpu_ns()
        yield cost
        spent = {thread: ns - threads.get(thread, 0) for thread, ns in self._cpu_ns().items()}
        loop = self._daemon.pid
        cost.loop_s = spent.pop(loop) / 1e9
        cost.writer_s = max(spent.values(), default=0) / 1e9
        now_records, now_commits = self._counters()
        cost.records, cost.commits = now_records - records, now_commits - commits

    def _counters(self) -> tuple[int, int]:
        stats = self._client.call("stats")
        return stats["records"], stats["commits"]

    def _cpu_ns(self) -> dict[int, int]:
        threads = {}
        for task in Path(f"/proc/{self._daemon.pid}/task").iterdir():
            try:
                threads[int(task.name)] = int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue  # It has just ended.
        return threads

    def _meet(self) -> None:
        self._client = WireClient(self.address)
        self._knocker = Knocker(self._daemon.unix.removeprefix("unix:"), self._daemon.pid)

    def _part_from(self) -> None:
        self._knocker.close()
        self._client.close()
