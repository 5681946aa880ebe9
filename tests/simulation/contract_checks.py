"""What clients are told about the contract, compared with what is on disk: amounts, effects, approvals, refusals at a cap.

Owns what must stay so once it was said: an amount acknowledged counts once, for the handoff and for each ancestor; an effect
is `new` to one fence, and once done always done; an approval has one decision.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from .stories import Story
from .violations import Violation, require


def amounts_of(members: dict[str, Any]) -> tuple[int, int]:
    """The steps and nano-dollars of a request or a reply."""
    return members.get("steps", 0), nano(members.get("usd", 0))


def nano(usd: float) -> int:
    return int(Decimal(repr(usd)).scaleb(9).to_integral_value())


class Stories(dict[str, Story]):
    """The stories of all handoffs that have ever been on disk."""

    def __missing__(self, handoff: str) -> Story:
        raise Violation(f"invariant 7: {handoff[:8]} was told of, and isn't on disk")


class ContractChecks:
    def __init__(self) -> None:
        self.stories = Stories()
        self.requests: dict[str, dict[str, Any]] = {}
        self.sessions: dict[str, str] = {}
        self.acknowledged_nonces: dict[tuple[str, str], tuple[int, int]] = {}
        self._new_to: dict[tuple[str, str], int] = {}
        self._done: dict[tuple[str, str], bytes] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._told: dict[str, str] = {}

    def _forget(self, handoff: str) -> None:
        """What was promised of it ended with it."""
        for promises in (self.acknowledged_nonces, self._new_to, self._done, self._keys):
            for key in [key for key in promises if key[0] == handoff]:
                del promises[key]
        for name in [name for name in self._told if name.startswith(handoff)]:
            del self._told[name]

    def _spent(self, story: Story, record: dict[str, Any]) -> None:
        """Its own amounts are due to it and to all its ancestors that there are."""
        for handoff in (story.handoff, *story.ancestors):
            known = self.stories.get(handoff)
            if known is not None and not known.forgotten:
                known.due_steps += record.get("steps", 0)
                known.due_usd_nano += record.get("usd_nano", 0)

    # --- amounts -----------------------------------------------------------------------------------------------------

    def check_sums(self, touched: Iterable[str]) -> None:
        """After each commit: what counts against a handoff is its own and its descendants', each amount once."""
        for handoff in {up for name in touched for up in (name, *self.stories[name].ancestors)} & self.stories.keys():
            story = self.stories[handoff]
            sums = (story.due_steps, story.due_usd_nano)
            require((story.steps, story.usd_nano) == sums, f"{story.last} counts another sum than {sums}")
            require(not story.must_die, f"invariant 6: {story.last} lives though a cap on tries is used up")
            for (name, nonce), amounts in self.acknowledged_nonces.items():
                if name == handoff:
                    require(story.nonces.get(nonce) == amounts, f"invariant 2: {nonce} of {amounts} is gone")

    def _said_spend(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories[request["handoff"]]
        asked = amounts_of(request)
        if asked == (0, 0):
            return
        require(story.nonces.get(request["nonce"]) == asked, f"invariant 2: a spend isn't on disk: {request}")
        self.acknowledged_nonces[request["handoff"], request["nonce"]] = asked
        shown = any((s.steps, s.usd_nano) == amounts_of(said) for s in story.snapshots)
        require(shown, f"invariant 7: sums that aren't on disk: {said}")

    def _said_budget_add(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories[request["handoff"]]
        require(request["nonce"] in story.nonces, f"invariant 2: more budget isn't on disk: {request}")
        shown = {name: nano(value) if name == "max_usd" else value for name, value in said["budget"].items()}
        if "max_usd" in shown:
            shown["max_usd_nano"] = shown.pop("max_usd")
        require(any(s.budget == shown for s in story.snapshots), f"invariant 7: a budget that isn't on disk: {said}")

    def _said_redrive(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        require(request["nonce"] in self.stories[request["handoff"]].nonces, f"invariant 2: not redriven: {request}")
        self._shown_status({**said, "handoff": request["handoff"]})

    def _refused_budget_exceeded(self, request: dict[str, Any], details: dict[str, Any]) -> None:
        """Invariants 6 and 7: whoever's cap it is, it would have been passed by what is on disk; and the handoff is dead."""
        handoff, cap = request["handoff"], details["cap"]
        require(details["used"] + details["asked"] > details["limit"], f"refused though it fits: {details}")
        parked = request["op"] == "redrive" or cap in self.stories[handoff].refusals
        require(parked, f"invariant 7: {request['op']} is refused, and nothing is parked")
        if cap == "max_wallclock_ms":
            return
        whose = self.stories[details["whose"]]
        name = "max_usd_nano" if cap == "max_usd" else cap
        limit, used = (nano(details[m]) if cap == "max_usd" else details[m] for m in ("limit", "used"))
        shown = any(
            (s.usd_nano if cap == "max_usd" else s.steps) == used
            and (s.budget.get(name) == limit or request["op"] == "redrive")
            for s in whose.snapshots
        )
        require(shown, f"invariant 7: a refusal shows sums that aren't on disk: {details}")

    # --- status ------------------------------------------------------------------------------------------------------

    def _shown_status(self, members: dict[str, Any]) -> None:
        shown = any(s.status == members["status"] for s in self.stories[members["handoff"]].snapshots)
        require(shown, f"invariant 7: a status that isn't on disk: {members}")

    def _said_suspend(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories[request["handoff"]]
        self._shown_status({**said, "handoff": request["handoff"]})
        require(any(s.status == "suspended" for s in story.snapshots), f"invariant 2: not suspended: {request}")
        fence = request.get("fence", 0)
        require(any(s.fence > fence for s in story.snapshots), "invariant 1: a suspended hold's fence stands")

    def _said_resume(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        self._shown_status({**said, "handoff": request["handoff"]})

    def _refused_wrong_state(self, request: dict[str, Any], details: dict[str, Any]) -> None:
        if request["op"] == "effect_begin":
            self._tells(details["approval"], None if details["decision"] == "approved" else details["decision"])
        else:
            self._shown_status(details)

    def _refused_result_invalid(self, request: dict[str, Any], details: dict[str, Any]) -> None:
        require("bad" in request["result"], f"a good result was refused: {request}")
        require(details["left"] >= 0, f"one more result than allowed was looked at: {details}")

    # --- effects -----------------------------------------------------------------------------------------------------

    def _said_effect_begin(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        step, fence = request["step"], request["fence"]
        key = (request["handoff"], step)
        effect = self.stories[request["handoff"]].effects.get(step)
        require(effect is not None, f"invariant 7: an effect that isn't on disk: {said}")
        assert effect is not None
        same = self._keys.setdefault(key, said["idempotency_key"]) == said["idempotency_key"]
        require(same, "an effect's idempotency key has changed")
        require(said["state"] == "done" or key not in self._done, f"an effect that was done is {said['state']}")
        if said["state"] == "new":
            require(effect.fence == fence, f"an effect that {effect.fence} began is new to {fence}")
            require(self._new_to.setdefault(key, fence) == fence, f"an effect is new to two: {fence}")
        elif said["state"] == "in_doubt":
            require(effect.fence < fence, f"an effect that {effect.fence} began is in doubt for {fence}")
        else:
            require(msgspec.json.encode(said["result"]) == effect.result, "another result of an effect is shown")

    def _said_effect_done(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        effect = self.stories[request["handoff"]].effects[request["step"]]
        result = msgspec.json.encode(request["result"])
        require(effect.result == result, "invariant 2: an effect's acknowledged result isn't on disk")
        self._done[request["handoff"], request["step"]] = result

    def _refused_effect_conflict(self, request: dict[str, Any], details: dict[str, Any]) -> None:
        effect = self.stories[request["handoff"]].effects[request["step"]]
        other = effect.result is not None and effect.result != msgspec.json.encode(request["result"])
        require(other, f"invariant 7: a conflict with what isn't on disk: {request}")

    # --- approvals ---------------------------------------------------------------------------------------------------

    def _tells(self, name: str, decision: str | None) -> None:
        """An approval has one decision: what was said once stays so, and is on disk."""
        require(name in self.stories[name[:64]].approvals, f"invariant 7: an approval that isn't on disk: {name}")
        if decision is not None:
            on_disk = self.stories[name[:64]].approvals[name].decision
            require(decision == on_disk, f"invariant 7: {decision} is told, {on_disk} is on disk")
            told = self._told.setdefault(name, decision)
            require(told == decision, f"an approval was told {told}, then {decision}")

    def _said_approval_request(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        self._tells(said["approval"], None)

    def _said_approval_wait(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        self._tells(request["approval"], said["decision"])

    def _said_approval_decide(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        name = request["approval"]
        require(said["decision"] == {"approve": "approved", "deny": "denied"}[request["decision"]], f"decided: {said}")
        self._tells(name, said["decision"])
        askers = self.stories[name[:64]].approvals[name].askers
        require(self.sessions[request["id"]] not in askers, "an approval was decided by whoever asked for it")

    def _said_approvals(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        for view in said["approvals"]:
            self._tells(view["approval"], view["decision"])

    def _refused_approval_expired(self, request: dict[str, Any], details: dict[str, Any]) -> None:
        require(details["decision"] in ("expired", "cancelled"), f"refused as expired: {details}")
        self._tells(details["approval"], details["decision"])

    def _refused_already_decided(self, request: dict[str, Any], details: dict[str, Any]) -> None:
        self._tells(details["approval"], details["decision"])

    def _refused_forbidden(self, request: dict[str, Any], details: dict[str, Any]) -> None:
        require(self.sessions[request["id"]] != "approver#0", f"a stranger was forbidden to decide: {request}")

    # --- capabilities -------------------------------------------------------------------------------------------------

    def _said_check_capability(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        """What is granted is what the intent says (the client knows), and it is on record under this fence."""
        require(
            said["granted"] == (request["resource"] in request.get("_granted", ())), f"{request} was answered {said}"
        )
        asked = (request["fence"], request["domain"], request["resource"], said["granted"])
        require(asked in self.stories[request["handoff"]].checked, f"a capability check isn't on record: {asked}")
