"""Random spending, failing, stalling and redriving on a family of handoffs: the engine says and holds what the model does."""

import copy
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import UNSET, Raw

from dhp_protocol.errors import DHPError, ResultInvalid
from dhp_protocol.messages import (
    Activity,
    BudgetAdd,
    Checkpoint,
    Claim,
    Complete,
    Fail,
    GetStatus,
    Heartbeat,
    LeaseRef,
    Redrive,
    Release,
    Request,
    Spend,
    WorkError,
)
from tests.support.engine_world import World

from .contract_model import TTL_MS, Answer, Caps, ContractModel, Work

FAMILY = {"root": None, "left": "root", "right": "root", "grandchild": "left"}
LIMITED: dict[str, list[str | None]] = {
    "max_steps": [None, None, "0", "3", "5"],
    "max_usd": [None, None, "0", "0.3", "1"],
    "max_wallclock_ms": [None, "9000"],
    "max_attempts": ["1", "3", "9"],
    "stall_ms": [None, None, "3000", "5000"],
    "max_repeats": [None, None, "1", "3"],
    "max_stalls": ["1", "9"],
    "max_invalid_results": ["1", "9"],
}

budgets = st.fixed_dictionaries({cap: st.sampled_from(values) for cap, values in LIMITED.items()})
who = st.sampled_from(list(FAMILY))
offset = st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 1, 9])
dollars = st.sampled_from(["0", "0.1", "0.2", "0.000000001", "0.7"])
steps = st.integers(0, 3)
nonces = st.sampled_from([None, None, "n", "m"])
digests = st.sampled_from(["A", "B", "C"])
additions = st.sampled_from(
    [{"max_steps": "2"}, {"max_usd": "0.5"}, {"max_wallclock_ms": "4000", "max_attempts": "1"}, {"stall_ms": "500"}]
)
bad_commit = st.sampled_from([False, False, False, True])


def exact(caps: dict[str, Any]) -> Caps:
    return {cap: Decimal(value) for cap, value in caps.items() if value is not None}


def as_json(caps: dict[str, Any]) -> Raw:
    members = ",".join(f'"{cap}":{value}' for cap, value in caps.items() if value is not None)
    return Raw(f"{{{members}}}".encode())


def asked(steps: int, usd: str) -> Caps:
    return {"steps": Decimal(steps), "usd": Decimal(usd)}


class EngineAgainstContract(RuleBasedStateMachine):
    @initialize(chosen=st.fixed_dictionaries(dict.fromkeys(FAMILY, budgets)))
    def begin(self, chosen: dict[str, dict[str, Any]]) -> None:
        self.world = World()
        self.model = ContractModel(self.world.now.lease_ms)
        self.ids: dict[str, str] = {}
        for name, parent in FAMILY.items():
            above = UNSET if parent is None else self.ids[parent]
            self.ids[name] = self.world.dispatch(budget=as_json(chosen[name]), parent=above)
            self.model.dispatch(name, parent, exact(chosen[name]))

    def work(self, name: str) -> Work:
        return self.model.works[name]

    def fence(self, name: str, offset: int) -> int:
        """The fence of its holder, or one beside it. Who would write and can have it takes it first, most of the time."""
        if not offset and self.work(name).status in ("pending", "orphaned"):
            self.claim(name)
        return max(0, self.work(name).held + offset)

    def dead(self, name: str) -> str:
        """One that is dead, rather than the one named."""
        return next((other for other, work in self.model.works.items() if work.status == "dead"), name)

    def asks(self, request: Request, expected: Answer, **given: Any) -> None:
        call = self.world.send(request, **given)
        self.world.commit()
        assert self.said(call.answer) == expected, request

    def asks_in_vain(self, request: Request, before: ContractModel) -> None:
        """The commit fails: all is as it was, but that a holder who was let in has shown that it lives."""
        renewed = {name: work.lease_end_ms for name, work in self.model.works.items() if work.status == "running"}
        call = self.world.send(request)
        lost = bool(self.world.engine.journal.gathering.entries)
        if lost:
            self.world.fail_commit()
            assert call.answer.code == "store_unavailable"
            self.model = before
            for name, end_ms in renewed.items():
                self.work(name).lease_end_ms = end_ms
        self.world.commit()

    # --- what workers say --------------------------------------------------------------------------------------------

    @rule(name=who)
    def claim(self, name: str) -> None:
        request = Claim(worker="ada", handoff=self.ids[name], ttl_ms=TTL_MS)
        self.asks(request, self.model.claim(self.work(name)))

    @rule(name=who, offset=offset, again=st.booleans(), steps=steps, usd=dollars, digest=st.none() | digests)
    def checkpoint(self, name: str, offset: int, again: bool, steps: int, usd: str, digest: str | None) -> None:
        fence, work = self.fence(name, offset), self.work(name)
        request = Checkpoint(
            handoff=self.ids[name],
            fence=fence,
            state=Raw(b"{}"),
            seq=work.seq if again and work.seq else UNSET,
            steps=steps,
            usd=Raw(usd.encode()),
            activity=UNSET if digest is None else digest,
        )
        self.asks(request, self.model.checkpoint(work, fence, again, asked(steps, usd), digest))

    @rule(name=who, offset=offset, steps=steps, usd=dollars, nonce=nonces, in_vain=bad_commit)
    def spend(self, name: str, offset: int, steps: int, usd: str, nonce: str | None, in_vain: bool) -> None:
        fence = self.fence(name, offset)
        request = Spend(
            handoff=self.ids[name],
            fence=fence,
            steps=steps,
            usd=Raw(usd.encode()),
            nonce=UNSET if nonce is None else nonce,
        )
        before = copy.deepcopy(self.model)
        expected = self.model.spend(self.work(name), fence, asked(steps, usd), nonce)
        if in_vain:
            self.asks_in_vain(request, before)
        else:
            self.asks(request, expected)

    @rule(name=who, offset=offset, said=st.lists(digests, min_size=1, max_size=6))
    def activities(self, name: str, offset: int, said: list[str]) -> None:
        fence = self.fence(name, offset)
        for digest in said:
            request = Activity(handoff=self.ids[name], fence=fence, digest=digest)
            self.asks(request, self.model.activity(self.work(name), fence, digest))

    @rule(name=who, offset=offset)
    def heartbeat(self, name: str, offset: int) -> None:
        fence = self.fence(name, offset)
        request = Heartbeat(leases=[LeaseRef(handoff=self.ids[name], fence=fence)])
        self.asks(request, self.model.heartbeat(self.work(name), fence))

    @rule(name=who, seconds=st.integers(1, 6))
    def stands_still(self, name: str, seconds: int) -> None:
        fence = self.fence(name, 0)
        for _ in range(seconds):
            self.time_goes_by(1_000)
            request = Heartbeat(leases=[LeaseRef(handoff=self.ids[name], fence=fence)])
            self.asks(request, self.model.heartbeat(self.work(name), fence))

    @rule(name=who, offset=offset, retry=st.booleans(), delay_ms=st.sampled_from([0, 0, 1_500]))
    def fail(self, name: str, offset: int, retry: bool, delay_ms: int) -> None:
        fence = self.fence(name, offset)
        error = WorkError(type="Oops")
        request = Fail(handoff=self.ids[name], fence=fence, error=error, retry=retry, delay_ms=delay_ms)
        self.asks(request, self.model.fail(self.work(name), fence, retry, delay_ms))

    @rule(name=who, offset=offset)
    def release(self, name: str, offset: int) -> None:
        fence = self.fence(name, offset)
        request = Release(handoff=self.ids[name], fence=fence)
        self.asks(request, self.model.release(self.work(name), fence))

    @rule(name=who, offset=offset)
    def result_that_does_not_fit(self, name: str, offset: int) -> None:
        fence = self.fence(name, offset)
        request = Complete(handoff=self.ids[name], fence=fence, result=Raw(b'"no"'))
        verdict = ResultInvalid("It doesn't fit.", path="", rule="type")
        self.asks(request, self.model.refused_result(self.work(name), fence), verdict=verdict)

    # --- from outside ------------------------------------------------------------------------------------------------

    @rule(name=who, add=additions, nonce=nonces, in_vain=bad_commit)
    def budget_add(self, name: str, add: dict[str, str], nonce: str | None, in_vain: bool) -> None:
        request = BudgetAdd(handoff=self.ids[name], add=as_json(add), nonce=UNSET if nonce is None else nonce)
        before = copy.deepcopy(self.model)
        expected = self.model.budget_add(self.work(name), exact(add), nonce)
        if in_vain:
            self.asks_in_vain(request, before)
        else:
            self.asks(request, expected)

    @rule(name=who, add=st.none() | additions, nonce=nonces, in_vain=bad_commit)
    def redrive(self, name: str, add: dict[str, str] | None, nonce: str | None, in_vain: bool) -> None:
        name = self.dead(name)
        request = Redrive(
            handoff=self.ids[name],
            budget_add=UNSET if add is None else as_json(add),
            nonce=UNSET if nonce is None else nonce,
        )
        before = copy.deepcopy(self.model)
        expected = self.model.redrive(self.work(name), exact(add or {}), nonce)
        if in_vain:
            self.asks_in_vain(request, before)
        else:
            self.asks(request, expected)

    @rule(ms=st.sampled_from([1, 500, 1_000, 2_999, TTL_MS]))
    def time_goes_by(self, ms: int) -> None:
        self.world.advance(ms)
        self.model.advance(ms)

    # --- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def no_cap_is_ever_passed(self) -> None:
        for name, handoff in self.ids.items():
            facts = self.world.facts(handoff)
            own = self.work(name)
            assert facts.budget.max_steps is None or facts.steps <= facts.budget.max_steps
            assert facts.budget.max_usd_nano is None or facts.usd_nano <= facts.budget.max_usd_nano
            assert (Decimal(facts.steps), Decimal(facts.usd_nano) / 10**9) == (own.used("steps"), own.used("usd"))

    @invariant()
    def the_engine_holds_what_the_model_does(self) -> None:
        for name, handoff in self.ids.items():
            work, status = self.work(name), self.world.run(GetStatus(handoff=handoff))
            assert (status.status, status.fence, status.seq) == (work.status, work.fence, work.seq)
            assert (status.failures, status.stalls) == (work.failures, work.stalls)
            assert self.world.facts(handoff).invalid_results == work.invalid
            assert {cap: Decimal(repr(value)) for cap, value in status.budget.items()} == work.caps
            if work.status == "running":
                assert self.world.deadline_ms(handoff) == self.model.lease_moment(work) - self.model.now_ms

    def said(self, answer: Any) -> Answer:
        """An answer of the engine's, as the model says it."""
        if isinstance(answer, DHPError):
            return self.refused(answer)
        match type(answer).__name__:
            case "ClaimReply":
                return "granted", answer.fence, 0 if answer.checkpoint is None else answer.checkpoint.seq
            case "CheckpointReply":
                return "checkpoint", answer.seq, answer.duplicate
            case "SpendReply":
                return "spent", answer.steps, Decimal(repr(answer.usd))
            case "ActivityReply":
                return "repeats", answer.repeats
            case "HeartbeatReply":
                return ("renewed",) if answer.renewed else ("lost",)
            case "FailReply":
                return "failed", answer.status, answer.duplicate
            case "ReleaseReply":
                return "released", answer.duplicate
            case "BudgetReply":
                return "budget", {cap: Decimal(repr(value)) for cap, value in answer.budget.items()}
        return "status", answer.status

    def refused(self, error: DHPError) -> Answer:
        details = error.details
        if error.code == "lease_lost":
            return error.code, details["why"], details["fence"], details["status"]
        if error.code == "result_invalid":
            return error.code, details["left"]
        if error.code == "budget_exceeded":
            whose = next(name for name, handoff in self.ids.items() if handoff == details["whose"])
            figures = (Decimal(repr(details[figure])) for figure in ("limit", "used", "asked"))
            return error.code, details["cap"], whose, *figures
        return (error.code,)


EngineAgainstContract.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
test_the_engine_does_what_the_contract_says = EngineAgainstContract.TestCase
