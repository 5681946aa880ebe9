"""The invariants, judged from outside: by what is on disk, and by what left the daemon.

Owns a small model of its own of what records may follow each other, written down anew and not taken from the engine, so
that a mistake there isn't repeated here. Whatever leaves the daemon is compared with what is on disk at that moment.
"""

import hashlib
import json
from typing import Any

import msgspec

from .store_model import ModelStore, Row

_FINAL = ("completed", "cancelled", "dead")
NOTES = (
    "spent",
    "result_refused",
    "budget_added",
    "effect_begun",
    "effect_done",
    "approval_requested",
    "approval_decided",
    "capability_checked",
)
KEEPS_FENCE = ("checkpointed", "completed", "acked", *NOTES)


class Snapshot(msgspec.Struct, frozen=True):
    """A handoff after one of its records."""

    status: str
    fence: int
    seq: int
    failures: int
    position: int


class Story:
    """One handoff, as the journal on disk tells it."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.holders: dict[int, str] = {}
        self.checkpoints: dict[int, str] = {}
        self.result: bytes | None = None
        self.max_attempts = 0
        self.intent = b""
        self.n = 0

    @property
    def last(self) -> Snapshot:
        return self.snapshots[-1]


class Violation(AssertionError):
    """An invariant doesn't hold."""


class Checks:
    def __init__(self) -> None:
        self.stories: dict[str, Story] = {}
        self.requests: dict[str, dict[str, Any]] = {}
        self.sent_ms: dict[str, int] = {}
        self.sessions: dict[str, str] = {}
        self.interrupted_ms: dict[str, int] = {}
        self.restarted_ms = 0
        self.acknowledged: dict[str, int] = {}
        self.renewals: dict[tuple[str, int], tuple[int, int, str]] = {}
        self.counts: dict[str, int] = {}
        self.now_ms = 0
        self._seen = 0

    # --- what clients did --------------------------------------------------------------------------------------------

    def sends(self, request: dict[str, Any], session: str, now_ms: int) -> None:
        self.requests[request["id"]] = request
        self.sent_ms.setdefault(request["id"], now_ms)
        self.sessions[request["id"]] = session

    def interrupted(self, session: str, now_ms: int) -> None:
        """The session lost a connection: its leases may end by the disconnect grace."""
        self.interrupted_ms[session] = now_ms

    # --- what is on disk ---------------------------------------------------------------------------------------------

    def started(self, engine: Any, store: ModelStore) -> None:
        """A daemon has loaded the store: its memory is what the journal adds up to."""
        self.read(store)
        self.restarted_ms = self.now_ms
        for handoff, story in self.stories.items():
            facts = engine.ledger.get(handoff)
            if story.last.status not in _FINAL:
                require(facts is not None, f"{handoff[:8]} is live and not in memory")
            if facts is not None:
                shown = (facts.status, facts.fence, facts.seq, facts.failures)
                last = story.last
                require(shown == (last.status, last.fence, last.seq, last.failures), f"loaded {shown}, on disk {last}")
        for status, count in engine.ledger.counts.items():
            on_disk = sum(story.last.status == status for story in self.stories.values())
            require(count == on_disk, f"counts {count} {status}, on disk {on_disk}")

    def read(self, store: ModelStore) -> None:
        """Follows the journal as far as it goes now, record by record."""
        for position in sorted(at for at in store.rows if at > self._seen):
            self._seen = position
            self._follow(store.rows[position])

    def _follow(self, row: Row) -> None:
        record = json.loads(row.body)
        story = self.stories.setdefault(row.handoff, Story())
        kind = record["type"]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if not story.snapshots:
            require(kind == "dispatched" and record["n"] == 1, f"{row.handoff[:8]} begins with {kind}")
            require(hashlib.sha256(row.payload or b"").hexdigest() == row.handoff, "invariant 5: the id isn't the hash")
            story.intent = row.payload or b""
            story.max_attempts = record["budget"].get("max_attempts", 3)
            story.n = 1
            story.snapshots.append(Snapshot("pending", record["fence"], 0, 0, row.position))
            return
        last = story.last
        require(record["n"] == story.n + 1, f"record {record['n']} follows {story.n}")
        story.n += 1
        require(last.status not in _FINAL or kind in ("acked", "spent"), f"invariant 4: {kind} after {last.status}")
        if last.failures >= story.max_attempts and last.status != "dead":
            require(kind in ("dead", "acked", "spent"), f"invariant 6: {kind} though the attempts are used up")
        keeps = kind in KEEPS_FENCE
        fence = record["fence"]
        require(
            fence == last.fence if keeps else fence > last.fence,
            f"invariant 1: {kind} went from {last.fence} to {fence}",
        )
        status, seq, failures = self._step(row, record, story)
        story.snapshots.append(Snapshot(status, fence, seq, failures, row.position))

    def _step(self, row: Row, record: dict[str, Any], story: Story) -> tuple[str, int, int]:
        last = story.last
        match record["type"]:
            case "claimed":
                require(last.status in ("pending", "orphaned"), f"claimed while {last.status}")
                require(record["fence"] not in story.holders, "invariant 1: one fence, two holders")
                story.holders[record["fence"]] = record["worker"]
                return "running", last.seq, last.failures
            case "checkpointed":
                require(last.status == "running", f"a checkpoint while {last.status}")
                require(record["seq"] == last.seq + 1, f"checkpoint {record['seq']} after {last.seq}")
                require(hashlib.sha256(row.payload or b"").hexdigest() == record["sha256"], "a state isn't its hash")
                story.checkpoints[record["seq"]] = record["sha256"]
                return "running", record["seq"], last.failures
            case "completed":
                require(last.status == "running", f"completed while {last.status}")
                story.result = row.payload
                return "completed", last.seq, last.failures
            case "released":
                require(last.status == "running", f"released while {last.status}")
                return "pending", last.seq, last.failures
            case "failed":
                require(last.status == "running", f"failed while {last.status}")
                return "pending", last.seq, last.failures + 1
            case "orphaned":
                require(last.status == "running", f"orphaned while {last.status}")
                self._not_early(row.handoff, last.fence, record["at_ms"])
                return "orphaned", last.seq, last.failures + 1
            case kind if kind in NOTES:
                return last.status, last.seq, last.failures
            case "cancelled":
                return "cancelled", last.seq, last.failures
            case "dead":
                return "dead", last.seq, last.failures
            case "acked":
                require(last.status in _FINAL, f"acked while {last.status}")
                return last.status, last.seq, last.failures
        raise Violation(f"a record of an unknown type: {record}")

    def _not_early(self, handoff: str, fence: int, at_ms: int) -> None:
        """A lease that was renewed lives for its ttl, unless its session or the daemon went away meanwhile."""
        sent_ms, ttl_ms, session = self.renewals.get((handoff, fence), (0, 0, ""))
        if max(self.interrupted_ms.get(session, 0), self.restarted_ms) < sent_ms:
            require(at_ms >= sent_ms + ttl_ms, f"orphaned {at_ms - sent_ms} ms after a renewal was sent; ttl {ttl_ms}")

    # --- what leaves the daemon --------------------------------------------------------------------------------------

    def leaves(self, body: bytes, store: ModelStore) -> None:
        """Invariants 2, 3 and 7: whatever is said is on disk at that moment."""
        self.read(store)
        said = json.loads(body)
        if "event" in said:
            self._event(said)
            return
        request = self.requests[said["id"]]
        self.counts[f"{request['op']}:{'ok' if said['ok'] else said['error']['code']}"] = (
            self.counts.get(f"{request['op']}:{'ok' if said['ok'] else said['error']['code']}", 0) + 1
        )
        if not said["ok"]:
            self._refusal(request, said["error"])
            return
        check = getattr(self, f"_said_{request['op']}", None)
        if check is not None:
            check(request, said)

    def _event(self, said: dict[str, Any]) -> None:
        if said["event"] == "lease_lost":
            story = self.stories[said["handoff"]]
            shown = any(s.status == said["status"] and s.fence > said["fence"] for s in story.snapshots)
            require(shown, f"invariant 7: an event tells what isn't on disk: {said}")
        elif said["event"] == "cancelled":
            require(self.stories[said["handoff"]].last.status == "cancelled", f"invariant 7: {said}")

    def _refusal(self, request: dict[str, Any], error: dict[str, Any]) -> None:
        details = error.get("details", {})
        if error["code"] == "lease_lost":
            story = self.stories[details["handoff"]]
            shown = any((s.status, s.fence) == (details["status"], details["fence"]) for s in story.snapshots)
            require(shown, f"invariant 7: a refusal shows what isn't on disk: {error}")
        elif error["code"] == "already_claimed":
            statuses = {s.status for s in self.stories[details["handoff"]].snapshots}
            require("running" in statuses, f"invariant 7: {error}")
        elif error["code"] in ("wrong_state", "not_claimable"):
            story = self.stories[details["handoff"]]
            require(any(s.status == details["status"] for s in story.snapshots), f"invariant 7: {error}")
        elif error["code"] == "out_of_order":
            story = self.stories[request["handoff"]]
            require(any(s.seq + 1 == details["expected"] for s in story.snapshots), f"invariant 7: {error}")
        else:
            known = ("store_unavailable", "not_found", "checkpoint_conflict")
            require(error["code"] in known, f"an honest client was refused: {request['op']}: {error}")

    def _said_dispatch(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories.get(said["handoff"])
        require(story is not None, "invariant 2: an acknowledged dispatch isn't on disk")
        assert story is not None
        require(any(s.status == said["status"] for s in story.snapshots), f"invariant 7: {said}")

    def _said_claim(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        if said["handoff"] is None:
            return
        story = self.stories.get(said["handoff"])
        require(story is not None, "invariant 2: a granted handoff isn't on disk")
        assert story is not None
        require(
            story.holders.get(said["fence"]) == request["worker"], f"invariant 2: grant {said['fence']} isn't on disk"
        )
        stored = said["checkpoint"]
        seq = 0 if stored is None else stored["seq"]
        if stored is not None:
            require(story.checkpoints[seq] == stored["sha256"], "a standby got another state than was stored")
        require(seq >= self.acknowledged.get(said["handoff"], 0), "invariant 3: resumes before what was acknowledged")

    def _said_checkpoint(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        handoff, fence = request["handoff"], request["fence"]
        kept = self.stories[handoff].checkpoints.get(said["seq"])
        require(kept == said["sha256"], f"invariant 2: checkpoint {said['seq']} isn't on disk")
        self.acknowledged[handoff] = max(self.acknowledged.get(handoff, 0), said["seq"])
        self._renewed(handoff, fence, request)

    def _said_heartbeat(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        for ref in request["leases"]:
            if ref["handoff"] in said["renewed"]:
                self._renewed(ref["handoff"], ref["fence"], request)
            elif ref["handoff"] in said["lost"]:
                last = self.stories[ref["handoff"]].last
                held = last.status == "running" and last.fence == ref["fence"]
                require(not held, "invariant 7: a lease is called lost that is held on disk")

    def _renewed(self, handoff: str, fence: int, request: dict[str, Any]) -> None:
        sent_ms = self.sent_ms[request["id"]]
        before = self.renewals.get((handoff, fence), (0, 0, ""))
        if sent_ms > before[0]:
            self.renewals[handoff, fence] = (sent_ms, request["_ttl_ms"], self.sessions[request["id"]])

    def _said_complete(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories[request["handoff"]]
        require(
            story.result == json.dumps(request["result"]).encode(), "invariant 2: an acknowledged result isn't on disk"
        )
        require(story.last.fence == request["fence"], "invariant 4: another fence's result stands")

    def _said_release(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories[request["handoff"]]
        require(
            any(s.fence > request["fence"] for s in story.snapshots), "invariant 2: an acknowledged end isn't on disk"
        )

    _said_fail = _said_release

    def _said_cancel(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        require(self.stories[request["handoff"]].last.status == said["status"], f"invariant 2: {said}")

    def _said_status(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        shown = [s for s in self.stories[said["handoff"]].snapshots if s.position == said["position"]]
        same = bool(shown) and (said["status"], said["fence"], said["seq"]) == (
            shown[0].status,
            shown[0].fence,
            shown[0].seq,
        )
        require(same, f"invariant 7: a read shows what isn't on disk: {said}")

    def _said_list(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        for status in said["handoffs"]:
            self._said_status(request, status)

    def _said_history(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories[request["handoff"]]
        fences = [(s.position, s.fence) for s in story.snapshots]
        shown = [(record["position"], record["fence"]) for record in said["records"]]
        require(shown == fences[: len(shown)], "invariant 7: history shows what isn't on disk")

    def _said_result(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories[request["handoff"]]
        require(any(s.status == said["status"] for s in story.snapshots), f"invariant 7: {said}")
        if said["status"] == "completed":
            require(json.dumps(said["result"]).encode() == story.result, "invariant 4: another result is shown")


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)
