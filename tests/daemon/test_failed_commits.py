"""A commit that fails: who waited for it hears so, nothing of it is ever seen, and work goes on with the next."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from dhp_protocol.intent import Intent, canonical_intent, handoff_id
from tests.support.in_process_daemon import InProcessDaemon
from tests.support.wire_client import WireClient, connections

LONG_MS = 600_000


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[InProcessDaemon]:
    with InProcessDaemon(tmp_path) as running:
        yield running


@pytest.fixture
def connect(daemon: InProcessDaemon) -> Iterator[Callable[[], WireClient]]:
    with connections(lambda: daemon.address) as open_one:
        yield open_one


@pytest.fixture
def client(connect: Callable[[], WireClient]) -> WireClient:
    return connect()


def until_appending(daemon: InProcessDaemon) -> None:
    """Returns once a commit is on its way, and held."""
    while not daemon.store.appending:
        time.sleep(0.001)


def until_well(client: WireClient) -> None:
    """Returns once the store takes writes again."""
    while client.call("health")["status"] != "ok":
        pass


def assert_unavailable(client: WireClient, *requests: int) -> None:
    for request in requests:
        error = client.reply(request)["error"]
        assert (error["code"], error["retry"]) == ("store_unavailable", "later")


def test_everybody_who_waited_for_it_hears_so_and_nothing_of_it_is_seen(
    daemon: InProcessDaemon, connect: Callable[[], WireClient]
) -> None:
    first, second, third = connect(), connect(), connect()
    handoffs = [first.dispatch(key=key) for key in "abc"]
    holds = [{"handoff": one, "fence": first.claim(handoff=one)["fence"]} for one in handoffs]
    before = [(first.status(one), first.history(one)) for one in handoffs]
    position = first.call("stats")["position"]
    daemon.store.held, daemon.store.failure = True, "lost"
    writes = [first.send("checkpoint", **holds[0], state=1)]
    until_appending(daemon)
    # These gather behind it, and stand on what isn't there.
    writes += [first.send("checkpoint", **holds[0], state=2), first.send("complete", **holds[1], result=1)]
    writes += [first.send("release", **holds[2]), first.send("dispatch", kind="new", inputs={})]
    looks = [second.send(op, handoff=one) for one in handoffs for op in ("status", "history", "result")]
    looks += [second.send("last_checkpoint", handoff=handoffs[0]), second.send("list"), second.send("stats")]
    refusals = [third.send("checkpoint", **holds[1], state=1), third.send("checkpoint", **holds[2], state=1)]
    refusals += [third.send("claim", worker="w", handoff=handoffs[1])]
    for one in (first, second, third):
        one.pump()
    daemon.store.held = False
    assert_unavailable(first, *writes)
    assert_unavailable(second, *looks)
    assert_unavailable(third, *refusals)
    until_well(first)
    after = [(first.status(one), first.history(one)) for one in handoffs]
    for (old, _), (new, _) in zip(before, after, strict=True):
        del old["lease_left_ms"], new["lease_left_ms"]
    assert after == before
    assert first.call("stats")["position"] == position
    assert len(first.call("list")["handoffs"]) == 3
    # The same again, and it counts.
    assert first.call("checkpoint", **holds[0], state=1, seq=1)["duplicate"] is False
    assert first.call("checkpoint", **holds[0], state=2, seq=2)["duplicate"] is False
    assert first.call("complete", **holds[1], result=1)["duplicate"] is False
    assert first.call("release", **holds[2]).get("duplicate", False) is False
    assert first.call("dispatch", kind="new", inputs={})["created"] is True


def test_a_failed_commit_that_was_kept_is_the_same_request_again(daemon: InProcessDaemon, client: WireClient) -> None:
    handoff = client.dispatch()
    hold = {"handoff": handoff, "fence": client.claim(nonce="n")["fence"]}
    for op, members in (
        ("checkpoint", {**hold, "state": 1, "seq": 1}),
        ("complete", {**hold, "result": 1}),
        ("ack", {"handoff": handoff}),
        ("dispatch", {"kind": "other", "inputs": {}}),
        ("claim", {"worker": "w", "kinds": ["other"], "nonce": "o"}),
    ):
        daemon.store.failure = "kept"
        assert_unavailable(client, client.send(op, **members))
        until_well(client)
        again = client.call(op, **members)
        assert again.get("duplicate", True) is True
        assert again.get("created", False) is False
        assert again.get("attempt", 1) == 1
    assert [record["type"] for record in client.history(handoff)] == [
        "dispatched",
        "claimed",
        "checkpointed",
        "completed",
        "acked",
    ]


def test_waiters_whose_grant_was_undone_go_back_to_their_places(
    daemon: InProcessDaemon, connect: Callable[[], WireClient]
) -> None:
    client, first, second = connect(), connect(), connect()
    asked = []
    for waiter in (first, second):
        asked.append(waiter.send("claim", worker="w", kinds=["work"], wait_ms=LONG_MS))
        waiter.pump()
    daemon.store.failure = "lost"
    assert_unavailable(client, client.send("dispatch", kind="work", inputs={}))
    until_well(client)
    assert client.call("stats")["waiting_claims"] == 2
    handoff = client.dispatch()
    granted = first.result(asked[0])
    assert (granted["handoff"], granted["fence"]) == (handoff, 1)
    second.pump()
    assert not second.answered(asked[1])


def test_a_waiter_whose_grant_was_kept_after_all_gets_it(
    daemon: InProcessDaemon, connect: Callable[[], WireClient]
) -> None:
    client, waiter = connect(), connect()
    waiting = waiter.send("claim", worker="w", kinds=["work"], wait_ms=LONG_MS)
    waiter.pump()
    daemon.store.failure = "kept"
    assert_unavailable(client, client.send("dispatch", kind="work", inputs={}))
    granted = waiter.result(waiting)
    assert (granted["fence"], granted["attempt"]) == (1, 1)
    assert client.status(granted["handoff"])["status"] == "running"


def test_a_waiter_whose_connection_went_while_its_grant_was_undone_is_passed_over(
    daemon: InProcessDaemon, connect: Callable[[], WireClient]
) -> None:
    client, first, second = connect(), connect(), connect()
    asked = []
    for waiter in (first, second):
        asked.append(waiter.send("claim", worker="w", kinds=["work"], wait_ms=LONG_MS))
        waiter.pump()
    daemon.store.held, daemon.store.failure, daemon.store.away = True, "lost", True
    dispatched = client.send("dispatch", kind="work", inputs={})
    until_appending(daemon)
    first.reset()
    while daemon.connections > 2:
        client.pump()
    daemon.store.held = False
    assert_unavailable(client, dispatched)
    daemon.store.away = False
    until_well(client)
    handoff = client.dispatch()
    assert second.result(asked[1])["handoff"] == handoff


def test_who_waits_for_a_handoff_that_was_undone_hears_so(
    daemon: InProcessDaemon, connect: Callable[[], WireClient]
) -> None:
    client, waiter = connect(), connect()
    daemon.store.held, daemon.store.failure = True, "lost"
    dispatched = client.send("dispatch", kind="work", inputs={}, delay_ms=LONG_MS)
    until_appending(daemon)
    named = handoff_id(canonical_intent(Intent(kind="work", inputs=msgspec.Raw(b"{}"))))
    waiting = [
        waiter.send("result", handoff=named, wait_ms=LONG_MS),
        waiter.send("claim", worker="w", handoff=named, wait_ms=LONG_MS),
    ]
    waiter.pump()
    daemon.store.held = False
    assert_unavailable(client, dispatched)
    assert_unavailable(waiter, *waiting)
    until_well(client)
    assert client.refused("status", handoff=named).code == "not_found"


def test_heartbeats_go_on_while_the_store_is_away(daemon: InProcessDaemon, connect: Callable[[], WireClient]) -> None:
    client, other = connect(), connect()
    kept, silent = client.dispatch("kept"), client.dispatch("silent")
    beats = [{"handoff": kept, "fence": client.claim("kept", ttl_ms=1_000)["fence"]}]
    fence = other.claim("silent", ttl_ms=1_000, worker="silent")["fence"]
    daemon.store.failure, daemon.store.away = "lost", True
    assert_unavailable(client, client.send("dispatch", kind="work", inputs={}))
    until = time.monotonic() + 2.2  # More than two leases long.
    while time.monotonic() < until:
        beat = client.call("heartbeat", leases=beats)
        assert (beat["renewed"], beat["lost"]) == ([kept], [])
        for op, members in (
            ("status", {"handoff": kept}),
            ("checkpoint", {**beats[0], "state": 1}),
            ("checkpoint", {"handoff": silent, "fence": fence, "state": 1}),
            ("claim", {"worker": "w", "kinds": ["work"]}),
        ):
            assert client.refused(op, **members).code == "store_unavailable"
        assert client.call("health")["status"] == "store_unavailable"
    # It is over, but a crash could take that back: neither is said.
    beat = other.call("heartbeat", leases=[{"handoff": silent, "fence": fence}])
    assert (beat["renewed"], beat["lost"]) == ([], [])
    daemon.store.away = False
    while client.call("health")["status"] != "ok":
        assert client.call("heartbeat", leases=beats)["renewed"] == [kept]
    assert other.refused("checkpoint", handoff=silent, fence=fence, state=1).details["why"] == "expired"
    assert client.claim("silent")["was"] == "orphaned"
    assert client.status(kept)["failures"] == 0
    assert client.status(kept)["attempt"] == 1


def test_a_heartbeat_does_not_tell_of_a_cancel_that_was_undone(
    daemon: InProcessDaemon, connect: Callable[[], WireClient]
) -> None:
    client, worker = connect(), connect()
    worker.call("hello", session="mine")
    handoff = client.dispatch()
    leases = [{"handoff": handoff, "fence": worker.claim()["fence"]}]
    daemon.store.held, daemon.store.failure, daemon.store.away = True, "lost", True
    cancelled = client.send("cancel", handoff=handoff)
    until_appending(daemon)
    beat = worker.call("heartbeat", leases=leases)
    assert (beat["renewed"], beat["lost"]) == ([], [])
    daemon.store.held = False
    assert_unavailable(client, cancelled)
    assert worker.call("heartbeat", leases=leases)["lost"] == []
    daemon.store.away = False
    until_well(client)
    assert worker.call("heartbeat", leases=leases)["renewed"] == [handoff]
    assert not worker.events


def test_an_expiry_that_could_not_be_committed_is_tried_again(
    daemon: InProcessDaemon, connect: Callable[[], WireClient]
) -> None:
    client, worker = connect(), connect()
    worker.call("hello", session="mine")
    handoff = client.dispatch()
    fence = worker.claim(ttl_ms=500)["fence"]
    client.call("watch", handoff=handoff)
    daemon.store.failure = "lost"
    assert client.await_record("orphaned")["record"]["fence"] == fence + 1
    assert worker.event()["event"] == "lease_lost"
    assert not worker.events


def test_a_watch_shows_nothing_of_it(daemon: InProcessDaemon, connect: Callable[[], WireClient]) -> None:
    client, watcher = connect(), connect()
    watcher.call("watch")
    client.dispatch(key="before")
    daemon.store.held, daemon.store.failure = True, "lost"
    requests = [client.send("dispatch", kind="work", inputs={}, key=str(number)) for number in range(10)]
    until_appending(daemon)
    client.pump()
    daemon.store.held = False
    assert_unavailable(client, *requests)
    until_well(client)
    after = client.dispatch(key="after")
    seen = [watcher.event() for _ in range(2)]
    assert [event["record"]["position"] for event in seen] == [1, 2]
    assert seen[1]["handoff"] == after


def test_failure_after_failure_loses_nothing_that_was_acknowledged(
    daemon: InProcessDaemon, connect: Callable[[], WireClient]
) -> None:
    clients = [connect() for _ in range(5)]
    acknowledged = []
    for turn in range(30):
        daemon.store.failure = (None, "lost", "kept")[turn % 3]
        requests = [
            (one, one.send("dispatch", kind="work", inputs={}, key=f"{turn}-{n}-{m}"))
            for n, one in enumerate(clients)
            for m in range(20)
        ]
        acknowledged += [reply["handoff"] for one, request in requests if (reply := one.reply(request))["ok"]]
        until_well(clients[0])
    assert acknowledged
    listed = {one["handoff"] for one in clients[0].call("list", limit=1000)["handoffs"]}
    page = clients[0].call("list", limit=1000)
    while page["next"] is not None:
        page = clients[0].call("list", limit=1000, after=page["next"])
        listed |= {one["handoff"] for one in page["handoffs"]}
    assert set(acknowledged) <= listed
    assert clients[0].call("stats")["handoffs"]["pending"] == len(listed)
