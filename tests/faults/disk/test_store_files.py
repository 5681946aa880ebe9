"""The store's files, touched by others: readers and writers beside the daemon, a torn last line, helpers that are forked off."""

import os
import sqlite3
from pathlib import Path

import pytest

from tests.faults.disk.conftest import Connect, in_transaction, insist, until_health
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

STATE = "x" * 10_000


def test_a_reader_that_never_ends_stops_nobody(daemon: DaemonProcess, connect: Connect) -> None:
    client = connect()
    handoff = client.dispatch()
    hold = {"handoff": handoff, "fence": client.claim(ttl_ms=60_000)["fence"]}
    with in_transaction(daemon, "begin"):
        for seq in range(1, 1_001):  # More than the write-ahead log takes before it would like to begin anew.
            request = client.send("checkpoint", **hold, seq=seq, state=STATE)
        assert client.result(request)["seq"] == 1_000
        assert client.call("health")["status"] == "ok"
        assert client.call("last_checkpoint", handoff=handoff)["checkpoint"]["seq"] == 1_000
    daemon.restart()
    assert connect().call("last_checkpoint", handoff=handoff)["checkpoint"]["seq"] == 1_000


def test_a_writer_that_holds_the_lock_is_an_error_until_it_lets_go(daemon: DaemonProcess, connect: Connect) -> None:
    client, worker = connect(), connect(session="worker")
    handoff = client.dispatch()
    hold = {"handoff": handoff, "fence": worker.claim(ttl_ms=1_000)["fence"]}
    with in_transaction(daemon, "begin immediate"):
        waiting = client.send("checkpoint", **hold, seq=1, state=STATE)
        while not client.answered(waiting):
            assert worker.call("heartbeat", leases=[hold])["renewed"] == [handoff]
            client.pump()
        assert client.reply(waiting)["error"]["code"] == "store_unavailable"
        assert client.call("health")["status"] == "store_unavailable"
        assert worker.call("heartbeat", leases=[hold])["renewed"] == [handoff]
    assert "locked" in daemon.stderr
    assert insist(client, "checkpoint", **hold, seq=1, state=STATE)["seq"] == 1
    until_health(client, "ok")


@pytest.mark.parametrize("torn", ["half a frame", "zeros", "an older frame"])
def test_a_torn_last_line_swallows_nothing_that_comes_next(daemon: DaemonProcess, connect: Connect, torn: str) -> None:
    client = connect()
    handoff = client.dispatch()
    hold = {"handoff": handoff, "fence": client.claim(ttl_ms=60_000, detached=True)["fence"]}
    for seq in range(1, 4):
        client.call("checkpoint", **hold, seq=seq, state=STATE)
    daemon.kill()
    _tear(daemon.data / "dhpd.sqlite-wal", torn)
    daemon.start()
    client = connect()
    assert client.call("last_checkpoint", handoff=handoff)["checkpoint"]["seq"] == 3
    assert client.call("checkpoint", **hold, seq=4, state=STATE)["duplicate"] is False
    client.dispatch("next")
    daemon.restart()
    client = connect()
    assert [one["seq"] for one in client.call("checkpoints", handoff=handoff)["checkpoints"]] == [1, 2, 3, 4]
    assert client.call("stats")["handoffs"] == {**client.call("stats")["handoffs"], "pending": 1, "running": 1}


def _tear(log: Path, torn: str) -> None:
    """What a crash may leave behind the last whole frame of the write-ahead log: the beginning of another one."""
    header_bytes, frame_bytes = 32, 24 + 4096
    whole = log.read_bytes()
    assert len(whole) > header_bytes + frame_bytes
    tail = {
        "half a frame": whole[header_bytes : header_bytes + frame_bytes // 2],
        "zeros": bytes(frame_bytes),
        "an older frame": whole[header_bytes : header_bytes + frame_bytes],
    }[torn]
    with log.open("ab") as file:
        file.write(tail)


def test_helpers_that_judge_schemas_hold_nothing_of_the_store(daemon: DaemonProcess, client: WireClient) -> None:
    # A handle that is used after a fork, or a lock that a child holds on to, would break the file for both.
    schema = {"anyOf": [{"properties": {f"p{n}": {"type": "string", "pattern": "^a+$"}}} for n in range(200)]}
    client.dispatch(output_schema=schema)
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    threads = Path(f"/proc/{daemon.pid}/task").iterdir()
    children += [child for thread in threads for child in (thread / "children").read_text().split()]
    assert children, "nothing was judged in a process of its own"
    for child in children:
        for descriptor in Path(f"/proc/{child}/fd").iterdir():
            assert "dhpd.sqlite" not in os.readlink(descriptor)
    assert sqlite3.connect(f"file:{daemon.data}/dhpd.sqlite?mode=ro", uri=True).execute(
        "pragma quick_check"
    ).fetchone() == ("ok",)
