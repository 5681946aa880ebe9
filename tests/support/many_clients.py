"""Many real clients in one process of its own, each with a live lease, and when each of them was back after an outage.

Owns the process, and notes the moments: of each client, its calls' connection and that of its heartbeats.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from .daemon_process import DaemonProcess

ROOT = Path(__file__).parents[2]
AT_ONCE = 20


class ManyClients:
    """`with ManyClients(daemon.tcp, "work", 100, ttl_ms=6_000) as clients:`; each has claimed one of that kind then."""

    def __init__(self, address: str, kind: str, count: int, *, ttl_ms: int) -> None:
        self.count = count
        command = [sys.executable, "-m", __name__, address, kind, str(count), str(ttl_ms)]
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the process.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True, cwd=ROOT
        )

    def __enter__(self) -> "ManyClients":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._stderr.close()

    def await_ready(self) -> None:
        assert self._said() == "ready"

    def back_since(self, since_s: float) -> list[float]:
        """When (monotonic) each connection was there again for the first time after `since_s`; two of each client."""
        found: list[float] = self._ask("moments", since_s)
        return found

    def save(self) -> int:
        """How many of them could save a checkpoint under the lease that they had from the beginning."""
        saved: int = self._ask("save", 0.0)
        return saved

    def _ask(self, *what: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self._said()

    def _said(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._stderr.seek(0)
            raise AssertionError(f"the clients' process has ended: {self._stderr.read()[-4_000:]}")
        return json.loads(line)


def all_back(crews: Iterable[ManyClients], since_s: float, *, within_s: float = 30.0) -> list[float]:
    """When each connection was there again, sorted, once all are; AssertionError where they aren't within that time."""
    crews, until_s = list(crews), time.monotonic() + within_s
    while True:
        moments = [moment for crew in crews for moment in crew.back_since(since_s)]
        if len(moments) == 2 * sum(crew.count for crew in crews):
            return sorted(moments)
        assert time.monotonic() < until_s, f"{len(moments)} connections are back"
        time.sleep(0.1)


def leases_lost(daemon: DaemonProcess, expected: int) -> list[dict[str, Any]]:
    """The statuses of those handoffs whose first lease isn't in force any more."""
    from .wire_client import WireClient

    statuses: list[dict[str, Any]] = []
    with WireClient(daemon.tcp) as client:
        after = None
        while not statuses or after is not None:
            page = client.call("list", **({} if after is None else {"after": after}))
            statuses, after = statuses + page["handoffs"], page["next"]
    assert len(statuses) == expected
    return [status for status in statuses if (status["status"], status["fence"]) != ("running", 1)]


async def _run(address: str, kind: str, count: int, ttl_ms: int) -> None:
    import dhp_client
    from dhp_client.heartbeats import Heartbeats
    from dhp_client.session import Session

    moments: list[tuple[int, float]] = []
    ready, join = Session._is_back, Heartbeats.join

    def noted_ready(session: Session) -> None:
        moments.append((id(session), time.monotonic()))
        ready(session)

    def noted_join(heartbeats: Heartbeats, hello: Any) -> None:
        join(heartbeats, hello)
        moments.append((id(heartbeats._table), time.monotonic()))

    Session._is_back, Heartbeats.join = noted_ready, noted_join  # type: ignore[method-assign]
    some = asyncio.Semaphore(AT_ONCE)

    async def begin() -> tuple[dhp_client.Client, dhp_client.Task]:
        async with some:
            client = await dhp_client.connect(address)
            task = await client.claim(kinds=kind, ttl_ms=ttl_ms, wait_ms=60_000)
        assert task is not None
        return client, task

    async def saves(task: dhp_client.Task) -> bool:
        try:
            await task.checkpoint({"saved": True})
        except dhp_client.LeaseLost:
            return False
        return task.fence == 1

    held = await asyncio.gather(*(begin() for _ in range(count)))
    print(json.dumps("ready"), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        what, since_s = json.loads(line)
        if what == "save":
            told: Any = sum(await asyncio.gather(*(saves(task) for _, task in held)))
        else:
            first: dict[int, float] = {}
            for whose, moment in moments:
                if moment > since_s:
                    first.setdefault(whose, moment)
            told = list(first.values())
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
