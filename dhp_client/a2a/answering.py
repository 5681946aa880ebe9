"""A message to a task that asks: a person's answer.

Owns what an answer looks like, which question it is for, and that it goes in as a person's, by a session of its own, or not at all. An answer names
its question: one in words that only said yes could fall on a question that its writer hasn't seen. Naming it also makes an
answer that is sent twice the same one.
"""

import re
from collections.abc import Iterable

import msgspec
from a2a.types import InvalidParamsError, Message, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

from dhp_client import Approval
from dhp_client.questions import all_approvals

from .bridge import Bridge
from .tasks import Seen, context_of

MIN_CODE_CHARS = 4
HOW = 'with the words approve CODE or deny CODE, or with data {"approval": ID, "decision": "approve" or "deny"}'

_WORDS = re.compile(r"(approve|deny)\s+([0-9a-f-]+)\b[\s.:,]*(.*)", re.IGNORECASE | re.DOTALL)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`question` is an approval's id, or the beginning of its own part."""

    question: str
    approves: bool
    note: str | None = None


def answer_in(message: Message) -> Answer:
    """The answer that a message holds. Raises `InvalidParamsError`."""
    for part in message.parts:
        given = MessageToDict(part.data) if part.WhichOneof("content") == "data" else None
        match given:
            case {"approval": str(question), "decision": "approve" | "deny" as decision, **rest} if not {*rest} - {
                "note"
            }:
                note = rest.get("note")
                return Answer(
                    question=question, approves=decision == "approve", note=None if note is None else str(note)
                )
    words = " ".join(part.text for part in message.parts if part.WhichOneof("content") == "text").strip()
    if found := _WORDS.fullmatch(words):
        decision, question, note = found.groups()
        return Answer(question=question.lower(), approves=decision.lower() == "approve", note=note.strip() or None)
    raise InvalidParamsError(f"That is no answer to what a person is asked: answer {HOW}.")


def question_meant(answer: Answer, questions: Iterable[Approval]) -> Approval:
    """The question that is answered. Raises `InvalidParamsError` where there is none, or more than one."""
    found = [
        question
        for question in questions
        if question.approval == answer.question
        or (len(answer.question) >= MIN_CODE_CHARS and question.approval.rpartition("-")[2].startswith(answer.question))
    ]
    if len(found) != 1:
        raise InvalidParamsError(f"The answer names no question of this task's: answer {HOW}.")
    return found[0]


async def answer(bridge: Bridge, seen: Seen, message: Message) -> None:
    """Takes the answer in. Raises A2A's errors, and what the daemon refuses it with."""
    if message.context_id and message.context_id != context_of(seen.status):
        raise InvalidParamsError(f"The task belongs to the context {context_of(seen.status)}, not to that one.")
    if seen.final:
        raise UnsupportedOperationError("The task has ended: send a message of its own, without taskId.")
    if bridge.approver is None and seen.questions:
        names = [question.approval for question in seen.questions]
        say = " and ".join(f"dhp approve {name}, or dhp deny {name}" for name in names)
        raise UnsupportedOperationError(f"A person decides this, elsewhere: {say}.", {"approvals": names})
    # Those that are decided, too: an answer may come a second time.
    asked = await all_approvals(bridge.client, handoff=seen.status.handoff)
    if bridge.approver is None or not asked:
        raise UnsupportedOperationError(
            "The task asks for nothing: follow it, or send a message of its own, without taskId."
        )
    given = answer_in(message)
    question = question_meant(given, asked)
    decide = bridge.approver.approve if given.approves else bridge.approver.deny
    await decide(question.approval, given.note)
