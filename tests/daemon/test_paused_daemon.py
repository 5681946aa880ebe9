"""A daemon that was stopped ends nobody's lease for it: the time it lost is nobody's fault."""

import time

from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

TTL_MS = 800
PAUSED_S = 1.8
"""Longer than the ttl, twice over."""


def test_a_paused_daemon_orphans_nobody_who_kept_renewing_and_everybody_who_did_not(
    daemon: DaemonProcess, connect: Connect
) -> None:
    client = connect()
    workers = [connect(session=f"worker-{number}") for number in range(20)]
    beats: list[list[dict[str, object]]] = []

    def beat() -> None:
        asked = [(worker, worker.send("heartbeat", leases=held)) for worker, held in zip(workers, beats, strict=False)]
        assert [lost for worker, request in asked for lost in worker.result(request)["lost"]] == []

    for number, worker in enumerate(workers):
        leases = []
        for n in range(3):
            client.dispatch(key=f"{number}-{n}")
            held = worker.claim(ttl_ms=TTL_MS)
            leases.append({"handoff": held["handoff"], "fence": held["fence"]})
        beats.append(leases)
        beat()
    silent = client.dispatch("silent")
    connect(session="silent").claim("silent", ttl_ms=TTL_MS)
    beat()
    daemon.pause()
    until = time.monotonic() + PAUSED_S
    sent: list[tuple[WireClient, int]] = []
    while time.monotonic() < until:
        sent += [(worker, worker.send("heartbeat", leases=held)) for worker, held in zip(workers, beats, strict=True)]
        time.sleep(TTL_MS / 3000)
    daemon.resume()
    for worker, request in sent:
        assert worker.result(request)["lost"] == []
    while client.status(silent)["status"] == "running":
        beat()
    counts = client.call("stats")["handoffs"]
    assert (counts["running"], counts["orphaned"]) == (60, 1)
    assert client.call("health")["clock_offset_ms"] >= (PAUSED_S * 1000) // 2


def test_a_worker_that_reconnects_while_the_daemon_is_paused_keeps_its_lease(
    daemon: DaemonProcess, connect: Connect
) -> None:
    first, client = connect(session="mine"), connect()
    handoff = first.dispatch()
    fence = first.claim(ttl_ms=TTL_MS)["fence"]
    daemon.pause()
    first.close()
    second = WireClient(daemon.tcp)
    hello = second.send("hello", session="mine")
    time.sleep(PAUSED_S)
    beat = second.send("heartbeat", leases=[{"handoff": handoff, "fence": fence}])
    daemon.resume()
    assert second.result(hello)["session"] == "mine"
    assert second.result(beat)["renewed"] == [handoff]
    assert [record["type"] for record in client.history(handoff)] == ["dispatched", "claimed"]
    second.close()


def test_a_checkpoint_written_while_the_daemon_was_paused_counts(daemon: DaemonProcess, client: WireClient) -> None:
    handoff = client.dispatch()
    fence = client.claim(ttl_ms=TTL_MS)["fence"]
    daemon.pause()
    written = client.send("checkpoint", handoff=handoff, fence=fence, state=1)
    time.sleep(PAUSED_S)
    completed = client.send("complete", handoff=handoff, fence=fence, result=2)
    daemon.resume()
    assert client.result(written)["seq"] == 1
    assert client.result(completed)["duplicate"] is False
