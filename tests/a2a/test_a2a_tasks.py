"""Tasks over A2A are handoffs: sent, had, listed and cancelled, with the SDK's own client over HTTP."""

import asyncio
import contextlib
import json
from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.types import (
    CancelTaskRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    InternalError,
    InvalidParamsError,
    ListTasksRequest,
    Part,
    PushNotificationNotSupportedError,
    SubscribeToTaskRequest,
    TaskNotCancelableError,
    TaskNotFoundError,
    TaskPushNotificationConfig,
    TaskState,
    UnsupportedOperationError,
)

import dhp_client
from dhp_client.a2a.parts import MAX_VALUES
from tests.client.waiting import until_async
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

from .bridging import bridged, dhp, sending, state, text, told


async def test_who_waits_gets_the_result_and_the_worker_what_was_sent(client: dhp_client.Client, kind: str) -> None:
    async with bridged(client, kind, budget={"max_steps": 5}) as bridge:
        request = sending({"city": "Lisbon", "days": 2}, context_id="a trip", message_id="m-1")
        answer = asyncio.create_task(bridge.send(request))
        async with client.claim(kinds=kind, wait_ms=20_000) as task:
            assert task.inputs == {"city": "Lisbon", "days": 2}
            assert (await client.status(task.handoff)).budget["max_steps"] == 5
            await task.complete({"cost": 120.5, "big": 2**60})
        done = await answer
        assert (done.id, done.context_id, state(done.status)) == (task.handoff, "a trip", "COMPLETED")
        (artifact,) = done.artifacts
        assert artifact.artifact_id == "result"
        assert artifact.parts[0].text == '{"cost": 120.5, "big": 1152921504606846976}', "which a double wouldn't hold"
        again = await bridge.agent.get_task(GetTaskRequest(id=done.id))
        assert (again.status.state, again.artifacts) == (done.status.state, done.artifacts)


async def test_a_message_that_is_sent_twice_is_one_task_and_sending_at_once_does_not_wait(
    client: dhp_client.Client, kind: str
) -> None:
    async with bridged(client, kind) as bridge:
        request = sending("rain", at_once=True)
        first = await bridge.send(request)
        assert state(first.status) == "SUBMITTED"
        assert first.context_id
        async with client.claim(first.id) as task:
            assert task.inputs == {"text": "rain"}
            await task.checkpoint({"line": 1})
            again = await bridge.send(request)
            assert (again.id, again.context_id, state(again.status)) == (first.id, first.context_id, "WORKING")
            assert dhp(again) | {"position": 0} == {
                "kind": kind, "status": "running", "attempt": 1, "seq": 1, "state": {"line": 1}, "position": 0,
            }  # fmt: skip
            await task.complete("plip")
        streamed = [told(update) async for update in bridge.agent.send_message(request)]
        assert streamed == [("task", "COMPLETED")]
        assert (await bridge.send(sending("rain", at_once=True))).id != first.id
        assert len((await client.list(kind=kind)).handoffs) == 2


async def test_states_are_hidden_where_the_server_is_told_to(client: dhp_client.Client, kind: str) -> None:
    async with bridged(client, kind, shows_states=False) as bridge:
        sent = await bridge.send(sending("x", at_once=True))
        async with client.claim(sent.id) as task:
            await task.checkpoint("a secret")
            stream = bridge.agent.subscribe(SubscribeToTaskRequest(id=sent.id))
            shown = [await anext(stream)]
            await task.checkpoint("another one")
            await task.complete(1)
        shown += [update async for update in stream]
        assert [told(update) for update in shown][1] == ("WORKING", 2)
        assert "secret" not in str(shown)
        assert "another" not in str(shown)


async def test_why_a_task_failed_is_told_and_every_attempt_before(client: dhp_client.Client, kind: str) -> None:
    async with bridged(client, kind, budget={"max_attempts": 2}) as bridge:
        stream = bridge.agent.send_message(sending("x"))
        task_id = (await anext(stream)).task.id
        for _ in range(2):
            async with client.claim(task_id, wait_ms=20_000) as task:
                await task.fail("NoPaper", "the tray is empty", delay_ms=0)
        updates = [update.status_update async for update in stream]
        assert [dhp(update)["type"] for update in updates] == ["claimed", "failed", "claimed", "failed", "dead"]
        assert text(updates[1]) == "The attempt failed: NoPaper: the tray is empty"
        assert state(updates[-1].status) == "FAILED"
        assert text(updates[-1]) == text(await bridge.agent.get_task(GetTaskRequest(id=task_id)))
        assert "max_attempts" in text(updates[-1])
        assert len({update.status.message.message_id for update in updates}) == len(updates)


async def test_what_a_caller_was_shown_the_end_of_need_not_be_kept_for_ever(
    client: dhp_client.Client, kind: str
) -> None:
    elsewhere = await client.dispatch(kind, {"by": "somebody else"})
    async with bridged(client, kind) as bridge:
        sent = [await bridge.send(sending({"n": n}, at_once=True)) for n in range(2)]
        stream = bridge.agent.subscribe(SubscribeToTaskRequest(id=sent[0].id))
        await anext(stream)
        task_ids = [sent[0].id, sent[1].id, elsewhere.handoff]
        for task_id in task_ids:
            async with client.claim(task_id) as task:
                await task.complete(None)
        await bridge.agent.list_tasks(ListTasksRequest())
        assert [(await client.status(task_id)).acked for task_id in task_ids[1:]] == [False, False]
        assert [told(update)[0] async for update in stream][-2:] == ["artifact", "COMPLETED"]
        for task_id in task_ids[1:]:
            await bridge.agent.get_task(GetTaskRequest(id=task_id))
        await until_async(lambda: _acked(client, task_ids[0]))
        assert [(await client.status(task_id)).acked for task_id in task_ids] == [True, True, False]


async def _acked(client: dhp_client.Client, task_id: str) -> bool:
    return (await client.status(task_id)).acked


async def test_a_task_is_cancelled_once_and_its_stream_ends(client: dhp_client.Client, kind: str) -> None:
    async with bridged(client, kind) as bridge:
        stream = bridge.agent.send_message(sending("x"))
        task_id = (await anext(stream)).task.id
        cancelled = await bridge.agent.cancel_task(CancelTaskRequest(id=task_id))
        assert state(cancelled.status) == "CANCELED"
        assert [told(update) async for update in stream] == [("CANCELED", "cancelled")]
        with pytest.raises(TaskNotCancelableError):
            await bridge.agent.cancel_task(CancelTaskRequest(id=task_id))
        with pytest.raises(UnsupportedOperationError):
            await anext(bridge.agent.subscribe(SubscribeToTaskRequest(id=task_id)))


async def test_only_work_of_the_kinds_that_are_served_is_there(client: dhp_client.Client, kind: str) -> None:
    other = await client.dispatch(f"{kind}-other", {})
    ours = await client.dispatch(kind, {"by": "somebody else"})
    async with bridged(client, kind) as bridge:
        for unknown in (other.handoff, "0" * 64, "no id", "ä" * 64):
            for refused in (
                bridge.agent.get_task(GetTaskRequest(id=unknown)),
                bridge.agent.cancel_task(CancelTaskRequest(id=unknown)),
                anext(bridge.agent.subscribe(SubscribeToTaskRequest(id=unknown))),
                bridge.send(sending("approve", task_id=unknown)),
            ):
                with pytest.raises(TaskNotFoundError):
                    await refused
        assert (await client.status(other.handoff)).status == "pending"
        for method in ("GetTask", "CancelTask"):
            answers = [await bridge.rpc(method, id=unknown) for unknown in (other.handoff, "0" * 64)]
            assert len({json.dumps(answer).replace(other.handoff, "0" * 64) for answer in answers}) == 1
        shown = await bridge.agent.get_task(GetTaskRequest(id=ours.handoff))
        assert shown.context_id == ours.handoff, "which was dispatched elsewhere, and is a context of its own"
        assert [task.id for task in (await bridge.agent.list_tasks(ListTasksRequest())).tasks] == [ours.handoff]


async def test_tasks_are_listed_page_by_page_the_one_that_changed_last_first(
    client: dhp_client.Client, kind: str
) -> None:
    async with bridged(client, kind, f"{kind}-b") as bridge:
        sent = []
        for n in range(5):
            request = sending({"n": n}, at_once=True, context_id="even" if n % 2 == 0 else "odd")
            request.metadata["kind"] = kind if n < 4 else f"{kind}-b"
            sent.append((await bridge.send(request)).id)
        async with client.claim(sent[1]) as task:
            await task.complete("first")
        async with client.claim(sent[0]) as task:
            await task.approval("pay", timeout_ms=60_000, park=True)

        async def listed(**members: Any) -> list[str]:
            return [task.id for task in (await bridge.agent.list_tasks(ListTasksRequest(**members))).tasks]

        by_change = [sent[n] for n in (0, 1, 4, 3, 2)]
        assert await listed() == by_change
        page = await bridge.agent.list_tasks(ListTasksRequest(page_size=2, include_artifacts=True))
        assert ([task.id for task in page.tasks], page.total_size, page.page_size) == (by_change[:2], 5, 2)
        assert [state(task.status) for task in page.tasks] == ["INPUT_REQUIRED", "COMPLETED"]
        assert page.tasks[1].artifacts[0].parts[0].text == "first"
        rest = await bridge.agent.list_tasks(ListTasksRequest(page_size=3, page_token=page.next_page_token))
        assert ([task.id for task in rest.tasks], rest.next_page_token) == (by_change[2:], "")
        assert await listed(context_id="odd") == [sent[1], sent[3]]
        assert await listed(status=TaskState.TASK_STATE_INPUT_REQUIRED) == [sent[0]]
        assert await listed(status=TaskState.TASK_STATE_SUBMITTED) == [sent[4], sent[3], sent[2]]
        assert await listed(status=TaskState.TASK_STATE_WORKING) == []
        assert await listed(status=TaskState.TASK_STATE_REJECTED) == []
        since = page.tasks[1].status.timestamp
        assert await listed(status_timestamp_after=since) == [sent[0], sent[1]]
        since.nanos = 0
        assert set(await listed(status_timestamp_after=since)) >= {sent[0], sent[1]}
        for wrong in ({"page_size": 101}, {"page_size": 0}, {"page_token": "abc"}, {"history_length": -1}):
            with pytest.raises(InvalidParamsError):
                await listed(**wrong)


async def test_which_kind_is_meant_has_to_be_said_where_there_are_more(client: dhp_client.Client, kind: str) -> None:
    async with bridged(client, kind, f"{kind}-b") as bridge:
        with pytest.raises(InvalidParamsError, match=f"name a skill in metadata.kind, one of {kind}, {kind}-b"):
            await bridge.send(sending("x", at_once=True))
        with pytest.raises(InvalidParamsError, match="There is no 'c' here"):
            await bridge.send(sending("x", at_once=True, metadata={"kind": "c"}))
        with pytest.raises(InvalidParamsError, match="It isn't said what is to be done: name a skill"):
            await bridge.send(sending("x", at_once=True, metadata={"kind": [kind]}))
        sent = await bridge.send(sending("x", at_once=True, metadata={"kind": f"{kind}-b"}))
        assert (await client.status(sent.id)).kind == f"{kind}-b"


async def test_what_cannot_be_taken_in_is_told(client: dhp_client.Client, kind: str) -> None:
    async with bridged(client, kind) as bridge:
        with pytest.raises(InvalidParamsError):
            await bridge.send(sending())
        with pytest.raises(InvalidParamsError, match="has a member 'text'"):
            await bridge.send(sending({"text": "a"}, "b"))
        with pytest.raises(InvalidParamsError):
            await bridge.send(sending(Part(text="x" * 1_100_000), at_once=True))
        with pytest.raises(InvalidParamsError):
            await bridge.send(sending("x", at_once=True, context_id="c" * 300))
        for value in ("\ud800", {"n": float("nan")}, {"n": float("inf")}):
            parts = [{"data": value}]
            answer = await bridge.rpc("SendMessage", message={"messageId": "m", "role": "ROLE_USER", "parts": parts})
            assert answer["code"] == -32602, answer
        too_much = b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[' + b"{}," * MAX_VALUES + b"{}]}"
        refused = await bridge.http.post(bridge.url, content=too_much, headers={"A2A-Version": "1.0"})
        assert (refused.status_code, f"{MAX_VALUES} values" in refused.text) == (413, True)
        assert (await client.list(kind=kind)).handoffs == []


NO_REQUESTS = (
    (b"", -32700),
    (b"{", -32700),
    (b"[]", -32600),
    (b"1", -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"GetTask"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"NoSuchMethod"}', -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[1]}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":{"a":1}}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":' + b'{"a":' * 500 + b"1" + b"}" * 501, -32602),
    (b"\xff" * 9, -32603),
)


async def test_what_is_no_request_is_told(client: dhp_client.Client, kind: str) -> None:
    async with bridged(client, kind) as bridge:
        for sent, code in NO_REQUESTS:
            answer = await bridge.http.post(bridge.url, content=sent, headers={"A2A-Version": "1.0"})
            assert answer.status_code == 200, sent
            assert answer.json()["error"]["code"] == code, (sent, answer.text)


async def test_push_notifications_and_a_second_card_are_refused_as_unsupported(
    client: dhp_client.Client, kind: str
) -> None:
    async with bridged(client, kind) as bridge:
        config = TaskPushNotificationConfig(task_id="t", id="c", url="https://example.com/hook")
        with pytest.raises(PushNotificationNotSupportedError):
            await bridge.agent.create_task_push_notification_config(config)
        with pytest.raises(PushNotificationNotSupportedError):
            await bridge.agent.get_task_push_notification_config(
                GetTaskPushNotificationConfigRequest(task_id="t", id="c")
            )
        request = sending("x", at_once=True)
        request.configuration.task_push_notification_config.CopyFrom(config)
        with pytest.raises(PushNotificationNotSupportedError):
            await bridge.send(request)
        assert (await bridge.rpc("GetExtendedAgentCard"))["code"] == -32004
        assert not bridge.card.capabilities.push_notifications


async def test_an_older_client_has_its_tasks_too(client: dhp_client.Client, kind: str) -> None:
    async with bridged(client, kind) as bridge:
        card = type(bridge.card)()
        card.CopyFrom(bridge.card)
        del card.supported_interfaces[0]  # What is left is 0.3.
        async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
            agent = await create_client(card, ClientConfig(httpx_client=http))
            stream = agent.send_message(sending({"n": 1}))
            first = await anext(stream)
            async with client.claim(kinds=kind, wait_ms=20_000) as task:
                await task.checkpoint("half")
                await task.complete({"n": 2})
            assert [told(first), *[told(update) async for update in stream]] == [
                ("task", "SUBMITTED"),
                ("WORKING", "claimed"),
                ("WORKING", 1),
                ("artifact", {"n": 2}),
                ("COMPLETED", "completed"),
            ]
        raw = await bridge.rpc("tasks/get", version="0.3", id=first.task.id)
        assert (raw["kind"], raw["status"]["state"]) == ("task", "completed")
        assert (await bridge.rpc("tasks/get", version="0.3", id="x"))["code"] == -32001


async def test_the_daemon_away_is_told_as_a_reason_to_ask_again(daemon: DaemonProcess, kind: str) -> None:
    with contextlib.closing(Proxy(daemon.tcp)) as proxy:
        async with dhp_client.connect(proxy.address, retry_ms=100) as client, bridged(client, kind) as bridge:
            stream = bridge.agent.send_message(sending("x"))
            task_id = (await anext(stream)).task.id
            proxy.cut()
            answer = await bridge.rpc("GetTask", id=task_id)
            assert (answer["code"], answer["message"]) == (-32603, "The daemon can't be reached: ask again.")
            with pytest.raises(InternalError, match="ask again"):
                await anext(stream)
            proxy.mend()

            async def is_back() -> bool:
                return "id" in await bridge.rpc("GetTask", id=task_id)

            await until_async(is_back)
            taken_up = bridge.agent.subscribe(SubscribeToTaskRequest(id=task_id))
            assert told(await anext(taken_up)) == ("task", "SUBMITTED")
