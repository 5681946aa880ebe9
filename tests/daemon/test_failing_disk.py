"""A disk that really fails under a real daemon: nothing is lost, nothing is made up, no restart is needed."""

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient


@contextmanager
def full_disk(daemon: DaemonProcess) -> Iterator[None]:
    """The daemon's files can't grow."""
    wal = daemon.data / "dhpd.sqlite-wal"
    limit = wal.stat().st_size
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_a_full_disk_costs_what_is_refused_and_nothing_else(daemon: DaemonProcess, connect: Connect) -> None:
    client, worker = connect(), connect(session="worker")
    handoff = client.dispatch()
    fence = worker.claim(ttl_ms=60_000)["fence"]
    acknowledged = {handoff}
    refused = 0
    with full_disk(daemon):
        for number in range(50):
            reply = client.reply(client.send("dispatch", kind="work", inputs={"text": "x" * 10_000}, key=str(number)))
            if reply["ok"]:
                acknowledged.add(reply["handoff"])
            else:
                assert reply["error"]["code"] == "store_unavailable"
                refused += 1
        assert refused
        assert worker.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["renewed"] == [handoff]
    while client.call("health")["status"] != "ok":
        pass
    acknowledged.add(client.dispatch("after"))
    assert worker.call("checkpoint", handoff=handoff, fence=fence, state=1)["seq"] == 1
    assert acknowledged <= {one["handoff"] for one in client.call("list", limit=1000)["handoffs"]}
    daemon.restart()
    assert acknowledged <= {one["handoff"] for one in connect().call("list", limit=1000)["handoffs"]}


def test_one_record_that_cannot_be_stored_fails_alone(
    daemon: DaemonProcess, connect: Connect, client: WireClient
) -> None:
    poison, good = client.dispatch("poison"), client.dispatch("good")
    with sqlite3.connect(daemon.data / "dhpd.sqlite") as db:
        db.execute(
            "create trigger poison before insert on journal "
            f"when new.handoff = x'{poison}' begin select raise(abort, 'poison'); end"
        )
    db.close()
    other = connect()
    requests = []
    for _ in range(20):
        requests.append((client, client.send("claim", worker="w", handoff=poison)))
        requests.append((other, other.send("claim", worker="w", handoff=good)))
    replies = [one.reply(request) for one, request in requests]
    assert {reply["error"]["code"] for reply in replies[::2]} == {"store_unavailable"}
    assert [reply["ok"] for reply in replies[1::2]] == [True] + [False] * 19
    assert client.status(poison)["status"] == "pending"
    assert client.status(good)["status"] == "running"
    client.dispatch("more")
    daemon.restart()
    client = connect()
    assert client.status(poison)["fence"] == 0
    assert client.status(good)["fence"] == 1
