"""Simulated people: a dispatcher that asks for work and minds it, and an approver that decides.

Owns what is done from outside: dispatch, cancel, suspend, resume, more budget, redrive, decisions, and looking.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from dhpd.engine.arriving import Arrival

from .checks import Checks
from .clients import DOMAIN, KINDS, NOT_NOW, RESOURCES, Client
from .daemon import SimulatedDaemon
from .desk import LIMITS
from .violations import require
from .world import World

_MAX_REDRIVES = 3


class Dispatcher(Client):
    """Asks for work, looks at it, brings dead work back, and takes note of the ends."""

    def __init__(self, world: World, daemon: SimulatedDaemon, checks: Checks, name: str, handoffs: int) -> None:
        super().__init__(world, daemon, checks, name)
        self.left = handoffs
        self.ended: set[str] = set()
        self.dispatched: list[str] = []
        self._requests: dict[str, dict[str, Any]] = {}
        self._redrives: dict[str, int] = {}
        self._nonces = 0
        self.later(0, self._dispatch)
        self.later(500, self._look)

    def _dispatch(self) -> None:
        if not self.left:
            return
        self.left -= 1
        capabilities = {DOMAIN: [RESOURCES[0]]} if self.dice.chance(50) else {}
        request: dict[str, Any] = {
            "op": "dispatch",
            "kind": self.dice.choice(KINDS),
            "inputs": {"number": self.left, "of": self.name},
            "budget": self._budget(),
            "capabilities": capabilities,
            "output_schema": {"not": {"required": ["bad"]}} if self.dice.chance(30) else {},
            "priority": self.dice.between(0, 9),
            "keep_checkpoints": 1 + self.left % 4,
            "delay_ms": self.dice.between(0, 400) if self.dice.chance(30) else 0,
        }
        if self.dispatched and self.dice.chance(40):
            request["parent"] = self.dice.choice(self.dispatched)
        self._send_dispatch(request)
        self.later(self.dice.between(20, 600), self._dispatch)

    def _budget(self) -> dict[str, Any]:
        between, chance = self.dice.between, self.dice.chance
        caps: dict[str, tuple[int, Callable[[], Any]]] = {
            "max_attempts": (100, lambda: between(2, 6)),
            "max_steps": (40, lambda: between(2, 12)),
            "max_usd": (40, lambda: between(1, 20) / 8),
            "max_wallclock_ms": (25, lambda: between(1_000, 20_000)),
            "stall_ms": (25, lambda: between(500, 2_500)),
            "max_repeats": (25, lambda: between(1, 3)),
            "max_stalls": (40, lambda: between(1, 3)),
            "max_invalid_results": (40, lambda: between(1, 2)),
        }
        return {name: make() for name, (percent, make) in caps.items() if chance(percent)}

    def _send_dispatch(self, request: dict[str, Any]) -> None:
        def answered(said: dict[str, Any]) -> None:
            if said["ok"]:
                self.dispatched.append(said["handoff"])
                self._requests.setdefault(said["handoff"], request)
                self._wait(said["handoff"])
            elif said["error"]["code"] in ("wrong_state", "not_found"):  # The parent has ended, or is forgotten.
                self._send_dispatch({name: value for name, value in request.items() if name != "parent"})
            else:
                self.later(self.dice.between(20, 300), lambda: self._send_dispatch(request))

        self.ask(request, answered)

    def _wait(self, handoff: str) -> None:
        def answered(said: dict[str, Any]) -> None:
            status = said["status"] if said["ok"] else ""
            if status == "dead" and self._redrives.get(handoff, 0) < _MAX_REDRIVES and self.dice.chance(60):
                self._redrives[handoff] = self._redrives.get(handoff, 0) + 1
                self.later(self.dice.between(0, 500), lambda: self._redrive(handoff))
            elif status in ("completed", "cancelled", "dead"):
                self.ended.add(handoff)
                self._insist({"op": "ack", "handoff": handoff}, lambda said: self._forget(handoff))
            elif not said["ok"] and said["error"]["code"] == "not_found":
                self.ended.add(handoff)  # What was said in its former life, and came late, has ended this one.
            else:
                if status == "suspended" and self.dice.chance(20):
                    self.ask({"op": "resume", "handoff": handoff, "force": True}, lambda said: None)
                self.later(self.dice.between(10, 200), lambda: self._wait(handoff))

        self.ask({"op": "result", "handoff": handoff, "wait_ms": 1_500}, answered)

    def _forget(self, handoff: str) -> None:
        """Some of what has ended is removed, and asked for again."""
        request = self._requests[handoff]
        if request["op"] == "dispatch" and self.dice.chance(15):
            self._requests[handoff] = {**request, "op": "dispatched twice"}
            self.ended.discard(handoff)
            self._insist({"op": "forget", "handoff": handoff}, lambda said: self._send_dispatch(request))

    def _redrive(self, handoff: str) -> None:
        request: dict[str, Any] = {"op": "redrive", "handoff": handoff, "nonce": self._nonce()}
        if more := self._more(handoff):
            request["budget_add"] = more
        self._insist(request, lambda said: self._wait(handoff))

    def _more(self, handoff: str) -> dict[str, Any]:
        """More of some of the caps that the handoff has."""
        amounts = {"max_usd": 0.5, "max_steps": 2, "max_wallclock_ms": 3_000, "max_attempts": 1, "stall_ms": 200}
        return {
            cap: amounts[cap] for cap in self._requests[handoff]["budget"] if cap in amounts and self.dice.chance(60)
        }

    def _nonce(self) -> str:
        self._nonces += 1
        return f"{self.name}-{self._nonces}"

    def _insist(self, request: dict[str, Any], then: Callable[[dict[str, Any]], None]) -> None:
        """The same request again while the store fails."""

        def answered(said: dict[str, Any]) -> None:
            if not said["ok"] and said["error"]["code"] in NOT_NOW:
                self.later(self.dice.between(10, 300), lambda: self.ask(request, answered))
            else:
                then(said)

        self.ask(request, answered)

    def _look(self) -> None:
        if self.world.faults.over:  # It only waits for the ends now.
            return
        if self.dispatched:
            handoff = self.dice.choice(self.dispatched)
            draw = self.dice.between(10, 99)
            request: dict[str, Any] = {"op": "status", "handoff": handoff}
            if fault := self.world.strikes("cancel"):
                request = {"op": "cancel", "handoff": handoff, "children": fault.chance(50)}
            elif fault := self.world.strikes("suspend"):
                request = {"op": "suspend", "handoff": handoff, "reason": "from outside"}
                if fault.chance(50):
                    request["wake_ms"] = fault.between(0, 2_000)
            elif self.world.strikes("export"):
                self._export(handoff)
                return
            elif draw < 20:
                request = {"op": "history", "handoff": handoff}
            elif draw < 30:
                request = {"op": "list", "limit": 50}
            elif draw < 36:
                request = {"op": "effects", "handoff": handoff}
            elif draw < 42 and (more := self._more(handoff)):
                request = {"op": "budget_add", "handoff": handoff, "add": more, "nonce": self._nonce()}
            self._insist(request, lambda said: None)
        self.later(self.dice.between(50, 500), self._look)

    def _export(self, handoff: str) -> None:
        """Takes it along, as if to another daemon: the bundle is one that can be taken up there. Then it goes on here after all."""
        bundle = Arrival(LIMITS)

        def answered(said: dict[str, Any]) -> None:
            if said["ok"]:
                bundle.take(msgspec.json.encode(line) for line in said["records"])
                if said["next"] is not None:
                    self._insist({"op": "export", "handoff": handoff, "after": said["next"]}, answered)
                    return
                require(bundle.whole, f"a bundle of {handoff[:8]} ends early")
            self._insist({"op": "resume", "handoff": handoff, "force": True}, lambda said: None)

        self._insist({"op": "export", "handoff": handoff}, answered)
        self.later(self.dice.between(50, 500), self._look)


class Approver(Client):
    """Looks for what is open, and decides some of it, now and then twice."""

    def __init__(self, world: World, daemon: SimulatedDaemon, checks: Checks, name: str) -> None:
        super().__init__(world, daemon, checks, name)
        self._told: set[str] = set()
        self.later(300, self._look)

    def _look(self) -> None:
        request: dict[str, Any] = {"op": "approvals", "limit": 50}
        if self.dice.chance(50):
            request["status"] = "open"
        self.ask(request, self._found)
        self.later(self.dice.between(200, 1_500), self._look)

    def _found(self, said: dict[str, Any]) -> None:
        for view in said["approvals"] if said["ok"] else ():
            if view["decision"] is None and self.dice.chance(50):
                self.later(self.dice.between(0, 1_000), lambda name=view["approval"]: self._decide(name))  # type: ignore[misc]
            elif self.dice.chance(5):
                self._decide(view["approval"])

    def _decide(self, approval: str) -> None:
        decision = self.dice.choice(("approve", "approve", "deny"))
        request = {"op": "approval_decide", "approval": approval, "decision": decision, "note": "simulated"}
        self.ask(request, lambda said: None)
