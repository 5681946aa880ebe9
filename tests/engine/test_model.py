"""Random requests, times, commits and failing commits: the engine says and holds what the model does."""

from itertools import count
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import UNSET, Raw

from dhp_protocol.errors import DHPError
from dhp_protocol.messages import (
    Ack,
    Cancel,
    Checkpoint,
    Claim,
    Complete,
    Dispatch,
    Fail,
    GetResult,
    GetStatus,
    Heartbeat,
    LeaseRef,
    Recover,
    Release,
    Request,
    WorkError,
)
from dhpd.engine.dispatching import prepare_dispatch
from tests.support.engine_world import LIMITS, Outcome, World
from tests.support.engine_world import Call as Sent

from .model import FINAL, MAX_ATTEMPTS, Call, Model, Piece, granted, lease_lost

TTL_MS = 2_000
WAIT_MS = 3_000
INTENTS = [
    Dispatch(
        kind=kind,
        inputs=Raw(b"{}"),
        budget=Raw(b'{"max_attempts":%d}' % MAX_ATTEMPTS),
        priority=priority,
        delay_ms=delay_ms,
        key=str(index),
    )
    for index, (kind, priority, delay_ms) in enumerate([("a", 5, 0), ("a", 5, 0), ("b", 7, 0), ("b", 5, 1_500)])
]
IDS = [prepare_dispatch(intent, LIMITS).handoff for intent in INTENTS]

which = st.integers(0, len(INTENTS) - 1)
fence_offset = st.sampled_from([0, 0, 0, 0, 0, -1, 1])
worker = st.sampled_from(["ada", "bob"])
nonce = st.sampled_from([None, None, "n1", "n2"])
state = st.sampled_from([b"1", b"2"])
wait_ms = st.sampled_from([0, WAIT_MS])


class EngineAgainstModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.model = Model(self.world.now.lease_ms)
        self.sent: dict[Any, Sent] = {}
        self.keys = count()
        self.flies = False

    def send(self, request: Request) -> Call:
        """Sends to the engine; the model's own call is what the rule then decides about."""
        call = Call(next(self.keys))
        self.model.calls.append(call)
        self.sent[call.key] = self.world.send(request)
        return call

    def about(self, index: int, call: Call) -> tuple[str, Piece | None]:
        name = IDS[index]
        piece = self.model.look(name)
        if piece is None:
            self.model.say(call, ("not_found",), 0)
        return name, piece

    # --- requests ----------------------------------------------------------------------------------------------------

    @rule(index=which)
    def dispatch(self, index: int) -> None:
        model, intent = self.model, INTENTS[index]
        call = self.send(intent)
        piece = model.look(IDS[index])
        created = piece is None
        if piece is None:
            model.places += 1
            not_before_ms = model.now_ms + intent.delay_ms if intent.delay_ms else 0
            piece = Piece(model.places, intent.kind, intent.priority, 0, not_before_ms=not_before_ms)
            piece = model.change(IDS[index], piece, ripe=not_before_ms <= model.now_ms)
        model.say(call, ("dispatched", created, piece.status), piece.commit)
        model.serve()

    @rule(
        worker=worker,
        kinds=st.sampled_from([["a"], ["b"], ["a", "b"]]),
        index=st.none() | which,
        only_orphaned=st.booleans(),
        nonce=nonce,
        wait_ms=wait_ms,
    )
    def claim(
        self, worker: str, kinds: list[str], index: int | None, only_orphaned: bool, nonce: str | None, wait_ms: int
    ) -> None:
        model = self.model
        name = None if index is None else IDS[index]
        recovers = only_orphaned and name is not None
        members: dict[str, Any] = {"wait_ms": wait_ms, "ttl_ms": TTL_MS, "nonce": UNSET if nonce is None else nonce}
        if name is not None:
            members["handoff"] = name
        else:
            members["kinds"] = kinds
        call = self.send(Recover(worker=worker, **members) if recovers else Claim(worker=worker, **members))
        call.claim, call.name = (worker, nonce, TTL_MS), name
        call.wants = lambda other, piece: (
            (other == name if name is not None else piece.kind in kinds)
            and (not recovers or piece.status == "orphaned")
        )
        call.on_end = lambda other, piece: ("not_claimable",)
        place = 0
        if nonce is not None:
            if self.taken_before(call, worker, nonce):
                model.serve()
                return
            older = [other for other in model.waiting() if other is not call and other.claim[:2] == (worker, nonce)]
            if older:
                place = older[0].place
                model.end_wait(older[0])
        if name is not None and model.look(name) is None:
            model.say(call, ("not_found",), 0)
            return
        model.ripen()
        call.answer = ()  # It doesn't stand in line yet.
        model.serve()
        call.answer = None
        piece = model.pieces[name] if name is not None else None
        fitting = [other for other in model.best(model.pieces) if call.wants(other, model.pieces[other])]
        if fitting:
            model.grant(call, fitting[0])
        elif piece is not None and (piece.status in FINAL or not wait_ms):
            code = {"running": "already_claimed", "pending": "wrong_state" if recovers else "not_claimable"}
            model.say(call, (code.get(piece.status, "not_claimable"),), piece.commit)
        elif wait_ms:
            model.wait(call, wait_ms, place)
        else:
            model.say(call, ("nothing",), model.newest)
        model.serve()

    def taken_before(self, call: Call, worker: str, nonce: str) -> bool:
        model = self.model
        grant = model.nonces.get((worker, nonce))
        if grant is None:
            return False
        name, fence, _ = grant
        piece = model.look(name)
        assert piece is not None
        if piece.status == "running" and piece.held == fence:
            model.ends[name, fence] = model.now_ms + TTL_MS
            model.say(call, granted(name, piece), piece.commit)
        else:
            model.say(call, lease_lost(piece, fence), piece.commit)
        return True

    def fence_of(self, index: int, offset: int) -> int:
        piece = self.model.pieces.get(IDS[index])
        return max(0, (piece.held if piece is not None else 0) + offset)

    def write(self, index: int, offset: int, request_type: Any, **members: Any) -> tuple[Call, str, Piece, int] | None:
        """Sends a write; None if it is refused or a duplicate of what ended the hold, which is said already."""
        fence = self.fence_of(index, offset)
        call = self.send(request_type(handoff=IDS[index], fence=fence, **members))
        name, piece = self.about(index, call)
        if piece is None:
            return None
        if piece.status == "running" and piece.held == fence:
            return call, name, piece, fence
        ended = {Release: "released", Fail: "failed", Complete: "completed"}.get(request_type)
        again = piece.held == fence != 0 and piece.ended == ended and ended is not None
        if again and request_type is Complete:
            again = piece.result == bytes(members["result"])
        if again:
            word = {"released": ("released", True), "failed": ("failed", piece.status, True)}
            self.model.say(call, word.get(str(ended), ("completed", True)), piece.commit)
        else:
            self.model.say(call, lease_lost(piece, fence), piece.commit)
        self.model.serve()
        return None

    @rule(index=which, offset=fence_offset, state=state, seq_offset=st.sampled_from([None, 1, 1, 0, -1, 2]))
    def checkpoint(self, index: int, offset: int, state: bytes, seq_offset: int | None) -> None:
        piece = self.model.pieces.get(IDS[index])
        seq = UNSET if seq_offset is None else max(1, len(piece.states if piece is not None else ()) + seq_offset)
        taken = self.write(index, offset, Checkpoint, state=Raw(state), seq=seq)
        if taken is None:
            return
        call, name, piece, fence = taken
        next_seq = len(piece.states) + 1
        number = next_seq if seq is UNSET else seq
        if number > next_seq:
            self.model.say(call, ("out_of_order",), piece.commit)
            return
        if number == next_seq - 1 and piece.states[-1] != state:
            self.model.say(call, ("checkpoint_conflict",), piece.commit)
            return
        # For an older one only the journal can tell whether it is the same: it counts as a sign of life.
        self.model.ends[name, fence] = self.model.now_ms + TTL_MS
        if number == next_seq:
            piece = self.model.change(name, piece, states=(*piece.states, state))
            self.model.say(call, ("checkpoint", number, False), piece.commit)
        elif piece.states[number - 1] == state:
            self.model.say(call, ("checkpoint", number, True), piece.commit)
        else:
            self.model.say(call, ("checkpoint_conflict",), piece.commit)

    @rule(index=which, offset=fence_offset, result=state)
    def complete(self, index: int, offset: int, result: bytes) -> None:
        taken = self.write(index, offset, Complete, result=Raw(result))
        if taken is not None:
            call, name, piece, _ = taken
            piece = self.model.change(name, piece, status="completed", ended="completed", result=result)
            self.model.say(call, ("completed", False), piece.commit)

    @rule(index=which, offset=fence_offset, retry=st.booleans(), delay_ms=st.sampled_from([0, 0, 700]))
    def fail(self, index: int, offset: int, retry: bool, delay_ms: int) -> None:
        taken = self.write(index, offset, Fail, error=WorkError(type="Oops"), retry=retry, delay_ms=delay_ms)
        if taken is not None:
            call, name, piece, _ = taken
            not_before_ms = self.model.now_ms + delay_ms if delay_ms else 0
            piece = self.model.fails(name, piece, "pending" if retry else "dead", "failed", not_before_ms)
            self.model.say(call, ("failed", piece.status, False), piece.commit)
            self.model.serve()

    @rule(index=which, offset=fence_offset, delay_ms=st.sampled_from([0, 0, 700]))
    def release(self, index: int, offset: int, delay_ms: int) -> None:
        taken = self.write(index, offset, Release, delay_ms=delay_ms)
        if taken is not None:
            call, name, piece, _ = taken
            not_before_ms = self.model.now_ms + delay_ms if delay_ms else 0
            piece = self.model.change(
                name,
                piece,
                status="pending",
                fence=piece.fence + 1,
                ended="released",
                not_before_ms=not_before_ms,
                ripe=not delay_ms,
            )
            self.model.say(call, ("released", False), piece.commit)
            self.model.serve()

    @rule(index=which)
    def cancel(self, index: int) -> None:
        call = self.send(Cancel(handoff=IDS[index]))
        name, piece = self.about(index, call)
        if piece is not None:
            if piece.status not in FINAL:
                ended = piece.ended or ("cancelled" if piece.held else None)
                piece = self.model.change(name, piece, status="cancelled", fence=piece.fence + 1, ended=ended)
            self.model.say(call, ("cancelled", piece.status), piece.commit)

    @rule(index=which)
    def ack(self, index: int) -> None:
        call = self.send(Ack(handoff=IDS[index]))
        name, piece = self.about(index, call)
        if piece is None:
            return
        if piece.status not in FINAL:
            self.model.say(call, ("wrong_state",), piece.commit)
        else:
            if not piece.acked:
                piece = self.model.change(name, piece, acked=True)
            self.model.say(call, ("ok",), piece.commit)
        self.model.serve()

    @rule(index=which)
    def status(self, index: int) -> None:
        call = self.send(GetStatus(handoff=IDS[index]))
        _, piece = self.about(index, call)
        if piece is not None:
            self.model.say(call, shown(piece), piece.commit)
            self.model.serve()

    @rule(index=which, wait_ms=wait_ms)
    def result(self, index: int, wait_ms: int) -> None:
        call = self.send(GetResult(handoff=IDS[index], wait_ms=wait_ms))
        call.name = IDS[index]
        call.on_end = lambda name, piece: ("result", piece.status, piece.result)
        _, piece = self.about(index, call)
        if piece is None:
            return
        if piece.status in FINAL or not wait_ms:
            self.model.say(call, ("result", piece.status, piece.result), piece.commit)
        else:
            self.model.wait(call, wait_ms)
        self.model.serve()

    @rule(index=which, offset=fence_offset)
    def heartbeat(self, index: int, offset: int) -> None:
        model, name = self.model, IDS[index]
        fence = self.fence_of(index, offset)
        call = self.send(Heartbeat(leases=[LeaseRef(handoff=name, fence=fence)]))
        piece = model.pieces.get(name)
        if piece is not None and piece.status == "running" and piece.held == fence and model.lives(name, piece):
            model.ends[name, fence] = model.now_ms + TTL_MS
            model.say(call, ("renewed",), 0)
            return
        told = piece is None or ((piece.status, piece.held) != ("running", fence) and piece.turn <= model.on_disk)
        if piece is not None and piece.status == "running" and piece.held == fence:
            model.look(name)
        model.say(call, ("lost",) if told else ("neither",), 0)
        model.serve()

    # --- time and the disk -------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 400, 1_000, TTL_MS, 3_000]))
    def time_goes_by(self, ms: int) -> None:
        end_ms = self.world.now.lease_ms + ms
        while (next_ms := self.world.engine.next_tick_ms(self.world.now)) <= end_ms:
            due_ms = self.model.due_ms()
            assert due_ms is None or next_ms <= max(due_ms, self.model.now_ms + 1), "a tick would come too late"
            self.jump(next_ms - self.world.now.lease_ms)
            self.world.tick()
            self.model.tick()
        self.jump(end_ms - self.world.now.lease_ms)

    @rule(ms=st.sampled_from([1, TTL_MS - 1, TTL_MS]))
    def jump(self, ms: int) -> None:
        """No tick has come yet."""
        self.world.jump(ms)
        self.model.now_ms += ms

    @precondition(lambda self: not self.flies)
    @rule()
    def a_commit_begins(self) -> None:
        if self.world.engine.wants_commit(self.world.now):
            self.has_records = bool(self.world.take().entries)
            self.model.take()
            self.flies = True

    @precondition(lambda self: self.flies)
    @rule(outcome=st.sampled_from([Outcome.KEPT, Outcome.KEPT, Outcome.FAILS, Outcome.FAILS_BUT_KEPT]))
    def a_commit_ends(self, outcome: Outcome) -> None:
        self.world.finish(outcome)
        if outcome is Outcome.KEPT:
            self.model.arrived()
        else:
            # Of a batch without records nothing can be told from the head: whatever it was, memory goes back.
            self.model.lost(kept=outcome is Outcome.FAILS_BUT_KEPT and self.has_records)
        self.flies = False

    # --- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def the_engine_holds_what_the_model_does(self) -> None:
        engine = self.world.engine
        assert {facts.id for facts in engine.ledger} == set(self.model.pieces)
        for name, piece in self.model.pieces.items():
            facts = self.world.facts(name)
            assert (facts.status, facts.fence, facts.attempt) == (piece.status, piece.fence, piece.claims)
            assert (facts.failures, facts.seq, facts.acked) == (piece.failures, len(piece.states), piece.acked)
            if piece.status == "running":
                lease = engine.leases.get(name, piece.held)
                assert lease is not None
                assert lease.deadline_ms == self.model.ends[name, piece.held]

    @invariant()
    def what_was_said_is_what_may_have_left(self) -> None:
        for call in self.model.calls:
            sent = self.sent[call.key]
            if call.answer is None or call.commit > self.model.on_disk:
                assert not sent.answered, f"{sent.request} was answered too early: {sent.answer}"
            else:
                assert sent.answered, f"{sent.request} has no answer; {call.answer} is due"
                assert said(sent.answer) == call.answer, sent.request


def shown(piece: Piece) -> tuple[Any, ...]:
    holder = piece.worker if piece.status == "running" else None
    return "status", piece.status, piece.fence, piece.claims, piece.failures, len(piece.states), piece.acked, holder


def said(answer: Any) -> tuple[Any, ...]:
    """An answer of the engine's, as the model says it."""
    if isinstance(answer, DHPError):
        details = answer.details
        lost = (details["why"], details["fence"], details["status"]) if answer.code == "lease_lost" else ()
        return answer.code, *lost
    match type(answer).__name__:
        case "DispatchReply":
            return "dispatched", answer.created, answer.status
        case "ClaimReply":
            seq = answer.checkpoint.seq if answer.checkpoint is not None else 0
            return "granted", answer.handoff, answer.fence, answer.attempt, answer.was, seq
        case "NothingToClaim":
            return ("nothing",)
        case "CheckpointReply":
            return "checkpoint", answer.seq, answer.duplicate
        case "CompleteReply":
            return "completed", answer.duplicate
        case "FailReply":
            return "failed", answer.status, answer.duplicate
        case "ReleaseReply":
            return "released", answer.duplicate
        case "StatusAfter":
            return "cancelled", answer.status
        case "HeartbeatReply":
            return ("renewed",) if answer.renewed else ("lost",) if answer.lost else ("neither",)
        case "ResultReply":
            return "result", answer.status, None if answer.result is UNSET else bytes(answer.result)
        case "StatusReply":
            figures = (answer.attempt, answer.failures, answer.seq, answer.acked, answer.holder)
            return "status", answer.status, answer.fence, *figures
    return ("ok",)


EngineAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
test_the_engine_does_what_the_model_does = EngineAgainstModel.TestCase
