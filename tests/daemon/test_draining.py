"""`drain` stops new claims and dispatches; what is held goes on to its end. So does SIGTERM first, where a grace is set."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dhpd.config import Config
from dhpd.server.clock import Clock
from dhpd.server.ending import Ending
from tests.daemon.conftest import Connect, assert_no_mistake
from tests.support.daemon_process import DaemonProcess
from tests.support.engine_world import World
from tests.support.wire_client import WireClient

GRACE_MS = 60_000
LONG_MS = 600_000


def test_draining_refuses_new_work_and_lets_what_is_held_go_on(client: WireClient, connect: Connect) -> None:
    first, second, third = (client.dispatch(key=key) for key in "abc")
    held = [client.claim(handoff=handoff) for handoff in (first, second, third)]
    waiting = connect()
    by_kind = waiting.send("claim", worker="w", kinds=["work"], wait_ms=600_000)
    by_name = waiting.send("recover", worker="w", handoff=first, wait_ms=600_000)
    result = waiting.send("result", handoff=first, wait_ms=600_000)
    waiting.pump()
    assert client.call("drain")["leases"] == 3
    for request in (by_kind, by_name):
        assert waiting.reply(request)["error"]["code"] == "draining"
    for refusal in (
        client.refused("dispatch", kind="work", inputs={"new": True}),
        client.refused("claim", worker="w", kinds=["work"], wait_ms=600_000),
        client.refused("claim", worker="w", kinds=["work"]),
        client.refused("recover", worker="w", handoff=first),
    ):
        assert (refusal.code, refusal.error["retry"]) == ("draining", "later")
    assert client.call("dispatch", kind="work", inputs={}, key="a")["created"] is False
    assert client.call("health")["status"] == "draining"
    holds = [{"handoff": one["handoff"], "fence": one["fence"]} for one in held]
    assert client.call("heartbeat", leases=holds)["renewed"] == [first, second, third]
    assert client.call("checkpoint", **holds[0], state=1)["seq"] == 1
    client.call("complete", **holds[0], result="done")
    assert waiting.result(result)["result"] == "done"
    client.call("release", **holds[1])
    assert client.call("fail", **holds[2], error={"type": "E"})["status"] == "pending"
    assert client.call("drain")["leases"] == 0
    assert client.call("cancel", handoff=third)["status"] == "cancelled"


def test_nothing_is_granted_while_draining_although_a_lease_ends(client: WireClient, connect: Connect) -> None:
    handoff, watcher = client.dispatch(), connect()
    client.claim(ttl_ms=500)
    watcher.call("watch", handoff=handoff)
    client.call("drain")
    watcher.await_record("orphaned")
    assert client.refused("claim", worker="w", handoff=handoff).code == "draining"
    assert client.status(handoff)["status"] == "orphaned"


def test_a_nonce_is_answered_while_draining(client: WireClient) -> None:
    client.dispatch()
    held = client.claim(nonce="n")
    client.call("drain")
    assert client.claim(nonce="n")["fence"] == held["fence"]


def test_whoever_drains_finds_all_that_it_takes_to_finish(client: WireClient, connect: Connect) -> None:
    person = connect()
    parent = client.dispatch(budget={"max_usd": 1}, capabilities={"fs": ["*"]})
    child = client.dispatch("child", parent=parent)
    hold = {"handoff": parent, "fence": client.claim(ttl_ms=LONG_MS)["fence"]}
    other = {"handoff": child, "fence": client.claim("child", ttl_ms=LONG_MS)["fence"]}
    waiting = person.send("result", handoff=child, wait_ms=LONG_MS)
    person.pump()
    client.call("drain")
    client.call("complete", **other, result="of the child")
    assert person.result(waiting)["result"] == "of the child"
    client.call("heartbeat", leases=[hold])
    client.call("checkpoint", **hold, state=1)
    client.call("spend", **hold, usd=0.1)
    client.call("activity", **hold, digest="d")
    client.call("check_capability", **hold, domain="fs", resource="x")
    client.call("effect_begin", **hold, step="s")
    client.call("effect_done", **hold, step="s", result=None)
    approval = client.call("approval_request", **hold, action="a", details={}, timeout_ms=LONG_MS)["approval"]
    answer = client.send("approval_wait", approval=approval, wait_ms=LONG_MS)
    person.call("approval_decide", approval=approval, decision="approve")
    assert client.result(answer)["decision"] == "approved"
    client.call("complete", **hold, result="done")
    client.call("ack", handoff=parent)


@pytest.fixture
def graceful(tmp_path: Path) -> Iterator[DaemonProcess]:
    """Its SIGTERM has a long grace."""
    env = {"DHPD_DRAIN_GRACE_MS": str(GRACE_MS)}
    with DaemonProcess(tmp_path / "data", env=env) as running:
        yield running
    assert_no_mistake(running)


def held(client: WireClient, key: str) -> dict[str, Any]:
    handoff = client.dispatch(key=key)
    return {"handoff": handoff, "fence": client.claim(handoff=handoff, ttl_ms=LONG_MS)["fence"]}


def test_sigterm_waits_for_what_is_held_and_takes_nothing_new(graceful: DaemonProcess) -> None:
    with WireClient(graceful.tcp) as worker, WireClient(graceful.tcp) as other:
        worker.call("hello", session="worker")
        first, second = held(worker, "first"), held(worker, "second")
        waiting = other.send("claim", worker="w", kinds=["work"], wait_ms=LONG_MS)
        other.pump()
        os.kill(graceful.pid, signal.SIGTERM)
        event = worker.event()
        assert event["event"] == "draining"
        assert 0 < event["after_ms"] <= GRACE_MS
        assert other.reply(waiting)["error"]["code"] == "draining"
        assert other.refused("dispatch", kind="work", inputs={"new": 1}).code == "draining"
        with WireClient(graceful.tcp) as late:  # Who has lost its connection may come back to finish.
            late.call("hello", session="worker")
            assert 0 < late.event()["after_ms"] <= event["after_ms"]
        worker.call("checkpoint", **first, state=1)
        worker.call("complete", **first, result="done")
        worker.call("release", **second)
        assert graceful.wait() == 0
    graceful.start()
    with WireClient(graceful.tcp) as client:
        assert client.status(first["handoff"])["status"] == "completed"
        assert client.status(second["handoff"])["status"] == "pending"


def test_a_second_sigterm_ends_at_once_and_leases_live_on(graceful: DaemonProcess) -> None:
    with WireClient(graceful.tcp) as worker:
        worker.call("hello", session="worker")
        hold = held(worker, "first")
        os.kill(graceful.pid, signal.SIGTERM)
        worker.event()
        worker.call("checkpoint", **hold, state=1)
        assert graceful.terminate() == 0
    graceful.start()
    with WireClient(graceful.tcp) as worker:
        assert worker.call("checkpoint", **hold, state=2)["seq"] == 2


def test_sigterm_with_nothing_held_ends_at_once(graceful: DaemonProcess) -> None:
    with WireClient(graceful.tcp) as client:
        client.dispatch()
        assert graceful.terminate() == 0


def test_the_grace_has_an_end(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", env={"DHPD_DRAIN_GRACE_MS": "300"}) as daemon:
        with WireClient(daemon.tcp) as worker:
            hold = held(worker, "first")
            assert daemon.terminate() == 0
        daemon.start()
        with WireClient(daemon.tcp) as worker:
            assert worker.call("checkpoint", **hold, state=1)["seq"] == 1


def test_sigusr1_drains_and_stays(graceful: DaemonProcess) -> None:
    with WireClient(graceful.tcp) as worker:
        worker.call("hello")
        hold = held(worker, "first")
        os.kill(graceful.pid, signal.SIGUSR1)
        assert worker.event() == {"event": "draining", "after_ms": 0}
        worker.call("complete", **hold, result=None)
        assert worker.call("health")["status"] == "draining"
        os.kill(graceful.pid, signal.SIGUSR1)
        worker.pump()
        with contextlib.suppress(EOFError):
            assert graceful.terminate() == 0


def test_a_drain_that_is_asked_for_while_the_store_is_loaded_begins_with_the_first_request() -> None:
    ending = Ending(Config(), Clock())
    ending.drain()
    world = World()
    ending.serves(world.engine, (), lambda: None)
    assert world.engine.draining
