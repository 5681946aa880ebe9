"""What is done to the outside world is done once: by the worker, by its standby, and by whoever tries again."""

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dhp_client
from dhp_client import sync
from dhp_client.clock import monotonic_ms
from dhp_client.loop_thread import loop_thread
from dhp_protocol.errors import WrongState
from dhp_protocol.replies import (
    ClaimReply,
    EffectDoneReply,
    EffectReply,
    EffectsReply,
    EffectView,
    LeaseLostEvent,
)
from tests.client.fake_daemon import HANDOFF, Connection, FakeDaemon, grant
from tests.client.losing import losing, raising
from tests.client.test_approvals import all_asked
from tests.client.test_doubt import ended_once, silence
from tests.client.waiting import until
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

ProxyTo = Callable[[DaemonProcess], Proxy]


class Outside:
    """A service that somebody has effects on; remembers each call's key."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def __call__(self, key: str) -> dict[str, Any]:
        self.keys.append(key)
        return {"receipt": len(self.keys)}


async def test_a_finished_effect_is_not_repeated_by_whoever_comes_next(client: dhp_client.Client, kind: str) -> None:
    outside = Outside()
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        assert await task.effect("charge", outside) == {"receipt": 1}
        assert await task.effect("charge", outside) == {"receipt": 1}
    async with client.claim(kinds=kind) as standby:
        assert await standby.effect("charge", outside) == {"receipt": 1}
        assert await standby.effect("mail", outside) == {"receipt": 2}
        await standby.complete(None)
    first, second = outside.keys
    assert first != second
    views = (await client.effects(task.handoff)).effects
    assert [(view.step, view.state) for view in views] == [("charge", "done"), ("mail", "done")]


async def test_a_result_is_the_same_the_first_time_as_later(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        first = await task.effect("pair", lambda key: (1, 2))
        assert first == await task.effect("pair", lambda key: (3, 4)) == [1, 2]


async def test_a_call_that_raised_leaves_a_doubt_that_the_next_one_must_settle(
    client: dhp_client.Client, kind: str
) -> None:
    async def breaks(key: str) -> None:
        raise ConnectionResetError

    outside, settling = Outside(), Outside()
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        with pytest.raises(ConnectionResetError):
            await task.effect("charge", breaks)
        with pytest.raises(dhp_client.EffectInDoubt) as doubt:
            await task.effect("charge", outside)
        assert doubt.value.step == "charge"
    async with client.claim(kinds=kind) as standby:
        with pytest.raises(dhp_client.EffectInDoubt) as told:
            await standby.effect("charge", outside)
        assert await standby.effect("charge", outside, in_doubt=settling) == {"receipt": 1}
        assert await standby.effect("charge", outside) == {"receipt": 1}
    assert outside.keys == []
    assert settling.keys == [doubt.value.idempotency_key] == [told.value.idempotency_key]


async def test_two_who_come_to_a_step_at_the_same_time_do_it_once(client: dhp_client.Client, kind: str) -> None:
    called, go_on = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    async def slow(key: str) -> int:
        calls.append(key)
        called.set()
        await go_on.wait()
        return len(calls)

    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        both = [asyncio.create_task(task.effect("charge", slow)) for _ in range(2)]
        await called.wait()
        await client.ping()
        go_on.set()
        assert [await one for one in both] == [1, 1]


async def test_a_step_within_its_own_call_is_a_mistake_that_hangs_nobody(client: dhp_client.Client, kind: str) -> None:
    outside = Outside()
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:

        async def again(key: str) -> Any:
            return await task.effect("charge", outside)

        async def again_in_a_task(key: str) -> Any:
            return await asyncio.create_task(task.effect("charge", outside))

        with pytest.raises(RuntimeError, match="'charge' is called within its own call"):
            await task.effect("charge", again)
        with pytest.raises(RuntimeError, match="'charge' is called within its own call"):
            await task.effect("charge", again, in_doubt=again_in_a_task)
        assert outside.keys == []
        assert await task.effect("outer", lambda key: task.effect("inner", outside)) == {"receipt": 1}


async def test_who_was_set_off_by_a_step_may_come_to_it_later(client: dhp_client.Client, kind: str) -> None:
    outside, over = Outside(), asyncio.Event()
    later: list[asyncio.Task[Any]] = []
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:

        async def come_back() -> Any:
            await over.wait()
            return await task.effect("charge", outside)

        async def charge(key: str) -> Any:
            later.append(asyncio.create_task(come_back()))
            return await outside(key)

        assert await task.effect("charge", charge) == {"receipt": 1}
        over.set()
        assert await later[0] == {"receipt": 1}
    assert len(outside.keys) == 1


@pytest.mark.parametrize("op", ["effect_begin", "effect_done"])
async def test_an_effect_whose_answers_are_lost_is_done_once(
    shared_daemon: DaemonProcess, kind: str, proxy_to: ProxyTo, op: str
) -> None:
    outside, proxy = Outside(), proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address) as client:
        await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            proxy.lose_answer_to(op)
            assert await task.effect("charge", outside) == {"receipt": 1}
            assert await task.effect("charge", outside) == {"receipt": 1}
            await task.complete(None)
        records = [record["type"] for record in (await client.history(task.handoff)).records]
    assert (proxy.lost, len(outside.keys)) == (1, 1)
    assert (records.count("effect_begun"), records.count("effect_done")) == (1, 1)


async def test_what_is_done_is_put_on_record_even_if_its_caller_gives_up(
    shared_daemon: DaemonProcess, kind: str, proxy_to: ProxyTo
) -> None:
    outside, proxy = Outside(), proxy_to(shared_daemon)
    async with dhp_client.connect(proxy.address) as client:
        await client.dispatch(kind, {})
        async with client.claim(kinds=kind, ttl_ms=60_000) as task:

            async def cut_off(key: str) -> Any:
                proxy.cut()
                await until(lambda: not client._session.connection.writable)
                return await outside(key)

            effect = asyncio.create_task(task.effect("charge", cut_off))
            await until(lambda: outside.keys)
            effect.cancel()
            with pytest.raises(asyncio.CancelledError):
                await effect
            proxy.mend()
        async with client.claim(kinds=kind) as standby:
            assert await standby.effect("charge", outside) == {"receipt": 1}


async def test_no_effect_begins_while_the_lease_is_in_doubt(fake: FakeDaemon) -> None:
    async def grants_shortly(connection: Connection, request: Any) -> ClaimReply:
        return grant(ttl_ms=300)

    outside = Outside()
    fake.answers |= {"claim": grants_shortly, "heartbeat": silence}
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        await until(lambda: task.in_doubt)
        with pytest.raises(dhp_client.InDoubt):
            await task.effect("charge", outside)
    assert (fake.of("effect_begin"), outside.keys) == ([], [])


@pytest.mark.parametrize("state", ["new", "in_doubt"])
async def test_no_effect_begins_when_the_answer_comes_after_the_lease(fake: FakeDaemon, state: str) -> None:
    ttl_ms = 300

    async def grants_shortly(connection: Connection, request: Any) -> ClaimReply:
        return grant(ttl_ms=ttl_ms)

    async def late(connection: Connection, request: Any) -> EffectReply:
        asked_ms = monotonic_ms()  # It was sent before, and so renews until before this and the ttl.
        await until(lambda: monotonic_ms() > asked_ms + ttl_ms)
        return EffectReply(state=state, idempotency_key="key")

    outside = Outside()
    fake.answers |= {"claim": grants_shortly, "heartbeat": silence, "effect_begin": late}
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        with pytest.raises(dhp_client.InDoubt):
            await task.effect("charge", outside, in_doubt=outside)
    assert (len(fake.of("effect_begin")), outside.keys) == (1, [])


async def test_no_effect_begins_when_the_lease_is_lost_before_the_call(fake: FakeDaemon) -> None:
    async def grants(connection: Connection, request: Any) -> ClaimReply:
        return grant()

    async def begin(connection: Connection, request: Any) -> EffectReply:
        return EffectReply(state="new", idempotency_key="key")

    outside = Outside()
    fake.answers |= {"claim": grants, "effect_begin": begin}
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        async with task._passage("charge", outside, None, None) as passage:
            fake.connections[0].event(LeaseLostEvent(handoff=HANDOFF, fence=1, why="superseded", status="running"))
            await until(lambda: task.lost)
            with losing():
                passage.call_for(outside, None)


async def test_a_step_that_was_only_asked_for_under_a_lease_that_ended_is_not_in_doubt(fake: FakeDaemon) -> None:
    ended_once(fake)
    lost_at_once = fake.answers["heartbeat"]
    fake.answers["heartbeat"] = fake._renew_all

    async def begin(connection: Connection, request: Any) -> EffectReply | None:
        if request.fence == 1:
            fake.answers["heartbeat"] = lost_at_once
            connection.drop()
            return None
        return EffectReply(state="in_doubt", idempotency_key="key")

    async def begun(connection: Connection, request: Any) -> EffectsReply:
        return EffectsReply(effects=[EffectView(step="charge", state="begun", fence=1, sha256=None)], next=None)

    async def done(connection: Connection, request: Any) -> EffectDoneReply:
        return EffectDoneReply(duplicate=False)

    outside = Outside()
    fake.answers |= {"effect_begin": begin, "effects": begun, "effect_done": done}
    async with dhp_client.connect(fake.address) as client, client.claim(kinds="fetch") as task:
        assert await task.effect("charge", outside) == {"receipt": 1}
        assert task.fence == 3
    assert [request.fence for request in fake.of("effect_begin")][-1] == 3
    assert len(outside.keys) == 1


async def test_a_lease_that_is_lost_during_the_call_takes_no_effect_back_and_notes_none(fake: FakeDaemon) -> None:
    async def grants(connection: Connection, request: Any) -> ClaimReply:
        return grant()

    async def begin(connection: Connection, request: Any) -> EffectReply:
        return EffectReply(state="new", idempotency_key="key")

    async def loses(key: str) -> None:
        fake.connections[0].event(LeaseLostEvent(handoff=HANDOFF, fence=1, why="superseded", status="running"))
        await asyncio.sleep(60)

    fake.answers |= {"claim": grants, "effect_begin": begin}
    async with dhp_client.connect(fake.address) as client:
        with losing():
            async with client.claim(kinds="fetch") as task:
                await task.effect("charge", loses)
    assert fake.of("effect_done") == []


async def test_an_approval_is_used_up_by_the_step_that_it_was_asked_for(
    client: dhp_client.Client, shared_daemon: DaemonProcess, kind: str
) -> None:
    outside = Outside()
    await client.dispatch(kind, {})
    async with dhp_client.connect(shared_daemon.address) as person, client.claim(kinds=kind) as task:
        asking = asyncio.create_task(task.approval("charge", {"usd": 3}, timeout_ms=60_000))
        asked = await all_asked(person, task.handoff, 1)
        with pytest.raises(WrongState):
            await task.effect("charge", outside, approval=asked[0].approval)
        await person.approve(asked[0].approval)
        approved = await asking
        assert await task.effect("charge", outside, approval=approved) == {"receipt": 1}
        with pytest.raises(WrongState):
            await task.effect("charge again", outside, approval=approved)
        (used,) = (await person.approvals(handoff=task.handoff)).approvals
        assert used.used_by == "charge"
    assert len(outside.keys) == 1


WORKER = """
import sys
import dhp_client
from dhp_client import sync

address, kind, ledger = sys.argv[1:]

def charge(key):
    with open(ledger, "a") as file:
        file.write(key + "\\n")
    return "charged"

with sync.connect(address) as client, client.claim(kinds=kind) as task:
    task.effect("reserve", charge)
    def and_die(key):
        charge(key)
        print("charged", flush=True)
        sys.stdin.read()
    task.effect("charge", and_die)
"""


def charge_and_die(daemon: DaemonProcess, kind: str, ledger: Path) -> None:
    """A worker gets kill -9 when its charge has been made, and before it could say so."""
    command = [sys.executable, "-c", textwrap.dedent(WORKER), daemon.address, kind, str(ledger)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "charged\n"
        worker.send_signal(signal.SIGKILL)


async def test_a_standby_of_a_killed_worker_is_told_of_the_unfinished_effect_alone(
    client: dhp_client.Client, shared_daemon: DaemonProcess, kind: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    await client.dispatch(kind, {})
    await asyncio.to_thread(charge_and_die, shared_daemon, kind, ledger)
    outside, found = Outside(), Outside()
    async with client.claim(kinds=kind, wait_ms=20_000) as standby:
        assert standby.was == "orphaned"
        assert await standby.effect("reserve", outside) == "charged"
        with pytest.raises(dhp_client.EffectInDoubt) as doubt:
            await standby.effect("charge", outside)
        assert await standby.effect("charge", outside, in_doubt=found) == {"receipt": 1}
        await standby.complete(None)
    reserved, charged = ledger.read_text().split()
    assert (outside.keys, found.keys) == ([], [charged])
    assert doubt.value.idempotency_key == charged != reserved


async def test_a_standby_may_leave_the_repetition_to_the_service(client: dhp_client.Client, kind: str) -> None:
    async def breaks(key: str) -> None:
        raise ConnectionResetError

    outside = Outside()
    await client.dispatch(kind, {})
    with raising(ConnectionResetError):
        async with client.claim(kinds=kind) as task:
            await task.effect("charge", breaks)
    async with client.claim(kinds=kind, wait_ms=20_000) as standby:
        assert await standby.effect("charge", outside, in_doubt=outside) == {"receipt": 1}
        await standby.complete(None)


def test_the_sync_task_calls_in_the_callers_thread_and_once(shared_daemon: DaemonProcess, kind: str) -> None:
    threads: list[threading.Thread] = []

    def call(key: str) -> str:
        threads.append(threading.current_thread())
        return key

    def breaks(key: str) -> None:
        raise ConnectionResetError

    with sync.connect(shared_daemon.address) as client:
        client.dispatch(kind, {})
        with client.claim(kinds=kind) as task:
            key = task.effect("charge", call)
            assert task.effect("charge", call) == key
            with pytest.raises(ConnectionResetError):
                task.effect("mail", breaks)
            with pytest.raises(dhp_client.EffectInDoubt):
                task.effect("mail", call)
            assert task.effect("mail", breaks, in_doubt=call) != key
            task.complete(None)
        assert [view.state for view in client.effects(task.handoff).effects] == ["done", "done"]
    assert threads == [threading.current_thread()] * 2


def test_a_step_within_its_own_call_is_a_mistake_in_sync_code_too(shared_daemon: DaemonProcess, kind: str) -> None:
    with sync.connect(shared_daemon.address) as client:
        client.dispatch(kind, {})
        with client.claim(kinds=kind) as task:
            with pytest.raises(RuntimeError, match="'charge' is called within its own call"):
                task.effect("charge", lambda key: task.effect("charge", len))
            assert task.effect("outer", lambda key: task.effect("inner", len)) == 64


def test_an_interrupt_as_a_step_is_entered_leaves_it_to_whoever_comes_next(
    shared_daemon: DaemonProcess, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = 0
    run = loop_thread.run

    def interrupted_once(work: Any) -> Any:
        nonlocal entered
        result = run(work)
        entered += work.__name__ == "__aenter__"
        if work.__name__ == "__aenter__" and entered == 1:
            raise KeyboardInterrupt
        return result

    got: list[Any] = []
    with sync.connect(shared_daemon.address) as client:
        client.dispatch(kind, {})
        with client.claim(kinds=kind) as task:
            monkeypatch.setattr(loop_thread, "run", interrupted_once)
            with pytest.raises(KeyboardInterrupt):
                task.effect("charge", len)
            coming_next = threading.Thread(target=lambda: got.append(task.effect("charge", len)), daemon=True)
            coming_next.start()
            coming_next.join(20)
            assert got == [64]


def test_threads_that_come_to_a_step_at_the_same_time_do_it_once(shared_daemon: DaemonProcess, kind: str) -> None:
    calls: list[str] = []
    called, go_on = threading.Event(), threading.Event()

    def slow(key: str) -> int:
        calls.append(key)
        called.set()
        go_on.wait(20)
        return len(calls)

    with sync.connect(shared_daemon.address) as client:
        client.dispatch(kind, {})
        with client.claim(kinds=kind) as task:
            got: list[Any] = []
            workers = [threading.Thread(target=lambda: got.append(task.effect("charge", slow))) for _ in range(3)]
            for worker in workers:
                worker.start()
            assert called.wait(20)
            client.ping()
            go_on.set()
            for worker in workers:
                worker.join()
            assert got == [1, 1, 1]


@pytest.mark.parametrize("handler", ["call", "in_doubt"])
async def test_what_cannot_be_called_with_a_key_is_refused_before_anything_begins(
    client: dhp_client.Client, kind: str, handler: str
) -> None:
    async def send() -> None: ...

    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        for wrong, told in (
            ("receipt", "not a str"),
            (send(), "not a coroutine: give the function, uncalled"),
            (lambda: None, r"take one argument, the idempotency key; it takes \(\)"),
            (lambda key, amount: None, r"it takes \(key, amount\)"),
        ):
            handlers: dict[str, Any] = {"call": Outside(), handler: wrong}
            with pytest.raises(TypeError, match=f"^{handler} must.*{told}"):
                await task.effect("charge", **handlers)
        assert (await client.effects(task.handoff)).effects == []
        assert await task.effect("charge", lambda key, times=1: times) == 1
        assert await task.effect("count", len) == 64


@pytest.mark.parametrize(("result", "error"), [({1, 2}, TypeError), (float("nan"), ValueError)])
async def test_a_result_that_is_no_json_is_told_to_leave_the_effect_in_doubt(
    client: dhp_client.Client, kind: str, result: object, error: type[Exception]
) -> None:
    await client.dispatch(kind, {})
    async with client.claim(kinds=kind) as task:
        with pytest.raises(error, match="'charge' was carried out, but can't be put on record and is in doubt now"):
            await task.effect("charge", lambda key: result)
        assert [view.state for view in (await client.effects(task.handoff)).effects] == ["begun"]
        with pytest.raises(dhp_client.EffectInDoubt):
            await task.effect("charge", lambda key: "again")
        assert await task.effect("charge", Outside(), in_doubt=lambda key: [1, 2]) == [1, 2]


async def test_an_effect_that_is_carried_out_elsewhere_is_begun_once_and_in_doubt_from_then_on(
    client: dhp_client.Client, kind: str
) -> None:
    await client.dispatch(kind, {})
    task = await client.claim(kinds=kind)
    assert task is not None
    begun = await task.begin_effect("mail")
    assert (begun.state, begun.result) == ("new", None)
    again = await task.begin_effect("mail")
    assert (again.state, again.idempotency_key) == ("in_doubt", begun.idempotency_key)
    assert await task.end_effect("mail", {"sent": True}) == {"sent": True}
    done = await task.begin_effect("mail")
    assert (done.state, done.result, done.idempotency_key) == ("done", {"sent": True}, begun.idempotency_key)
    assert await task.effect("mail", lambda key: pytest.fail("it was done")) == {"sent": True}
    with pytest.raises(dhp_client.EffectConflict):
        await task.end_effect("mail", {"sent": False})
    with pytest.raises(dhp_client.InvalidRequest):
        await task.end_effect("never begun")
    await task.release()


async def test_work_that_is_abandoned_is_orphaned(client: dhp_client.Client, kind: str) -> None:
    handoff = (await client.dispatch(kind, {})).handoff
    task = await client.claim(handoff, ttl_ms=500)
    assert task is not None
    task.abandon()
    async with client.claim(handoff, wait_ms=20_000) as next_one:
        assert next_one.was == "orphaned"
        await next_one.release()
    with pytest.raises(dhp_client.TaskEnded):
        await task.checkpoint({})
