"""The daemon goes away and comes back: what was asked is answered once, what is held is still held."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dhp_client
from dhp_client.backoff import Backoff
from dhp_protocol.errors import LeaseLost, Overloaded
from dhp_protocol.replies import CheckpointReply, ClaimReply, CompleteReply, ReleaseReply
from tests.client.fake_daemon import Connection, FakeDaemon, grant
from tests.client.losing import losing
from tests.client.waiting import until
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

ProxyTo = Callable[[DaemonProcess], Proxy]


async def grants(connection: Connection, request: Any) -> ClaimReply:
    return grant()


async def test_calls_that_wait_get_their_answers_after_a_kill_and_restart(daemon: DaemonProcess) -> None:
    async with dhp_client.connect(daemon.address) as client:
        made = [await client.dispatch("k", {"n": n}) for n in range(5)]
        waiting = [asyncio.create_task(client.result(one.handoff, wait_ms=50_000)) for one in made]
        await asyncio.sleep(0.1)
        daemon.kill()
        meanwhile = asyncio.create_task(client.dispatch("k", {"n": 99}))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(daemon.start)
        assert (await meanwhile).created
        for one in made:
            async with client.claim(one.handoff) as task:
                await task.complete(task.inputs["n"])
        assert [(await result).result for result in waiting] == list(range(5))


async def test_a_call_gives_up_when_no_daemon_is_to_be_reached_for_long(fake: FakeDaemon) -> None:
    async with dhp_client.connect(fake.address, retry_ms=200) as client:
        await fake.vanish()
        with pytest.raises(dhp_client.NotConnected, match="200 ms"):
            await client.ping()
        await fake.listen(fake.port)
        while True:
            with contextlib.suppress(dhp_client.NotConnected):
                await client.ping()
                break


async def test_a_daemon_that_takes_connections_and_says_nothing_is_told_as_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dhp_client.connection.HELLO_TIMEOUT_MS", 50)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        with pytest.raises(dhp_client.NotConnected, match=r"within 500 ms: it says nothing\. Start dhpd there"):
            await dhp_client.connect(f"unix:{tmp_path}/silent", connect_timeout_ms=500)


async def test_a_call_waits_on_when_a_new_connection_ends_before_its_turn_came(fake: FakeDaemon) -> None:
    async with dhp_client.connect(fake.address) as client:
        await client.ping()
        connection = client._session.connection
        is_back, ends = connection._on_ready, 3

        def ends_at_once() -> None:
            nonlocal ends
            is_back()
            link = connection._link
            if link is not None and ends:
                ends -= 1
                link.abort(dhp_client.ConnectionLost("It has ended already."))
                connection._link_ended(link)

        connection._on_ready = ends_at_once
        fake.connections[0].drop()
        await until(lambda: not connection.writable)
        await client.ping()
        assert not ends


async def test_a_reconnected_client_names_the_same_session(fake: FakeDaemon) -> None:
    async with dhp_client.connect(fake.address) as client:
        fake.connections[0].drop()
        await client.ping()
        assert [hello.session for hello in fake.of("hello")] == [client.session] * 2


@pytest.mark.parametrize("of", ["connection", "keepalive"])
async def test_coming_back_begins_with_a_pause_of_chance_and_connecting_does_not(
    fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    drawn: list[float] = []

    class Noted(Backoff):
        def next_ms(self, *, at_most_ms: float = float("inf")) -> float:
            drawn.append(super().next_ms(at_most_ms=at_most_ms))
            return drawn[-1]

    monkeypatch.setattr(f"dhp_client.{of}.Backoff", Noted)
    fake.answers["claim"] = grants
    async with dhp_client.connect(fake.address) as client, client.claim(kinds="fetch"):
        await until(lambda: len(fake.of("hello")) == 2)
        assert drawn == []
        fake.connections[["connection", "keepalive"].index(of)].drop()
        await until(lambda: len(fake.of("hello")) == 3)
        assert len(drawn) == 1


async def test_a_checkpoint_that_was_not_answered_is_sent_again_as_it_was(fake: FakeDaemon) -> None:
    stored: list[Any] = []

    async def answer_the_second(connection: Connection, request: Any) -> CheckpointReply | None:
        stored.append(request)
        if len(stored) == 1:
            connection.drop()
            return None
        return CheckpointReply(seq=request.seq, sha256=request.sha256, duplicate=len(stored) == 2)

    fake.answers |= {"claim": grants, "checkpoint": answer_the_second}
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        assert (await task.checkpoint({"page": 1})).duplicate
        await task.checkpoint({"page": 2})
    first, again, second = stored
    assert (
        (first.seq, bytes(first.state), first.fence)
        == (again.seq, bytes(again.state), again.fence)
        == (1, b'{"page":1}', 1)
    )
    assert second.seq == 2


async def test_a_completion_that_was_not_answered_is_settled_under_its_own_fence(fake: FakeDaemon) -> None:
    async def drop_the_first(connection: Connection, request: Any) -> CompleteReply | None:
        if len(fake.of("complete")) == 1:
            connection.drop()
            return None
        return CompleteReply(duplicate=True)

    fake.answers |= {"claim": grants, "complete": drop_the_first}
    async with dhp_client.connect(fake.address) as client:
        async with client.claim(kinds="fetch") as task:
            assert (await task.complete({"n": 1})).duplicate
        assert task.ended == "completed"
    first, again = fake.of("complete")
    assert (first.fence, bytes(first.result)) == (again.fence, bytes(again.result))


async def test_a_release_that_took_effect_unheard_is_a_release(fake: FakeDaemon) -> None:
    async def gone_already(connection: Connection, request: Any) -> ReleaseReply | None:
        if len(fake.of("release")) == 1:
            connection.drop()
            return None
        raise LeaseLost("no", why="released", fence=3, status="running")

    fake.answers |= {"claim": grants, "release": gone_already}
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        assert (await task.release()).duplicate
        assert task.ended == "released"
        assert not task.lost


async def test_an_overloaded_daemon_gets_the_write_again_later(fake: FakeDaemon) -> None:
    async def busy_twice(connection: Connection, request: Any) -> CompleteReply:
        if len(fake.of("complete")) < 3:
            raise Overloaded("busy", after_ms=1)
        return CompleteReply(duplicate=False)

    fake.answers |= {"claim": grants, "complete": busy_twice}
    async with dhp_client.connect(fake.address) as client, client.claim(kinds="fetch") as task:
        await task.complete(1)
        assert len(fake.of("complete")) == 3


async def test_work_runs_on_through_kills_and_restarts_of_the_daemon(daemon: DaemonProcess) -> None:
    async with dhp_client.connect(daemon.address) as client:
        made = await client.dispatch("k", {})
        async with client.claim(kinds="k") as task:
            for n in range(2):
                await task.checkpoint({"n": n})
                saving = asyncio.create_task(task.checkpoint({"half": n}))
                await asyncio.to_thread(daemon.restart)
                await saving
            await task.complete("done")
        status = await client.status(made.handoff)
        assert (status.status, status.seq, status.attempt, status.failures) == ("completed", 4, 1, 0)


async def test_a_line_that_is_cut_for_longer_than_the_grace_costs_no_work(
    daemon: DaemonProcess, proxy_to: ProxyTo
) -> None:
    proxy = proxy_to(daemon)
    async with dhp_client.connect(daemon.address) as other, dhp_client.connect(proxy.address) as client:
        made = await other.dispatch("k", {})
        async with client.claim(kinds="k") as task:
            await task.checkpoint({"n": 1})
            proxy.cut()
            while (await other.status(made.handoff)).status != "orphaned":
                await asyncio.sleep(0.02)
            proxy.mend()
            assert (await task.checkpoint({"n": 2})).seq == 2
            assert (task.fence, task.attempt, task.lost) == (3, 2, False)
            await task.complete("done")
        assert (await other.result(made.handoff)).result == "done"


async def test_a_completion_during_the_cut_goes_through_after_it(daemon: DaemonProcess, proxy_to: ProxyTo) -> None:
    proxy = proxy_to(daemon)
    async with dhp_client.connect(daemon.address) as other, dhp_client.connect(proxy.address) as client:
        made = await other.dispatch("k", {})
        async with client.claim(kinds="k") as task:
            proxy.cut()
            ending = asyncio.create_task(task.complete("done"))
            while (await other.status(made.handoff)).status != "orphaned":
                await asyncio.sleep(0.02)
            proxy.mend()
            await ending
        assert (await other.result(made.handoff)).result == "done"


async def test_work_that_somebody_else_has_taken_over_is_lost(daemon: DaemonProcess, proxy_to: ProxyTo) -> None:
    proxy = proxy_to(daemon)
    async with dhp_client.connect(daemon.address) as other, dhp_client.connect(proxy.address) as client:
        made = await other.dispatch("k", {})
        with losing() as lost:
            async with client.claim(kinds="k"):
                proxy.cut()
                standby = await other.claim(made.handoff, wait_ms=20_000)
                assert standby is not None
                proxy.mend()
                await asyncio.sleep(60)
        assert lost.value.details["why"] == "superseded"
        await standby.complete("by the standby")
        assert (await other.result(made.handoff)).result == "by the standby"


async def test_work_that_somebody_else_has_taken_over_and_given_back_is_lost(
    daemon: DaemonProcess, proxy_to: ProxyTo
) -> None:
    proxy = proxy_to(daemon)
    async with dhp_client.connect(daemon.address) as other, dhp_client.connect(proxy.address) as client:
        made = await other.dispatch("k", {})
        with losing():
            async with client.claim(kinds="k"):
                proxy.cut()
                standby = await other.claim(made.handoff, wait_ms=20_000)
                assert standby is not None
                await standby.checkpoint("by the standby")
                await standby.release()
                proxy.mend()
                await asyncio.sleep(60)
        assert (await other.status(made.handoff)).status == "pending"


async def test_a_silent_line_is_noticed_and_replaced(
    daemon: DaemonProcess, proxy_to: ProxyTo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhp_client.link.SILENCE_MS", 200)
    proxy = proxy_to(daemon)
    async with dhp_client.connect(proxy.address) as client:
        made = await client.dispatch("k", {})
        proxy.silence()
        asking = asyncio.create_task(client.status(made.handoff))
        await asyncio.sleep(0.1)
        proxy.mend()
        assert (await asking).status == "pending"


@pytest.mark.parametrize("waits", ["claim", "result"])
async def test_a_call_that_waits_long_is_asked_again_where_the_line_goes_dead(
    shared_daemon: DaemonProcess, proxy_to: ProxyTo, kind: str, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    monkeypatch.setattr("dhp_client.link.SILENCE_MS", 200)
    proxy = proxy_to(shared_daemon)
    async with dhp_client.connect(shared_daemon.address) as other, dhp_client.connect(proxy.address) as client:

        async def claims() -> Any:
            task = await client.claim(kinds=kind, wait_ms=60_000)
            assert task is not None
            return await task.complete("done")

        made = await other.dispatch(kind, {}, delay_ms=60_000 if waits == "result" else 300)
        call = asyncio.create_task(client.result(made.handoff, wait_ms=60_000) if waits == "result" else claims())
        await asyncio.sleep(0.1)
        proxy.silence()
        await until(lambda: proxy.swallowed)
        if waits == "result":
            await other.cancel(made.handoff)
        proxy.mend()
        assert await call


async def test_the_keep_alives_connection_going_dead_has_the_other_one_asked(
    fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhp_client.link.SILENCE_MS", 60_000)
    fake.answers["claim"] = grants
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        await until(lambda: len(fake.connections) == 2)
        assert not fake.of("ping")
        fake.connections[1].drop()
        await until(lambda: fake.of("ping"))
        await task.release()


async def test_a_waiting_claim_is_no_reason_to_reconnect(fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhp_client.link.SILENCE_MS", 50)

    async def slow(connection: Connection, request: Any) -> ClaimReply:
        await asyncio.sleep(0.5)
        return grant()

    fake.answers["claim"] = slow
    async with dhp_client.connect(fake.address) as client:
        assert await client.claim(kinds="fetch", wait_ms=10_000) is not None
        assert fake.of("ping")
        assert len(fake.of("claim")) == 1


async def test_a_write_that_still_waits_when_its_block_is_left_is_given_up(
    fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhp_client.task.END_TIMEOUT_MS", 100)

    async def vanish(connection: Connection, request: Any) -> None:
        await fake.vanish()

    fake.answers |= {"claim": grants, "checkpoint": vanish}
    async with dhp_client.connect(fake.address) as client:
        async with client.claim(kinds="fetch") as task:
            saving = asyncio.create_task(task.checkpoint(1))
            await until(lambda: fake.of("checkpoint"))
        async with asyncio.timeout(20):
            with pytest.raises(dhp_client.InDoubt):
                await saving
        with pytest.raises(dhp_client.TaskEnded):
            await task.complete(2)


@pytest.fixture
def black_hole() -> Iterator[str]:
    """An address where nobody answers at all, not even to refuse: its queue of connections is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"


async def test_an_address_that_swallows_everything_does_not_hide_the_others(
    fake: FakeDaemon, black_hole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhp_client.link.CONNECT_TIMEOUT_MS", 100)
    async with dhp_client.connect([black_hole, fake.address]) as client:
        await client.ping()
