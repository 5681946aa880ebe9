"""The tools for a person's word: approval_request, approval_wait, approvals.

Owns asking the person through the agent's host, where that shows forms: that they see all of what they decide, that a form which is put off or
sent away is no decision, and that theirs goes in by a session of its own (`persons`). The agent itself can't decide.
"""

import contextlib
import logging
from typing import Annotated, Any

from mcp.server.elicitation import AcceptedElicitation, DeclinedElicitation, ElicitationResult
from mcp.server.mcpserver import Elicit, Resolve
from pydantic import BaseModel, Field

from dhp_protocol.errors import AlreadyDecided, ApprovalExpired, Forbidden
from dhp_protocol.limits import MAX_NOTE_CHARS
from dhp_protocol.printable import harmless
from dhp_protocol.replies import DecisionReply, StatusReply

from ..client import Client
from ..payload import encode
from ..persons import Approver
from ..questions import all_approvals
from ..results import Approval
from .answers import Decision, QuestionPage, decision_of, question_of
from .arguments import After, Handle, Limit, MaybeHandoff
from .bridge import Call, bridge_of, client_of
from .failing import as_tool_errors
from .waiting import MAX_WAIT_MS, WaitMs, with_progress

log = logging.getLogger("dhp_client")

MAX_SHOWN_CHARS = 4_000
"""What is longer can't be taken in on a form, so it is left to the terminal."""
PERSON_WITHIN_MS = 3_600_000
"""As long as a question that the host shows may be answered."""
DAY_MS = 86_400_000
HANDOFF_ID_CHARS = 64

ApprovalId = Annotated[str, Field(description="What approval_request gave.")]


class Word(BaseModel):
    """What the person fills in."""

    approve: bool = Field(title="Approve", description="Yes: the agent may do exactly this, once.")
    note: str = Field(default="", max_length=MAX_NOTE_CHARS, title="Note", description="Told to the agent.")


async def approval_request(
    call: Call,
    handle: Handle,
    action: Annotated[str, Field(description="What you want to do, in a few words.")],
    details: Annotated[Any, Field(description="Any JSON: exactly what it would be done with.")] = None,
    timeout_ms: Annotated[int, Field(ge=1, description="Nobody's word by then means: expired.")] = DAY_MS,
) -> Decision:
    """Ask a person for their word on one action. Gives the approval's id at once; approval_wait brings the decision.

    The same question on the same work is the same approval. With an approved one, effect_begin takes its id.
    """
    with bridge_of(call).record.using(handle) as task:
        approval = await task.ask(action, details, timeout_ms=timeout_ms)
    found = await (await client_of(call)).approval_wait(approval)
    return decision_of(approval, found, bridge_of(call).decide_with(approval))


@as_tool_errors
async def ask_person(call: Call, approval: ApprovalId, ask: bool, handle: str | None) -> Elicit[Word] | None:
    """The form for the person before the agent's host; None where it isn't theirs to decide, or isn't open any more."""
    bridge = bridge_of(call)
    if not ask or bridge.approver is None or not _shows_forms(call):
        return None
    client = await client_of(call)
    asked = await _the_approval(client, approval)
    if asked is None or asked.decision is not None:
        return None
    text = question_text(asked, await client.status(asked.handoff))
    if len(text) > MAX_SHOWN_CHARS:
        return None
    if handle is not None:
        bridge.record.await_person(handle, PERSON_WITHIN_MS)
    return Elicit(text, Word)


async def approval_wait(
    call: Call,
    approval: ApprovalId,
    word: Annotated[ElicitationResult[Word], Resolve(ask_person)],
    wait_ms: WaitMs = 0,
    ask: Annotated[bool, Field(description="False: only wait, don't show the person a form.")] = True,
    handle: Annotated[str | None, Field(description="Of the work: keeps its lease while the person thinks.")] = None,
) -> Decision:
    """A person's decision on an approval. Shows them a form where your host can; else give them `decide_with`.

    While it says waiting, call again with wait_ms; for a long wait suspend the work with this approval, and it comes back when it is
    decided.
    """
    bridge, client = bridge_of(call), await client_of(call)
    with contextlib.nullcontext() if handle is None else bridge.record.using(handle):
        if bridge.approver is not None:
            await _bring_in(bridge.approver, approval, word, decide_with=bridge.decide_with(approval))
        wait_ms = min(wait_ms, MAX_WAIT_MS)
        waiting = client.approval_wait(approval, wait_ms)
        found: DecisionReply = await with_progress(call, wait_ms, f"waiting for a person to decide {approval}", waiting)
    return decision_of(approval, found, bridge.decide_with(approval))


async def approvals(
    call: Call,
    status: Annotated[str | None, Field(description="open, approved, denied, expired or cancelled.")] = None,
    handoff: MaybeHandoff = None,
    after: After = 0,
    limit: Limit = 20,
) -> QuestionPage:
    """What people were asked, in all or about one handoff."""
    page = await (await client_of(call)).approvals(status=status, handoff=handoff, after=after, limit=limit)
    return QuestionPage(approvals=[question_of(one) for one in page.approvals], next=page.next)


def question_text(asked: Approval, work: StatusReply) -> str:
    """What the person is shown: all of it, and nothing in it can pass for anything else. Pure.

    Whoever holds the work isn't told: an answer counts only for the very text that was shown, and the work may change hands meanwhile.
    """
    details = encode(asked.details, member="details").decode()
    return (
        "A worker asks for your word. May this be done, once?\n\n"
        f"action: {harmless(asked.action)}\n"
        f"details: {harmless(details)}\n\n"
        f"for {harmless(work.kind)} {asked.handoff[:12]}, open until {asked.expires_at}"
    )


async def _bring_in(approver: Approver, approval: str, word: ElicitationResult[Word], *, decide_with: str) -> None:
    """Takes the person's decision to the daemon, if they have made one. One that came from elsewhere meanwhile stands."""
    try:
        match word:
            case AcceptedElicitation(data=Word(approve=True, note=note)):
                await approver.approve(approval, note or None)
            case AcceptedElicitation(data=Word(note=note)):
                await approver.deny(approval, note or None)
            case DeclinedElicitation():
                await approver.deny(approval, "declined")
    except (AlreadyDecided, ApprovalExpired) as error:
        log.info("a person's word came too late: %s", error)
    except Forbidden as error:
        sentence = f"The person has answered, but this server can't bring it in. Have them type: {decide_with}"
        raise Forbidden(sentence, why=error.message, **error.details) from None


def _shows_forms(call: Call) -> bool:
    capabilities = call.client_capabilities
    forms = None if capabilities is None else capabilities.elicitation
    return forms is not None and (forms.form is not None or forms.url is None)


async def _the_approval(client: Client, approval: str) -> Approval | None:
    """The approval by its id, which begins with its handoff's."""
    found = await all_approvals(client, handoff=approval[:HANDOFF_ID_CHARS])
    return next((one for one in found if one.approval == approval), None)
