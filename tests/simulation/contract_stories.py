"""The contract's part of a handoff's story: what it used up, its effects, its approvals, what a cap refused.

Owns the caps (invariant 6), and that each amount counts once. Written down anew, as all of `stories` is.
"""

import hashlib
from typing import Any

import msgspec

from .store_model import Row
from .violations import require

DEFAULTS = {"max_attempts": 3, "max_stalls": 2, "max_invalid_results": 3}


class Effect(msgspec.Struct):
    """`result` is None until it is done."""

    fence: int
    result: bytes | None = None


class Approval(msgspec.Struct):
    """`askers` are the sessions that asked for it, each with the newest fence under which it did."""

    askers: dict[str, int]
    expires_at_ms: int
    decision: str | None = None
    used_by: str | None = None


class ContractStory:
    def __init__(self, handoff: str, record: dict[str, Any]) -> None:
        self.handoff = handoff
        self.ancestors: tuple[str, ...] = tuple(record.get("ancestors", ()))
        self.budget: dict[str, int] = {**DEFAULTS, **record["budget"]}
        self.status = "pending"
        self.failures = self.stalls = self.invalid = 0
        self.steps = self.usd_nano = 0
        """What counts against its caps: its own and its descendants', as its records say."""
        self.due_steps = self.due_usd_nano = 0
        """The same, as its own and its descendants' spending adds up to."""
        self.nonces: dict[str, tuple[int, int]] = {}
        """The amounts of each spend, redrive and budget_add that had one."""
        self.effects: dict[str, Effect] = {}
        self.approvals: dict[str, Approval] = {}
        self.checked: list[tuple[int, str, str, bool]] = []
        self.kept: tuple[int, int, int, str | None] = (0, 0, 0, None)
        self.kept_nonce: str | None = None
        self.refusals: list[str] = []
        self.first_claimed_ms = self.died_ms = self.dead_ms = 0
        self.wake_at_ms = 0
        self.wake_approval: str | None = None
        self.must_die = False
        """The last attempt, stall or result allowed is used up: it is dead in the same commit."""

    # --- amounts -----------------------------------------------------------------------------------------------------

    def spends(self, record: dict[str, Any]) -> None:
        """Its own amounts."""
        self.steps += record.get("steps", 0)
        self.usd_nano += record.get("usd_nano", 0)

    def check_caps(self) -> None:
        for name, used in (("max_steps", self.steps), ("max_usd_nano", self.usd_nano)):
            cap = self.budget.get(name)
            require(cap is None or used <= cap, f"invariant 6: {used} of {name} {cap} of {self.handoff[:8]} are used")

    @property
    def wallclock_end_ms(self) -> int | None:
        cap_ms = self.budget.get("max_wallclock_ms")
        return None if cap_ms is None or not self.first_claimed_ms else self.first_claimed_ms + cap_ms + self.dead_ms

    def check_wallclock(self, kind: str, at_ms: int) -> None:
        """Nothing is done by work whose time is over."""
        end_ms = self.wallclock_end_ms
        live = self.status in ("pending", "running", "orphaned", "suspended")
        if live and end_ms is not None and at_ms >= end_ms:
            # What was due before the cap is ended first may be noted; nothing may be written.
            require(kind in ("dead", "orphaned"), f"invariant 6: {kind} {at_ms - end_ms} ms after max_wallclock_ms")

    def dies(self, row: Row, record: dict[str, Any]) -> None:
        cap = record.get("cap")
        if cap == "max_wallclock_ms":
            end_ms = self.wallclock_end_ms
            over = end_ms is not None and record["at_ms"] >= end_ms
            require(over, f"dead {end_ms and end_ms - record['at_ms']} ms before max_wallclock_ms is over")
        sha256 = record.get("kept_sha256")
        if sha256 is not None:
            require(hashlib.sha256(row.payload or b"").hexdigest() == sha256, "a kept state isn't its hash")
        self.kept = (record.get("kept_steps", 0), record.get("kept_usd_nano", 0), record.get("kept_seq", 0), sha256)
        self.kept_nonce = record.get("kept_nonce")
        if cap is not None:
            self.refusals.append(cap)
        self.died_ms = record.get("since_ms") or record["at_ms"]

    def comes_back(self, record: dict[str, Any]) -> None:
        """A redrive: what a cap refused is applied, the tries start anew, what was spent and the clock never do."""
        applied = (record.get("steps", 0), record.get("usd_nano", 0), record.get("seq", 0), record.get("sha256"))
        require(applied == self.kept, f"a redrive applied {applied}, kept was {self.kept}")
        self.kept = (0, 0, 0, None)
        self.dead_ms += max(0, record["at_ms"] - self.died_ms)
        require(record["dead_ms"] == self.dead_ms, f"dead for {self.dead_ms} ms, {record['dead_ms']} are told")
        self.failures = self.stalls = self.invalid = 0
        self.spends(record)
        self._nonce(record, applied[:2])
        self._nonce({"type": "a kept spend", "nonce": self.kept_nonce}, applied[:2])
        self.kept_nonce = None

    def _nonce(self, record: dict[str, Any], amounts: tuple[int, int]) -> None:
        nonce = record.get("nonce")
        if nonce is not None:
            require(nonce not in self.nonces, f"{record['type']} with nonce {nonce} was carried out twice")
            self.nonces[nonce] = amounts

    def check_wake(self, record: dict[str, Any]) -> None:
        """Why suspended work came back."""
        if record["why"] == "wake":
            require(0 < self.wake_at_ms <= record["at_ms"], f"woken at {record['at_ms']}, to be at {self.wake_at_ms}")
        elif record["why"] == "approval":
            approval = self.approvals[self.wake_approval or ""]
            require(approval.decision is not None, "woken by an approval that is open")

    def dues(self) -> list[int]:
        """When something happens to it by the wall clock, while it is live."""
        dues = [approval.expires_at_ms for approval in self.approvals.values() if approval.decision is None]
        if self.status == "suspended" and self.wake_at_ms:
            dues.append(self.wake_at_ms)
        if self.wallclock_end_ms is not None:
            dues.append(self.wallclock_end_ms)
        return dues

    def due_of(self, record: dict[str, Any]) -> int | None:
        """The moment at which this record, of a kind that time brings, had to come; None: it is of no such kind."""
        match record:
            case {"type": "dead", "cap": "max_wallclock_ms"}:
                return self.wallclock_end_ms
            case {"type": "resumed", "why": "wake"}:
                return self.wake_at_ms
            case {"type": "approval_decided", "decision": "expired"}:
                return self.approvals[record["approval"]].expires_at_ms
        return None

    # --- records that change no status -------------------------------------------------------------------------------

    def note(self, row: Row, record: dict[str, Any]) -> None:
        getattr(self, f"_note_{record['type']}")(row, record)

    def _note_spent(self, row: Row, record: dict[str, Any]) -> None:
        if "by" in record:
            self.steps += record["steps"]
            self.usd_nano += record["usd_nano"]
        else:
            self.spends(record)
            self._nonce(record, (record["steps"], record["usd_nano"]))

    def _note_budget_added(self, row: Row, record: dict[str, Any]) -> None:
        budget = {**DEFAULTS, **record["budget"]}
        grown = all(budget.get(name, -1) >= amount for name, amount in self.budget.items())
        require(grown and set(budget) == set(self.budget), f"{self.budget} became {budget}")
        self.budget = budget
        self._nonce(record, (0, 0))

    def _note_result_refused(self, row: Row, record: dict[str, Any]) -> None:
        self.invalid += 1
        self.must_die = self.invalid >= self.budget["max_invalid_results"]
        require(record["left"] == self.budget["max_invalid_results"] - self.invalid, f"{record['left']} left are told")

    def _note_effect_begun(self, row: Row, record: dict[str, Any]) -> None:
        step, name = record["step"], record.get("approval")
        known = self.effects.get(step)
        # Again only to use an approval up, and it is still the one that began it.
        require(known is None or (name is not None and known.result is None), f"effect {step} was begun twice")
        self.effects.setdefault(step, Effect(record["fence"]))
        if name is not None:
            approval = self.approvals[name]
            require(approval.decision == "approved", f"an effect used an approval that is {approval.decision}")
            require(approval.used_by is None, f"an approval was used by {approval.used_by} and by {step}")
            approval.used_by = step

    def _note_effect_done(self, row: Row, record: dict[str, Any]) -> None:
        effect = self.effects[record["step"]]
        require(effect.result is None, "an effect was done twice")
        require(hashlib.sha256(row.payload or b"").hexdigest() == record["sha256"], "an effect's result isn't its hash")
        effect.result = row.payload

    def _note_approval_requested(self, row: Row, record: dict[str, Any]) -> None:
        name, session, expires_at_ms = record["approval"], record.get("session", ""), record["expires_at_ms"]
        require(name.startswith(self.handoff), f"approval {name} isn't of {self.handoff[:8]}")
        approval = self.approvals.setdefault(name, Approval({}, expires_at_ms))
        same = approval.decision is None and approval.expires_at_ms == expires_at_ms
        again = approval.askers.get(session, -1) >= record["fence"]
        require(same and not again, f"approval {name} is asked for again")
        approval.askers[session] = record["fence"]

    def _note_approval_decided(self, row: Row, record: dict[str, Any]) -> None:
        approval = self.approvals[record["approval"]]
        require(
            approval.decision is None, f"{record['decision']} after {approval.decision}: an approval is decided once"
        )
        expired = record["decision"] == "expired"
        over = record["at_ms"] >= approval.expires_at_ms
        require(expired == over, f"{record['decision']} {record['at_ms'] - approval.expires_at_ms} ms after its expiry")
        approval.decision = record["decision"]

    def cancel_open_approvals(self, at_ms: int) -> None:
        """Its work has ended: what is open is cancelled, for good, unless its time was over already."""
        for approval in self.approvals.values():
            over = approval.expires_at_ms <= at_ms
            approval.decision = approval.decision or ("expired" if over else "cancelled")

    def _note_capability_checked(self, row: Row, record: dict[str, Any]) -> None:
        self.checked.append((record["fence"], record["domain"], record["resource"], record["granted"]))
