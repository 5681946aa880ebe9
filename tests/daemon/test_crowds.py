"""Whatever comes to a whole crowd at once goes on in steps, and everybody else is served in between."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dhpd.server import turns
from tests.support.daemon_process import DaemonProcess
from tests.support.in_process_daemon import InProcessDaemon
from tests.support.wire_client import WireClient, frame

from .conftest import Connect

WAIT_MS = 600_000
KINDS = [f"k{number}" for number in range(64)]


def family(client: WireClient, count: int) -> tuple[str, list[str]]:
    """A parent and its children, the oldest first."""
    parent = client.dispatch("parent")
    sent = [client.send("dispatch", kind="c", inputs={}, key=str(n), parent=parent) for n in range(count)]
    return parent, [client.result(each)["handoff"] for each in sent]


def counted(client: WireClient, status: str) -> int:
    found: int = client.call("stats")["handoffs"][status]
    return found


def test_while_5000_children_are_cancelled_another_connection_works(connect: Connect) -> None:
    keeper, worker = connect(), connect()
    parent, children = family(keeper, 5_000)
    handoff = worker.dispatch("mine")
    held = worker.claim(handoff=handoff)
    cancelling = keeper.send("cancel", handoff=parent, children=True)
    done_meanwhile = 0
    while worker.status(children[-1])["status"] == "pending":
        worker.call("checkpoint", handoff=handoff, fence=held["fence"], state=done_meanwhile)
        if worker.status(children[0])["status"] == "cancelled":
            done_meanwhile += worker.status(children[-1])["status"] == "pending"
    assert done_meanwhile, "some work was kept after the first was cancelled and before the last was"
    assert keeper.result(cancelling)["status"] == "cancelled"
    assert (counted(worker, "cancelled"), counted(worker, "pending")) == (5_001, 0)
    assert worker.refused("dispatch", kind="c", inputs={}, key="late", parent=children[7]).code == "wrong_state"


@pytest.mark.parametrize("end", [DaemonProcess.terminate, DaemonProcess.kill], ids=["SIGTERM", "SIGKILL"])
def test_a_daemon_that_ends_in_the_middle_of_a_cancel_has_lost_nothing_of_it(
    daemon: DaemonProcess, connect: Connect, end: Callable[[DaemonProcess], int | None]
) -> None:
    keeper, other = connect(), connect()
    parent, children = family(keeper, 3_000)
    cancelling = keeper.send("cancel", handoff=parent, children=True)
    while other.status(children[0])["status"] == "pending":
        pass
    assert end(daemon) in (0, None)
    told = {message["id"]: message["ok"] for message in keeper.messages_until_closed()}
    daemon.start()
    again = connect()
    if told.get(cancelling):
        assert counted(again, "pending") == 0, "an answer is a promise"
    assert again.status(children[0])["status"] == "cancelled"
    again.call("cancel", handoff=parent, children=True)
    assert (counted(again, "cancelled"), counted(again, "pending")) == (3_001, 0)


def test_a_goodbye_of_many_leases_releases_them_all(connect: Connect) -> None:
    holder, other = connect(session="holder"), connect()
    for number in range(1_000):
        other.send("dispatch", kind="g", inputs={}, key=str(number))
    other.pump()
    held = [holder.send("claim", worker="w", kinds=["g"], wait_ms=WAIT_MS) for _ in range(1_000)]
    leases = [holder.result(each) for each in held]
    leaving = holder.send("goodbye")
    late = {"handoff": leases[-1]["handoff"], "fence": leases[-1]["fence"], "state": 1}
    assert holder.refused("checkpoint", **late).details["why"] == "released"
    assert holder.reply(leaving)["ok"]
    assert (counted(other, "pending"), counted(other, "running")) == (1_000, 0)


def waits(client: WireClient, count: int, **members: object) -> None:
    client.send_bytes(frame({"op": "claim", "id": 1, "worker": "w", "wait_ms": WAIT_MS, **members}) * count)
    client.call("stats")  # They are taken in in order.


def test_a_connection_that_ends_input_with_many_waiting_claims_has_an_answer_to_each(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waits(waiting, 1_000, kinds=KINDS)
    assert other.call("stats")["waiting_claims"] == 1_000
    waiting.half_close()
    answers = [message["handoff"] for message in waiting.messages_until_closed() if message["id"] == 1]
    assert answers == [None] * 1_000
    assert other.call("stats")["waiting_claims"] == 0


def test_what_comes_while_many_waiting_claims_are_being_ended_goes_to_whoever_is_there(connect: Connect) -> None:
    ending = [connect() for _ in range(5)]
    for client in ending:
        waits(client, 500, kinds=KINDS)
    there, other = connect(), connect()
    claims = [there.send("claim", worker="me", kinds=["k7"], wait_ms=WAIT_MS) for _ in range(10)]
    there.pump()
    for client in ending:
        client.reset()
    other.pump()  # The ends of those connections have been seen: they were there before this request.
    handoffs = [other.dispatch("k7", key=str(number)) for number in range(10)]
    assert [there.result(claim)["handoff"] for claim in claims] == handoffs
    while other.call("stats")["waiting_claims"]:
        pass


def test_many_who_wait_for_one_result_all_have_it(connect: Connect) -> None:
    waiting, other = [connect() for _ in range(3)], connect()
    handoff = other.dispatch("r")
    held = other.claim(handoff=handoff)
    sent = [[client.send("result", handoff=handoff, wait_ms=WAIT_MS) for _ in range(1_000)] for client in waiting]
    for client in waiting:
        client.pump()
    other.call("complete", handoff=handoff, fence=held["fence"], result={"pages": 60})
    for client, asked in zip(waiting, sent, strict=True):
        assert [client.result(each)["result"] for each in asked] == [{"pages": 60}] * 1_000


def test_many_watchers_that_wake_one_at_a_time_are_each_shown_everything_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        turns, "PASS_S", 1e-9
    )  # One turn a pass, so that records come while most are still to be woken.
    with InProcessDaemon(tmp_path) as daemon:
        watchers = [WireClient(daemon.address) for _ in range(60)]
        of_kind = {"even": watchers[20:40], "odd": watchers[40:]}
        for watcher in watchers[:20]:
            watcher.call("watch")
        for kind, chosen in of_kind.items():
            for watcher in chosen:
                watcher.call("watch", kinds=[kind, "neither"])
        with WireClient(daemon.address) as client:
            for start in range(0, 200, 20):
                sent = [
                    client.send("dispatch", kind=("even", "odd")[n % 2], inputs={}, key=str(n))
                    for n in range(start, start + 20)
                ]
                for each in sent:
                    client.result(each)
        for watcher in watchers[:20]:
            assert [watcher.event()["record"]["position"] for _ in range(200)] == list(range(1, 201))
        for first, chosen in ((1, of_kind["even"]), (2, of_kind["odd"])):
            for watcher in chosen:
                positions = [watcher.event()["record"]["position"] for _ in range(100)]
                assert positions == list(range(first, 201, 2))
        for watcher in watchers:
            watcher.pump()
            assert not watcher.events
            watcher.close()
