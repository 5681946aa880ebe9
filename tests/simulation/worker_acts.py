"""What a simulated worker does besides its checkpoints: spends, carries out effects, asks people, asks what it may touch.

Owns the order of each act's requests. A standby that takes over comes to the same effects and the same questions.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from .clients import DOMAIN, RESOURCES, STEPS, Client

_WAITS = 3


def approval_name(handoff: str, action: str, details: dict[str, Any], expired_before: int) -> str:
    """The name that the approval of this will have: one who guesses it may wait for it before it is there."""
    canonical = json.dumps(details, sort_keys=True, separators=(",", ":")).encode()
    sha256 = hashlib.sha256(canonical).hexdigest()
    name = f"{handoff}\n{action}\n{sha256}\n{expired_before}"
    return f"{handoff}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


class WorkerActs(Client):
    """`write` sends under a lease; the hold's course is `workers`'."""

    write: Callable[..., None]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.intents: dict[str, dict[str, Any]] = {}
        self._acts = 0

    def act(self, handoff: str, fence: int, go_on: Callable[[], None]) -> None:
        """One act of any kind; goes on when it is done, or its lease is lost."""
        self._acts += 1
        acts = (self._spend, self._effect, self._wire, self._activity, self._check_capability)
        self.dice.choice(acts)({"handoff": handoff, "fence": fence}, go_on)

    def _spend(self, held: dict[str, Any], go_on: Callable[[], None]) -> None:
        request = {
            **held,
            "op": "spend",
            "usd": self.dice.choice((0, 0.5, 0.000000007)),
            "steps": self.dice.between(0, 2),
            "nonce": f"{self.name}-spends-{self._acts}",
        }

        def answered(said: dict[str, Any]) -> None:
            if self.dice.chance(20):  # As one does whose answer was lost.
                self.write(request, lambda said: go_on())
            else:
                go_on()

        self.write(request, answered)

    def _activity(self, held: dict[str, Any], go_on: Callable[[], None]) -> None:
        request = {**held, "op": "activity", "digest": f"digest {self.dice.between(0, 2)}"}
        self.write(request, lambda said: go_on())

    def _check_capability(self, held: dict[str, Any], go_on: Callable[[], None]) -> None:
        allowed = self.intents[held["handoff"]]["capabilities"].get(DOMAIN, [])
        request = {**held, "op": "check_capability", "domain": DOMAIN, "resource": self.dice.choice(RESOURCES)}
        self.write(request, lambda said: go_on(), _granted=allowed)

    # --- effects -----------------------------------------------------------------------------------------------------

    def _effect(self, held: dict[str, Any], go_on: Callable[[], None]) -> None:
        self._begin({**held, "op": "effect_begin", "step": self.dice.choice(STEPS[:2])}, go_on)

    def _begin(self, request: dict[str, Any], go_on: Callable[[], None]) -> None:
        def answered(said: dict[str, Any]) -> None:
            if not said["ok"] or said["state"] == "done" or self.dice.chance(20):
                go_on()  # Not approved, nothing to do, or forgotten: then it stays in doubt.
            else:
                self.later(self.dice.between(0, 300), lambda: self._done(request, go_on))

        self.write(request, answered, may=("wrong_state",))

    def _done(self, begun: dict[str, Any], go_on: Callable[[], None]) -> None:
        request = {name: begun[name] for name in ("handoff", "fence", "step")}
        request = {**request, "op": "effect_done", "result": {"by": self.name, "fence": begun["fence"]}}

        def answered(said: dict[str, Any]) -> None:
            if said["ok"] and self.dice.chance(10):  # Says another thing than before: it is refused.
                self.write({**request, "result": "other"}, lambda said: go_on(), may=("effect_conflict",))
            else:
                go_on()

        self.write(request, answered, may=("effect_conflict",))

    # --- approvals ---------------------------------------------------------------------------------------------------

    def _wire(self, held: dict[str, Any], go_on: Callable[[], None]) -> None:
        """An effect that needs a person's word: asks, waits under its lease or puts the work aside, and carries it out."""
        details = {"amount": self.dice.between(1, 2), "to": "bob"}
        timeout_ms = self.dice.between(200, 4_000)
        request = {**held, "op": "approval_request", "action": "wire", "details": details, "timeout_ms": timeout_ms}

        def asked(said: dict[str, Any]) -> None:
            if self.dice.chance(30):
                suspend = {**held, "op": "suspend", "approval": said["approval"], "reason": "a person is asked"}
                if self.dice.chance(30):
                    suspend["wake_ms"] = self.dice.between(0, 2_000)
                self.write(suspend, lambda said: self._leaves_off(held["handoff"], held["fence"]))
            else:
                self._wait(held, said["approval"], _WAITS, go_on)

        if self.dice.chance(20):
            guessed = approval_name(held["handoff"], "wire", details, 0)
            self.ask({"op": "approval_wait", "approval": guessed, "wait_ms": 1_000}, lambda said: None)
        self.write(request, asked)
        if self.dice.chance(20):
            guessed = approval_name(held["handoff"], "wire", details, 0)
            self.ask({"op": "approval_wait", "approval": guessed, "wait_ms": 1_000}, lambda said: None)

    def _wait(self, held: dict[str, Any], approval: str, left: int, go_on: Callable[[], None]) -> None:
        if self.dice.chance(5):  # Its own word isn't a person's.
            self.ask({"op": "approval_decide", "approval": approval, "decision": "approve"}, lambda said: None)

        def answered(said: dict[str, Any]) -> None:
            decision = said["decision"] if said["ok"] else None
            if decision == "approved":
                step = self.dice.choice((STEPS[2], f"{STEPS[2]} again"))
                self._begin({**held, "op": "effect_begin", "step": step, "approval": approval}, go_on)
            elif decision is None and left:
                self.later(self.dice.between(10, 200), lambda: self._wait(held, approval, left - 1, go_on))
            else:
                go_on()

        self.ask({"op": "approval_wait", "approval": approval, "wait_ms": 1_000}, answered)

    _leaves_off: Callable[[str, int], None]
