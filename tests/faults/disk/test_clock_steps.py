"""The wall clock is set while a daemon runs: leases don't mind, what goes by the wall clock does, and nothing else happens."""

import time

import pytest

from tests.faults.disk.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.fault_shim import FaultShim
from tests.support.wire_client import WireClient

TTL_MS = 2_500
HOUR_S = 3_600


def beat_for(worker: WireClient, leases: list[dict[str, object]], duration_s: float) -> None:
    until = time.monotonic() + duration_s
    while time.monotonic() < until:
        beat = worker.call("heartbeat", leases=leases)
        assert (len(beat["renewed"]), beat["lost"]) == (len(leases), [])
        time.sleep(0.1)


def test_no_step_costs_a_healthy_worker_its_lease_or_lets_a_silent_one_keep_it(
    shim: FaultShim, connect: Connect
) -> None:
    client, worker, silent = connect(), connect(session="worker"), connect(session="silent")
    healthy = client.dispatch("healthy")
    leases = [{"handoff": healthy, "fence": worker.claim("healthy", ttl_ms=TTL_MS)["fence"]}]
    client.call("watch", kinds=["silent"])
    for ahead_s in (10, HOUR_S, -HOUR_S):
        lost = client.dispatch("silent", key=str(ahead_s))
        fence = silent.claim("silent", ttl_ms=TTL_MS)["fence"]
        shim.set_clock(ahead_s)
        # The wall clock is looked at once a second at least; and a lease that was renewed once would have ended by now.
        beat_for(worker, leases, 1.2 * TTL_MS / 1_000)
        assert client.await_record("orphaned")["record"]["fence"] == fence + 1
        assert client.status(lost)["status"] == "orphaned"
        client.call("cancel", handoff=lost)
    now = client.status(healthy)
    assert (now["status"], now["failures"], now["attempt"]) == ("running", 0, 1)
    assert worker.call("complete", handoff=healthy, fence=now["fence"], result=1)["ok"]


def test_what_goes_by_the_wall_clock_comes_early_or_late_by_the_step(shim: FaultShim, connect: Connect) -> None:
    client = connect(session="worker")
    minute_ms = 60_000
    client.call("watch")
    delayed = client.dispatch("delayed", delay_ms=minute_ms)
    sleeping = client.dispatch("sleeping")
    client.call("suspend", handoff=sleeping, wake_ms=minute_ms)
    capped = client.dispatch("capped", budget={"max_wallclock_ms": minute_ms})
    hold = {"handoff": capped, "fence": client.claim("capped", ttl_ms=600_000)["fence"]}
    asking = client.dispatch("asking")
    asker = {"handoff": asking, "fence": client.claim("asking", ttl_ms=600_000)["fence"]}
    approval = client.call("approval_request", **asker, action="a", details={}, timeout_ms=minute_ms)["approval"]
    assert client.refused("claim", worker="w", handoff=delayed).code == "not_claimable"
    # Back: everything is as far off as it was, and an hour more.
    shim.set_clock(-HOUR_S)
    refused = client.refused("claim", worker="w", handoff=delayed)
    assert HOUR_S * 1_000 < refused.error["after_ms"] <= HOUR_S * 1_000 + minute_ms
    assert client.status(sleeping)["status"] == "suspended"
    assert client.call("checkpoint", **hold, state=1)["seq"] == 1
    # Forward: everything is due, and happens by itself.
    waiting = client.send("claim", worker="w", kinds=["delayed"], wait_ms=30_000)
    shim.set_clock(HOUR_S)
    assert client.result(waiting)["handoff"] == delayed
    assert client.await_record("resumed")["handoff"] == sleeping
    while client.status(capped)["status"] != "dead":
        pass
    assert client.refused("checkpoint", **hold, state=2).details["why"] == "dead"
    assert client.call("approval_wait", approval=approval)["decision"] == "expired"
    assert client.status(asking)["status"] == "running"


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_a_restart_across_a_step_gives_each_lease_one_ttl_and_no_more(
    shim: FaultShim, daemon: DaemonProcess, connect: Connect, ahead_s: int
) -> None:
    client, worker, silent = connect(), connect(session="worker"), connect(session="silent")
    kept, lost = client.dispatch("kept"), client.dispatch("lost")
    leases = [{"handoff": kept, "fence": worker.claim("kept", ttl_ms=4 * TTL_MS)["fence"]}]
    fence = silent.claim("lost", ttl_ms=1_000, worker="silent")["fence"]
    daemon.kill()
    shim.set_clock(ahead_s)
    daemon.start()
    client, worker = connect(), connect(session="worker")
    assert worker.call("heartbeat", leases=leases)["renewed"] == [kept]
    client.call("watch", handoff=lost, after=0)
    while client.await_record("orphaned")["record"]["fence"] != fence + 1:
        pass
    beat_for(worker, leases, 0.1)
    assert (client.status(kept)["attempt"], client.status(kept)["failures"]) == (1, 0)
