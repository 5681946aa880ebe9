"""Simulated clients: workers that work, pause, die and go on as zombies, and a dispatcher that asks for work and reads.

Owns what a client does with the protocol: one connection, the same bytes again after a break, safe retries. It is a model
of a client, small enough to be read; the real one is tested against the real daemon.
"""

import json
from collections.abc import Callable
from typing import Any

from .checks import Checks, require
from .world import TTL_MS, Pipe, SimulatedDaemon, World

Then = Callable[[dict[str, Any]], None]
KINDS = ("alpha", "beta")


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

    def ask(self, request: dict[str, Any], then: Then, ttl_ms: int = TTL_MS) -> None:
        """Sends the request, again after every break, until it is answered."""
        self._number += 1
        request = {**request, "id": f"{self.name}/{self._number}"}
        body = json.dumps(request).encode()
        self._open[request["id"]] = (body, then)
        self.checks.sends({**request, "_ttl_ms": ttl_ms}, self.name, self.world.now_ms)
        self._send(body)
        if self.world.chance(self.world.faults.doubled):
            self._send(body)

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
        self.checks.interrupted(self.name, self.world.now_ms)
        if self._pipe is not None:
            pipe = self._pipe
            self.world.at(self.world.between(0, 20), lambda: self.daemon.hang_up(pipe))
            self._pipe = None

    def _send(self, body: bytes) -> None:
        pipe = self._pipe
        if pipe is None or not pipe.open:
            return
        if self.world.chance(self.world.faults.cut):
            self.checks.interrupted(self.name, self.world.now_ms)
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
        self.checks.sends(hello, self.name, self.world.now_ms)
        self._open[hello["id"]] = (b"", lambda said: None)
        self._send(json.dumps(hello).encode())
        for body, _ in list(self._open.values()):
            if body:
                self._send(body)

    def _ended(self) -> None:
        self.checks.interrupted(self.name, self.world.now_ms)
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


class Worker(Client):
    """Claims, checkpoints, ends; may pause, die, or write on after it lost its lease."""

    def __init__(self, world: World, daemon: SimulatedDaemon, checks: Checks, name: str) -> None:
        super().__init__(world, daemon, checks, name)
        self._claims = 0
        self._held: dict[str, int] = {}
        self._lost: set[tuple[str, int]] = set()
        self.later(world.between(0, 100), self._claim)

    def hears(self, event: dict[str, Any]) -> None:
        if event["event"] in ("lease_lost", "cancelled"):
            self._lose(event["handoff"], event["fence"])

    def _claim(self) -> None:
        self._claims += 1
        request: dict[str, Any] = {
            "op": "claim",
            "worker": self.name.split("#")[0],
            "kinds": list(KINDS),
            "wait_ms": 2_000,
            "ttl_ms": TTL_MS,
            "nonce": f"{self.name}-{self._claims}",
        }
        self.ask(request, self._granted)

    def _granted(self, said: dict[str, Any]) -> None:
        if not said["ok"] or said["handoff"] is None:
            self.later(self.world.between(10, 300), self._claim)
            return
        handoff, fence = said["handoff"], said["fence"]
        if (handoff, fence) in self._lost:
            self._claim()
            return
        self._held[handoff] = fence
        done = said["checkpoint"]["seq"] if said["checkpoint"] is not None else 0
        self._beat(handoff, fence)
        self._go_on(handoff, fence, done, done + self.world.between(0, 4))

    def _beat(self, handoff: str, fence: int) -> None:
        if self._held.get(handoff) != fence:
            return

        def answered(said: dict[str, Any]) -> None:
            if said["ok"] and handoff in said["lost"]:
                self._lose(handoff, fence)

        self.ask({"op": "heartbeat", "leases": [{"handoff": handoff, "fence": fence}]}, answered)
        self.later(TTL_MS // 3, lambda: self._beat(handoff, fence))

    def _go_on(self, handoff: str, fence: int, done: int, goal: int) -> None:
        if self._held.get(handoff) != fence:
            return
        if self.world.chance(self.world.faults.worker_death):
            self.die()
            return
        if self.world.chance(self.world.faults.worker_pause):
            self.paused_until_ms = self.world.now_ms + self.world.between(100, 3 * TTL_MS)
        act = (
            (lambda: self._end(handoff, fence))
            if done >= goal
            else (lambda: self._step(handoff, fence, done + 1, goal))
        )
        self.later(self.world.between(10, 500), act)

    def _step(self, handoff: str, fence: int, seq: int, goal: int) -> None:
        state = {"by": self.name, "seq": seq, "fence": fence}
        request = {"op": "checkpoint", "handoff": handoff, "fence": fence, "seq": seq, "state": state}

        def answered(said: dict[str, Any]) -> None:
            if said["ok"]:
                self._go_on(handoff, fence, seq, goal)
            elif said["error"]["code"] == "store_unavailable":
                self.later(self.world.between(10, 200), lambda: self._step(handoff, fence, seq, goal))
            else:
                self._lose(handoff, fence)
                self._zombie(handoff, fence, seq)
                self._claim()

        self.ask(request, answered)

    def _end(self, handoff: str, fence: int) -> None:
        draw = self.world.random.random()
        request: dict[str, Any] = {"op": "complete", "result": {"by": self.name}}
        if draw < 0.15:
            request = {"op": "fail", "error": {"type": "Simulated"}, "retry": draw > 0.02, "delay_ms": 100}
        elif draw < 0.25:
            request = {"op": "release", "reason": "simulated"}
        self._send_end({**request, "handoff": handoff, "fence": fence})

    def _send_end(self, request: dict[str, Any]) -> None:
        def answered(said: dict[str, Any]) -> None:
            if not said["ok"] and said["error"]["code"] == "store_unavailable":
                self.later(self.world.between(10, 200), lambda: self._send_end(request))
                return
            self._lose(request["handoff"], request["fence"])
            self._zombie(request["handoff"], request["fence"], 99)
            self._claim()

        self.ask(request, answered)

    def _zombie(self, handoff: str, fence: int, seq: int) -> None:
        """Writes with a fence that it has been told is lost: nothing of it may be accepted."""
        if not self.world.chance(30):
            return

        def answered(said: dict[str, Any]) -> None:
            accepted = said["ok"] and not said.get("duplicate", False)
            require(not accepted, f"a write with a lost fence was accepted: {said}")

        request = {"op": "checkpoint", "handoff": handoff, "fence": fence, "seq": seq, "state": "zombie"}
        self.later(self.world.between(0, 2_000), lambda: self.ask(request, answered))

    def _lose(self, handoff: str, fence: int) -> None:
        if self._held.get(handoff) == fence:
            del self._held[handoff]
        self._lost.add((handoff, fence))


class Dispatcher(Client):
    """Asks for work, looks at it, cancels some, and takes note of the ends."""

    def __init__(self, world: World, daemon: SimulatedDaemon, checks: Checks, name: str, handoffs: int) -> None:
        super().__init__(world, daemon, checks, name)
        self.left = handoffs
        self.ended: set[str] = set()
        self.dispatched: list[str] = []
        self.later(0, self._dispatch)
        self.later(500, self._look)

    def _dispatch(self) -> None:
        if not self.left:
            return
        self.left -= 1
        request: dict[str, Any] = {
            "op": "dispatch",
            "kind": self.world.random.choice(KINDS),
            "inputs": {"number": self.left, "of": self.name},
            "budget": {"max_attempts": self.world.between(2, 6)},
            "priority": self.world.between(0, 9),
            "delay_ms": self.world.between(0, 400) if self.world.chance(30) else 0,
        }
        if self.dispatched and self.world.chance(20):
            request["parent"] = self.world.random.choice(self.dispatched)
        self._send_dispatch(request)
        self.later(self.world.between(20, 600), self._dispatch)

    def _send_dispatch(self, request: dict[str, Any]) -> None:
        def answered(said: dict[str, Any]) -> None:
            if said["ok"]:
                self.dispatched.append(said["handoff"])
                self._wait(said["handoff"])
            elif said["error"]["code"] == "wrong_state":  # The parent has ended.
                self._send_dispatch({name: value for name, value in request.items() if name != "parent"})
            else:
                self.later(self.world.between(20, 300), lambda: self._send_dispatch(request))

        self.ask(request, answered)

    def _wait(self, handoff: str) -> None:
        def answered(said: dict[str, Any]) -> None:
            if said["ok"] and said["status"] in ("completed", "cancelled", "dead"):
                self.ended.add(handoff)
                self.ask({"op": "ack", "handoff": handoff}, lambda said: None)
            else:
                self.later(self.world.between(10, 200), lambda: self._wait(handoff))

        self.ask({"op": "result", "handoff": handoff, "wait_ms": 1_500}, answered)

    def _look(self) -> None:
        if self.dispatched:
            handoff = self.world.random.choice(self.dispatched)
            draw = self.world.between(0, 99)
            request: dict[str, Any] = {"op": "status", "handoff": handoff}
            if draw < 4:
                request = {"op": "cancel", "handoff": handoff, "children": draw < 2}
            elif draw < 20:
                request = {"op": "history", "handoff": handoff}
            elif draw < 30:
                request = {"op": "list", "limit": 50}
            self.ask(request, lambda said: None)
        self.later(self.world.between(50, 500), self._look)
