"""Work outlives its worker: whatever becomes of the worker, one standby goes on, and never too early."""

from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy
from tests.support.wire_client import WireClient
from tests.support.worker_process import WorkerProcess

TTL_MS = 600
CLOCK_SLACK_MS = 2
"""A record's time is a whole millisecond of the wall clock, a deadline one of the monotonic clock."""


@pytest.fixture
def proxy(daemon: DaemonProcess) -> Iterator[Proxy]:
    with Proxy(daemon.tcp) as between:
        yield between


def milliseconds(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * 1000)


def lease_length_ms(client: WireClient, handoff: str) -> int:
    """From the last renewal that left a record to the end of the lease, by the daemon's own records."""
    records = client.history(handoff)
    (orphaned,) = [record for record in records if record["type"] == "orphaned"]
    renewal = [record for record in records if record["n"] < orphaned["n"]][-1]
    return milliseconds(orphaned["at"]) - milliseconds(renewal["at"])


@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_a_killed_workers_handoff_goes_to_the_waiting_standby(
    daemon: DaemonProcess, connect: Connect, transport: str
) -> None:
    address = getattr(daemon, transport)
    standby = connect(address, session="standby")
    handoff = standby.dispatch()
    with WorkerProcess(address) as worker:
        worker.client.call("hello", session="worker")
        held = worker.client.claim(ttl_ms=3_600_000)
        worker.client.call("checkpoint", handoff=handoff, fence=held["fence"], state={"page": 20})
        waiting = standby.send("claim", worker="standby", kinds=["work"], wait_ms=600_000)
        worker.kill()
    taken = standby.result(waiting)
    assert taken["was"] == "orphaned"
    assert taken["handoff"] == handoff
    assert taken["fence"] == held["fence"] + 2
    assert taken["attempt"] == 2
    assert taken["checkpoint"]["seq"] == 1
    assert taken["checkpoint"]["state"] == {"page": 20}


def test_a_killed_workers_detached_claim_lives_to_its_ttl(daemon: DaemonProcess, client: WireClient) -> None:
    handoff = client.dispatch()
    with WorkerProcess(daemon.tcp) as worker:
        worker.client.claim(ttl_ms=TTL_MS, detached=True)
        waiting = client.send("claim", worker="standby", kinds=["work"], wait_ms=600_000)
        worker.kill()
    assert client.result(waiting)["was"] == "orphaned"
    assert lease_length_ms(client, handoff) >= TTL_MS - CLOCK_SLACK_MS


def test_with_the_network_cut_the_lease_ends_at_its_deadline_and_not_before(client: WireClient, proxy: Proxy) -> None:
    handoff = client.dispatch()
    with WireClient(proxy.address) as worker:
        worker.call("hello", session="worker")
        fence = worker.claim(ttl_ms=TTL_MS)["fence"]
        waiting = client.send("claim", worker="standby", kinds=["work"], wait_ms=600_000)
        worker.call("checkpoint", handoff=handoff, fence=fence, state=1)
        proxy.hold()
        lost = worker.send("checkpoint", handoff=handoff, fence=fence, state=2)
        taken = client.result(waiting)
        assert taken["was"] == "orphaned"
        assert taken["checkpoint"]["state"] == 1
        assert lease_length_ms(client, handoff) >= TTL_MS - CLOCK_SLACK_MS
        # What the line held back arrives late, and comes to nothing.
        proxy.mend()
        reply = worker.reply(lost)
        assert reply["error"]["code"] == "lease_lost"
        assert reply["error"]["details"]["why"] == "superseded"
    assert client.call("last_checkpoint", handoff=handoff)["checkpoint"]["state"] == 1


def test_a_slow_network_costs_nobody_a_lease(client: WireClient, proxy: Proxy) -> None:
    handoff = client.dispatch()
    proxy.delay_ms = 150
    with WireClient(proxy.address) as worker:
        fence = worker.claim(ttl_ms=1_500)["fence"]
        for _ in range(6):  # For longer than one lease lasts.
            assert worker.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["renewed"] == [handoff]
    assert "orphaned" not in [record["type"] for record in client.history(handoff)]


def test_a_connection_cut_for_a_moment_costs_nothing(daemon: DaemonProcess, client: WireClient, proxy: Proxy) -> None:
    handoff, other = client.dispatch(), client.dispatch("other")
    with WireClient(proxy.address) as worker:
        worker.call("hello", session="worker")
        fence = worker.claim(ttl_ms=3_600_000)["fence"]
        daemon.pause()  # So that it is back within the grace, however slow this machine is.
        proxy.drop()
    with WireClient(proxy.address) as worker, WireClient(proxy.address) as gone:
        hello = worker.send("hello", session="worker")
        daemon.resume()
        worker.result(hello)
        # Whose grace begins after this one's did, and so ends after it would have.
        gone.claim("other", ttl_ms=3_600_000)
        waiting = client.send("claim", worker="standby", handoff=other, wait_ms=600_000)
        gone.close()
        assert client.result(waiting)["was"] == "orphaned"
        assert worker.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["renewed"] == [handoff]
    assert [record["type"] for record in client.history(handoff)] == ["dispatched", "claimed"]


def test_of_fifty_simultaneous_recoverers_exactly_one_wins(daemon: DaemonProcess, connect: Connect) -> None:
    standbys = [connect(session=f"standby-{number}") for number in range(50)]
    client = standbys[0]
    handoff = client.dispatch()
    client.claim(ttl_ms=500)
    client.call("watch", handoff=handoff)
    client.await_record("orphaned")
    daemon.pause()  # So that all fifty lie there when it looks.
    asked = [standby.send("recover", worker=f"w{n}", handoff=handoff) for n, standby in enumerate(standbys)]
    daemon.resume()
    replies = [standby.reply(request) for standby, request in zip(standbys, asked, strict=True)]
    (granted,) = [reply for reply in replies if reply["ok"]]
    assert granted["fence"] == 3
    assert [reply["error"]["code"] for reply in replies if not reply["ok"]] == ["already_claimed"] * 49
    assert client.status(handoff)["attempt"] == 2


def test_of_fifty_waiting_recoverers_exactly_one_gets_the_killed_workers_handoff(
    daemon: DaemonProcess, connect: Connect
) -> None:
    standbys = [connect(session=f"standby-{number}") for number in range(50)]
    handoff = standbys[0].dispatch()
    with WorkerProcess(daemon.tcp) as worker:
        worker.client.claim()
        asked = []
        for standby in standbys:
            asked.append(standby.send("recover", worker="w", handoff=handoff, wait_ms=600_000))
            standby.pump()
        worker.kill()
    assert standbys[0].result(asked[0])["was"] == "orphaned"
    assert standbys[0].call("stats")["waiting_claims"] == 49
    for standby, request in zip(standbys[1:], asked[1:], strict=True):
        standby.pump()
        assert not standby.answered(request)
