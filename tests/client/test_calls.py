"""What a program asks of a daemon, on a healthy line."""

import asyncio
import errno
import hashlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dhp_client
from dhp_client import connection
from dhp_client.addresses import DirectoryAddress, UnixAddress, unusable
from dhp_client.exceptions import BadReply
from dhp_protocol.errors import DHPError, Draining, Internal, Overloaded, StoreUnavailable
from dhp_protocol.limits import Limits
from dhp_protocol.replies import DispatchReply, Empty
from tests.client.fake_daemon import Connection, FakeDaemon
from tests.client.waiting import until
from tests.support.daemon_process import DaemonProcess

UNKNOWN = "0" * 64


async def test_the_id_is_the_hash_of_the_intent_and_the_same_intent_is_the_same_handoff(
    client: dhp_client.Client, kind: str
) -> None:
    first = await client.dispatch(kind, {"b": 1.0, "a": "ü"}, key="k")
    again = await client.dispatch(kind, {"a": "ü", "b": 1}, key="k")
    other = await client.dispatch(kind, {"a": "ü", "b": 1}, key="other")
    intent = {
        "budget": {},
        "capabilities": {},
        "inputs": {"a": "ü", "b": 1},
        "key": "k",
        "kind": kind,
        "output_schema": {},
    }
    canonical = json.dumps(intent, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert first.handoff == hashlib.sha256(canonical).hexdigest()
    assert (first.created, first.status) == (True, "pending")
    assert (again.handoff, again.created) == (first.handoff, False)
    assert other.handoff != first.handoff


async def test_a_long_intent_has_the_same_id_as_a_short_one_would(client: dhp_client.Client, kind: str) -> None:
    inputs = {"text": "x" * 100_000}
    intent = {"budget": {}, "capabilities": {}, "inputs": inputs, "key": "", "kind": kind, "output_schema": {}}
    canonical = json.dumps(intent, sort_keys=True, separators=(",", ":")).encode()
    assert (await client.dispatch(kind, inputs)).handoff == hashlib.sha256(canonical).hexdigest()


async def test_everything_that_can_be_looked_at(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {"n": 1}, priority=7, labels={"team": kind}, budget={"max_attempts": 5})
    async with client.claim(kinds=kind, worker="w") as task:
        await task.checkpoint({"page": 1}, steps=2)
        await task.checkpoint({"page": 2})
        assert (await client.result(made.handoff)) == dhp_client.Result(status="running", result=None)
        await task.complete([1, None])
    status = await client.status(made.handoff)
    assert (status.status, status.steps, status.priority, status.seq) == ("completed", 3, 7, 2)
    assert status.budget == {"max_attempts": 5, "max_stalls": 2, "max_invalid_results": 3}
    last = await client.last_checkpoint(made.handoff)
    assert last is not None
    assert (last.seq, last.state) == (2, {"page": 2})
    page = await client.checkpoints(made.handoff, limit=1)
    assert [checkpoint.state for checkpoint in page.checkpoints] == [{"page": 1}]
    rest = await client.checkpoints(made.handoff, after=page.next or 0)
    assert [checkpoint.state for checkpoint in rest.checkpoints] == [{"page": 2}]
    history = await client.history(made.handoff)
    assert [record["type"] for record in history.records] == [
        "dispatched",
        "claimed",
        "checkpointed",
        "checkpointed",
        "completed",
    ]
    assert await client.result(made.handoff) == dhp_client.Result(status="completed", result=[1, None])
    await client.ack(made.handoff)
    assert (await client.status(made.handoff)).acked
    listed = await client.list(status="completed", kind=kind, label=f"team={kind}")
    assert [found.handoff for found in listed.handoffs] == [made.handoff]
    assert (await client.stats()).handoffs["completed"] >= 1
    assert (await client.health()).status == "ok"
    await client.ping()


async def test_a_result_is_waited_for(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    waiting = asyncio.create_task(client.result(made.handoff, wait_ms=20_000))
    async with client.claim(kinds=kind) as task:
        await task.complete("done")
    assert (await waiting).result == "done"


async def test_cancelling_pending_work_ends_it(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    assert (await client.cancel(made.handoff, reason="no longer wanted")).status == "cancelled"
    assert (await client.status(made.handoff)).status == "cancelled"


async def test_a_child_has_its_parents_id_as_key_unless_given(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {"n": 1})
    async with client.claim(kinds=kind) as task:
        child = await task.dispatch(f"{kind}-child", {"m": 1})
        same = await task.dispatch(f"{kind}-child", {"m": 1})
        keyed = await task.dispatch(f"{kind}-child", {"m": 1}, key="mine")
        assert (await client.status(child.handoff)).parent == task.handoff
        await task.complete(None)
    assert same.handoff == child.handoff != keyed.handoff
    async with client.claim(child.handoff) as task:
        assert json.loads(task.intent)["key"] == (await client.status(child.handoff)).parent
        await task.complete(None)


async def test_the_daemons_errors_are_raised_as_what_they_are(client: dhp_client.Client, kind: str) -> None:
    with pytest.raises(dhp_client.NotFound):
        await client.status(UNKNOWN)
    with pytest.raises(dhp_client.InvalidRequest) as refused:
        await client.dispatch(kind, {}, budget={"max_usb": 1})
    assert "max_usb" in refused.value.message
    with pytest.raises(dhp_client.InvalidRequest):
        await client.dispatch("not a kind", {})
    with pytest.raises(dhp_client.InvalidRequest):
        await client.list(status="unheard-of")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda client: client.dispatch(5, {}), "kind must be a str, not 5"),
        (lambda client: client.dispatch("k", {}, key=None), "key must be a str, not None"),
        (lambda client: client.dispatch("k", {}, priority="high"), "priority must be an int, not 'high'"),
        (lambda client: client.dispatch("k", {}, delay_ms=None), "delay_ms must be an int of milliseconds, not None"),
        (lambda client: client.dispatch("k", {}, labels={"n": 1}), "labels must be str for str, not 1 for 'n'"),
        (lambda client: client.dispatch("k", {1: 2}), "inputs has the key 1"),
        (lambda client: client.claim(kinds="k", wait_ms=None), "wait_ms must be an int"),
        (lambda client: client.claim(kinds="k", ttl_ms=1.5), "ttl_ms must be an int"),
        (lambda client: client.recover(UNKNOWN, wait_ms=None), "wait_ms must be an int"),
        (lambda client: client.result(UNKNOWN, wait_ms=None), "wait_ms must be an int"),
        (lambda client: client.status(None), "handoff must be a str, not None"),
        (lambda client: client.list(after=None), "after must be an int"),
    ],
)
async def test_an_argument_of_another_type_is_a_type_error_that_names_it(
    fake: FakeDaemon, call: Callable[[Any], Any], told: str
) -> None:
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(TypeError, match=told):
            await call(client)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda client: client.claim("count"), "'count' is no handoff id, .*64 hex digits; for a kind write kinds="),
        (lambda client: client.recover("count"), "no handoff id"),
        (lambda client: client.result(UNKNOWN[:12]), "'0{12}' is no handoff id, which has 64 hex digits"),
        (lambda client: client.status("A" * 64), "no handoff id"),
        (lambda client: client.cancel(""), "no handoff id"),
        (lambda client: client.ack("x" * 999), "no handoff id"),
        (lambda client: client.history("x"), "no handoff id"),
        (lambda client: client.checkpoints("x"), "no handoff id"),
        (lambda client: client.last_checkpoint("x"), "no handoff id"),
        (lambda client: client.dispatch("k", {}, parent="x"), "no handoff id"),
    ],
)
async def test_what_is_no_id_is_told(fake: FakeDaemon, call: Callable[[Any], Any], told: str) -> None:
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(dhp_client.InvalidRequest, match=told):
            await call(client)


async def test_nan_is_refused_and_nothing_is_sent(fake: FakeDaemon) -> None:
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(ValueError, match="inputs"):
            await client.dispatch("k", {"x": math.nan})
        with pytest.raises(dhp_client.InvalidRequest):
            await client.dispatch("k", {"x": 2**53 + 1})
        assert not fake.of("dispatch")


async def test_what_is_too_long_or_too_deep_is_refused_at_once(fake: FakeDaemon) -> None:
    fake.limits = Limits(max_frame_bytes=10_000, max_depth=20)
    deep: Any = {}
    for _ in range(30):
        deep = {"a": deep}
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(dhp_client.FrameTooLarge):
            await client.dispatch("k", {"x": "x" * 10_000})
        with pytest.raises(dhp_client.BadJson):
            await client.dispatch("k", deep)


async def test_many_calls_at_once_get_their_own_answers(client: dhp_client.Client, kind: str) -> None:
    made = await asyncio.gather(*(client.dispatch(kind, {"n": n}) for n in range(200)))
    assert len({reply.handoff for reply in made}) == 200
    statuses = await asyncio.gather(*(client.status(reply.handoff) for reply in made))
    assert [status.handoff for status in statuses] == [reply.handoff for reply in made]


async def test_answers_out_of_order_find_their_calls(fake: FakeDaemon) -> None:
    held: list[tuple[Connection, Any]] = []

    async def answer_in_reverse(connection: Connection, request: Any) -> None:
        held.append((connection, request))
        if len(held) == 3:
            for other, asked in reversed(held):
                body = b'{"id":%d,"ok":true,"handoff":"%s","created":true,"status":"pending","extra":{}}'
                line = body % (asked.id, asked.handoff.encode())
                other.raw(b"%d %b\n" % (len(line), line))

    fake.answers["dispatch"] = answer_in_reverse
    async with dhp_client.connect(fake.address) as client:
        replies = await asyncio.gather(*(client.dispatch("k", {"n": n}) for n in range(3)))
    sent = {json.loads(bytes(asked.inputs))["n"]: asked.handoff for _, asked in held}
    assert [reply.handoff for reply in replies] == [sent[n] for n in range(3)]


async def test_a_cancelled_call_leaves_the_connection_healthy(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    calls = [asyncio.create_task(client.result(made.handoff, wait_ms=20_000)) for _ in range(5)]
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert (await client.status(made.handoff)).status == "pending"


async def test_another_id_than_the_clients_own_is_no_answer(fake: FakeDaemon) -> None:
    async def wrong(connection: Connection, request: Any) -> DispatchReply:
        return DispatchReply(handoff=UNKNOWN, created=True, status="pending")

    fake.answers["dispatch"] = wrong
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(dhp_client.IntegrityError):
            await client.dispatch("k", {})


@pytest.mark.parametrize("error", [Overloaded("full", after_ms=1), StoreUnavailable("disk"), Internal("oops")])
async def test_an_error_that_may_pass_is_borne(fake: FakeDaemon, error: DHPError) -> None:
    asked: list[bytes] = []

    async def later(connection: Connection, request: Any) -> DispatchReply:
        asked.append(bytes(request.inputs))
        if len(asked) < 3:
            raise error
        return DispatchReply(handoff=request.handoff, created=True, status="pending")

    fake.answers["dispatch"] = later
    async with dhp_client.connect(fake.address) as client:
        await client.dispatch("k", {"n": 1})
    assert asked == [b'{"n":1}'] * 3


async def test_an_error_that_stays_is_raised_when_patience_ends(fake: FakeDaemon) -> None:
    async def never(connection: Connection, request: Any) -> Empty:
        raise Overloaded("full")

    fake.answers["ack"] = never
    async with dhp_client.connect(fake.address, retry_ms=100) as client:
        with pytest.raises(dhp_client.Overloaded):
            await client.ack(UNKNOWN)
    assert len(fake.of("ack")) >= 2


async def test_why_a_call_goes_on_trying_is_noted_once_it_takes_long(
    fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def busy(asking: Connection, request: Any) -> Empty:
        if len(fake.of("ack")) % 4:
            raise Overloaded("Make room.")
        return Empty()

    fake.answers["ack"] = busy
    async with dhp_client.connect(fake.address) as client:
        monkeypatch.setattr(connection, "NOTED_AFTER_MS", math.inf)
        await client.ack(UNKNOWN)
        assert caplog.messages == []
        monkeypatch.setattr(connection, "NOTED_AFTER_MS", 0)
        await client.ack(UNKNOWN)
        assert caplog.messages == ["Make room. (Trying again, for 30 s at most.)"]


async def test_draining_is_for_the_caller_to_decide_on(fake: FakeDaemon) -> None:
    async def draining(connection: Connection, request: Any) -> DispatchReply:
        raise Draining("no more")

    fake.answers["dispatch"] = draining
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(dhp_client.Draining):
            await client.dispatch("k", {})
    assert len(fake.of("dispatch")) == 1


async def test_a_daemon_that_talks_nonsense_is_no_daemon(fake: FakeDaemon) -> None:
    async def nonsense(connection: Connection, request: Any) -> None:
        connection.raw(b"HTTP/1.1 400 Bad Request\n")

    fake.answers["status"] = nonsense
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(BadReply):
            await client.status(UNKNOWN)
        await client.ping()


async def test_an_error_without_an_id_reaches_whoever_waits(fake: FakeDaemon) -> None:
    async def nameless(connection: Connection, request: Any) -> None:
        body = b'{"ok":false,"error":{"code":"bad_json","message":"no","retry":"no"}}'
        connection.raw(b"%d %b\n" % (len(body), body))

    fake.answers["status"] = nameless
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(dhp_client.BadJson):
            await client.status(UNKNOWN)


async def test_another_protocol_is_refused(fake: FakeDaemon) -> None:
    async def other(connection: Connection, request: Any) -> bytes:
        body = json.loads(
            b'{"ok":true,"server":"x","protocol":"dhp/9","session":"s","roles":[],"features":[],"time":""}'
        )
        lease = dict.fromkeys(("ttl_ms", "heartbeat_ms", "min_ttl_ms", "max_ttl_ms", "disconnect_grace_ms"), 1)
        return json.dumps(body | {"id": request.id, "limits": {}, "lease": lease}).encode()

    fake.answers["hello"] = other
    with pytest.raises(BadReply, match="dhp/9"):
        await dhp_client.connect(fake.address)


async def test_nobody_there_is_told_in_time_and_with_the_address() -> None:
    with pytest.raises(dhp_client.NotConnected, match=r"tcp://127\.0\.0\.1:1 "):
        await dhp_client.connect("tcp://127.0.0.1:1", connect_timeout_ms=200)
    with pytest.raises(dhp_client.NotConnected, match="Start dhpd there"):
        await dhp_client.connect("tcp://127.0.0.1:1", connect_timeout_ms=200)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("{tmp}/file", "it is no directory"),
        ("{tmp}/file/in/it", "Not a directory.*you can write to"),
        ("{tmp}/" + "x" * 300, "File name too long"),
        ("/proc/nowhere", "can't be a daemon's directory"),
        ("unix:{tmp}/file/dhpd.sock", "Not a directory"),
        ("unix:{tmp}/" + "x" * 200, "too long"),
        ("unix:{tmp}", "is a directory: give it without unix:"),
        ("tcp://no-such-host.invalid", "no host of that name"),
        (f"tcp://{'x' * 70}.invalid", "no host of that name"),
    ],
)
async def test_where_no_daemon_can_ever_be_is_told_without_waiting(tmp_path: Path, address: str, told: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(dhp_client.ClientError, match=told) as refused:
        await dhp_client.connect(address.format(tmp=tmp_path), connect_timeout_ms=3_600_000)
    assert isinstance(refused.value, dhp_client.BadAddress)


async def test_a_socket_that_others_may_not_use_is_told(tmp_path: Path) -> None:
    told = unusable(UnixAddress("/run/dhpd.sock"), PermissionError(errno.EACCES, "Permission denied"))
    assert "unix:/run/dhpd.sock can't be connected to: Permission denied" in str(told)


@pytest.mark.parametrize("code", [errno.ECONNREFUSED, errno.ENOENT, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EAGAIN])
def test_what_may_come_up_yet_is_waited_for(code: int) -> None:
    for address in (UnixAddress("/run/dhpd.sock"), DirectoryAddress(Path("/srv/work"))):
        assert unusable(address, OSError(code, os.strerror(code))) is None


async def test_one_address_that_is_none_does_not_spoil_the_others(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with dhp_client.connect([tmp_path / "file", shared_daemon.address]) as client:
        await client.ping()


async def test_the_first_address_that_answers_is_taken(shared_daemon: DaemonProcess) -> None:
    async with dhp_client.connect(["tcp://127.0.0.1:1", shared_daemon.address]) as client:
        await client.ping()


async def test_a_closed_client_says_so(shared_daemon: DaemonProcess) -> None:
    client = await dhp_client.connect(shared_daemon.address)
    await client.close()
    await client.close()
    with pytest.raises(dhp_client.ClientClosed):
        await client.ping()
    with pytest.raises(dhp_client.ClientClosed):
        await client.claim(kinds="k")
    with pytest.raises(dhp_client.ClientClosed):
        async with client:
            pytest.fail("there is no client to run this with")


async def test_a_call_that_waits_when_the_client_is_closed_says_so(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    waiting = asyncio.create_task(client.result(made.handoff, wait_ms=20_000))
    await asyncio.sleep(0.05)
    await client.close()
    with pytest.raises(dhp_client.ClientClosed):
        await waiting


def test_one_event_loop_after_the_other_each_with_its_own_client(shared_daemon: DaemonProcess) -> None:
    async def once() -> dhp_client.Client:
        client = await dhp_client.connect(shared_daemon.address)
        await client.ping()
        return client

    async def with_the_client_of_another(client: dhp_client.Client) -> None:
        with pytest.raises(dhp_client.WrongLoop):
            await client.ping()
        async with dhp_client.connect(shared_daemon.address) as own:
            await own.ping()

    first = asyncio.run(once())
    asyncio.run(with_the_client_of_another(first))


def test_a_client_whose_loop_is_gone_can_still_be_closed(shared_daemon: DaemonProcess) -> None:
    async def once() -> dhp_client.Client:
        return await dhp_client.connect(shared_daemon.address)

    first = asyncio.run(once())
    asyncio.run(first.close())
    assert first.closed


async def test_a_client_is_closed_on_its_own_loop(client: dhp_client.Client) -> None:
    with pytest.raises(dhp_client.WrongLoop):
        await asyncio.to_thread(asyncio.run, client.close())
    await client.ping()


async def test_the_session_is_random_and_one_for_both_connections(fake: FakeDaemon) -> None:
    async with dhp_client.connect(fake.address, name="me") as one, dhp_client.connect(fake.address) as two:
        sessions = [hello.session for hello in fake.of("hello")]
        assert sessions == [one.session, two.session]
        assert one.session != two.session
        assert len(one.session) >= 24
        assert [hello.client for hello in fake.of("hello")] == ["me", "python"]
    await until(lambda: len(fake.of("goodbye")) == 2)


def test_importing_the_client_is_light() -> None:
    heavy = ["click", "rich", "aiosqlite", "uvloop", "dhpd", "multiprocessing", "dhp_client.cli", "dhp_client.demo"]
    code = f"import sys, dhp_client; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_that_is_offered_is_there() -> None:
    assert [name for name in dhp_client.__all__ if not hasattr(dhp_client, name)] == []
    assert issubclass(dhp_client.LeaseLost, DHPError)
