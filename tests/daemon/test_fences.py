"""A fence that no longer holds the handoff: every write with it is refused with the reason, and changes nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient
from tests.support.worker_process import WorkerProcess

WRITES: dict[str, dict[str, Any]] = {
    "checkpoint": {"state": {"from": "a late writer"}},
    "complete": {"result": "from a late writer"},
    "fail": {"error": {"type": "Late"}},
    "release": {},
}


def assert_refused(client: WireClient, handoff: str, fence: int, why: str, *, but: str | None = None) -> None:
    """Every write op with `fence` is refused with `why`, and a heartbeat calls the lease lost.

    `but` is the op that ended the hold: sent again, it is the same one again.
    """
    before = client.status(handoff)
    for op, members in WRITES.items():
        if op == but:
            assert client.call(op, handoff=handoff, fence=fence, **members)["duplicate"]
            continue
        refusal = client.refused(op, handoff=handoff, fence=fence, **members)
        assert refusal.code == "lease_lost", op
        assert refusal.details["why"] == why, op
        assert refusal.details["fence"] == before["fence"]
        assert refusal.details["status"] == before["status"]
    beat = client.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])
    assert beat["renewed"] == []
    assert beat["lost"] == [handoff]
    after = client.status(handoff)
    del before["lease_left_ms"], after["lease_left_ms"]
    assert after == before


@pytest.fixture
def held(client: WireClient) -> dict[str, Any]:
    """A handoff held by `client`, with one checkpoint."""
    client.dispatch()
    granted = client.claim(ttl_ms=60_000)
    client.call("checkpoint", handoff=granted["handoff"], fence=granted["fence"], state=1)
    return granted


def end_hold(client: WireClient, held: dict[str, Any], by: str) -> None:
    hold = {"handoff": held["handoff"], "fence": held["fence"]}
    match by:
        case "release" | "fail":
            client.call(by, **hold, **WRITES[by], delay_ms=0)
        case "complete":
            client.call("complete", **hold, result="the result")
        case "cancel":
            client.call("cancel", handoff=held["handoff"])


@pytest.mark.parametrize(
    ("by", "why"),
    [("release", "released"), ("fail", "failed"), ("complete", "completed"), ("cancel", "cancelled")],
)
def test_a_fence_whose_hold_has_ended_is_refused(
    client: WireClient, connect: Connect, held: dict[str, Any], by: str, why: str
) -> None:
    end_hold(client, held, by)
    for one in (client, connect()):
        assert_refused(one, held["handoff"], held["fence"], why, but=by if by in ("release", "fail") else None)


@pytest.mark.parametrize("by", ["release", "fail"])
def test_a_fence_is_refused_after_a_new_claim_by_the_same_worker_name(
    client: WireClient, held: dict[str, Any], by: str
) -> None:
    end_hold(client, held, by)
    again = client.claim(ttl_ms=60_000)
    assert again["handoff"] == held["handoff"]
    assert again["fence"] > held["fence"]
    assert_refused(client, held["handoff"], held["fence"], "superseded")
    assert client.call("checkpoint", handoff=again["handoff"], fence=again["fence"], state=2)["seq"] == 2


def test_a_fence_that_nobody_was_given_is_refused(client: WireClient, held: dict[str, Any]) -> None:
    assert_refused(client, held["handoff"], held["fence"] + 1, "never_claimed")
    assert_refused(client, client.dispatch("unclaimed"), 0, "never_claimed")


def test_a_fence_whose_lease_has_expired_is_refused(client: WireClient) -> None:
    handoff = client.dispatch()
    client.call("watch", handoff=handoff)
    fence = client.claim(ttl_ms=500)["fence"]
    client.await_record("orphaned")
    assert_refused(client, handoff, fence, "expired")


@pytest.mark.parametrize("claimed_again", [False, True])
def test_an_old_fence_is_refused_after_a_restart(
    daemon: DaemonProcess, connect: Connect, client: WireClient, held: dict[str, Any], claimed_again: bool
) -> None:
    client.call("release", handoff=held["handoff"], fence=held["fence"])
    if claimed_again:
        client.claim(ttl_ms=60_000)
    daemon.restart()
    why = "superseded" if claimed_again else "released"
    assert_refused(connect(), held["handoff"], held["fence"], why, but=None if claimed_again else "release")


def test_a_restart_alone_takes_no_fence_away(daemon: DaemonProcess, connect: Connect, held: dict[str, Any]) -> None:
    daemon.restart()
    client = connect()
    hold = {"handoff": held["handoff"], "fence": held["fence"]}
    assert client.call("checkpoint", **hold, state=2)["seq"] == 2
    assert client.call("complete", **hold, result=1)["duplicate"] is False


@pytest.fixture
def paused_worker(daemon: DaemonProcess, client: WireClient) -> Iterator[tuple[WorkerProcess, str, int]]:
    """A worker process that was stopped while it held a handoff, and whose lease has ended since."""
    handoff = client.dispatch()
    client.call("watch", handoff=handoff)
    with WorkerProcess(daemon.tcp) as worker:
        worker.client.call("hello", session="paused")
        fence = worker.client.claim(worker="same name", ttl_ms=500)["fence"]
        worker.pause()
        client.await_record("orphaned")
        yield worker, handoff, fence


def test_a_worker_that_was_only_paused_is_refused(
    client: WireClient, paused_worker: tuple[WorkerProcess, str, int]
) -> None:
    worker, handoff, fence = paused_worker
    # It was about to write when it was stopped.
    written = worker.client.send("checkpoint", handoff=handoff, fence=fence, state="stale")
    worker.resume()
    refusal = worker.client.reply(written)["error"]
    assert refusal["code"] == "lease_lost"
    assert refusal["details"]["why"] == "expired"
    event = worker.client.event()
    assert (event["event"], event["fence"], event["why"]) == ("lease_lost", fence, "expired")
    assert_refused(worker.client, handoff, fence, "expired")


def test_a_worker_that_was_only_paused_is_refused_when_its_namesake_has_the_handoff(
    client: WireClient, paused_worker: tuple[WorkerProcess, str, int]
) -> None:
    worker, handoff, fence = paused_worker
    taken = client.claim(worker="same name", ttl_ms=60_000)
    written = worker.client.send("complete", handoff=handoff, fence=fence, result="stale")
    worker.resume()
    assert worker.client.reply(written)["error"]["details"]["why"] == "superseded"
    assert_refused(worker.client, handoff, fence, "superseded")
    client.call("complete", handoff=handoff, fence=taken["fence"], result="right")
    assert client.call("result", handoff=handoff)["result"] == "right"
