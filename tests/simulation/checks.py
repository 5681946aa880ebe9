"""The invariants, judged from outside: by what is on disk, and by what left the daemon.

Owns the reading of the journal, and what is said about the life of a handoff: whatever leaves the daemon is compared with
what is on disk at that moment. What records may follow each other is `stories`', when they may come `clock_checks`'; what is
said about the contract is `contract_checks`'.
"""

import json
from typing import Any

from dhpd.engine.apply import apply
from dhpd.engine.facts import Handoff
from dhpd.engine.records import Entry, Forgotten, decode_record

from .clock_checks import ClockChecks
from .contract_checks import amounts_of
from .contract_stories import require
from .store_model import ModelStore, Row
from .stories import FINAL, Story
from .world import World


class Checks(ClockChecks):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.sent_ms: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self._replayed: dict[str, Handoff] = {}
        self._purged_fence = 0
        self._seen = 0

    # --- what clients did --------------------------------------------------------------------------------------------

    def sends(self, request: dict[str, Any], session: str) -> None:
        self.requests[request["id"]] = request
        self.sent_ms.setdefault(request["id"], self.world.now_ms)
        self.sessions[request["id"]] = session

    def interrupted(self, session: str) -> None:
        """The session lost a connection: its leases may end by the disconnect grace."""
        self.interrupted_ms[session] = self.world.now_ms

    # --- what is on disk ---------------------------------------------------------------------------------------------

    def started(self, engine: Any, store: ModelStore) -> None:
        """A daemon has loaded the store: table and tail come to what the whole journal adds up to."""
        self.read(store)
        self.disturbed()
        self.restarted_ms = self.world.now_ms
        for handoff, story in self.stories.items():
            facts = engine.ledger.get(handoff)
            require(facts is None or not story.forgotten, f"{handoff[:8]} is forgotten and in memory")
            if story.status not in FINAL:
                require(facts is not None, f"{handoff[:8]} is live and not in memory")
            if facts is not None:
                require(facts == self._replayed[handoff], f"loaded {facts}, replayed {self._replayed[handoff]}")
                shown = (
                    facts.status,
                    facts.fence,
                    facts.seq,
                    facts.failures,
                    facts.stalls,
                    facts.steps,
                    facts.usd_nano,
                )
                last = story.last
                on_disk = (last.status, last.fence, last.seq, last.failures, last.stalls, last.steps, last.usd_nano)
                require(shown == on_disk, f"loaded {shown}, on disk {last}")
        for status, count in engine.ledger.counts.items():
            on_disk_count = sum(story.status == status and not story.forgotten for story in self.stories.values())
            require(count == on_disk_count, f"counts {count} {status}, on disk {on_disk_count}")

    def read(self, store: ModelStore) -> None:
        """Follows the journal as far as it goes now, record by record; a commit is there in full."""
        touched: set[str] = set()
        for position in sorted(at for at in store.rows if at > self._seen):
            self._seen = position
            self._follow(store.rows[position])
            touched.add(store.rows[position].handoff)
        if touched:
            self.check_sums(touched)

    def _follow(self, row: Row) -> None:
        record = json.loads(row.body)
        kind = record["type"]
        self._count(f"orphaned:{record['why']}" if kind == "orphaned" else kind)
        if kind == "effect_begun" and "approval" in record:
            self._count("effect_begun:approved")
        self._replay(row)
        story = self.stories.get(row.handoff)
        if kind == "dispatched":
            require(record["fence"] >= self._purged_fence, f"invariant 1: fences begin at {record['fence']} again")
            self.stories[row.handoff] = Story(row, record) if story is None else Story(row, record).begins_anew(story)
            return
        require(story is not None, f"{row.handoff[:8]} begins with {kind}")
        assert story is not None
        self.check_time(story, row.position, record)
        story.follow(row, record)
        if kind in ("checkpointed", "redriven") or (kind == "spent" and "by" not in record):
            self._spent(story, record)
        if kind == "forgotten":
            self._purged_fence = max(self._purged_fence, record["fence"])
            self.acknowledged.pop(row.handoff, None)
            self._forget(row.handoff)

    def _replay(self, row: Row) -> None:
        """What the engine makes of the whole journal, record by record."""
        record = decode_record(row.body)
        if isinstance(record, Forgotten):
            del self._replayed[row.handoff]
            return
        entry = Entry(row.position, row.handoff, row.prev, row.anchor, record, row.payload)
        self._replayed[row.handoff] = apply(self._replayed.get(row.handoff), entry)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # --- what leaves the daemon --------------------------------------------------------------------------------------

    def leaves(self, body: bytes, store: ModelStore) -> None:
        """Invariants 2, 3 and 7: whatever is said is on disk at that moment."""
        self.read(store)
        said = json.loads(body)
        if "event" in said:
            self._event(said)
            return
        request = self.requests[said["id"]]
        self._count(f"{request['op']}:{'ok' if said['ok'] else said['error']['code']}")
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
            require(self.stories[said["handoff"]].status == "cancelled", f"invariant 7: {said}")

    def _refusal(self, request: dict[str, Any], error: dict[str, Any]) -> None:
        details = error.get("details", {})
        check = getattr(self, f"_refused_{error['code']}", None)
        if check is not None:
            check(request, details)
        elif error["code"] == "lease_lost":
            story = self.stories[details["handoff"]]
            shown = any((s.status, s.fence) == (details["status"], details["fence"]) for s in story.snapshots)
            require(shown, f"invariant 7: a refusal shows what isn't on disk: {error}")
        elif error["code"] == "already_claimed":
            statuses = {s.status for s in self.stories[details["handoff"]].snapshots}
            require("running" in statuses, f"invariant 7: {error}")
        elif error["code"] == "not_claimable":
            self._shown_status(details)
        elif error["code"] == "out_of_order":
            story = self.stories[request["handoff"]]
            require(any(s.seq + 1 == details["expected"] for s in story.snapshots), f"invariant 7: {error}")
        elif error["code"] == "not_found" and "handoff" in details:
            found = self.stories.get(details["handoff"])
            gone = found is None or any(s.kind == "forgotten" for s in found.snapshots)
            require(gone, f"invariant 2: what is on disk isn't found: {request}")
        else:
            known = ("store_unavailable", "not_found", "checkpoint_conflict")
            require(error["code"] in known, f"an honest client was refused: {request}: {error}")

    def _said_dispatch(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        require(said["handoff"] in self.stories, "invariant 2: an acknowledged dispatch isn't on disk")
        self._shown_status(said)

    def _said_claim(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        if said["handoff"] is None:
            return
        require(said["handoff"] in self.stories, "invariant 2: a granted handoff isn't on disk")
        story = self.stories[said["handoff"]]
        holder = story.holders.get(said["fence"])
        require(holder == request["worker"], f"invariant 2: grant {said['fence']} isn't on disk")
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

    def _said_activity(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        if said["repeats"] == 0:  # The stall clock began anew when it came, after it was sent.
            key = (request["handoff"], request["fence"])
            self.moved[key] = max(self.moved.get(key, 0), self.sent_ms[request["id"]])

    def _said_complete(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories[request["handoff"]]
        same = story.result == json.dumps(request["result"]).encode()
        require(same, "invariant 2: an acknowledged result isn't on disk")
        require(story.fence == request["fence"], "invariant 4: another fence's result stands")

    def _said_release(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        ended = any(s.fence > request["fence"] for s in self.stories[request["handoff"]].snapshots)
        require(ended, "invariant 2: an acknowledged end isn't on disk")

    _said_fail = _said_release

    def _said_forget(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        gone = any(s.kind == "forgotten" for s in self.stories[request["handoff"]].snapshots)
        require(gone, "invariant 2: what was forgotten is there")

    def _said_cancel(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        self._shown_status({**said, "handoff": request["handoff"]})

    def _said_status(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories[said["handoff"]]
        shown = [
            (s.status, s.fence, s.seq, s.steps, s.usd_nano, s.stalls, s.failures)
            for s in story.snapshots
            if s.position == said["position"]
        ]
        steps, usd_nano = amounts_of(said)
        same = (said["status"], said["fence"], said["seq"], steps, usd_nano, said["stalls"], said["failures"])
        require(shown == [same], f"invariant 7: a read shows what isn't on disk: {said}")

    def _said_list(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        for status in said["handoffs"]:
            self._said_status(request, status)

    def _said_history(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories[request["handoff"]]
        fences = {s.position: (s.kind, s.fence) for s in story.snapshots}
        shown = {record["position"]: (record["type"], record["fence"]) for record in said["records"]}
        require(shown.items() <= fences.items(), "invariant 7: history shows what isn't on disk")
        first = min(shown)
        lacking = {fences[at][0] for at in fences.keys() - shown.keys() if first < at < max(shown)}
        whole = shown[first][0] == "dispatched" and lacking <= {"checkpointed"}
        require(whole, f"a history from {shown[first]} on without {lacking}: only checkpoints are ever replaced")

    def _said_result(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        story = self.stories[request["handoff"]]
        self._shown_status({**said, "handoff": request["handoff"]})
        if said["status"] == "completed":
            require(json.dumps(said["result"]).encode() == story.result, "invariant 4: another result is shown")
