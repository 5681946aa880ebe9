"""SIGSTOP and SIGCONT of worker and daemon: who was away comes too late or goes on, and never spoils what was done meanwhile."""

import random
import time
from contextlib import ExitStack

import pytest

from tests.support.client_worker import ClientWorker
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

TTL_MS = 500
FLAVOURS = ("async", "sync")
ROUNDS = 5
DAEMONS_TTL_MS = 1_000


def test_no_checkpoint_of_a_paused_worker_becomes_the_point_to_resume_from(
    shared_daemon: DaemonProcess, standby: WireClient, kind: str, rng: random.Random
) -> None:
    """Twenty workers paused at any moment of their writing, beyond their ttl; each wakes before, while or after the standby saves."""
    with ExitStack() as stack:
        workers = [stack.enter_context(ClientWorker(shared_daemon.tcp, flavour)) for flavour in FLAVOURS * 2]
        for _ in range(ROUNDS):
            held = []
            for worker in workers:
                standby.dispatch(kind, key=str(rng.random()))
                held.append(worker.call("claim", kinds=kind, ttl_ms=TTL_MS))
                worker.tell("write")
            for worker in workers:
                time.sleep(rng.random() / 50)  # At no moment of the worker's choosing.
                worker.pause()
            for worker, hold in zip(workers, held, strict=True):
                _taken_over(standby, worker, hold, rng)
    statuses = [status["status"] for status in standby.call("list", kind=kind)["handoffs"]]
    assert statuses == ["completed"] * ROUNDS * len(workers)


def _taken_over(standby: WireClient, worker: ClientWorker, hold: dict[str, object], rng: random.Random) -> None:
    """The standby goes on with what `worker` held, and the worker wakes at some moment of that."""
    handoff, wakes = str(hold["handoff"]), rng.randrange(3)
    taken = standby.claim(handoff=handoff, wait_ms=60_000, ttl_ms=60_000)
    assert taken["was"] == "orphaned"
    if taken["checkpoint"] is not None:
        found = taken["checkpoint"]["state"]
        assert found["n"] == taken["checkpoint"]["seq"]
        assert int(str(hold["fence"])) <= found["by"] < taken["fence"]
    mine = {"handoff": handoff, "fence": taken["fence"]}
    if wakes == 0:
        worker.resume()
        time.sleep(rng.random() / 200)
    saving = standby.send("checkpoint", **mine, state={"by": taken["fence"], "n": 1})
    if wakes == 1:
        worker.resume()
    saved = standby.result(saving)
    worker.resume()
    assert worker.told() == {"error": "LeaseLost", "why": "superseded"}
    late = {"handoff": handoff, "fence": hold["fence"]}
    for op, members in (
        ("checkpoint", {"state": 0}),
        ("complete", {"result": 0}),
        ("spend", {"usd": 1}),
        ("release", {}),
    ):
        assert standby.refused(op, **late, **members).code == "lease_lost"
    standby.call("release", **mine)
    again = standby.claim(handoff=handoff, ttl_ms=60_000)
    assert (again["checkpoint"]["seq"], again["checkpoint"]["state"]) == (saved["seq"], {"by": taken["fence"], "n": 1})
    standby.call("complete", handoff=handoff, fence=again["fence"], result=None)
    fences = [record["fence"] for record in standby.history(handoff)]
    assert fences == sorted(fences)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_worker_paused_for_less_than_its_ttl_goes_on(
    shared_daemon: DaemonProcess, standby: WireClient, kind: str, flavour: str
) -> None:
    handoff = standby.dispatch(kind)
    with ClientWorker(shared_daemon.tcp, flavour) as worker:
        fence = worker.call("claim", kinds=kind, ttl_ms=60_000)["fence"]
        worker.tell("write", times=200)
        worker.pause()
        time.sleep(0.3)
        worker.resume()
        assert worker.told() == 200
        worker.call("complete", result="done")
    status = standby.status(handoff)
    assert (status["status"], status["fence"], status["attempt"], status["seq"]) == ("completed", fence, 1, 200)


def test_a_paused_daemon_costs_its_workers_nothing_but_the_time(
    shared_daemon: DaemonProcess, standby: WireClient, kind: str
) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(ClientWorker(shared_daemon.tcp, flavour)) for flavour in FLAVOURS]
        for number, worker in enumerate(workers):
            standby.dispatch(kind, key=str(number))
            worker.call("claim", kinds=kind, ttl_ms=DAEMONS_TTL_MS)
            worker.tell("write", times=300)
        shared_daemon.pause()
        time.sleep(2.2 * DAEMONS_TTL_MS / 1000)
        shared_daemon.resume()
        assert [worker.told() for worker in workers] == [300, 300]
        for worker in workers:
            assert worker.call("complete", result="done") == {"duplicate": False}
    for status in standby.call("list", kind=kind)["handoffs"]:
        types = {record["type"] for record in standby.history(status["handoff"])}
        assert (status["status"], status["attempt"], types & {"orphaned"}) == ("completed", 1, set())
