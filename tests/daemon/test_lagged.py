"""A reader that is behind hears `lagged` where something is gone that it would have been shown, and nowhere else."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process_daemon import InProcessDaemon
from tests.support.wire_client import WireClient, connections

Connect = Callable[[], WireClient]
LONG_MS = 600_000


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[InProcessDaemon]:
    with InProcessDaemon(tmp_path, max_unsent_bytes=16 * 1024) as running:
        yield running


@pytest.fixture
def connect(daemon: InProcessDaemon) -> Iterator[Connect]:
    with connections(lambda: daemon.address) as open_one:
        yield open_one


@pytest.fixture
def client(connect: Connect) -> WireClient:
    return connect()


def with_checkpoints(client: WireClient, count: int, **members: Any) -> dict[str, Any]:
    """A handoff that is held, and has had so many checkpoints."""
    handoff = client.dispatch(**members)
    hold = {"handoff": handoff, "fence": client.claim(members.get("kind", "work"), ttl_ms=LONG_MS)["fence"]}
    for number in range(count):
        client.call("checkpoint", **hold, state=number)
    return hold


def await_pruned(client: WireClient, handoff: str, records: int) -> None:
    """Until so many of its records are left."""
    while len(client.history(handoff)) > records:
        client.pump()


def replayed(client: WireClient, connect: Connect, **members: Any) -> list[dict[str, Any]]:
    """What a watch shows that begins there, up to the newest record that it is to show."""
    if "handoff" not in members:
        client.dispatch("marker", key=str(client.call("stats")["position"]))
    end = client.status(members["handoff"])["position"] if "handoff" in members else client.call("stats")["position"]
    watcher = connect()
    watcher.call("watch", **{"after": 0, **members})
    events: list[dict[str, Any]] = []
    while not events or events[-1]["event"] != "record" or events[-1]["record"]["position"] < end:
        events.append(watcher.event())
    watcher.close()
    return events


def told(events: list[dict[str, Any]]) -> list[int | str]:
    """Positions of records, and `lagged AFTER` in between."""
    return [
        event["record"]["position"] if event["event"] == "record" else f"lagged {event['after']} {event['lost']}"
        for event in events
    ]


def test_it_comes_in_the_place_of_what_was_pruned(client: WireClient, connect: Connect) -> None:
    hold = with_checkpoints(client, 5, keep_checkpoints=2)  # Positions 3 to 7, of which 3 to 5 go.
    await_pruned(client, hold["handoff"], 4)
    assert told(replayed(client, connect)) == [1, 2, "lagged 5 records", 6, 7, 8]
    assert told(replayed(client, connect, after=5)) == [6, 7, 8, 9]
    assert told(replayed(client, connect, handoff=hold["handoff"])) == [1, 2, "lagged 5 records", 6, 7]


def test_a_watch_of_one_handoff_hears_nothing_of_what_others_lost(client: WireClient, connect: Connect) -> None:
    first = client.dispatch("whole")
    hold = with_checkpoints(client, 5, keep_checkpoints=1)
    client.call("suspend", handoff=first)
    await_pruned(client, hold["handoff"], 3)
    assert told(replayed(client, connect, handoff=first)) == [1, client.status(first)["position"]]


def test_what_was_forgotten_is_told_even_at_the_end(client: WireClient, connect: Connect) -> None:
    kept, gone = client.dispatch("kept"), client.dispatch("gone")
    client.call("cancel", handoff=gone)
    client.call("forget", handoff=gone)
    while 2 in (seen := told(replayed(client, connect))):
        pass
    assert seen[:3] == [1, "lagged 4 records", 5]
    watcher = connect()
    watcher.call("watch", handoff=gone, after=1)
    event = watcher.event()
    assert (event["event"], event["after"] >= 4) == ("lagged", True)
    assert client.status(kept)["status"] == "pending"


def test_who_keeps_up_never_hears_it(client: WireClient, connect: Connect) -> None:
    watcher = connect()
    watcher.call("watch")
    hold = with_checkpoints(client, 5, keep_checkpoints=1)
    await_pruned(client, hold["handoff"], 3)
    client.call("complete", **hold, result=None)
    last = client.status(hold["handoff"])["position"]
    events = []
    while not events or events[-1]["record"]["position"] < last:
        events.append(watcher.event())
    assert told(events) == list(range(1, last + 1))
    assert client.call("stats")["limits_hit"]["lagged"] == 0


def test_a_session_that_does_not_read_hears_once_that_it_lost_events(
    daemon: InProcessDaemon, client: WireClient, connect: Connect
) -> None:
    deaf = connect()
    deaf.call("hello", session="deaf")
    handoffs = [deaf.dispatch(key=str(number)) for number in range(50)]
    leases = [
        {"handoff": handoff, "fence": deaf.claim(handoff=handoff, ttl_ms=LONG_MS)["fence"]} for handoff in handoffs
    ]
    asked = []
    (connection,) = (each for each in list(daemon.desk.connections.values()) if each.number == 2)
    deaf.call("checkpoint", **leases[0], state="x" * 100_000)
    while not connection.outbox.unread:
        asked.append(deaf.send("last_checkpoint", handoff=handoffs[0]))
    for handoff in handoffs:
        client.call("cancel", handoff=handoff)
    for request in asked:
        deaf.result(request)
    event = deaf.event()
    assert (event["event"], event["lost"]) == ("lagged", "events")
    assert event["after"] >= client.status(handoffs[-1])["position"]
    assert sorted(deaf.call("heartbeat", leases=leases)["lost"]) == sorted(handoffs)
    assert not deaf.events
    more = deaf.dispatch(key="more")
    deaf.claim(handoff=more, ttl_ms=LONG_MS)
    client.call("cancel", handoff=more)
    assert deaf.event()["event"] == "cancelled", "from then on it hears them again"
