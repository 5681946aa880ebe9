"""What goes from a real daemon's disk, and what doesn't, through kill -9 at any time."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.conftest import Connect, assert_no_mistake
from tests.store.stories import name
from tests.store.version_1 import Version1Store
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

COMES_TRUE_WITHIN_S = 60.0
KEPT = 16
SPARE = 4
"""So many more may lie on the disk while the work is live."""


def until(comes_true: Callable[[], bool]) -> None:
    """Asks again and again."""
    give_up_s = time.monotonic() + COMES_TRUE_WITHIN_S
    while not comes_true():
        assert time.monotonic() < give_up_s, "it doesn't come true"


def seqs_in_history(client: WireClient, handoff: str) -> list[int]:
    """The checkpoints whose records are on the disk."""
    return [record["seq"] for record in client.history(handoff) if record["type"] == "checkpointed"]


def seqs_shown(client: WireClient, handoff: str) -> list[int]:
    return [found["seq"] for found in client.call("checkpoints", handoff=handoff, limit=1_000)["checkpoints"]]


# --- checkpoints ----------------------------------------------------------------------------------------------------


def test_of_two_hundred_checkpoints_the_newest_are_kept_through_restarts(
    daemon: DaemonProcess, connect: Connect
) -> None:
    client = connect()
    handoff = client.dispatch()
    fence = client.claim(ttl_ms=60_000, detached=True)["fence"]
    for number in range(1, 201):
        client.call("checkpoint", handoff=handoff, fence=fence, seq=number, state={"page": number})
        if number % 40 == 0:
            daemon.restart()
            client = connect()
            assert seqs_shown(client, handoff) == list(range(number - KEPT + 1, number + 1))
    until(lambda: len(seqs_in_history(client, handoff)) < KEPT + SPARE)
    refused = client.refused("checkpoint", handoff=handoff, fence=fence, seq=100, state={"page": 100})
    assert (refused.code, refused.details) == ("out_of_order", {"seq": 100, "expected": 201, "first_kept": 185})
    assert client.call("checkpoint", handoff=handoff, fence=fence, seq=185, state={"page": 185})["duplicate"]
    daemon.restart()
    client = connect()
    client.call("release", handoff=handoff, fence=fence)
    resumed = client.claim(worker="standby", ttl_ms=60_000)
    assert (resumed["checkpoint"]["seq"], resumed["checkpoint"]["state"]) == (200, {"page": 200})
    client.call("complete", handoff=handoff, fence=resumed["fence"], result="done")
    until(lambda: seqs_in_history(client, handoff) == list(range(185, 201)))
    others = [record["type"] for record in client.history(handoff) if record["type"] != "checkpointed"]
    assert others == ["dispatched", "claimed", "released", "claimed", "completed"]


def test_what_a_slow_reader_has_asked_for_stays_until_it_has_read_it(daemon: DaemonProcess, connect: Connect) -> None:
    client, slow = connect(), connect()
    state = "x" * 200_000
    asked_for, other = client.dispatch(key="asked for", keep_checkpoints=1), client.dispatch(keep_checkpoints=1)
    fences = {handoff: client.claim(handoff=handoff, ttl_ms=600_000)["fence"] for handoff in (asked_for, other)}
    client.call("checkpoint", handoff=asked_for, fence=fences[asked_for], state=state)
    requests = [slow.send("last_checkpoint", handoff=asked_for) for _ in range(60)]
    first = slow.result(requests[0])
    assert first["checkpoint"]["seq"] == 1
    for handoff in (asked_for, other):
        for number in range(10):
            client.call("checkpoint", handoff=handoff, fence=fences[handoff], state=number)
    until(lambda: seqs_in_history(client, other) == [10])
    for request in requests[1:]:
        assert slow.result(request)["checkpoint"] == first["checkpoint"]
    until(lambda: seqs_in_history(client, asked_for) == [11])


# --- forget ---------------------------------------------------------------------------------------------------------


def completed(client: WireClient, *, ack: bool = True, **members: Any) -> tuple[str, int]:
    handoff = client.dispatch(**members)
    fence = client.claim(handoff=handoff)["fence"]
    client.call("checkpoint", handoff=handoff, fence=fence, state="half")
    client.call("complete", handoff=handoff, fence=fence, result="done")
    if ack:
        client.call("ack", handoff=handoff)
    return handoff, fence


@pytest.mark.parametrize("killed", ["not at all", "after it was forgotten", "after it was dispatched again"])
def test_forgotten_and_dispatched_again_it_refuses_the_writers_of_before(
    daemon: DaemonProcess, connect: Connect, killed: str
) -> None:
    client = connect()
    handoff, old_fence = completed(client, key="again")
    client.call("forget", handoff=handoff)
    if killed == "after it was forgotten":
        daemon.restart()
        client = connect()
    for op in ("status", "result", "history", "ack", "forget"):
        assert client.refused(op, handoff=handoff).code == "not_found"
    assert client.call("dispatch", kind="work", inputs={}, key="again")["created"]
    if killed == "after it was dispatched again":
        daemon.restart()
        client = connect()
    late = client.refused("checkpoint", handoff=handoff, fence=old_fence, state="late")
    assert (late.code, late.details["why"]) == ("lease_lost", "never_claimed")
    grant = client.claim(handoff=handoff)
    assert grant["fence"] > old_fence
    assert grant["checkpoint"] is None
    late = client.refused("complete", handoff=handoff, fence=old_fence, result="done")
    assert (late.code, late.details["why"]) == ("lease_lost", "superseded")
    assert [record["type"] for record in client.history(handoff)] == ["dispatched", "claimed"]


def test_a_watcher_sees_that_it_is_forgotten(connect: Connect) -> None:
    client, by_handoff, by_kind = connect(), connect(), connect()
    handoff, _ = completed(client)
    by_handoff.call("watch", handoff=handoff)
    by_kind.call("watch", kinds=["work"])
    client.call("forget", handoff=handoff)
    for watcher in (by_handoff, by_kind):
        event = watcher.await_record("forgotten")
        assert (event["handoff"], event["record"]["n"]) == (handoff, 6)


def test_its_records_are_gone_from_the_journal_and_those_of_others_are_not(
    daemon: DaemonProcess, connect: Connect
) -> None:
    client = connect()
    forgotten, _ = completed(client, key="forgotten")
    kept, _ = completed(client, key="kept")
    client.call("forget", handoff=forgotten)

    def seen_from_the_beginning() -> set[str]:
        """Whose records a watch shows that begins at the beginning."""
        marker = client.dispatch(key=f"marker {time.monotonic_ns()}")
        with WireClient(daemon.tcp) as watcher:
            watcher.call("watch", after=0)
            seen: set[str] = set()
            while marker not in seen:
                seen.add(watcher.event().get("handoff", "lagged"))
        return seen

    until(lambda: forgotten not in seen_from_the_beginning())
    daemon.restart()
    client = connect()
    assert kept in seen_from_the_beginning()
    assert client.call("result", handoff=kept)["result"] == "done"


# --- what goes by itself --------------------------------------------------------------------------------------------


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon that keeps for one second what was acknowledged."""
    with DaemonProcess(tmp_path / "data", env={"DHPD_RETENTION_MS": "1000"}) as running:
        yield running
    assert_no_mistake(running)


def test_what_was_acknowledged_goes_by_itself_and_what_was_not_never_does(forgetful: DaemonProcess) -> None:
    with WireClient(forgetful.tcp) as client, WireClient(forgetful.tcp) as watcher:
        watcher.call("watch")
        unacked, _ = completed(client, key="unacked", ack=False)
        running = client.dispatch(key="running")
        acked = {completed(client, key=f"acked {number}")[0] for number in range(3)}
        gone = {watcher.await_record("forgotten")["handoff"] for _ in acked}
        assert gone == acked
        for handoff in acked:
            assert client.refused("status", handoff=handoff).code == "not_found"
    forgetful.restart()
    with WireClient(forgetful.tcp) as client, WireClient(forgetful.tcp) as watcher:
        watcher.call("watch")
        later, _ = completed(client, key="acked later")
        assert watcher.await_record("forgotten")["handoff"] == later
        assert client.call("result", handoff=unacked)["result"] == "done"
        assert client.status(running)["status"] == "pending"


def test_a_parent_goes_after_its_last_child(forgetful: DaemonProcess) -> None:
    with WireClient(forgetful.tcp) as client, WireClient(forgetful.tcp) as watcher:
        watcher.call("watch")
        parent = client.dispatch(key="parent")
        child = client.dispatch(key="child", parent=parent)
        other, _ = completed(client, key="other")
        for handoff in (parent, child):
            client.call("cancel", handoff=handoff)
        client.call("ack", handoff=parent)
        another, _ = completed(client, key="another")
        assert [watcher.await_record("forgotten")["handoff"] for _ in range(2)] == [other, another]
        assert client.status(parent)["status"] == "cancelled", "the child might be wanted again"
        client.call("ack", handoff=child)
        assert [watcher.await_record("forgotten")["handoff"] for _ in range(2)] == [child, parent]


# --- a store of the first version -----------------------------------------------------------------------------------


def test_a_daemon_takes_over_a_store_of_the_first_version(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    store = Version1Store(data / "dhpd.sqlite")
    done, held, waiting = (name(number) for number in (1, 2, 3))
    for handoff in (done, held):
        store.dispatch(handoff, max_attempts=7)
        store.claim(handoff, 1)
        for seq in range(1, 41):
            store.checkpoint(handoff, 1, seq, b"%d" % seq)
    store.tell(done, "completed", 1, b'"done"', worker="ada", sha256="0" * 64, bytes=6)
    store.dispatch(waiting)
    store.close(covered=0)
    with DaemonProcess(data) as daemon, WireClient(daemon.tcp) as client:
        assert client.call("result", handoff=done)["result"] == "done"
        status = client.status(held)
        assert (status["status"], status["fence"], status["seq"], status["steps"]) == ("running", 1, 40, 40)
        assert status["budget"]["max_attempts"] == 7
        assert client.call("checkpoint", handoff=held, fence=1, state="on it goes")["seq"] == 41
        assert client.claim(handoff=waiting)["was"] == "pending"
        until(lambda: seqs_in_history(client, done) == list(range(25, 41)))
    assert_no_mistake(daemon)
