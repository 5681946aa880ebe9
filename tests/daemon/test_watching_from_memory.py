"""Who has seen everything is shown what comes next without a look at the disk; who hasn't catches up there first."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dhpd.engine.journal import Batch
from dhpd.server import tail
from dhpd.store.backend import Appended, StoredRecord
from tests.support.in_process_daemon import InProcessDaemon
from tests.support.wire_client import WireClient, connections

Connect = Callable[[], WireClient]


class CountingReads:
    """Stands before the store's `records_after`, which only watches ask for."""

    def __init__(self, daemon: InProcessDaemon) -> None:
        self.pages = 0
        self._inner = daemon.store.records_after
        daemon.store.records_after = self.records_after  # type: ignore[method-assign]

    async def records_after(self, position: int, limit: int) -> list[StoredRecord]:
        self.pages += 1
        page: list[StoredRecord] = await self._inner(position, limit)
        return page


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[InProcessDaemon]:
    with InProcessDaemon(tmp_path) as running:
        yield running


@pytest.fixture
def reads(daemon: InProcessDaemon) -> CountingReads:
    return CountingReads(daemon)


@pytest.fixture
def connect(daemon: InProcessDaemon) -> Iterator[Connect]:
    with connections(lambda: daemon.address) as open_one:
        yield open_one


def positions_up_to(watcher: WireClient, end: int) -> list[int]:
    """The positions of the events that come, up to that of `end`."""
    positions = [watcher.event()["record"]["position"]]
    while positions[-1] < end:
        positions.append(watcher.event()["record"]["position"])
    return positions


def test_watchers_that_have_seen_everything_cost_no_read(connect: Connect, reads: CountingReads) -> None:
    client, everything, by_kind, by_handoff = (connect() for _ in range(4))
    handoff = client.dispatch("mine")
    everything.call("watch")
    by_kind.call("watch", kinds=["mine", "none"])
    by_handoff.call("watch", handoff=handoff)
    for number in range(20):
        client.dispatch("other", key=str(number))
    client.call("cancel", handoff=handoff)
    assert positions_up_to(everything, 22) == list(range(2, 23))
    assert positions_up_to(by_kind, 22) == [22]
    assert positions_up_to(by_handoff, 22) == [22]
    client.dispatch("mine", key="more")
    assert positions_up_to(by_kind, 23) == [23]
    by_handoff.pump()
    assert not by_handoff.events
    assert reads.pages == 0


def test_a_watcher_that_began_further_back_reads_until_it_has_seen_everything(
    connect: Connect, reads: CountingReads
) -> None:
    client, watcher = connect(), connect()
    for number in range(10):
        client.dispatch(key=str(number))
    watcher.call("watch", after=4)
    assert positions_up_to(watcher, 10) == [5, 6, 7, 8, 9, 10]
    pages = reads.pages
    assert pages > 0
    for number in range(10, 20):
        client.dispatch(key=str(number))
    assert positions_up_to(watcher, 20) == list(range(11, 21))
    assert reads.pages == pages


def test_a_watcher_that_comes_back_soon_after_a_loss_costs_no_read(connect: Connect, reads: CountingReads) -> None:
    client, one, other = connect(), connect(), connect()
    other.call("watch")
    one.call("watch")
    client.dispatch(key="first")
    seen = positions_up_to(one, 1)
    one.reset()
    client.dispatch(key="second")
    again = connect()
    again.call("watch", after=seen[-1])
    assert positions_up_to(again, 2) == [2]
    assert reads.pages == 0


def test_one_that_did_not_read_for_long_goes_on_from_disk_where_it_was(connect: Connect, reads: CountingReads) -> None:
    client, slow, quick = connect(), connect(), connect()
    slow.call("watch")
    quick.call("watch")
    handoff = client.dispatch(budget={"max_attempts": 1_000_000})
    error = {"type": "Verbose", "message": "x" * 8_192}
    end = 1
    for _ in range(20):  # Some 16 MB: more than the sockets and the daemon hold for somebody who doesn't read.
        requests = []
        for _ in range(100):
            requests.append(client.send("claim", worker="w", handoff=handoff))
            requests.append(client.send("fail", handoff=handoff, fence=end, error=error, delay_ms=0))
            end += 2
        for request in requests:
            client.result(request)
        positions_up_to(quick, end)
    pages = reads.pages
    assert positions_up_to(slow, end) == list(range(1, end + 1))
    assert reads.pages > pages
    pages = reads.pages
    client.call("cancel", handoff=handoff)
    assert positions_up_to(slow, end + 1) == [end + 1]
    assert positions_up_to(quick, end + 1) == [end + 1]
    assert reads.pages == pages


def test_a_record_is_encoded_once_for_all_who_see_it(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    client, watchers = connect(), [connect() for _ in range(5)]
    encoded: list[int] = []
    view = tail.record_view

    def counted(position: int, record: Any) -> dict[str, Any]:
        encoded.append(position)
        return view(position, record)

    monkeypatch.setattr(tail, "record_view", counted)
    for watcher in watchers:
        watcher.call("watch")
    for number in range(10):
        client.dispatch(key=str(number))
    for watcher in watchers:
        assert positions_up_to(watcher, 10) == list(range(1, 11))
    assert encoded == list(range(1, 11))


def test_what_could_not_be_stored_is_shown_to_nobody(
    connect: Connect, daemon: InProcessDaemon, reads: CountingReads
) -> None:
    client, watcher = connect(), connect()
    poisoned = client.dispatch("poisoned")
    watcher.call("watch")
    append = daemon.store.append

    async def spoiling(batch: Batch, expected_head: int) -> Appended:
        """SQLite can't take an integer as large as this one."""
        spoiled = copy.copy(batch)
        spoiled.entries = [replace(one, prev=2**63) if one.handoff == poisoned else one for one in batch.entries]
        return await append(spoiled, expected_head)

    daemon.store.append = spoiling  # type: ignore[method-assign]
    daemon.store.held = True
    waiting = [client.send("dispatch", kind="first", inputs={})]
    while not daemon.store.appending:
        client.pump()
    # These share one batch.
    cancelled = client.send("cancel", handoff=poisoned)
    waiting += [client.send("dispatch", kind="work", inputs={}, key=str(number)) for number in range(3)]
    client.pump()
    daemon.store.held = False
    shown = [client.result(request)["handoff"] for request in waiting]
    assert client.reply(cancelled)["error"]["code"] == "store_unavailable"
    shown.append(client.dispatch("last"))
    assert [watcher.event()["handoff"] for _ in shown] == shown
    watcher.pump()
    assert not watcher.events
    assert reads.pages == 0
