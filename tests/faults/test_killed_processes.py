"""kill -9 of daemon and workers in the middle of what they are saying: what was acknowledged is there, and nothing hangs half-way."""

import random
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.client_worker import ClientWorker
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient, frame
from tests.support.worker_process import WorkerProcess

HANDOFFS = 40
CHECKPOINTS = 5
KILLS = 3


class _Heard:
    """All that workers said was acknowledged to them."""

    def __init__(self, workers: list[ClientWorker]) -> None:
        self.acknowledged: list[Any] = []
        self.last: list[Any] = []
        self._threads = [threading.Thread(target=self._listen, args=(worker,)) for worker in workers]
        for thread in self._threads:
            thread.start()

    def _listen(self, worker: ClientWorker) -> None:
        while isinstance(told := worker.told(), list):
            self.acknowledged.append(told)
        self.last.append(told)

    def await_more(self, more: int) -> None:
        wanted = min(len(self.acknowledged) + more, HANDOFFS * CHECKPOINTS)
        while len(self.acknowledged) < wanted:
            assert any(thread.is_alive() for thread in self._threads), self.last
            time.sleep(0.002)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def test_what_clients_were_told_is_there_after_kills_of_the_daemon(
    own_daemon: DaemonProcess, rng: random.Random
) -> None:
    daemon = own_daemon
    with WireClient(daemon.unix) as client:
        for number in range(HANDOFFS):
            client.dispatch(inputs={"number": number})
    with ExitStack() as stack:
        workers = [stack.enter_context(ClientWorker(daemon.tcp, flavour)) for flavour in ("async", "sync")]
        for worker in workers:
            worker.tell("serve", kind="work", checkpoints=CHECKPOINTS)
        heard = _Heard(workers)
        for _ in range(KILLS):
            heard.await_more(30)
            time.sleep(rng.random() / 50)  # At no moment of the workers' choosing.
            daemon.restart()
        heard.join()
    assert heard.last == ["nothing left"] * 2
    assert len(heard.acknowledged) == HANDOFFS * (CHECKPOINTS + 1)
    with WireClient(daemon.unix) as client:
        for what, handoff, *rest in heard.acknowledged:
            if what == "result":
                assert client.call("result", handoff=handoff)["result"] == rest[0]
            else:
                records = [record for record in client.history(handoff) if record["type"] == "checkpointed"]
                assert rest in [[record["seq"], record["sha256"]] for record in records]
        for status in client.call("list", limit=HANDOFFS)["handoffs"]:
            assert (status["status"], status["attempt"], status["seq"]) == ("completed", 1, CHECKPOINTS)


def test_a_namesake_that_is_alive_hides_no_loss(shared_daemon: DaemonProcess, standby: WireClient, kind: str) -> None:
    """A worker is started again under its own name before anybody has noticed, and goes on with other work."""
    lost = standby.dispatch(kind)
    with WorkerProcess(shared_daemon.tcp) as first, WorkerProcess(shared_daemon.tcp) as again:
        first.client.claim(handoff=lost, worker="name", ttl_ms=60_000)
        again.client.claim(handoff=standby.dispatch(kind, key="other"), worker="name", ttl_ms=60_000)
        waiting = standby.send("claim", worker="name", handoff=lost, wait_ms=60_000)
        first.kill()
        taken = standby.result(waiting)
        assert (taken["was"], taken["fence"]) == ("orphaned", 3)
        held = standby.call("list", worker="name", status="running")["handoffs"]
        assert sorted(one["fence"] for one in held) == [1, 3]


ENDS: dict[str, tuple[dict[str, Any], str]] = {
    "checkpoint": ({"state": 2}, "orphaned"),
    "complete": ({"result": 2}, "completed"),
    "fail": ({"error": {"type": "E", "message": "m"}, "delay_ms": 0}, "pending"),
    "release": ({}, "pending"),
    "suspend": ({}, "suspended"),
    "effect_begin": ({"step": "s"}, "orphaned"),
    "spend": ({"usd": 1}, "orphaned"),
}
"""Each way to go on from a running handoff: its members, and the status that follows once the worker is dead."""


@pytest.mark.parametrize("op", ENDS)
def test_a_worker_killed_within_a_request_has_made_it_or_not_and_others_go_on(
    shared_daemon: DaemonProcess, standby: WireClient, kind: str, rng: random.Random, op: str
) -> None:
    """Killed before the first byte, somewhere within, before the last, and behind it: nothing in between is ever seen."""
    members, made = ENDS[op]
    parts = ("none", "some", "all but one", "all")
    handoffs = [standby.dispatch(kind, key=part) for part in parts]
    with ExitStack() as stack:
        workers = [stack.enter_context(WorkerProcess(shared_daemon.tcp)) for _ in parts]
        for part, handoff, worker in zip(parts, handoffs, workers, strict=True):
            fence = worker.client.claim(handoff=handoff, ttl_ms=60_000)["fence"]
            asked = frame({"op": op, "id": 0, "handoff": handoff, "fence": fence, **members})
            size = {"none": 0, "some": rng.randrange(1, len(asked)), "all but one": len(asked) - 1, "all": len(asked)}
            worker.client.send_bytes(asked[: size[part]])
        workers[-1].client.reply(0)
        for worker in workers:
            worker.kill()
        for part, handoff in zip(parts, handoffs, strict=True):
            while (status := standby.status(handoff)["status"]) == "running":
                time.sleep(0.01)
            assert status == (made if part == "all" else "orphaned")
            _goes_on(standby, handoff, saved=op == "checkpoint" and part == "all")


def _goes_on(standby: WireClient, handoff: str, *, saved: bool) -> None:
    """Whoever comes next takes it from where it stands, and finishes it."""
    status = standby.status(handoff)["status"]
    if status == "suspended":
        standby.call("resume", handoff=handoff)
    if status != "completed":
        taken = standby.claim(handoff=handoff, ttl_ms=60_000)
        assert (taken["checkpoint"] is not None) == saved
        standby.call("complete", handoff=handoff, fence=taken["fence"], result=None)
