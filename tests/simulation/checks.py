"""The world judged from outside: by what is on disk, and by what left the daemon.

Owns the reading of the journal, what each answer about the life of a handoff has to agree with on disk at that moment, and
that the invariants are asked after each step. What the invariants mean is `invariants`'; what records may follow each other
is `stories`', when they may come `clock_checks`'; what is said about the contract is `contract_checks`'.
"""

from typing import Any

import msgspec

from dhpd.engine.apply import apply
from dhpd.engine.facts import Handoff
from dhpd.engine.records import (
    ApprovalRequested,
    BudgetAdded,
    Checkpointed,
    Claimed,
    Dispatched,
    EffectBegun,
    Entry,
    Forgotten,
    Redriven,
    decode_record,
)

from .contract_checks import amounts_of
from .history import Kept, Lie, Operation, judge
from .invariants import INVARIANTS, Landed, Seen, Step, Told
from .lease_checks import LeaseChecks
from .store_model import ModelStore, Row
from .stories import FINAL, Story
from .violations import require
from .world import World

ZOMBIES_SEQ = 99
BEGIN_WORK = (Dispatched, Claimed, Checkpointed, BudgetAdded, EffectBegun, ApprovalRequested, Redriven)
"""Records that are of no use where only ends are written."""
_decode = msgspec.json.decode


class Checks(LeaseChecks):
    def __init__(self, world: World, store: ModelStore) -> None:
        super().__init__(world)
        self.store = store
        self.sent_ms: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.history: list[Operation] = []
        self.lease_ms = 0
        self._granted: dict[tuple[str, str], tuple[str, int]] = {}
        self._moment = 0
        self._replayed: dict[str, Handoff] = {}
        self._kept: dict[int, Kept] = {}
        self._purged_fence = 0
        self._read_up_to = 0
        self._step = Step()
        self._seen = Seen(stories=self.stories)
        world.after_step = self.after_step

    # --- what clients did --------------------------------------------------------------------------------------------

    def sends(self, request: dict[str, Any], session: str) -> Operation:
        """A client asks this, for the first time."""
        self.requests[request["id"]] = request
        self.sent_ms[request["id"]] = self.world.now_ms
        self.sessions[request["id"]] = session
        if request["op"] == "checkpoint" and request["seq"] != ZOMBIES_SEQ:
            asked = self._seen.asked.setdefault(request["handoff"], [])
            asked.append((request["fence"], request["seq"]))
        elif request["op"] == "forget":
            self._seen.forget_asked.add(request["handoff"])
        operation = Operation(session, self._next_moment(), request)
        self.history.append(operation)
        return operation

    def heard(self, operation: Operation, said: dict[str, Any]) -> None:
        """The client has got its answer."""
        operation.answered = self._next_moment()
        operation.said = said

    def _next_moment(self) -> int:
        self._moment += 1
        return self._moment

    def lies(self) -> list[Lie]:
        """What the clients' history shows, at the end of a world."""
        left = self.store.left
        journal = [msgspec.structs.replace(kept, there=at in left) for at, kept in sorted(self._kept.items())]
        return judge(self.history, journal)

    # --- after each step ---------------------------------------------------------------------------------------------

    def after_step(self) -> None:
        """Asks the invariants about what has happened since they were asked last, if anything has."""
        self.read()
        step = self._step
        if self.store.pruned:
            step.gone.extend(self._kept[position] for position in self.store.pruned)
            self.store.pruned.clear()
        if step.landed or step.gone or step.decided or step.told or step.strangers_heard:
            for invariant in INVARIANTS:
                invariant(step, self._seen)
            self._step = Step()

    def decided(self, engine: Any, after: int) -> None:
        """Records have just been decided: those that aren't on disk yet, from the one after this position on."""
        journal = engine.journal
        touched: dict[str, None] = {}
        for batch in (journal.gathering, *reversed(journal._sealed), journal._in_flight):
            for entry in reversed(batch.entries if batch is not None else ()):
                if entry.position <= after:
                    break
                self.note_decided(entry.position)
                begins = isinstance(entry.record, BEGIN_WORK) and engine.disk_full
                require(not begins, f"on a full disk something began: {entry.record}")
                touched[entry.handoff] = None
        self._step.decided.extend(facts for handoff in touched if (facts := engine.ledger.get(handoff)) is not None)

    def strange(self, engine: Any, position: int) -> None:
        """A stranger has sent something: it came to nothing."""
        require(engine.journal.position == position, "invariant 8: what a stranger sent was recorded")

    def answers_stranger(self, body: bytes) -> None:
        self._step.strangers_heard.append(_decode(body))

    # --- what is on disk ---------------------------------------------------------------------------------------------

    def started(self, engine: Any) -> None:
        """A daemon has loaded the store: table and tail come to what the whole journal adds up to."""
        self.read()
        self.begins_anew()
        self.extensions_found(self.store.extensions)
        self.restarted_ms = self.world.now_ms
        counts = dict.fromkeys(engine.ledger.counts, 0)
        for handoff, story in self.stories.items():
            facts = engine.ledger.get(handoff)
            require(facts is None or not story.forgotten, f"{handoff[:8]} is forgotten and in memory")
            if not story.forgotten:
                counts[story.status] += 1  # type: ignore[index]
            if story.status not in FINAL:
                require(facts is not None, f"{handoff[:8]} is live and not in memory")
            if facts is not None:
                require(facts == self._replayed[handoff], f"loaded {facts}, replayed {self._replayed[handoff]}")
                shown = (facts.status, facts.fence, facts.seq, facts.failures, facts.stalls)
                last = story.last
                on_disk = (last.status, last.fence, last.seq, last.failures, last.stalls)
                same = shown == on_disk and (facts.steps, facts.usd_nano) == (last.steps, last.usd_nano)
                require(same, f"loaded {facts}, on disk {last}")
        require(counts == engine.ledger.counts, f"counts {engine.ledger.counts}, on disk {counts}")

    def read(self) -> None:
        """Follows the journal as far as it goes now, record by record; a commit is there in full."""
        if self.store.head == self._read_up_to:
            return
        touched: set[str] = set()
        for position in range(self._read_up_to + 1, self.store.head + 1):
            row = self.store.rows.get(position)
            if row is not None:  # Where one could not be stored, its place stays empty.
                self._follow(row)
                touched.add(row.handoff)
        self._read_up_to = self.store.head
        self.check_sums(touched)

    def _follow(self, row: Row) -> None:
        record = _decode(row.body)
        kind = record["type"]
        self._count(f"orphaned:{record['why']}" if kind == "orphaned" else kind)
        if kind == "effect_begun" and "approval" in record:
            self._count("effect_begun:approved")
        self._replay(row)
        kept = self._kept[row.position] = Kept(row.position, row.handoff, record, row.payload)
        story = self.stories.get(row.handoff)
        if kind == "dispatched":
            self._begins(row, record, kept, story)
            return
        require(story is not None, f"{row.handoff[:8]} begins with {kind}")
        assert story is not None
        landed = Landed(kept, story, story.status, story.fence)
        self.check_time(story, row.position, record)
        self.check_ends(story, row.position, record)
        story.follow(row, record)
        self._land(landed)
        if kind in ("checkpointed", "redriven") or (kind == "spent" and "by" not in record):
            self._spent(story, record)
        if kind == "forgotten":
            self._purged_fence = max(self._purged_fence, record["fence"])
            self._forget(row.handoff)

    def _begins(self, row: Row, record: dict[str, Any], kept: Kept, earlier: Story | None) -> None:
        require(record["fence"] >= self._purged_fence, f"invariant 1: fences begin at {record['fence']} again")
        story = Story(row, record)
        if earlier is not None:
            story.begins_anew(earlier)
            self._seen.earlier.setdefault(row.handoff, []).extend(self._seen.lives.pop(row.handoff))
        self.stories[row.handoff] = story
        self._land(Landed(kept, story, None, record["fence"]))

    def _land(self, landed: Landed) -> None:
        self._seen.lives.setdefault(landed.kept.handoff, []).append(landed.kept)
        self._step.landed.append(landed)

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

    def leaves(self, body: bytes, lease_ms: int) -> None:
        """Whatever is said agrees with what is on disk at that moment."""
        self.lease_ms = lease_ms
        self.read()
        said = _decode(body)
        if "event" in said:
            self._event(said)
            return
        request = self.requests[said["id"]]
        self._step.told.append(Told(request, said, body))
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
            known = ("store_unavailable", "not_found", "checkpoint_conflict", "draining", "overloaded")
            require(error["code"] in known, f"an honest client was refused: {request}: {error}")

    def _said_claim(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        """A claim that is sent again is given the same, as long as that is held."""
        handoff = said["handoff"]
        if handoff is None:
            return
        fence = said["fence"]
        self.granted(request, handoff, fence, self.lease_ms)
        key = (request["worker"], request["nonce"])
        first = self._granted.setdefault(key, (handoff, fence))
        if first != (handoff, fence):
            held = self.stories[first[0]].status == "running" and self.stories[first[0]].fence == first[1]
            require(not held, f"one claim was granted {first}, which is still held, and {(handoff, fence)}")
            self._granted[key] = (handoff, fence)

    _said_recover = _said_claim

    def _said_dispatch(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        self._shown_status(said)

    def _said_checkpoint(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        self._renewed(request["handoff"], request["fence"], request)

    def _said_heartbeat(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        for ref in request["leases"]:
            if ref["handoff"] in said["renewed"]:
                self.renewed(request, ref["handoff"])
                self._renewed(ref["handoff"], ref["fence"], request)
            elif ref["handoff"] in said["lost"]:
                last = self.stories[ref["handoff"]].last
                held = last.status == "running" and last.fence == ref["fence"]
                require(not held, "invariant 7: a lease is called lost that is held on disk")

    def _renewed(self, handoff: str, fence: int, request: dict[str, Any]) -> None:
        sent_ms = self.sent_ms[request["id"]]
        before = self.renewals.get((handoff, fence), (0, 0, ""))
        if sent_ms > before[0]:
            lasts_ms = request["_ttl_ms"] - self.behind_ms[request["id"]]
            self.renewals[handoff, fence] = (sent_ms, lasts_ms, self.sessions[request["id"]])

    def _said_activity(self, request: dict[str, Any], said: dict[str, Any]) -> None:
        if said["repeats"] == 0:  # The stall clock began anew when it came, after it was sent.
            key = (request["handoff"], request["fence"])
            self.moved[key] = max(self.moved.get(key, 0), self.sent_ms[request["id"]])

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
        self._shown_status({**said, "handoff": request["handoff"]})
