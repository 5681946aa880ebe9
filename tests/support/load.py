"""Load on a daemon that is killed meanwhile, and the memory of everything that it acknowledged or showed.

Owns the kinds of user: workers, a dispatcher, a reader, a watcher, and one whose writes come too late. Each reconnects for
as long as it takes and sends again what was not answered. What they heard is collected in a `Ledger`; whether it still is
so afterwards, the test judges.
"""

import hashlib
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

from .wire_client import Refused, WireClient

TTL_MS = 60_000
PAUSE_S = 0.02


class Ledger:
    """What the daemon said, by who heard it."""

    def __init__(self) -> None:
        self.dispatched: dict[str, int] = {}
        """Handoff: how often it was told to be new."""
        self.checkpoints: set[tuple[str, int, str]] = set()
        """(handoff, seq, sha256)."""
        self.results: dict[str, Any] = {}
        self.statuses: list[dict[str, Any]] = []
        self.refusals: list[tuple[str, dict[str, Any]]] = []
        """(handoff, details of the lease_lost)."""
        self.records: list[dict[str, Any]] = []
        """The watch's events, in the order in which they came."""
        self.surprises: list[str] = []
        self._heard = threading.Condition()
        self._count = 0

    def hear(self) -> None:
        """Something was acknowledged or shown."""
        with self._heard:
            self._count += 1
            self._heard.notify_all()

    def await_more(self, more: int) -> None:
        """Returns once so much more was heard."""
        with self._heard:
            wanted = self._count + more
            assert self._heard.wait_for(lambda: self._count >= wanted, timeout=60), "the load has stopped"


class Load:
    """`with Load(address, ledger):` keeps up the load until the end of the block."""

    def __init__(self, address: str, ledger: Ledger) -> None:
        self._address = address
        self._ledger = ledger
        self._stopping = threading.Event()
        users: list[Callable[[], None]] = [self._dispatcher, self._reader, self._watcher, self._latecomer]
        users += [lambda number=number: self._worker(number) for number in range(4)]  # type: ignore[misc]
        self._threads = [threading.Thread(target=self._guarded, args=(user,), daemon=True) for user in users]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, user: Callable[[], None]) -> None:
        try:
            user()
        except Exception as error:
            self._ledger.surprises.append(f"{user}: {error!r}")

    def _ask(self, link: "_Link", op: str, **members: Any) -> dict[str, Any]:
        """The reply, whatever it takes: sent again until it is answered. Raises `Refused`."""
        while True:
            try:
                return link.client().call(op, **members)
            except (OSError, EOFError, AssertionError):
                link.lose()
                self._stopping.wait(PAUSE_S)

    def _dispatcher(self) -> None:
        link = _Link(self._address)
        for number in itertools.count():
            if self._stopping.is_set():
                return
            kind = "late" if number % 10 == 0 else "work"
            reply = self._ask(link, "dispatch", kind=kind, inputs={"number": number})
            self._ledger.dispatched[reply["handoff"]] = number
            self._ledger.hear()

    def _worker(self, number: int) -> None:
        link = _Link(self._address, session=f"worker-{number}")
        for turn in itertools.count():
            if self._stopping.is_set():
                return
            claim = {"worker": f"w{number}", "kinds": ["work"], "ttl_ms": TTL_MS, "nonce": f"{turn}", "wait_ms": 100}
            granted = self._ask(link, "claim", **claim)
            if granted["handoff"] is None:
                continue
            hold = {"handoff": granted["handoff"], "fence": granted["fence"]}
            for seq in range(1, 4):
                state = f"{turn}-{seq}"
                sha256 = hashlib.sha256(json.dumps(state).encode()).hexdigest()
                self._ask(link, "checkpoint", **hold, seq=seq, state=state)
                self._ledger.checkpoints.add((hold["handoff"], seq, sha256))
                self._ledger.hear()
            self._ask(link, "complete", **hold, result=[number, turn])
            self._ledger.results[hold["handoff"]] = [number, turn]
            self._ledger.hear()

    def _reader(self) -> None:
        link = _Link(self._address)
        while not self._stopping.is_set():
            for handoff in list(self._ledger.dispatched)[-20:]:
                status = self._ask(link, "status", handoff=handoff)
                self._ledger.statuses.append(status)
                self._ledger.hear()

    def _watcher(self) -> None:
        after = 0
        while not self._stopping.is_set():
            try:
                with WireClient(self._address) as client:
                    client.call("watch", after=after)
                    while not self._stopping.is_set():
                        event = client.event()
                        self._ledger.records.append(event)
                        after = event["record"]["position"]
            except (OSError, EOFError, AssertionError):
                self._stopping.wait(PAUSE_S)

    def _latecomer(self) -> None:
        """Gives work back and writes to it all the same: its refusal shows a release that was made that moment."""
        link = _Link(self._address)
        while not self._stopping.is_set():
            try:
                client = link.client()
                granted = client.claim("late", worker="late", ttl_ms=TTL_MS, wait_ms=100)
                if granted["handoff"] is None:
                    continue
                hold = {"handoff": granted["handoff"], "fence": granted["fence"]}
                asked = [client.send("release", **hold), client.send("checkpoint", **hold, state=0)]
                asked.append(client.send("status", handoff=hold["handoff"]))
                client.result(asked[0])
                try:
                    client.result(asked[1])
                    self._ledger.surprises.append("a late checkpoint was taken")
                except Refused as refusal:
                    if refusal.code == "lease_lost":
                        self._ledger.refusals.append((hold["handoff"], refusal.details))
                self._ledger.statuses.append(client.result(asked[2]))
                self._ledger.hear()
            except (OSError, EOFError, AssertionError):
                link.lose()
                self._stopping.wait(PAUSE_S)


class _Link:
    """A connection that is made anew when it is needed."""

    def __init__(self, address: str, session: str | None = None) -> None:
        self._address = address
        self._session = session
        self._client: WireClient | None = None

    def client(self) -> WireClient:
        if self._client is None:
            self._client = WireClient(self._address)
            if self._session is not None:
                self._client.call("hello", session=self._session)
        return self._client

    def lose(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None
