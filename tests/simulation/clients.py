"""A simulated client: one session, whatever happens to its connection.

Owns what every client does with the protocol: one connection, the same bytes again after a break, safe retries. It is a model
of a client, small enough to be read; the real one is tested against the real daemon. Who does what with it is in `workers`
and `keepers`.
"""

import json
from collections.abc import Callable
from typing import Any

from .checks import Checks
from .daemon import TTL_MS, SimulatedDaemon
from .world import Pipe, World

Then = Callable[[dict[str, Any]], None]
KINDS = ("alpha", "beta")
STEPS = ("mail", "pay", "wire")
"""The effects of each handoff; one of the last kind needs an approval."""
DOMAIN = "net"
RESOURCES = ("a.example", "b.example")


class Client:
    """One session: requests in, replies to `then`, whatever happens to the connection."""

    def __init__(self, world: World, daemon: SimulatedDaemon, checks: Checks, name: str) -> None:
        self.world = world
        self.daemon = daemon
        self.checks = checks
        self.name = name
        self.alive = True
        self.paused_until_ms = 0
        self._number = 0
        self._pipe: Pipe | None = None
        self._open: dict[str, tuple[bytes, Then]] = {}
        self._connect()

    def ask(self, request: dict[str, Any], then: Then, **private: Any) -> None:
        """Sends the request, again after every break, until it is answered; `private` is for the checks only."""
        self._number += 1
        request = {**request, "id": f"{self.name}/{self._number}"}
        body = json.dumps(request).encode()
        self._open[request["id"]] = (body, then)
        self.checks.sends({**request, "_ttl_ms": TTL_MS, **private}, self.name)
        self._send(body)
        if self.world.chance(self.world.faults.doubled):
            self._send(body)

    def unanswered(self) -> list[str]:
        """The requests that have no answer yet."""
        return [name for name, (body, _) in self._open.items() if body]

    def waits_for(self, name: str) -> bool:
        """Whether this request has no answer yet."""
        return name in self._open

    def later(self, delay_ms: int, what: Callable[[], None]) -> None:
        """Does `what` in `delay_ms`, or when this client's pause is over, if it lives then."""

        def now() -> None:
            if not self.alive:
                return
            if self.world.now_ms < self.paused_until_ms:
                self.world.at(self.paused_until_ms - self.world.now_ms, now)
            else:
                what()

        self.world.at(delay_ms, now)

    def die(self) -> None:
        """Killed: the connection ends, nothing is said."""
        self.alive = False
        self.checks.interrupted(self.name)
        if self._pipe is not None:
            pipe = self._pipe
            self.world.at(self.world.between(0, 20), lambda: self.daemon.hang_up(pipe))
            self._pipe = None

    def _send(self, body: bytes) -> None:
        pipe = self._pipe
        if pipe is None or not pipe.open:
            return
        if self.world.chance(self.world.faults.cut):
            self.checks.interrupted(self.name)
            pipe.deliver("up", lambda: self.daemon.hang_up(pipe))
            pipe.cut()
            return
        pipe.deliver("up", lambda: self.daemon.receive(pipe, body))

    def _connect(self) -> None:
        if not self.alive:
            return
        self._pipe = self.daemon.connect(self._received, self._ended)
        if self._pipe is None:
            self.world.at(self.world.between(20, 300), self._connect)
            return
        self._number += 1
        hello = {"op": "hello", "session": self.name, "id": f"{self.name}/{self._number}"}
        self.checks.sends(hello, self.name)
        self._open[hello["id"]] = (b"", lambda said: None)
        self._send(json.dumps(hello).encode())
        for body, _ in list(self._open.values()):
            if body:
                self._send(body)

    def _ended(self) -> None:
        self.checks.interrupted(self.name)
        self._pipe = None
        self.later(self.world.between(10, 200), self._connect)

    def _received(self, body: bytes) -> None:
        said = json.loads(body)
        if "event" in said:
            self.later(0, lambda: self.hears(said))
        elif said["id"] in self._open:
            _, then = self._open.pop(said["id"])
            self.later(0, lambda: then(said))

    def hears(self, event: dict[str, Any]) -> None:
        """An event."""
