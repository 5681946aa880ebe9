"""A watch shows each record once, from wherever it began, however slowly it is read."""

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

MAX_RSS_BYTES = 300 * 1024 * 1024


def shown(client: WireClient, up_to: int) -> list[dict[str, Any]]:
    """The events of a watch up to a position."""
    events: list[dict[str, Any]] = []
    while not events or events[-1]["record"]["position"] < up_to:
        events.append(client.event())
    return events


def one_life(client: WireClient, kind: str, key: str = "") -> str:
    """Five records."""
    handoff = client.dispatch(kind, key=key)
    fence = client.claim(handoff=handoff)["fence"]
    client.call("checkpoint", handoff=handoff, fence=fence, state={"secret": "state"})
    client.call("complete", handoff=handoff, fence=fence, result={"secret": "result"})
    client.call("ack", handoff=handoff)
    return handoff


LIFE = ["dispatched", "claimed", "checkpointed", "completed", "acked"]


def test_a_watch_shows_what_happens_from_now_on(client: WireClient, connect: Connect) -> None:
    one_life(client, "before")
    watcher = connect()
    assert watcher.call("watch")["position"] == 5
    handoff = one_life(client, "work")
    events = shown(watcher, 10)
    assert [event["record"]["type"] for event in events] == LIFE
    assert {event["event"] for event in events} == {"record"}
    assert {event["handoff"] for event in events} == {handoff}
    assert [event["record"] for event in events] == client.history(handoff)
    assert "secret" not in str(events)


def test_a_watch_replays_from_a_position_and_then_follows(client: WireClient, connect: Connect) -> None:
    one_life(client, "before")
    watcher = connect()
    assert watcher.call("watch", after=2)["position"] == 2
    assert [event["record"]["position"] for event in shown(watcher, 5)] == [3, 4, 5]
    one_life(client, "after")
    assert [event["record"]["position"] for event in shown(watcher, 10)] == [6, 7, 8, 9, 10]


def test_a_watch_from_beyond_the_end_begins_at_the_end(client: WireClient, connect: Connect) -> None:
    watcher = connect()
    assert watcher.call("watch", after=2**53 - 1)["position"] == 0
    client.dispatch()
    assert watcher.event()["record"]["position"] == 1


def test_a_watch_of_kinds_or_of_one_handoff_shows_only_those(client: WireClient, connect: Connect) -> None:
    by_kind, by_handoff, by_both = connect(), connect(), connect()
    handoff = one_life(client, "a")
    by_kind.call("watch", kinds=["b", "c"], after=0)
    by_handoff.call("watch", handoff=handoff, after=0)
    by_both.call("watch", handoff=handoff, kinds=["b"], after=0)
    b, c = one_life(client, "b"), one_life(client, "c")
    assert [event["handoff"] for event in shown(by_kind, 15)] == [b] * 5 + [c] * 5
    assert [event["record"]["type"] for event in shown(by_handoff, 5)] == LIFE
    for watcher in (by_handoff, by_both):
        watcher.pump()
        assert not watcher.events


def test_a_watch_of_kinds_shows_those_that_have_left_memory(daemon: DaemonProcess, connect: Connect) -> None:
    client = connect()
    handoff = one_life(client, "a")
    one_life(client, "b")
    client.call("list")
    daemon.restart()
    watcher = connect()
    watcher.call("watch", kinds=["a"], after=0)
    assert [event["handoff"] for event in shown(watcher, 5)] == [handoff] * 5


def test_unwatch_ends_the_watch_and_a_new_one_takes_its_place(client: WireClient, connect: Connect) -> None:
    watcher = connect()
    watcher.call("watch", kinds=["a"])
    watcher.call("watch", kinds=["b"])
    a, b = client.dispatch("a"), client.dispatch("b")
    assert watcher.event()["handoff"] == b
    watcher.call("unwatch")
    client.dispatch("b", key="more")
    one_life(client, "a", "more")
    watcher.pump()
    assert not watcher.events
    assert a != b


class Load:
    """Lives that begin and end, on four connections, until `stop`."""

    def __init__(self, connect: Connect) -> None:
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._live, args=(connect(), number)) for number in range(4)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _live(self, client: WireClient, number: int) -> None:
        for lived in count():
            if self._stopping.is_set():
                return
            one_life(client, f"kind-{number}", str(lived))


@pytest.fixture
def load(connect: Connect) -> Iterator[Load]:
    running = Load(connect)
    yield running
    running.stop()


def test_replay_and_following_join_without_gap_or_doubling_under_load(
    connect: Connect, client: WireClient, load: Load
) -> None:
    watchers: list[tuple[WireClient, int]] = []
    for after in (0, 10, None, 100, None, 0, 200, None):
        watcher = connect()
        begin = watcher.call("watch", **({} if after is None else {"after": after}))["position"]
        watchers.append((watcher, begin))
        target = begin + 100 if after is None else 0
        while client.call("stats")["position"] < target:
            pass
    load.stop()
    client.dispatch("last")
    end = client.call("stats")["position"]
    for watcher, begin in watchers:
        assert [event["record"]["position"] for event in shown(watcher, end)] == list(range(begin + 1, end + 1))


def test_a_watch_taken_up_again_after_each_loss_misses_nothing(
    connect: Connect, client: WireClient, load: Load
) -> None:
    positions: list[int] = []
    for _ in range(10):
        watcher = connect()
        watcher.call("watch", after=positions[-1] if positions else 0)
        positions += [watcher.event()["record"]["position"] for _ in range(50)]
        watcher.reset()
    assert positions == list(range(1, 501))


def test_a_watcher_that_reads_slowly_costs_no_memory_and_loses_nothing(
    daemon: DaemonProcess, connect: Connect, client: WireClient
) -> None:
    slow = [connect() for _ in range(20)]
    for watcher in slow:
        watcher.call("watch")
    handoff = client.dispatch(budget={"max_attempts": 1_000_000})
    error = {"type": "Verbose", "message": "x" * 8_192}
    fence = 1
    for _ in range(40):  # Some 20 MB of events for each.
        requests = []
        for _ in range(50):
            requests.append(client.send("claim", worker="w", handoff=handoff))
            requests.append(client.send("fail", handoff=handoff, fence=fence, error=error, delay_ms=0))
            fence += 2
        for request in requests:
            client.result(request)
    assert daemon.rss_bytes < MAX_RSS_BYTES
    end = client.call("stats")["position"]
    for watcher in slow[:2]:
        assert [event["record"]["position"] for event in shown(watcher, end)] == list(range(1, end + 1))
    assert daemon.rss_bytes < MAX_RSS_BYTES
