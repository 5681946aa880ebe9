"""A disk that gives errors: what was acknowledged is there, what is in doubt comes to one truth, and no restart is needed."""

import errno
import shutil
import subprocess
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.faults.disk.conftest import Connect, insist, until_health
from tests.support.daemon_process import DaemonProcess
from tests.support.fault_shim import Calls, FaultShim
from tests.support.wire_client import WireClient

CHECKPOINTS = 3
TYPES = ["dispatched", "claimed", *["checkpointed"] * CHECKPOINTS, "completed"]


class Stories:
    """One piece of work after the other, from dispatch to result, sent again wherever the store was away."""

    def __init__(self) -> None:
        self.completed: dict[str, int] = {}
        self._numbers = count(1)

    def tell(self, client: WireClient) -> None:
        number = next(self._numbers)
        handoff = _good(insist(client, "dispatch", kind="work", inputs={"number": number}))["handoff"]
        granted = _good(insist(client, "claim", worker="w", handoff=handoff, nonce=str(number), ttl_ms=60_000))
        hold = {"handoff": handoff, "fence": granted["fence"]}
        for seq in range(1, CHECKPOINTS + 1):
            assert _good(insist(client, "checkpoint", **hold, seq=seq, state={"number": number}))["seq"] == seq
        _good(insist(client, "complete", **hold, result=number))
        self.completed[handoff] = number
        assert _good(insist(client, "result", handoff=handoff))["result"] == number

    def assert_there(self, client: WireClient) -> None:
        """Each ended once, and nothing of it is there twice."""
        for handoff, number in self.completed.items():
            assert client.call("result", handoff=handoff)["result"] == number
            assert [record["type"] for record in client.history(handoff)] == TYPES
        assert client.call("stats")["handoffs"]["completed"] == len(self.completed)


def _good(reply: dict[str, Any]) -> dict[str, Any]:
    assert reply["ok"], reply
    return reply


def test_an_error_at_any_write_sync_or_cut_loses_nothing_and_doubles_nothing(
    shim: FaultShim, daemon: DaemonProcess, connect: Connect
) -> None:
    stories, client = Stories(), connect()
    stories.tell(client)
    for calls, error, keep, most in (
        (Calls.WRITE, errno.EIO, -1, 1),
        (Calls.WRITE, errno.EIO, 100, 1),  # Part of it is written.
        (Calls.WRITE, 0, 1_000, 1),  # Short, and no error: SQLite has to write the rest.
        (Calls.WRITE, errno.EROFS, -1, 3),
        (Calls.SYNC, errno.EIO, -1, 1),
        (Calls.SYNC, errno.EIO, -1, 4),
    ):
        for first in range(1, 6):
            with shim.fails(calls, "-wal", error, first=first, most=most, keep=keep) as fault:
                stories.tell(client)
                assert fault.met or first > 1
    stories.assert_there(client)
    daemon.restart()
    stories.assert_there(connect())


def test_an_error_while_the_store_is_opened_again_only_puts_that_off(
    shim: FaultShim, daemon: DaemonProcess, connect: Connect
) -> None:
    stories, client = Stories(), connect()
    stories.tell(client)
    for calls, path, error in (
        (Calls.OPEN, "dhpd.sqlite", errno.EMFILE),
        (Calls.OPEN, "-wal", errno.EMFILE),
        (Calls.OPEN, "-shm", errno.EIO),
        (Calls.READ, "dhpd.sqlite", errno.EIO),
        (Calls.WRITE, "dhpd.sqlite", errno.EIO),
        (Calls.WRITE, "dhpd.sqlite", errno.ENOSPC),
        (Calls.SYNC, "dhpd.sqlite", errno.EIO),
        (Calls.WRITE, "-shm", errno.ENOSPC),
        (Calls.TRUNCATE, "-wal", errno.EIO),
    ):
        for first in (1, 3):
            with shim.fails(calls, path, error, first=first, most=2) as fault:
                # The sync that fails may be that of a take-over beside, after which the store needn't be opened again.
                settled = daemon.stderr.count("the store is back")
                while daemon.stderr.count("the store is back") == settled:
                    with shim.fails(Calls.SYNC, "-wal", first=3, most=1):
                        stories.tell(client)
                assert fault.met or first > 1
    stories.assert_there(client)
    daemon.restart()
    stories.assert_there(connect())


def test_a_disk_that_stays_broken_takes_nothing_and_ends_no_lease_and_heals_without_a_restart(
    shim: FaultShim, daemon: DaemonProcess, connect: Connect
) -> None:
    client, worker = connect(), connect(session="worker")
    handoff = client.dispatch()
    hold = {"handoff": handoff, "fence": worker.claim(ttl_ms=1_000)["fence"]}
    worker.call("checkpoint", **hold, state="kept", seq=1)
    for seq, calls, error in ((2, Calls.SYNC, errno.EIO), (3, Calls.WRITE, errno.EROFS)):
        with shim.fails(calls, "dhpd.sqlite", error), shim.fails(calls, "-wal", error):
            assert worker.refused("checkpoint", **hold, state="in doubt", seq=seq).code == "store_unavailable"
            for _ in range(30):  # Longer than the lease.
                assert client.refused("dispatch", kind="new", inputs={}).code == "store_unavailable"
                assert worker.call("heartbeat", leases=[hold])["renewed"] == [handoff]
                time.sleep(0.05)
        until_health(client, "ok")
        assert worker.call("checkpoint", **hold, state="in doubt", seq=seq)["seq"] == seq
    assert [record["type"] for record in client.history(handoff)] == ["dispatched", "claimed", *["checkpointed"] * 3]
    assert client.refused("status", handoff="0" * 64).code == "not_found"
    assert len(client.call("list")["handoffs"]) == 1
    daemon.restart()
    assert [one["seq"] for one in connect().call("checkpoints", handoff=handoff)["checkpoints"]] == [1, 2, 3]


def test_what_cannot_be_read_is_said_and_costs_nothing_else(shim: FaultShim, client: WireClient) -> None:
    handoff = client.dispatch()
    with shim.fails(Calls.READ, "dhpd.sqlite") as in_file, shim.fails(Calls.READ, "-wal") as in_log:
        assert client.refused("history", handoff=handoff).code == "store_unavailable"
        assert in_file.met or in_log.met
    assert len(client.history(handoff)) == 1


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon without the shim, whose syncs the kernel lets fail: the 12th, and each 9th after it."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")
    injected = ["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO:when=12+9"]
    wrapper = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", *injected]
    tried = subprocess.run([*wrapper, "true"], capture_output=True, text=True, timeout=30)
    if tried.returncode:
        pytest.skip(f"strace can't trace here: {tried.stderr.strip()}")
    with DaemonProcess(tmp_path / "data", listen=(f"unix:{tmp_path}/dhpd.sock",), wrapper=wrapper) as running:
        yield running
    assert "Traceback" not in running.stderr
    assert running.stderr.count("the disk failed") >= 3


def test_syncs_that_really_fail_come_to_one_truth(traced: DaemonProcess) -> None:
    stories = Stories()
    with WireClient(traced.unix) as client:
        for _ in range(8):
            stories.tell(client)
        until_health(client, "ok")
        stories.assert_there(client)
    traced.restart()
    with WireClient(traced.unix) as client:
        stories.assert_there(client)


@pytest.mark.parametrize("name", ["dhpd.sqlite", "dhpd.sqlite-wal"])
def test_a_store_whose_file_is_removed_ends_the_daemon(daemon: DaemonProcess, client: WireClient, name: str) -> None:
    client.dispatch()
    (daemon.data / name).unlink()
    assert daemon.wait() == 1
    assert "removed or replaced" in daemon.stderr.splitlines()[-1]
