"""A stream of a task's goes on whatever becomes of its workers, of the bridge, and of its readers: with the SDK's own client over HTTP."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2AClientError, ClientConfig, create_client
from a2a.types import StreamResponse, SubscribeToTaskRequest

import dhp_client
from dhp_client import WatchEvent
from dhp_client.a2a import application
from dhp_client.a2a.bridge import Bridge
from dhp_client.a2a.following import follow
from tests.client.waiting import until_async
from tests.support.client_worker import ClientWorker
from tests.support.daemon_process import DaemonProcess

from .bridging import bridged, sending, state, told

TOKEN = "a-token-of-the-callers"


async def until_told(stream: AsyncIterator[StreamResponse], wanted: tuple[str, Any]) -> list[tuple[str, Any]]:
    """All that comes, up to this."""
    seen = []
    while not seen or seen[-1] != wanted:
        seen.append(told(await anext(stream)))
    return seen


async def test_a_worker_is_killed_and_another_goes_on_in_one_unbroken_stream(
    daemon: DaemonProcess, client: dhp_client.Client, kind: str
) -> None:
    async with bridged(client, kind) as bridge:
        stream = bridge.agent.send_message(sending({"pages": 3}))
        first = await anext(stream)
        with ClientWorker(daemon.tcp, "sync") as doomed:
            await asyncio.to_thread(doomed.call, "claim", kinds=kind, wait_ms=10_000)
            await asyncio.to_thread(doomed.call, "checkpoint", state={"page": 1})
            seen = await until_told(stream, ("WORKING", 1))
            doomed.kill()
        async with client.claim(kinds=kind, wait_ms=20_000) as task:
            assert (task.handoff, task.state) == (first.task.id, {"page": 1})
            await task.checkpoint({"page": 2})
            await task.complete({"pages": [1, 2]})
        rest = [update async for update in stream]
        assert told(first) == ("task", "SUBMITTED")
        assert [*seen, *map(told, rest)] == [
            ("WORKING", "claimed"),
            ("WORKING", 1),
            ("WORKING", "orphaned"),
            ("WORKING", "claimed"),
            ("WORKING", 2),
            ("artifact", {"pages": [1, 2]}),
            ("COMPLETED", "completed"),
        ]
        assert {update.artifact_update.task_id or update.status_update.task_id for update in rest} == {first.task.id}


@pytest.fixture
def server(daemon: DaemonProcess, kind: str, tmp_path: Path) -> Iterator[Any]:
    """Starts `dhp a2a`, in a process of its own, for that test's kind and for `TOKEN`; on that port where one is given."""
    processes = []
    token_file = tmp_path / "token"
    token_file.touch(0o600)
    token_file.write_text(TOKEN)

    def start(port: int = 0) -> tuple[subprocess.Popen[str], str]:
        command = [
            sys.executable,
            "-m",
            "dhp_client.cli",
            "a2a",
            "--kind",
            kind,
            "--listen",
            f"127.0.0.1:{port}",
            "--json",
        ]
        command += ["--connect", daemon.address, "--http-token-file", str(token_file)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())["url"]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


async def test_the_bridge_is_killed_and_who_subscribes_again_has_missed_nothing(
    client: dhp_client.Client, kind: str, server: Any
) -> None:
    process, url = await asyncio.to_thread(server)
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        agent = await create_client(
            url, ClientConfig(httpx_client=http)
        )  # Its card asks for no token, but says that one is wanted.
        assert (await http.post(url, json={})).status_code == 401
        http.headers["Authorization"] = f"Bearer {TOKEN}"
        stream = agent.send_message(sending({"n": 1}))
        task_id = (await anext(stream)).task.id
        async with client.claim(kinds=kind, wait_ms=10_000) as task:
            await task.checkpoint("before")
            await until_told(stream, ("WORKING", 1))
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(A2AClientError):
                await anext(stream)
            await task.checkpoint("meanwhile")
            restarted, again = await asyncio.to_thread(server, int(url.rpartition(":")[2]))
            assert again == url
            stream = agent.subscribe(SubscribeToTaskRequest(id=task_id))
            taken_up = await anext(stream)
            assert told(taken_up) == ("task", "WORKING")
            assert taken_up.task.metadata["dhp"]["state"] == "meanwhile"
            await task.checkpoint("after")
            await task.complete([1])
        assert [told(update) async for update in stream] == [
            ("WORKING", 3),
            ("artifact", [1]),
            ("COMPLETED", "completed"),
        ]
    restarted.terminate()
    assert await asyncio.to_thread(restarted.wait) == 0


async def test_a_stop_of_the_bridge_cuts_streams_and_leaves_the_work_alone(
    client: dhp_client.Client, kind: str
) -> None:
    async with bridged(client, kind) as bridge:
        stream = bridge.agent.send_message(sending("x"))
        task_id = (await anext(stream)).task.id
        reading = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        bridge.stop.set()
        with pytest.raises(A2AClientError):
            await reading
    assert (await client.status(task_id)).status == "pending"


async def test_readers_that_go_or_do_not_read_leave_no_watch_behind(client: dhp_client.Client, kind: str) -> None:
    async def connections() -> int:
        return (await client.stats()).connections

    await until_async(lambda: _is(connections(), 1), "this client, and nothing that an earlier test has left")
    held = await client.dispatch(kind, {})
    async with client.claim(held.handoff), bridged(client, kind) as bridge:
        before = 2  # With what keeps leases alive.
        await until_async(lambda: _is(connections(), before))
        streams = [bridge.agent.send_message(sending({"n": n})) for n in range(3)]
        task_ids = [(await anext(stream)).task.id for stream in streams]
        waiting = [asyncio.create_task(bridge.send(sending({"n": n}))) for n in range(3, 5)]
        await until_async(lambda: _is(connections(), before + 5), "each of them watches")
        await streams[0].aclose()
        waiting[0].cancel()
        await until_async(lambda: _is(connections(), before + 3), "those who have gone don't")
        async with client.claim(task_ids[1]) as task:
            for _ in range(3):
                await task.checkpoint("x" * 500_000)
            await streams[1].aclose()  # Without having read any of it.
        await until_async(lambda: _is(connections(), before + 2), "nor does who didn't read")
        waiting[1].cancel()
        await streams[2].aclose()
        await until_async(lambda: _is(connections(), before), "and at the end nobody does")
        await asyncio.gather(*waiting, return_exceptions=True)


async def _is(found: Any, wanted: int) -> bool:
    return await found == wanted


async def test_a_stream_on_which_nothing_happens_is_not_silent(
    client: dhp_client.Client, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with httpx.AsyncClient(trust_env=False) as usual:
        patience_s = usual.timeout.read
    assert patience_s is not None
    assert patience_s > application.PING_EVERY_S, "which is the SDK's client's, unless it is given another one"
    monkeypatch.setattr(application, "PING_EVERY_S", 0.05)
    async with bridged(client, kind) as bridge:
        sent = await bridge.send(sending("x", at_once=True))
        body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": sent.id}}
        headers = {"A2A-Version": "1.0"}
        async with bridge.http.stream("POST", bridge.url, json=body, headers=headers) as answer:
            async for line in answer.aiter_lines():
                if line.startswith(":"):
                    break
            else:
                raise AssertionError("the stream has ended")


class Lagging:
    """The client, whose watch tells first that records are gone, and then all of them."""

    def __init__(self, client: dhp_client.Client) -> None:
        self._client = client
        self.meanwhile: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def watch(self, handoff: str, after: int) -> AsyncIterator[WatchEvent]:
        await self.meanwhile()
        gone = (await self._client.status(handoff)).position
        yield WatchEvent(handoff="", position=gone, type="lagged", record={})
        async for event in self._client.watch(handoff, after=after):
            yield event


async def test_where_records_are_gone_a_stream_tells_how_things_stand_and_nothing_twice(
    client: dhp_client.Client, kind: str
) -> None:
    made = await client.dispatch(kind, {})
    lagging = Lagging(client)
    async with client.claim(made.handoff) as task:

        async def meanwhile() -> None:
            for n in range(1, 4):
                await task.checkpoint(n)

        lagging.meanwhile = meanwhile
        stream = follow(Bridge(client=lagging, kinds=(kind,)), made.handoff)  # type: ignore[arg-type]
        assert state((await anext(stream)).status) == "WORKING"  # type: ignore[union-attr]
        fresh = await anext(stream)
        assert fresh.metadata["dhp"]["state"] == 3
        await task.checkpoint(4)
        assert (await anext(stream)).metadata["dhp"]["seq"] == 4
        lagging.meanwhile = lambda: task.complete("late")
        late = [update async for update in follow(Bridge(client=lagging, kinds=(kind,)), made.handoff)]  # type: ignore[arg-type]
        assert [type(update).__name__ for update in late] == [
            "Task",
            "TaskArtifactUpdateEvent",
            "TaskStatusUpdateEvent",
        ]
        assert [type(update).__name__ async for update in stream] == [
            "TaskArtifactUpdateEvent",
            "TaskStatusUpdateEvent",
        ]
