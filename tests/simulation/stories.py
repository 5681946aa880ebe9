"""One handoff, as the journal on disk tells it: which record may follow which, and what is so after it.

Owns a model of the rules of its own, written down anew and not taken from the engine, so that a mistake there isn't repeated
here. What is used up, asked for and done besides is `contract_stories`'.
"""

import hashlib
from typing import Any

import msgspec

from .contract_stories import ContractStory
from .store_model import Row
from .violations import require

FINAL = ("completed", "cancelled", "dead")
_LIVE = ("pending", "running", "orphaned", "suspended")
_ANY = (*_LIVE, *FINAL)

FOLLOWS: dict[str, tuple[str, ...]] = {
    "claimed": ("pending", "orphaned"),
    "checkpointed": ("running",),
    "completed": ("running",),
    "released": ("running",),
    "failed": ("running",),
    "orphaned": ("running",),
    "suspended": ("pending", "running", "orphaned"),
    "resumed": ("suspended",),
    "cancelled": _LIVE,
    "dead": _LIVE,
    "redriven": ("dead",),
    "acked": FINAL,
    "exported": ("suspended", *FINAL),
    "forgotten": FINAL,
    "result_refused": ("running",),
    "effect_begun": ("running",),
    "effect_done": ("running",),
    "approval_requested": ("running",),
    "approval_decided": _LIVE,
    "capability_checked": ("running",),
    "budget_added": (*_LIVE, "dead"),
    "spent": _ANY,  # By a descendant; its own only while it runs.
}
"""In which statuses each record may come."""

LEADS_TO = {
    "claimed": "running",
    "completed": "completed",
    "released": "pending",
    "failed": "pending",
    "orphaned": "orphaned",
    "suspended": "suspended",
    "resumed": "pending",
    "cancelled": "cancelled",
    "dead": "dead",
    "redriven": "pending",
}
"""Which status each record leads to; the others leave it."""

KEEPS_FENCE = frozenset(FOLLOWS) - (frozenset(LEADS_TO) - {"completed"})


class Snapshot(msgspec.Struct, frozen=True):
    """A handoff after one of its records, which is of type `kind`."""

    kind: str
    status: str
    fence: int
    seq: int
    failures: int
    position: int
    steps: int
    usd_nano: int
    stalls: int
    budget: dict[str, int]


class Story(ContractStory):
    def __init__(self, row: Row, record: dict[str, Any]) -> None:
        require(record["type"] == "dispatched" and record["n"] == 1, f"{row.handoff[:8]} begins with {record['type']}")
        require(hashlib.sha256(row.payload or b"").hexdigest() == row.handoff, "invariant 5: the id isn't the hash")
        super().__init__(row.handoff, record)
        self.snapshots: list[Snapshot] = []
        self.holders: dict[int, str] = {}
        self.checkpoints: dict[int, str] = {}
        self.result: bytes | None = None
        self.status = "pending"
        self.fence = record["fence"]
        self.seq = 0
        self.n = 1
        self.forgotten = self.detached = False
        self.session = ""
        self.claimed_by = ("", "")  # The worker of the newest claim, and its nonce.
        self._keep(row, "dispatched")

    @property
    def last(self) -> Snapshot:
        return self.snapshots[-1]

    def begins_anew(self, earlier: "Story") -> "Story":
        """It was there before and was forgotten: what was said of that may still be on its way."""
        require(earlier.forgotten, f"{self.handoff[:8]} is dispatched while it is {earlier.status}")
        self.snapshots = earlier.snapshots + self.snapshots
        self.holders = earlier.holders
        return self

    def follow(self, row: Row, record: dict[str, Any]) -> None:
        """The next record; raises `Violation` where it mustn't come."""
        kind = record["type"]
        require(not self.forgotten, f"invariant 1: {kind} of what is forgotten")
        require(record["n"] == self.n + 1, f"record {record['n']} follows {self.n}")
        self.n += 1
        self._check_place(kind, record)
        self.must_die = False
        if not (kind == "spent" and record.get("by")):
            self.check_wallclock(kind, record["at_ms"])
        getattr(self, f"_{kind}", self.note)(row, record)
        if kind in LEADS_TO:
            self.status = LEADS_TO[kind]
        self.fence = record["fence"]
        if self.status in FINAL and kind in LEADS_TO:
            self.cancel_open_approvals(record["at_ms"])
        self.check_caps()
        self._keep(row, kind)

    def _check_place(self, kind: str, record: dict[str, Any]) -> None:
        final = self.status in FINAL
        again = kind == "suspended" == self.status and record.get("reason") == "exported"
        require(again or self.status in FOLLOWS[kind], f"invariant {4 if final else 1}: {kind} while {self.status}")
        if kind == "spent" and "by" not in record:
            require(self.status == "running", f"its own spending while {self.status}")
        require(not self.must_die or kind == "dead", f"invariant 6: {kind} though a cap on tries is used up")
        raises = record["fence"] - self.fence
        keeps = kind in KEEPS_FENCE
        require(
            raises == 0 if keeps else raises > 0, f"invariant 1: {kind} went from {self.fence} to {record['fence']}"
        )

    def _keep(self, row: Row, kind: str) -> None:
        self.snapshots.append(
            Snapshot(
                kind,
                self.status,
                self.fence,
                self.seq,
                self.failures,
                row.position,
                self.steps,
                self.usd_nano,
                self.stalls,
                self.budget,
            )
        )

    # --- one method per type of record that isn't a note --------------------------------------------------------------

    def _claimed(self, row: Row, record: dict[str, Any]) -> None:
        require(record["fence"] not in self.holders, "invariant 1: one fence, two holders")
        self.holders[record["fence"]] = record["worker"]
        self.detached = record.get("detached", False)
        self.session = record.get("session", "")
        self.claimed_by = (record["worker"], record.get("nonce", ""))
        self.first_claimed_ms = self.first_claimed_ms or record["at_ms"]

    def _checkpointed(self, row: Row, record: dict[str, Any]) -> None:
        self._stored(row, record)
        self.spends(record)

    def _stored(self, row: Row, record: dict[str, Any]) -> None:
        require(record["seq"] == self.seq + 1, f"checkpoint {record['seq']} after {self.seq}")
        require(hashlib.sha256(row.payload or b"").hexdigest() == record["sha256"], "a state isn't its hash")
        self.seq = record["seq"]
        self.checkpoints[self.seq] = record["sha256"]

    def _completed(self, row: Row, record: dict[str, Any]) -> None:
        self.result = row.payload

    def _failed(self, row: Row, record: dict[str, Any]) -> None:
        self.failures += 1
        self.must_die = self.failures >= self.budget["max_attempts"] or not record["retry"]
        require(record["failures"] == self.failures, f"{record['failures']} failures are told, it is {self.failures}")

    def _orphaned(self, row: Row, record: dict[str, Any]) -> None:
        stalled = record["why"] == "stalled"
        self.failures += not stalled
        self.stalls += stalled
        told = (record["failures"], record.get("stalls", 0))
        require(told == (self.failures, self.stalls), f"a stall isn't a failure: {told}")
        self.must_die = (
            self.stalls >= self.budget["max_stalls"] if stalled else self.failures >= self.budget["max_attempts"]
        )

    def _suspended(self, row: Row, record: dict[str, Any]) -> None:
        self.wake_at_ms = record.get("wake_at_ms", 0)
        self.wake_approval = record.get("approval")

    def _resumed(self, row: Row, record: dict[str, Any]) -> None:
        self.check_wake(record)
        self.wake_at_ms, self.wake_approval = 0, None

    def _dead(self, row: Row, record: dict[str, Any]) -> None:
        self.dies(row, record)

    def _redriven(self, row: Row, record: dict[str, Any]) -> None:
        if record.get("seq"):
            self._stored(row, record)
        self.comes_back(record)

    def _forgotten(self, row: Row, record: dict[str, Any]) -> None:
        self.forgotten = True

    def _released(self, row: Row, record: dict[str, Any]) -> None:
        """Costs nothing."""

    _cancelled = _acked = _exported = _released
