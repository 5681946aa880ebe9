"""Tasks, and what a stream tells of them, as A2A's messages.

Owns their shape and their wording. Pure: what is read for them is `looking`'s and `following`'s.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.timestamp_pb2 import Timestamp

from dhp_client import Approval, StateAt
from dhp_protocol.replies import StatusReply

from .parts import metadata_of, part_of
from .states import FINAL, INPUT_REQUIRED, OF_RECORD, state_of

CONTEXT_LABEL = "a2a.context"
RESULT = "result"
"""The id of the artifact that holds a handoff's result: a task has this one."""
SHORT_CODE_CHARS = 8

Event = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A task as it was seen: `questions` are those that nobody has answered yet, `result` a list of the one there is, once it is completed."""

    status: StatusReply
    questions: tuple[Approval, ...] = ()
    checkpoint: StateAt | None = None
    result: tuple[Any, ...] = ()

    @property
    def state(self) -> TaskState:
        return state_of(self.status, asks=bool(self.questions))

    @property
    def final(self) -> bool:
        return self.state in FINAL


def context_of(status: StatusReply) -> str:
    """The context of a task. Work that was dispatched elsewhere is a context of its own."""
    return status.labels.get(CONTEXT_LABEL) or status.handoff


def task_of(seen: Seen, *, callers_decide: bool) -> Task:
    """The task as a whole. It has no history: the message that began it is the handoff's inputs."""
    status = seen.status
    told: dict[str, Any] = {"kind": status.kind, "status": status.status, "position": status.position}
    told |= {"attempt": status.attempt, "seq": status.seq}
    if seen.checkpoint is not None:
        told["state"] = seen.checkpoint.state
    return Task(
        id=status.handoff,
        context_id=context_of(status),
        status=_status(
            seen.state,
            status.updated_at,
            _words_of(seen, callers_decide),
            status.handoff,
            context_of(status),
            status.position,
        ),
        artifacts=[result_artifact(value) for value in seen.result],
        metadata=metadata_of(told),
    )


def _words_of(seen: Seen, callers_decide: bool) -> list[Part]:
    if seen.state == INPUT_REQUIRED:
        return question_parts(seen.questions, callers_decide=callers_decide)
    return [Part(text=seen.status.reason)] if seen.status.reason else []


def result_artifact(result: Any) -> Artifact:
    """A handoff's result. It never changes, so neither does the artifact."""
    return Artifact(artifact_id=RESULT, name=RESULT, parts=[part_of(result)])


def result_update(task: str, context: str, result: Any) -> TaskArtifactUpdateEvent:
    """The result, whole."""
    return TaskArtifactUpdateEvent(task_id=task, context_id=context, artifact=result_artifact(result), last_chunk=True)


def status_update(
    task: str,
    context: str,
    record: Mapping[str, Any],
    *,
    asks: bool,
    parts: Sequence[Part] | None = None,
    **further: Any,
) -> TaskStatusUpdateEvent:
    """What one record tells; `further` stands beside its type and position in the metadata. `parts` None: what `sentence` says."""
    state = OF_RECORD[record["type"]]
    if asks and state not in FINAL:
        state = INPUT_REQUIRED
    if parts is None:
        words = sentence(record)
        parts = [Part(text=words)] if words else []
    return TaskStatusUpdateEvent(
        task_id=task,
        context_id=context,
        status=_status(state, record["at"], parts, task, context, record["position"]),
        metadata=metadata_of({"type": record["type"], "position": record["position"], **further}),
    )


def fresh_update(task: Task) -> TaskStatusUpdateEvent:
    """How a task stands, for a stream that has missed records which are gone."""
    return TaskStatusUpdateEvent(
        task_id=task.id, context_id=task.context_id, status=task.status, metadata=task.metadata
    )


def _status(state: TaskState, at: str, parts: Iterable[Part], task: str, context: str, position: int) -> TaskStatus:
    time = Timestamp()
    time.FromJsonString(at)
    status = TaskStatus(state=state, timestamp=time)
    if parts := list(parts):
        message = Message(
            message_id=f"{task}:{position}", context_id=context, task_id=task, role=Role.ROLE_AGENT, parts=parts
        )
        status.message.CopyFrom(message)
    return status


def sentence(record: Mapping[str, Any]) -> str:
    """What a record says to a person; empty where its type and metadata say it all. Names no worker."""
    match record["type"]:
        case "claimed":
            return f"Attempt {record['attempt']} has begun."
        case "orphaned":
            why = "stalled" if record.get("why") == "stalled" else "was lost"
            return f"Its worker {why}: another one goes on from the last checkpoint."
        case "released":
            return _with("Its worker handed it back", record.get("reason"))
        case "failed":
            error = record["error"]
            return f"The attempt failed: {error['type']}: {error['message']}"
        case "result_refused":
            place = record["path"] or "/"
            return f"A result didn't meet the schema at {place} ({record['rule']}); tries left: {record['left']}."
        case "suspended":
            until = f" until {record['wake_at']}" if "wake_at" in record else ""
            return _with(f"It was put aside{until}", record.get("reason"))
        case "resumed" | "redriven":
            return "It goes on."
        case "approval_decided":
            by = f" by {record['by']}" if record.get("by") else ""
            return _with(f"{record['decision'].capitalize()}{by}", record.get("note"))
        case "dead":
            return str(record["reason"])
        case "cancelled":
            return _with("It was cancelled", record.get("reason"))
        case _:
            return ""


def _with(words: str, reason: str | None) -> str:
    return f"{words}: {reason}" if reason else f"{words}."


def code_of(approval: str) -> str:
    """What an answer in words names a question by: the beginning of the approval's own part."""
    return approval.rpartition("-")[2][:SHORT_CODE_CHARS]


def question_parts(questions: Iterable[Approval], *, callers_decide: bool) -> list[Part]:
    """What a person is asked: for each question a sentence that says how to answer, and data that hold it whole."""
    parts: list[Part] = []
    for question in questions:
        name = question.approval
        how = (
            f"Answer with the words: approve {code_of(name)}, or: deny {code_of(name)}."
            if callers_decide
            else f"A person decides: dhp approve {name}, or: dhp deny {name}."
        )
        told = {
            "approval": name,
            "action": question.action,
            "details": question.details,
            "expires_at": question.expires_at,
        }
        parts += [Part(text=f"May it {question.action}? {how}"), part_of(told)]
    return parts
