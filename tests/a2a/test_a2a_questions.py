"""What a worker asks a person is told as input required; who may answer, and how, is the server's and the daemon's to say."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from a2a.types import (
    InternalError,
    InvalidParamsError,
    SubscribeToTaskRequest,
    TaskStatusUpdateEvent,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

import dhp_client
from dhp_client.persons import approver_beside

from .bridging import Bridged, bridged, sending, state, text, told
from .conftest import Guarded

DETAILS = {"to": "Ada", "usd": 900}


@contextlib.asynccontextmanager
async def served(
    guarded: Guarded, kind: str, *, decides: bool = True
) -> AsyncIterator[tuple[Bridged, dhp_client.Client]]:
    """The bridge, and a client for workers."""
    address = guarded.daemon.tcp
    approver = approver_beside(address, token_file=guarded.bridge, approver_token_file=guarded.person)
    async with (
        dhp_client.connect(address, token_file=guarded.worker) as working,
        dhp_client.connect(address, token_file=guarded.bridge) as client,
        bridged(client, kind, approver=approver if decides else None) as bridge,
    ):
        yield bridge, working


async def asked(stream: Any, working: dhp_client.Client, kind: str) -> TaskStatusUpdateEvent:
    """Takes the work and asks, putting it aside; the update that ends the stream."""
    async with working.claim(kinds=kind, wait_ms=20_000) as task:
        await task.approval("pay", DETAILS, timeout_ms=60_000, park=True)
    *_, last = [update async for update in stream]
    assert told(last) == ("INPUT_REQUIRED", "approval_requested")
    update: TaskStatusUpdateEvent = last.status_update
    return update


def question(update: TaskStatusUpdateEvent) -> dict[str, Any]:
    """What is asked, as data."""
    (data,) = [part.data for part in update.status.message.parts if part.WhichOneof("content") == "data"]
    found: dict[str, Any] = MessageToDict(data)
    return found


async def test_a_question_ends_the_stream_and_an_answer_in_words_goes_on(guarded: Guarded, kind: str) -> None:
    async with served(guarded, kind) as (bridge, working):
        stream = bridge.agent.send_message(sending({"n": 1}))
        task_id = (await anext(stream)).task.id
        update = await asked(stream, working, kind)
        whole = question(update)
        assert (whole["action"], whole["details"]) == ("pay", DETAILS)
        code = whole["approval"].rpartition("-")[2][:8]
        assert text(update) == f"May it pay? Answer with the words: approve {code}, or: deny {code}."
        assert state((await bridge.send(sending({"n": 1}, message_id="other", at_once=True))).status) == "SUBMITTED"

        follower = bridge.agent.subscribe(SubscribeToTaskRequest(id=task_id))
        assert told(await anext(follower)) == ("task", "INPUT_REQUIRED")
        stream = bridge.agent.send_message(sending(f"Approve {code}: but keep the receipt", task_id=task_id))
        assert told(await anext(stream)) == ("task", "WORKING")
        async with working.claim(task_id, wait_ms=20_000) as task:
            given = await task.approval("pay", DETAILS, timeout_ms=60_000, park=True)
            assert (given.by, given.note) == ("ada", "but keep the receipt")
            await task.complete({"paid": 900})
        rest = [told(update) async for update in stream]
        assert rest[-2:] == [("artifact", {"paid": 900}), ("COMPLETED", "completed")]
        followed = [told(update) async for update in follower]
        assert followed[0] == ("WORKING", "approval_decided")
        assert followed[-1] == ("COMPLETED", "completed")


async def test_a_no_as_data_is_taken_in_once_and_the_work_hears_it(guarded: Guarded, kind: str) -> None:
    async with served(guarded, kind) as (bridge, working):
        stream = bridge.agent.send_message(sending({"n": 1}))
        task_id = (await anext(stream)).task.id
        whole = question(await asked(stream, working, kind))
        no = {"approval": whole["approval"], "decision": "deny", "note": "too dear"}
        for _ in range(2):  # An answer whose receipt was lost is sent again.
            sent = await bridge.send(sending(no, task_id=task_id, at_once=True))
            assert state(sent.status) == "WORKING"
        with pytest.raises(UnsupportedOperationError):
            await bridge.send(sending(no | {"decision": "approve"}, task_id=task_id))
        with pytest.raises(dhp_client.ApprovalDenied, match="too dear"):
            async with working.claim(task_id, wait_ms=20_000) as task:
                await task.approval("pay", DETAILS, timeout_ms=60_000, park=True)
        with pytest.raises(UnsupportedOperationError, match="has ended"):
            await bridge.send(sending(no, task_id=task_id))


async def test_what_is_no_answer_decides_nothing(guarded: Guarded, kind: str) -> None:
    async with served(guarded, kind) as (bridge, working):
        stream = bridge.agent.send_message(sending({"n": 1}))
        task_id = (await anext(stream)).task.id
        with pytest.raises(UnsupportedOperationError, match="asks for nothing"):
            await bridge.send(sending("approve 0123abcd", task_id=task_id))
        approval = question(await asked(stream, working, kind))["approval"]
        code = approval.rpartition("-")[2][:8]
        other = "0123abcd" if code != "0123abcd" else "abcd0123"
        for wrong in (
            "approve",
            "yes",
            f"approve {other}",
            f"approve {code[:3]}",
            f"approve {task_id}",
            {"approval": approval},
            {"approval": approval, "decision": "yes"},
            {"approval": approval, "decision": "approve", "usd": 9},
            {"decision": "approve"},
        ):
            with pytest.raises(InvalidParamsError, match=r"approve CODE or deny CODE"):
                await bridge.send(sending(wrong, task_id=task_id))
        with pytest.raises(InvalidParamsError, match="belongs to the context"):
            await bridge.send(sending(f"approve {code}", task_id=task_id, context_id="another"))
        assert [found.decision for found in (await working.approvals(handoff=task_id)).approvals] == [None]


async def test_where_callers_do_not_decide_they_are_told_who_does(guarded: Guarded, kind: str) -> None:
    async with served(guarded, kind, decides=False) as (bridge, working):
        stream = bridge.agent.send_message(sending({"n": 1}))
        task_id = (await anext(stream)).task.id
        update = await asked(stream, working, kind)
        approval = question(update)["approval"]
        assert text(update) == f"May it pay? A person decides: dhp approve {approval}, or: dhp deny {approval}."
        with pytest.raises(UnsupportedOperationError, match=f"dhp approve {approval}, or dhp deny {approval}"):
            await bridge.send(sending({"approval": approval, "decision": "approve"}, task_id=task_id))
        assert state((await bridge.send(sending({"n": 1}, message_id="m", at_once=True))).status) == "SUBMITTED"


async def test_a_token_without_the_role_is_told_as_the_servers_own_trouble(guarded: Guarded, kind: str) -> None:
    async with (
        dhp_client.connect(guarded.daemon.tcp, token_file=guarded.person) as client,
        bridged(client, kind) as bridge,
    ):
        with pytest.raises(InternalError, match="needs the role dispatcher"):
            await bridge.send(sending("x", at_once=True))
