"""How long an honest client's ping takes while something comes to a whole crowd: `python bench/crowds.py [CASE…]`.

Prints, for each case, how long the whole took, and of the pings in that time the median, the 99th percentile and the worst,
in milliseconds. Exit code 1 where the worst passes the bound.
"""

import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient, frame, open_socket

BOUND_MS = 50
IN_FLIGHT = 300
LONG_MS = 600_000
KINDS = [f"k{number}" for number in range(64)]
SETTLE_S = 2.0
ENVIRONMENT = {"DHPD_MAX_WAITING_IN_ALL": "10000000"}
"""So that as many may wait as it takes."""


class Pinger:
    """Pings from a process of its own; `cut` gives the milliseconds of each ping since the last cut, sorted."""

    def __init__(self, address: str) -> None:
        command = [sys.executable, __file__, "--ping", address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._said()

    def cut(self) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return sorted(map(float, self._said().split()))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def ping(address: str) -> None:
    times: list[float] = []
    with WireClient(address) as client:
        print("pinging", flush=True)
        while True:
            start = time.monotonic()
            client.call("ping")
            times.append((time.monotonic() - start) * 1000)
            if select.select([sys.stdin], [], [], 0.005)[0]:
                sys.stdin.readline()
                print(*(f"{each:.2f}" for each in times), flush=True)
                times.clear()


def all_of(client: WireClient, op: str, requests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sends them all, a bounded number before the answers of the last ones."""
    replies, sent = [], []
    for request in requests:
        sent.append(client.send(op, **request))
        if len(sent) == IN_FLIGHT:
            replies += [client.reply(each) for each in sent]
            sent.clear()
    return replies + [client.reply(each) for each in sent]


class Crowd:
    """Connections that say something, and read whatever comes; `lines` is how much has come."""

    def __init__(self, address: str, count: int, said: bytes) -> None:
        self.sockets = []
        for _ in range(count):
            self.sockets.append(open_socket(address))
            self.sockets[-1].sendall(said)
        self.lines = 0
        self._done = False
        self._reader = Thread(target=self._read)

    def __enter__(self) -> "Crowd":
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done = True
        self._reader.join()
        for each in self.sockets:
            each.close()

    def await_lines(self, count: int) -> None:
        while self.lines < count:
            time.sleep(0.01)

    def _read(self) -> None:
        poll = select.epoll()
        by_number = {each.fileno(): each for each in self.sockets}
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        while not self._done:
            for number, _ in poll.poll(0.1):
                data = by_number[number].recv(1 << 20)
                self.lines += data.count(b"\n")
                if not data:
                    poll.unregister(number)


Act = Callable[[], object]


def nothing(daemon: DaemonProcess, client: WireClient, stack: ExitStack) -> Act:
    """Nothing happens."""
    return lambda: time.sleep(3)


def children(daemon: DaemonProcess, client: WireClient, stack: ExitStack) -> Act:
    """20,000 children are cancelled by one request."""
    parent = client.dispatch("parent")
    all_of(client, "dispatch", ({"kind": "c", "inputs": {}, "key": str(n), "parent": parent} for n in range(20_000)))
    return lambda: client.call("cancel", handoff=parent, children=True)


def goodbye(daemon: DaemonProcess, client: WireClient, stack: ExitStack) -> Act:
    """10,000 leases are released by one request."""
    holder = stack.enter_context(WireClient(daemon.tcp))
    holder.call("hello", session="holder")
    all_of(client, "dispatch", ({"kind": "g", "inputs": {}, "key": str(n)} for n in range(10_000)))
    all_of(holder, "claim", ({"worker": "w", "kinds": ["g"], "ttl_ms": LONG_MS} for _ in range(10_000)))
    return lambda: holder.call("goodbye")


def closing(daemon: DaemonProcess, client: WireClient, stack: ExitStack) -> Act:
    """50 connections end, on each of which 1,000 claims of 64 kinds wait."""
    claim = frame({"op": "claim", "worker": "w", "kinds": KINDS, "wait_ms": LONG_MS}, counted=True)
    crowd = stack.enter_context(Crowd(daemon.tcp, 50, claim * 1_000))

    def waiting(count: int) -> None:
        while client.call("stats")["waiting_claims"] != count:
            time.sleep(0.05)

    def act() -> None:
        for each in crowd.sockets:
            each.shutdown(socket.SHUT_RDWR)
        waiting(0)

    waiting(50_000)
    return act


def results(daemon: DaemonProcess, client: WireClient, stack: ExitStack) -> Act:
    """20,000 who wait for one result hear of its end."""
    handoff = client.dispatch("r")
    wait = frame({"op": "result", "handoff": handoff, "wait_ms": LONG_MS}, counted=True)
    crowd = stack.enter_context(Crowd(daemon.tcp, 20, wait * 1_000))

    def act() -> None:
        client.call("cancel", handoff=handoff)
        crowd.await_lines(20_000)

    return act


def approvals(daemon: DaemonProcess, client: WireClient, stack: ExitStack) -> Act:
    """Pages of one are asked for without end, among 20,000 approvals that are decided."""
    person = stack.enter_context(WireClient(daemon.tcp))
    for number in range(20):
        handoff = client.dispatch("a", key=str(number))
        held = {"handoff": handoff, "fence": client.claim(handoff=handoff, ttl_ms=LONG_MS)["fence"]}
        for start in range(0, 1_000, 100):
            asked = ({**held, "action": f"{start + n}", "details": {}, "timeout_ms": LONG_MS} for n in range(100))
            names = [reply["approval"] for reply in all_of(client, "approval_request", asked)]
            all_of(person, "approval_decide", ({"approval": name, "decision": "deny"} for name in names))
    return lambda: all_of(client, "approvals", ({"limit": 1} for _ in range(3_000)))


def watchers(daemon: DaemonProcess, client: WireClient, stack: ExitStack) -> Act:
    """2,000 watchers are shown each of 60 records."""
    crowd = stack.enter_context(Crowd(daemon.tcp, 2_000, frame({"op": "watch"}, counted=True)))
    crowd.await_lines(2_000)

    def act() -> None:
        for number in range(60):
            client.dispatch("w", key=str(number))
            time.sleep(0.03)
        crowd.await_lines(61 * 2_000)

    return act


CASES: dict[str, Callable[[DaemonProcess, WireClient, ExitStack], Act]] = {
    case.__name__: case for case in (nothing, children, goodbye, closing, results, approvals, watchers)
}


def main(names: list[str]) -> int:
    if names[:1] == ["--ping"]:
        ping(names[1])
    unknown = [name for name in names if name not in CASES]
    if unknown:
        print(f"There is no case {unknown[0]!r}: {' '.join(CASES)}", file=sys.stderr)
        return 2
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    missed = 0
    print(f"{'whole':>9} {'median':>8} {'p99':>8} {'worst':>8}  ms while")
    for name in names or CASES:
        with tempfile.TemporaryDirectory(prefix="dhp-crowds-") as folder, ExitStack() as stack:
            daemon = stack.enter_context(DaemonProcess(Path(folder) / "data", env=ENVIRONMENT))
            client = stack.enter_context(WireClient(daemon.tcp))
            act = CASES[name](daemon, client, stack)
            pinger = Pinger(daemon.tcp)
            stack.callback(pinger.close)
            time.sleep(SETTLE_S)
            pinger.cut()
            start = time.monotonic()
            act()
            whole_ms = (time.monotonic() - start) * 1000
            time.sleep(0.2)
            times = pinger.cut()
        missed += times[-1] > BOUND_MS
        middle, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        told = (CASES[name].__doc__ or "").rstrip(".")
        print(f"{whole_ms:9.0f} {middle:8.2f} {p99:8.2f} {times[-1]:8.2f}  {told}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
