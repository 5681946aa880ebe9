"""Simulated workers: they claim, work, pause, die, and go on as zombies.

Owns a hold's course: checkpoints, heartbeats, the end, and writes after the lease is lost. What else a worker does under a
lease (spending, effects, approvals …) is `worker_acts`'.
"""

from collections.abc import Callable
from typing import Any

from .checks import ZOMBIES_SEQ, Checks
from .clients import KINDS, NOT_NOW, Client
from .daemon import SimulatedDaemon
from .violations import require
from .worker_acts import WorkerActs
from .world import World

_PRICES = (0.1, 0.25, 0.333333333, 1e-09)


class Worker(WorkerActs, Client):
    def __init__(self, world: World, daemon: SimulatedDaemon, checks: Checks, name: str) -> None:
        super().__init__(world, daemon, checks, name)
        self._claims = 0
        self._held: dict[str, int] = {}
        self._detached = False
        self._lost: set[tuple[str, int]] = set()
        self.later(self.dice.between(0, 100), self._claim)

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
            "ttl_ms": self.world.ttl_ms,
            "nonce": f"{self.name}-{self._claims}",
        }
        if self.dice.chance(15):
            request["detached"] = True
        if self._lost and self.dice.chance(10):  # What it has lost it may take back, if nobody has it.
            request["op"] = "recover"
            request["handoff"] = sorted(self._lost)[-1][0]
            request["wait_ms"] = self.dice.choice((0, 500))
            del request["kinds"]
        detached = request.get("detached", False)
        self.ask(request, lambda said: self._granted(said, detached=detached))

    def _granted(self, said: dict[str, Any], *, detached: bool) -> None:
        if not said["ok"] or said["handoff"] is None:
            self.later(self.dice.between(10, 300), self._claim)
            return
        handoff, fence = said["handoff"], said["fence"]
        if (handoff, fence) in self._lost:
            self._claim()
            return
        self._held[handoff] = fence
        self._detached = detached
        self.intents[handoff] = said["intent"]
        done = said["checkpoint"]["seq"] if said["checkpoint"] is not None else 0
        self._beat(handoff, fence)
        self._go_on(handoff, fence, done, done + self.dice.between(0, 4))

    def _beat(self, handoff: str, fence: int) -> None:
        if self._held.get(handoff) != fence:
            return

        def answered(said: dict[str, Any]) -> None:
            if said["ok"] and handoff in said["lost"]:
                self._lose(handoff, fence)

        self.ask({"op": "heartbeat", "leases": [{"handoff": handoff, "fence": fence}]}, answered)
        lazy = self.world.strikes("lazy_beat")
        next_ms = (
            self.world.ttl_ms // 3 if lazy is None else lazy.between(self.world.ttl_ms - 200, 2 * self.world.ttl_ms)
        )
        self.later(next_ms, lambda: self._beat(handoff, fence))

    def _go_on(self, handoff: str, fence: int, done: int, goal: int) -> None:
        if self._held.get(handoff) != fence:
            self._leaves_off(handoff, fence)  # It has heard meanwhile that it is lost.
            return
        if self.world.strikes("worker_death"):
            self.die()
            return
        if fault := self.world.strikes("worker_pause"):
            self.pause(fault.between(100, 3 * self.world.ttl_ms))
        act: Callable[[], None]
        if self.dice.chance(50):
            act = lambda: self.act(handoff, fence, lambda: self._go_on(handoff, fence, done, goal))  # noqa: E731
        elif done >= goal:
            act = lambda: self._end(handoff, fence)  # noqa: E731
        else:
            act = lambda: self._checkpoint(handoff, fence, done + 1, goal)  # noqa: E731
        self.later(self.dice.between(10, 500), act)

    def _checkpoint(self, handoff: str, fence: int, seq: int, goal: int) -> None:
        request: dict[str, Any] = {
            "op": "checkpoint",
            "handoff": handoff,
            "fence": fence,
            "seq": seq,
            "state": {"by": self.name, "seq": seq, "fence": fence},
            "steps": self.dice.between(0, 2),
        }
        if self.dice.chance(40):
            request["usd"] = self.dice.choice(_PRICES)
        if self.dice.chance(20):
            request["activity"] = f"digest {self.dice.between(0, 2)}"
        go_on: Callable[[dict[str, Any]], None] = lambda said: self._go_on(handoff, fence, seq, goal)  # noqa: E731

        def answered(said: dict[str, Any]) -> None:
            if self.dice.chance(5):  # The same seq with another state.
                other = {**request, "state": f"other than {seq}"}
                self.write(other, go_on, may=("checkpoint_conflict", "out_of_order"))
            else:
                go_on(said)

        self.write(request, answered)

    def write(
        self, request: dict[str, Any], then: Callable[[dict[str, Any]], None], may: tuple[str, ...] = (), **private: Any
    ) -> None:
        """A write under a lease, sent again while the store fails; `then` hears of success, and of the refusals in `may`."""

        def answered(said: dict[str, Any]) -> None:
            code = "" if said["ok"] else said["error"]["code"]
            if code in NOT_NOW:
                self.later(self.dice.between(10, 200), lambda: self.ask(request, answered, **private))
            elif not code or code in may:
                then(said)
            else:
                self._leaves_off(request["handoff"], request["fence"])

        self.ask(request, answered, **private)

    def _leaves_off(self, handoff: str, fence: int) -> None:
        """The hold is over: on to the next."""
        self._lose(handoff, fence)
        self._zombie(handoff, fence)
        self._claim()

    def _end(self, handoff: str, fence: int) -> None:
        draw = self.dice.random()
        if draw > 0.93 and not self._detached:  # What is detached isn't its session's.
            self._say_goodbye(handoff, fence)
            return
        request: dict[str, Any] = {"op": "complete", "result": {"by": self.name}}
        if draw < 0.15:
            request = {"op": "fail", "error": {"type": "Simulated"}, "retry": draw > 0.02}
            if draw < 0.08:
                request["delay_ms"] = 100
        elif draw < 0.25:
            request = {"op": "release", "reason": "simulated"}
        elif draw < 0.35:
            request = {"op": "suspend", "reason": "asleep", "wake_ms": self.dice.between(0, 3_000)}
        elif draw < 0.5:
            request = {"op": "complete", "result": {"by": self.name, "bad": True}}
        request = {**request, "handoff": handoff, "fence": fence}

        def answered(said: dict[str, Any]) -> None:
            if not said["ok"] and said["error"]["code"] == "result_invalid" and said["error"]["details"]["left"]:
                self.later(self.dice.between(10, 200), lambda: self._end(handoff, fence))
            else:
                self._leaves_off(handoff, fence)

        self.write(request, answered, may=("result_invalid",))

    def _say_goodbye(self, handoff: str, fence: int) -> None:
        def answered(said: dict[str, Any]) -> None:
            if said["ok"]:
                self._leaves_off(handoff, fence)
            else:
                self.later(self.dice.between(10, 200), lambda: self._say_goodbye(handoff, fence))

        self.ask({"op": "goodbye"}, answered)

    def _zombie(self, handoff: str, fence: int) -> None:
        """Writes with a fence that it has been told is lost: nothing of it may be accepted."""
        if not self.dice.chance(30):
            return

        def answered(said: dict[str, Any]) -> None:
            accepted = said["ok"] and not said.get("duplicate", False) and handoff in said.get("renewed", (handoff,))
            require(not accepted, f"a write with a lost fence was accepted: {said}")

        request: dict[str, Any] = self.dice.choice(
            (
                {"op": "checkpoint", "seq": ZOMBIES_SEQ, "state": "zombie"},
                {"op": "spend", "usd": 1, "nonce": f"zombie {self.name}"},
                {"op": "effect_begin", "step": "zombie"},
                {"op": "effect_done", "step": "mail", "result": "zombie"},
                {"op": "approval_request", "action": "zombie", "details": {}, "timeout_ms": 1_000},
                {"op": "check_capability", "domain": "net", "resource": "zombie"},
                {"op": "activity", "digest": "zombie"},
                {"op": "suspend", "reason": "zombie"},
                {"op": "heartbeat", "leases": [{"handoff": handoff, "fence": fence}]},
                {"op": "heartbeat", "leases": [{"handoff": handoff, "fence": fence}]},
            )
        )
        if "leases" not in request:
            request = {**request, "handoff": handoff, "fence": fence}
        self.later(self.dice.between(0, 2_000), lambda: self.ask(request, answered))

    def _lose(self, handoff: str, fence: int) -> None:
        if self._held.get(handoff) == fence:
            del self._held[handoff]
        self._lost.add((handoff, fence))
