"""What the tools answer, as models with a schema, and the way there from what the client gives. Pure.

Owns the members' names, which are those of the wire, and what a model is told about them.
"""

from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from dhp_protocol.messages import FINAL
from dhp_protocol.replies import DecisionReply, EffectView, HealthReply, StatusReply

from ..effects import EffectBegun
from ..keepable import Checkpointed, Spent
from ..payload import decode
from ..results import Approval, Result, StateAt
from ..task import Task


class Answer(BaseModel):
    """Base of them all."""


class Dispatched(Answer):
    handoff: str = Field(description="The id: the hash of the intent.")
    created: bool = Field(description="False: the same intent was dispatched before, and this is that handoff.")
    status: str


class Work(Answer):
    """A handoff in the agent's hands."""

    handle: str = Field(description="Give it with every later call about this work.")
    handoff: str
    kind: str
    inputs: Any = Field(description="What the work was dispatched with.")
    state: Any = Field(description="That of the last checkpoint, to go on from; null: nobody has made one.")
    state_left_out: bool = Field(
        default=False, description="True: it is too long for HTTP; last_checkpoint has it for a client that takes more."
    )
    seq: int = Field(description="The last checkpoint's number; 0: none.")
    attempt: int
    was: str = Field(description="pending, or orphaned: whoever had it before is gone.")
    output_schema: Any = Field(description="JSON Schema that the result must meet.")
    budget: dict[str, Any]
    capabilities: dict[str, Any] = Field(description="What may be touched: {domain: [resource or prefix*]}.")
    idle_ms: int | None = Field(
        description="The lease is given up so long after your last call with this handle; null: it lasts as long as this server."
    )


class Claimed(Answer):
    waiting: bool = Field(description="True: nothing came in time, so call again.")
    handoff: str | None = Field(description="The handoff that was asked for by id, or the one you have now.")
    work: Work | None = None


class Begun(Answer):
    """Work that somebody has begun and nobody holds."""

    handoff: str
    kind: str
    status: str
    seq: int
    failures: int
    updated_at: str
    state: Any = Field(description="That of the last checkpoint.")
    state_left_out: bool = Field(description="True: it is long, last_checkpoint gives it.")


class Recovered(Answer):
    waiting: bool = Field(default=False, description="True: somebody still holds it, so call again.")
    work: list[Work] = Field(description="What you hold now, each with its handle and last state.")
    claimable: list[Begun] = Field(
        default=[], description="What was begun and nobody holds: recover with its handoff takes it."
    )


class Checkpoint(Answer):
    seq: int
    sha256: str


class Status(Answer):
    """How a handoff stands, as the daemon tells it; what it tells beyond these members is passed on."""

    model_config = ConfigDict(extra="allow")

    handoff: str
    kind: str
    status: str = Field(description="pending, running, suspended, orphaned, completed, cancelled or dead.")
    holder: str | None
    fence: int
    attempt: int
    seq: int
    steps: int
    usd: float
    failures: int
    stalls: int
    budget: dict[str, Any]
    reason: str | None
    parent: str | None
    labels: dict[str, str]
    priority: int
    created_at: str
    claimed_at: str | None
    updated_at: str
    lease_left_ms: int | None
    acked: bool
    position: int
    wake_at: str | None
    kept: dict[str, Any] | None = Field(description="What a cap refused; a redrive applies it.")


class StatusPage(Answer):
    handoffs: list[Status]
    next: int | None = Field(description="Give it as `after` for the next page; null: that was the last.")


class Standing(Answer):
    handoff: str
    status: str


class Alive(Answer):
    handoff: str
    held: bool
    lease_left_ms: int | None
    seq: int


class Sums(Answer):
    usd: float
    steps: int


class Repeats(Answer):
    repeats: int | None = Field(description="How often in a row this was said before; null: not known.")


class Granted(Answer):
    granted: bool


class Effect(Answer):
    state: str = Field(
        description="new: carry it out now; in_doubt: find out first whether it happened; done: don't, `result` tells."
    )
    idempotency_key: str = Field(description="Give it to the outside service: it is the same for every attempt.")
    result: Any = None


class EffectResult(Answer):
    step: str
    result: Any


class EffectStanding(Answer):
    step: str
    state: str = Field(description="begun, or done.")
    fence: int
    sha256: str | None


class EffectPage(Answer):
    effects: list[EffectStanding]
    next: int | None


class Decision(Answer):
    approval: str
    decision: str | None = Field(description="approved, denied, expired, cancelled; null: nobody has decided yet.")
    waiting: bool = Field(description="True while nobody has: call approval_wait again, or suspend the work.")
    by: str | None
    note: str | None
    at: str | None
    decide_with: str | None = Field(description="What a person types to decide; you can't.")


class Question(Answer):
    approval: str
    handoff: str
    action: str
    details: Any
    decision: str | None
    by: str | None
    note: str | None
    expires_at: str
    used_by: str | None


class QuestionPage(Answer):
    approvals: list[Question]
    next: int | None


class Stored(Answer):
    seq: int
    state: Any
    sha256: str
    at: str


class LastCheckpoint(Answer):
    handoff: str
    checkpoint: Stored | None


class Outcome(Answer):
    handoff: str
    status: str
    waiting: bool = Field(description="True: it isn't final yet, so call again.")
    result: Any = Field(description="When it is completed.")
    refused: Any = Field(description="When it is dead: its last answer, which didn't meet the schema.")
    was_refused: bool


class Health(Answer):
    status: str = Field(description="ok, draining, disk_full or store_unavailable.")
    store: str
    disk: str
    durability: str
    version: str
    uptime_ms: int
    clock_offset_ms: int


def work_of(task: Task, handle: str, idle_ms: int | None) -> Work:
    intent = decode(task.intent)
    return Work(
        handle=handle,
        handoff=task.handoff,
        kind=task.kind,
        inputs=task.inputs,
        state=task.state,
        seq=task.seq,
        attempt=task.attempt,
        was=task.was,
        output_schema=intent["output_schema"],
        budget=intent["budget"],
        capabilities=intent["capabilities"],
        idle_ms=idle_ms,
    )


def begun_of(status: StatusReply, stored: StateAt | None, *, left_out: bool) -> Begun:
    return Begun(
        handoff=status.handoff,
        kind=status.kind,
        status=status.status,
        seq=status.seq,
        failures=status.failures,
        updated_at=status.updated_at,
        state=None if stored is None or left_out else stored.state,
        state_left_out=left_out,
    )


def checkpoint_of(stored: Checkpointed) -> Checkpoint:
    return Checkpoint(seq=stored.seq, sha256=stored.sha256)


def sums_of(spent: Spent) -> Sums:
    return Sums(usd=spent.usd, steps=spent.steps)


def status_of(status: StatusReply) -> Status:
    return Status(**msgspec.to_builtins(status))


def alive_of(status: StatusReply, fence: int, seq: int) -> Alive:
    held = status.status == "running" and status.fence == fence
    return Alive(handoff=status.handoff, held=held, lease_left_ms=status.lease_left_ms if held else None, seq=seq)


def effect_of(begun: EffectBegun) -> Effect:
    return Effect(state=begun.state, idempotency_key=begun.idempotency_key, result=begun.result)


def effect_standing_of(view: EffectView) -> EffectStanding:
    return EffectStanding(**msgspec.to_builtins(view))


def question_of(approval: Approval) -> Question:
    return Question(**{name: getattr(approval, name) for name in approval.__struct_fields__})


def decision_of(approval: str, found: DecisionReply, decide_with: str) -> Decision:
    return Decision(
        approval=approval,
        decision=found.decision,
        waiting=found.decision is None,
        by=found.by,
        note=found.note,
        at=found.at,
        decide_with=decide_with if found.decision is None else None,
    )


def stored_of(stored: StateAt) -> Stored:
    return Stored(seq=stored.seq, state=stored.state, sha256=stored.sha256, at=stored.at)


def outcome_of(handoff: str, found: Result) -> Outcome:
    return Outcome(
        handoff=handoff,
        status=found.status,
        waiting=found.status not in FINAL,
        result=found.result,
        refused=found.refused,
        was_refused=found.was_refused,
    )


def health_of(found: HealthReply) -> Health:
    return Health(**msgspec.to_builtins(found))
