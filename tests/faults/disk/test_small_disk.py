"""A real file system of a few megabytes that runs full under real work, and has room again."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.disk.conftest import BALLAST_BYTES, insist, until_health
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

MIB = 1024 * 1024
DISK_BYTES = 24 * MIB
STATE = "x" * 50_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "dhp-test", str(where)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True, timeout=30)


@pytest.fixture
def daemon(small_disk: Path, tmp_path: Path) -> Iterator[DaemonProcess]:
    env = {"DHPD_BALLAST_BYTES": str(BALLAST_BYTES)}
    listen = (f"unix:{tmp_path}/dhpd.sock",)
    with DaemonProcess(small_disk / "data", listen=listen, env=env) as running:
        running.stderr_path = tmp_path / "stderr"  # Not on the disk that runs full.
        running.restart()
        yield running
    assert "Traceback" not in running.stderr


def fill(client: WireClient, hold: dict[str, Any]) -> int:
    """Writes checkpoints until the disk is full; gives the last seq that was acknowledged."""
    seq = 0
    while True:
        reply = insist(client, "checkpoint", **hold, seq=seq + 1, state=f"{seq + 1} {STATE}")
        if not reply["ok"]:
            assert (reply["error"]["code"], reply["error"]["details"]) == ("overloaded", {"disk": "full"})
            return seq
        seq += 1


def test_it_runs_full_and_work_ends_and_with_room_again_all_goes_on(
    daemon: DaemonProcess, small_disk: Path, tmp_path: Path
) -> None:
    (small_disk / "others").write_bytes(bytes(6 * MIB))
    with WireClient(daemon.unix) as client, WireClient(daemon.unix) as worker:
        worker.call("hello", session="worker")
        ending = [client.dispatch(key=str(number)) for number in range(200)]
        holds = [{"handoff": one, "fence": worker.claim(handoff=one, ttl_ms=60_000)["fence"]} for one in ending]
        filling = client.dispatch("filling", keep_checkpoints=1_000)
        hold = {"handoff": filling, "fence": worker.claim("filling", ttl_ms=60_000)["fence"]}
        seq = fill(worker, hold)
        assert seq > 50
        assert client.call("health")["disk"] == "full"
        assert worker.call("heartbeat", leases=[hold])["renewed"] == [filling]
        sent = [worker.send("complete", **each, result=number) for number, each in enumerate(holds[:100])]
        for request in sent[:60]:
            assert worker.result(request)["duplicate"] is False
        daemon.kill()  # In the middle of it.
        daemon.start()
    with WireClient(daemon.unix) as client, WireClient(daemon.unix) as worker:
        worker.call("hello", session="worker")
        until_health(client, "disk_full")
        assert client.call("last_checkpoint", handoff=filling)["checkpoint"]["state"] == f"{seq} {STATE}"
        for number, one in enumerate(ending[:60]):
            assert client.call("result", handoff=one)["result"] == number
        for number, each in enumerate(holds[60:100], 60):
            worker.call("complete", **each, result=number)  # Whether or not it was there already.
        assert client.refused("dispatch", kind="new", inputs={}).code == "overloaded"
        for each in holds[100:150]:
            worker.call("release", **each)
        assert len(client.call("checkpoints", handoff=filling, limit=10)["checkpoints"]) == 10
        (small_disk / "others").unlink()
        until_health(client, "ok")
        assert worker.call("checkpoint", **hold, seq=seq + 1, state=STATE)["seq"] == seq + 1
        assert client.claim(handoff=ending[100])["attempt"] == 2
        # And once more, with nothing in between that was started anew.
        (small_disk / "others").write_bytes(bytes(2 * MIB))
        more = client.dispatch("filling", key="more")
        again = {"handoff": more, "fence": worker.claim(handoff=more, ttl_ms=60_000)["fence"]}
        last = fill(worker, again)
        assert insist(worker, "complete", **hold, result="whole")["ok"]
        (small_disk / "others").unlink()
        until_health(client, "ok")
        assert worker.call("checkpoint", **again, seq=last + 1, state=1)["seq"] == last + 1
    daemon.restart()
    with WireClient(daemon.unix) as client:
        assert client.call("result", handoff=filling)["result"] == "whole"
        assert client.call("last_checkpoint", handoff=more)["checkpoint"]["seq"] == last + 1
        assert client.call("health")["status"] == "ok"
