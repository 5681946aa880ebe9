"""A daemon that is killed and started again: what it promised holds, and who lives keeps what is theirs."""

import time

import pytest

from tests.daemon.conftest import Connect
from tests.daemon.test_takeover import milliseconds
from tests.support.daemon_process import DaemonProcess
from tests.support.heartbeats import Heartbeats

TTL_MS = 4_000
CLOCK_SLACK_MS = 2


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def test_live_workers_keep_their_leases_through_five_restarts_and_a_dead_one_does_not(
    daemon: DaemonProcess, connect: Connect
) -> None:
    client = connect()
    live, dead = client.dispatch("live"), client.dispatch("dead")
    held = client.claim("live", worker="live", ttl_ms=TTL_MS)
    connect(session="dead").claim("dead", worker="dead", ttl_ms=TTL_MS)
    with Heartbeats(daemon.tcp, [(live, held["fence"])], every_ms=TTL_MS // 20, session="live") as heartbeats:
        heartbeats.await_renewal()
        starts_ms = []
        for _ in range(5):
            daemon.kill()
            starts_ms.append(wall_ms())
            daemon.start()
            heartbeats.await_renewal()
        client = connect()
        standby = client.send("claim", worker="standby", kinds=["dead"], wait_ms=600_000)
        assert client.result(standby)["was"] == "orphaned"
        heartbeats.await_renewal()
        assert not heartbeats.lost
    assert [record["type"] for record in client.history(live)] == ["dispatched", "claimed"]
    assert client.call("checkpoint", handoff=live, fence=held["fence"], state=1)["seq"] == 1
    (orphaned,) = [record for record in client.history(dead) if record["type"] == "orphaned"]
    # A full ttl from the first start by the wall clock; had a later start moved it, it would be a ttl from that.
    assert milliseconds(orphaned["at"]) >= starts_ms[0] + TTL_MS - CLOCK_SLACK_MS
    assert milliseconds(orphaned["at"]) < starts_ms[-1] + TTL_MS


def test_a_lease_that_was_renewed_since_gets_a_full_ttl_at_the_next_start(
    daemon: DaemonProcess, connect: Connect
) -> None:
    ttl_ms = 2_000
    client = connect()
    handoff = client.dispatch()
    fence = client.claim(ttl_ms=ttl_ms)["fence"]
    daemon.restart()
    client = connect()
    assert client.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["renewed"] == [handoff]
    client.pump()
    client.dispatch("after")  # The renewal's own note is on disk before this.
    daemon.kill()
    start_ms = wall_ms()
    daemon.start()
    client = connect()
    client.call("watch", handoff=handoff)
    orphaned = client.await_record("orphaned")["record"]
    assert milliseconds(orphaned["at"]) >= start_ms + ttl_ms - CLOCK_SLACK_MS


def test_the_disconnect_grace_begins_only_once_the_lease_has_been_renewed_again(
    daemon: DaemonProcess, connect: Connect
) -> None:
    worker = connect(session="mine")
    handoff, other = worker.dispatch(), worker.dispatch("other")
    fence = worker.claim(ttl_ms=3_600_000)["fence"]
    daemon.restart()
    connect(session="mine").close()
    client, goner = connect(), connect(session="another")
    client.call("watch")
    goner.claim("other", ttl_ms=3_600_000)
    goner.close()
    assert client.await_record("orphaned")["handoff"] == other  # A grace has passed.
    assert client.status(handoff)["status"] == "running"
    worker = connect(session="mine")
    assert worker.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["renewed"] == [handoff]
    worker.close()
    assert client.await_record("orphaned")["handoff"] == handoff


def test_a_waiting_claim_sent_again_after_a_restart_gets_its_answer(daemon: DaemonProcess, connect: Connect) -> None:
    claim = {"worker": "w", "kinds": ["work"], "wait_ms": 600_000, "nonce": "mine"}
    waiter = connect()
    waiter.send("claim", **claim)
    waiter.pump()
    daemon.restart()
    waiter, client = connect(), connect()
    waiting = waiter.send("claim", **claim)
    waiter.pump()
    handoff = client.dispatch()
    assert waiter.result(waiting)["handoff"] == handoff


def test_a_claim_granted_just_before_a_crash_is_answered_after_it(daemon: DaemonProcess, connect: Connect) -> None:
    claim = {"worker": "w", "kinds": ["work"], "wait_ms": 600_000, "nonce": "mine"}
    waiter, client = connect(), connect()
    waiter.send("claim", **claim)
    waiter.pump()
    handoff = client.dispatch()
    while client.status(handoff)["status"] != "running":
        pass
    daemon.restart()  # Nobody has read the answer.
    waiter, client = connect(), connect()
    client.dispatch(key="another")
    granted = waiter.call("claim", **claim)
    assert (granted["handoff"], granted["fence"], granted["attempt"]) == (handoff, 1, 1)


def test_a_waiting_result_asked_for_again_after_a_restart_gets_its_answer(
    daemon: DaemonProcess, connect: Connect
) -> None:
    client = connect()
    handoff = client.dispatch()
    fence = client.claim(ttl_ms=60_000)["fence"]
    connect().send("result", handoff=handoff, wait_ms=600_000)
    daemon.restart()
    waiter, client = connect(), connect()
    waiting = waiter.send("result", handoff=handoff, wait_ms=600_000)
    waiter.pump()
    client.call("complete", handoff=handoff, fence=fence, result={"answer": 42})
    assert waiter.result(waiting)["result"] == {"answer": 42}


def test_nothing_of_a_full_life_is_lost(daemon: DaemonProcess, connect: Connect) -> None:
    client = connect()
    parent = client.dispatch("parent", labels={"run": "1"}, priority=7)
    child = client.dispatch("child", parent=parent, delay_ms=3_600_000, budget={"max_attempts": 5})
    held = client.claim("parent", worker="w", ttl_ms=60_000)
    client.call("checkpoint", handoff=parent, fence=held["fence"], state={"n": 1.50}, steps=3)
    client.call("fail", handoff=parent, fence=held["fence"], error={"type": "E", "message": "no"})
    ended = client.dispatch("ended")
    held = client.claim("ended", ttl_ms=60_000)
    client.call("complete", handoff=ended, fence=held["fence"], result=["x"])
    client.call("ack", handoff=ended)
    before = [(client.status(one), client.history(one)) for one in (parent, child, ended)]
    listed = client.call("list")["handoffs"]
    daemon.restart()
    client = connect()
    assert [(client.status(one), client.history(one)) for one in (parent, child, ended)] == before
    assert client.call("list")["handoffs"] == listed
    assert client.call("result", handoff=ended)["result"] == ["x"]
    again = client.claim("parent", ttl_ms=60_000)
    assert (again["fence"], again["attempt"], again["checkpoint"]["state"]) == (3, 2, {"n": 1.5})
    assert client.refused("claim", worker="w", handoff=child).error["after_ms"] > 3_000_000


@pytest.mark.parametrize("graceful", [False, True])
def test_thousands_of_pending_handoffs_are_there_again_in_order(
    daemon: DaemonProcess, connect: Connect, graceful: bool
) -> None:
    client = connect()
    requests = [client.send("dispatch", kind="many", inputs={}, key=str(n), priority=n % 10) for n in range(3_000)]
    handoffs = [client.result(request)["handoff"] for request in requests]
    if graceful:
        assert daemon.terminate() == 0
    else:
        daemon.kill()
    daemon.start()
    client = connect()
    assert client.call("stats")["handoffs"]["pending"] == 3_000
    expected = [handoffs[n] for n in sorted(range(3_000), key=lambda n: -(n % 10))]
    asked = [client.send("claim", worker="w", kinds=["many"], ttl_ms=60_000) for _ in range(3_000)]
    assert [client.result(request)["handoff"] for request in asked] == expected
