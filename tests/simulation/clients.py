"""A simulated client: one session, whatever happens to its connection.

Owns what every client does with the protocol: one connection, the same bytes again after a break, safe retries; and the
record of what it asked and heard (`history`). It is a model of a client, small enough to be read; the real one is tested
against the real daemon. Who does what with it is in `workers` and `keepers`.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from .checks import Checks
from .daemon import SimulatedDaemon
from .history import Operation
from .world import Pipe, World

Then = Callable[[dict[str, Any]], None]
KINDS = ("alpha", "beta")
STEPS = ("mail", "pay", "wire")
"""The effects of each handoff; one of the last kind needs an approval."""
DOMAIN = "net"
RESOURCES = ("a.example", "b.example")
NOT_NOW = ("store_unavailable", "overloaded")
"""What is refused so is asked for again."""
MOST_LATE_MS = 6_000
"""So much later what was said over an old connection may arrive."""
_encode = msgspec.json.encode
_decode = msgspec.json.decode


class Client:
    """One session: requests in, replies to `then`, whatever happens to the connection."""

    def __init__(self, world: World, daemon: SimulatedDaemon, checks: Checks, name: str) -> None:
        self.world = world
        self.daemon = daemon
        self.checks = checks
        self.name = name
        self.dice = world.dice(name)
        self.alive = True
        self.paused_until_ms = 0
        self._number = 0
        self._connections = 0
        self._greeted = 0  # The newest connection on which the daemon is known to know its name.
        self._pipe: Pipe | None = None
        self._left: set[int] = set()  # Connections that it has given up, and that the daemon may believe in.
        self._open: dict[str, tuple[bytes, Then, Operation]] = {}
        self._connect()

    def ask(self, request: dict[str, Any], then: Then, **private: Any) -> None:
        """Sends the request, again after every break, until it is answered; `private` is for the checks only."""
        self._number += 1
        request = {**request, "id": f"{self.name}/{self._number}"}
        body = _encode(request)
        operation = self.checks.sends({**request, "_ttl_ms": self.world.ttl_ms, **private}, self.name)
        self._open[request["id"]] = (body, then, operation)
        self._send(body)
        if self.world.strikes("doubled"):
            self._send(body)

    def unanswered(self) -> list[str]:
        """The requests that have no answer yet."""
        return list(self._open)

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

    def pause(self, for_ms: int) -> None:
        """Stopped as by SIGSTOP."""
        self.paused_until_ms = self.world.now_ms + for_ms

    def die(self) -> None:
        """Killed: the connection ends, nothing is said."""
        self.alive = False
        self.checks.interrupted(self.name)
        if self._pipe is not None:
            pipe = self._pipe
            self._pipe = None
            self.world.at(self.dice.between(0, 20), lambda: self._hang_up(pipe))

    def _send(self, body: bytes) -> None:
        pipe = self._pipe
        if pipe is None or not pipe.open:
            return
        if self.world.strikes("cut"):
            self.checks.interrupted(self.name)
            pipe.deliver("up", lambda: self._hang_up(pipe))
            pipe.cut()
        elif self.world.strikes("reset"):
            self._hang_up(pipe)
            pipe.open = False
            self._ended()
        elif late := self.world.strikes("half_open"):
            self._come_back(pipe, late.between(10, MOST_LATE_MS), body)
        else:
            pipe.deliver("up", lambda: self.daemon.receive(pipe, body))

    def _come_back(self, old: Pipe, late_ms: int, body: bytes) -> None:
        """Over a new connection, while nobody knows yet that the old one is over: what was said there arrives late."""
        self._left.add(old.number)
        old.hold_up(late_ms)
        old.deliver("up", lambda: self.daemon.receive(old, body))
        old.deliver("up", lambda: self._hang_up(old))
        self.checks.interrupted(self.name)
        self._pipe = None
        self._connect()

    def _hang_up(self, pipe: Pipe) -> None:
        self.checks.interrupted(self.name)
        self._left.discard(pipe.number)
        known = self.daemon.hang_up(pipe)
        if known and not self.alive and not self._left and self._greeted == self._connections:
            self.checks.gone(self.name)

    def _connect(self) -> None:
        if not self.alive:
            return
        self._connections += 1
        number = self._connections
        self._pipe = self.daemon.connect(
            self.world.dice(f"{self.name}, connection {number}"),
            lambda body: self._received(number, body),
            lambda: self._ended() if number == self._connections else None,
        )
        if self._pipe is None:
            self.world.at(self.dice.between(20, 300), self._connect)
            return
        hello = {"op": "hello", "session": self.name, "id": f"{self.name}, connection {number}"}
        self.checks.sends(hello, self.name)
        self._send(_encode(hello))
        for body, _, _ in list(self._open.values()):
            if number == self._connections:
                self._send(body)

    def _ended(self) -> None:
        self.checks.interrupted(self.name)
        if self._pipe is not None and self._pipe.number in self.daemon.pipes:
            self._left.add(self._pipe.number)
        self._pipe = None
        self.later(self.dice.between(10, 200), self._connect)

    def _received(self, connection: int, body: bytes) -> None:
        if connection != self._connections:
            return
        said = _decode(body)
        if "event" in said:
            self.later(0, lambda: self.hears(said))
        elif said["id"] == f"{self.name}, connection {connection}":
            self._greeted = connection
        elif said["id"] in self._open:
            _, then, operation = self._open.pop(said["id"])
            self.checks.heard(operation, said)
            self.later(0, lambda: then(said))

    def hears(self, event: dict[str, Any]) -> None:
        """An event."""
