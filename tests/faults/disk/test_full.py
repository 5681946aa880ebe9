"""A full disk: what ends work goes on, and reads do; nothing else is taken, nothing acknowledged is missing, no restart is needed."""

import errno
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.faults.disk.conftest import Connect, in_transaction, insist, until_health
from tests.support.daemon_process import DaemonProcess
from tests.support.fault_shim import Calls, FaultShim
from tests.support.wire_client import WireClient

LONG_MS = 600_000


@contextmanager
def full_disk(shim: FaultShim, client: WireClient) -> Iterator[None]:
    """The disk runs full; what the ballast held is there for use, and the ballast can't be taken back."""
    with shim.fails(Calls.ALLOCATE, "/dhpd.ballast", errno.ENOSPC):
        with shim.fails(Calls.WRITE, "-wal", errno.ENOSPC, most=1) as fault:
            reply = client.reply(client.send("dispatch", kind="filling", inputs={}))
            assert (fault.met, reply["error"]["code"]) == (1, "store_unavailable")
        until_health(client, "disk_full")
        yield


def assert_refused_for_room(client: WireClient, op: str, **members: Any) -> None:
    refused = client.refused(op, **members)
    assert (refused.code, refused.details) == ("overloaded", {"disk": "full"})
    assert (refused.error["retry"], refused.error["after_ms"]) == ("later", 1_000)
    assert refused.error["message"].startswith("The disk is full")


def test_what_ends_work_and_what_looks_goes_on_and_the_rest_is_refused(
    shim: FaultShim, daemon: DaemonProcess, connect: Connect
) -> None:
    client, worker, leaver = connect(), connect(session="worker"), connect(session="leaver")
    ids = {name: client.dispatch(key=name) for name in ("complete", "fail", "release", "suspend", "busy", "silent")}
    holds: dict[str, dict[str, Any]] = {
        name: {"handoff": handoff, "fence": worker.claim(handoff=handoff, ttl_ms=60_000)["fence"]}
        for name, handoff in ids.items()
        if name != "silent"
    }
    silent = worker.claim(handoff=ids["silent"], ttl_ms=700)
    ids["goodbye"] = client.dispatch(key="goodbye")
    leaver.claim(handoff=ids["goodbye"])
    ids["waits"], ids["old"] = client.dispatch(key="waits"), client.dispatch(key="old")
    client.call("cancel", handoff=ids["old"])
    worker.call("checkpoint", **holds["busy"], state=1, seq=1)
    worker.call("effect_begin", **holds["busy"], step="mail")
    asked = worker.call("approval_request", **holds["busy"], action="pay", details={}, timeout_ms=LONG_MS)["approval"]
    client.call("watch", handoff=ids["silent"])
    with full_disk(shim, client):
        health = client.call("health")
        assert (health["store"], health["disk"], client.call("stats")["disk"]) == ("ok", "full", "full")
        assert not (daemon.data / "dhpd.ballast").exists()
        # What begins or continues work is refused.
        waiting = connect()
        for op, members in (
            ("dispatch", {"kind": "new", "inputs": {}}),
            ("claim", {"worker": "w", "kinds": ["work"], "wait_ms": LONG_MS}),
            ("claim", {"worker": "w", "handoff": ids["waits"]}),
            ("recover", {"worker": "w", "handoff": ids["waits"]}),
            ("checkpoint", {**holds["busy"], "state": 2, "seq": 2}),
            ("spend", {**holds["busy"], "usd": 1}),
            ("activity", {**holds["busy"], "digest": "d"}),
            ("effect_begin", {**holds["busy"], "step": "more"}),
            ("approval_request", {**holds["busy"], "action": "more", "details": {}, "timeout_ms": 1_000}),
            ("approval_decide", {"approval": asked, "decision": "approve"}),
            ("check_capability", {**holds["busy"], "domain": "d", "resource": "r"}),
            ("budget_add", {"handoff": ids["busy"], "add": {"max_steps": 1}}),
            ("resume", {"handoff": ids["waits"]}),
            ("redrive", {"handoff": ids["old"]}),
        ):
            assert_refused_for_room(waiting, op, **members)
        # What was done before is told to whoever asks again.
        assert client.call("dispatch", kind="work", inputs={}, key="waits")["created"] is False
        assert worker.call("checkpoint", **holds["busy"], state=1, seq=1)["duplicate"] is True
        # Leases are kept, and end.
        beat = worker.call("heartbeat", leases=[holds["busy"]])
        assert beat["renewed"] == [ids["busy"]]
        assert client.await_record("orphaned")["record"]["fence"] == silent["fence"] + 1
        # What ends work goes on.
        worker.call("complete", **holds["complete"], result={"done": True})
        worker.call("fail", **holds["fail"], error={"type": "E", "message": ""})
        worker.call("release", **holds["release"])
        worker.call("suspend", **holds["suspend"])
        worker.call("effect_done", **holds["busy"], step="mail", result="sent")
        leaver.call("goodbye")
        client.call("cancel", handoff=ids["waits"])
        client.call("ack", handoff=ids["complete"])
        client.call("forget", handoff=ids["old"])
        expected = {
            "complete": "completed",
            "fail": "pending",
            "release": "pending",
            "suspend": "suspended",
            "busy": "running",
            "silent": "orphaned",
            "goodbye": "pending",
            "waits": "cancelled",
        }

        def assert_all_there(looking: WireClient) -> None:
            assert {name: looking.status(ids[name])["status"] for name in expected} == expected
            assert looking.call("result", handoff=ids["complete"])["result"] == {"done": True}
            assert looking.call("last_checkpoint", handoff=ids["busy"])["checkpoint"]["state"] == 1
            assert looking.call("effects", handoff=ids["busy"])["effects"][0]["state"] == "done"
            assert [one["approval"] for one in looking.call("approvals")["approvals"]] == [asked]
            assert looking.history(ids["silent"])[-1]["type"] == "orphaned"
            listed = {one["handoff"] for one in looking.call("list", limit=100)["handoffs"]}
            assert listed == {ids[name] for name in expected}
            assert looking.refused("status", handoff=ids["old"]).code == "not_found"

        assert_all_there(client)
        daemon.restart()
        client, worker = connect(), connect(session="worker")
        until_health(client, "disk_full")
        assert_all_there(client)
        assert_refused_for_room(client, "dispatch", kind="new", inputs={})
        # What it held before lives on, and can end.
        assert worker.call("heartbeat", leases=[holds["busy"]])["renewed"] == [ids["busy"]]
        worker.call("complete", **holds["busy"], result=1)
    until_health(client, "ok")
    assert client.call("stats")["disk"] == "ok"
    assert (daemon.data / "dhpd.ballast").stat().st_blocks * 512 >= 1024 * 1024
    assert client.dispatch("new")
    assert client.claim(handoff=ids["silent"])["was"] == "orphaned"
    assert daemon.stderr.count("the disk is full: only what ends work is taken") == 2
    assert daemon.stderr.count("the disk has room again") == 1


def test_a_reader_that_never_ends_keeps_nobody_from_ending_work(
    shim: FaultShim, daemon: DaemonProcess, client: WireClient
) -> None:
    handoffs = [client.dispatch(key=str(number)) for number in range(20)]
    fences = [client.claim(handoff=one, ttl_ms=60_000)["fence"] for one in handoffs]
    with in_transaction(daemon, "begin"), full_disk(shim, client):
        for one, fence in zip(handoffs, fences, strict=True):
            client.call("complete", handoff=one, fence=fence, result=1)
            assert client.call("result", handoff=one)["result"] == 1
    until_health(client, "ok")


def test_what_nobody_needs_any_more_goes_on_a_full_disk_too(
    shim: FaultShim, daemon: DaemonProcess, client: WireClient
) -> None:
    handoff = client.dispatch()
    hold = {"handoff": handoff, "fence": client.claim(ttl_ms=60_000)["fence"]}
    for seq in range(1, 4):
        client.call("checkpoint", **hold, seq=seq, state=seq)
    client.call("cancel", handoff=handoff)
    with full_disk(shim, client), closing(sqlite3.connect(daemon.data / "dhpd.sqlite")) as db:
        client.call("forget", handoff=handoff)
        while db.execute("select count(*) from journal where handoff = ?", (bytes.fromhex(handoff),)).fetchone() != (
            0,
        ):
            time.sleep(0.05)
        assert client.call("health")["disk"] == "full"


def test_who_waits_is_served_once_there_is_room(shim: FaultShim, connect: Connect) -> None:
    client, waiter, holder = connect(), connect(), connect()
    handoff = client.dispatch()
    fence = holder.claim()["fence"]
    waiting = waiter.send("claim", worker="w", kinds=["work"], wait_ms=LONG_MS)
    waiter.pump()
    with full_disk(shim, client):
        holder.call("release", handoff=handoff, fence=fence)
        waiter.pump()
        assert not waiter.answered(waiting)
        assert client.status(handoff)["status"] == "pending"
    assert waiter.result(waiting)["handoff"] == handoff


def test_a_claim_that_was_granted_is_told_again_on_a_full_disk(shim: FaultShim, connect: Connect) -> None:
    client, worker = connect(), connect(session="w")
    client.dispatch()
    claim: dict[str, Any] = {"worker": "w", "kinds": ["work"], "nonce": "n"}
    granted = worker.call("claim", **claim)
    with full_disk(shim, client):
        assert worker.call("claim", **claim)["fence"] == granted["fence"]


def test_where_nothing_is_left_only_reads_and_renewals_go_on_and_a_start_too(
    shim: FaultShim, daemon: DaemonProcess, connect: Connect
) -> None:
    client, worker = connect(), connect(session="worker")
    handoff = client.dispatch()
    hold = {"handoff": handoff, "fence": worker.claim(ttl_ms=60_000)["fence"]}
    worker.call("checkpoint", **hold, state="kept")
    with shim.fails(Calls.ALLOCATE, "/dhpd.ballast", errno.ENOSPC):
        with shim.fails(Calls.WRITE, "-wal", errno.ENOSPC) as fault:
            assert worker.refused("complete", **hold, result=1).code == "store_unavailable"
            until_health(client, "disk_full")
            for _ in range(2):
                assert insist(client, "last_checkpoint", handoff=handoff)["checkpoint"]["state"] == "kept"
                assert insist(client, "status", handoff=handoff)["status"] == "running"
                assert worker.call("heartbeat", leases=[hold])["renewed"] == [handoff]
                assert worker.refused("complete", **hold, result=1).code == "store_unavailable"
            until_health(client, "disk_full")
            assert_refused_for_room(client, "dispatch", kind="new", inputs={})
            assert fault.met >= 2
            daemon.restart()
            client, worker = connect(), connect(session="worker")
            assert insist(client, "last_checkpoint", handoff=handoff)["checkpoint"]["state"] == "kept"
            assert worker.call("heartbeat", leases=[hold])["renewed"] == [handoff]
            refused = worker.send("complete", **hold, result=1)
            assert worker.reply(refused)["error"]["code"] == "store_unavailable"
        assert insist(worker, "complete", **hold, result=1)["ok"]
    until_health(client, "ok")
    assert client.call("result", handoff=handoff)["result"] == 1
    assert [record["type"] for record in client.history(handoff)] == [
        "dispatched",
        "claimed",
        "checkpointed",
        "completed",
    ]


def test_a_disk_that_is_full_at_the_first_start_is_said_in_one_line(shim: FaultShim, daemon: DaemonProcess) -> None:
    daemon.kill()
    for file in daemon.data.iterdir():
        file.unlink()
    with (
        shim.fails(Calls.ALLOCATE, "/dhpd.ballast", errno.ENOSPC),
        shim.fails(Calls.WRITE, "dhpd.sqlite", errno.ENOSPC),
        pytest.raises(AssertionError, match="ended with 1 "),
    ):
        daemon.start()
    line = daemon.stderr.splitlines()[-1]
    assert line.startswith("dhpd: ")
    assert line.endswith("The disk is full: free some room.")
    daemon.start()
