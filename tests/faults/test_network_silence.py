"""Lines that go silent without an end: in both directions or one, for a moment or for good, with the peer alive or gone."""

import asyncio
from datetime import datetime

import pytest

import dhp_client
from tests.client.losing import losing
from tests.client.waiting import until
from tests.support.client_worker import ClientWorker
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy
from tests.support.wire_client import WireClient

TTL_MS = 600
CLOCK_SLACK_MS = 2
"""A record's time is a whole millisecond of the wall clock, a deadline one of the monotonic clock."""
DIRECTIONS = pytest.mark.parametrize("directions", [(), ("up",), ("down",)], ids=["both ways", "to it", "from it"])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that doesn't wait for the silent as long as it would in life."""
    monkeypatch.setattr("dhp_client.link.SILENCE_MS", 200)
    monkeypatch.setattr("dhp_client.connection.HELLO_TIMEOUT_MS", 200)
    monkeypatch.setattr("dhp_client.keepalive.HELLO_TIMEOUT_MS", 200)
    monkeypatch.setattr("dhp_client.heartbeats.LEAST_ANSWER_MS", 200)


def assert_a_full_lease(standby: WireClient, handoff: str, ttl_ms: int = TTL_MS) -> None:
    """By the daemon's own records, the lease lasted for its ttl at least after the last renewal that left a record."""
    records = standby.history(handoff)
    (ended,) = [record for record in records if record["type"] == "orphaned"]
    renewed = [record for record in records if record["n"] < ended["n"]][-1]
    lasted = datetime.fromisoformat(ended["at"]) - datetime.fromisoformat(renewed["at"])
    assert lasted.total_seconds() * 1000 >= ttl_ms - CLOCK_SLACK_MS


@DIRECTIONS
@pytest.mark.usefixtures("impatient")
async def test_swallowed_beyond_its_ttl_a_worker_is_refused_once_it_is_heard_again(
    standby: WireClient, proxy: Proxy, kind: str, directions: tuple[str, ...]
) -> None:
    handoff = standby.dispatch(kind)
    async with dhp_client.connect(proxy.address) as client:
        with losing() as lost:
            async with client.claim(kinds=kind, ttl_ms=TTL_MS) as task:
                await task.checkpoint({"page": 1})
                waiting = standby.send("claim", worker="standby", kinds=[kind], wait_ms=60_000)
                proxy.silence(*directions)
                taken = await asyncio.to_thread(standby.result, waiting)
                assert taken["checkpoint"]["state"] == {"page": 1}
                assert_a_full_lease(standby, handoff)
                standby.call("checkpoint", handoff=handoff, fence=taken["fence"], state={"page": 2})
                proxy.mend()
                await task.checkpoint({"page": "too late"})
        assert lost.value.details["why"] == "superseded"
    assert standby.call("last_checkpoint", handoff=handoff)["checkpoint"]["state"] == {"page": 2}


@DIRECTIONS
@pytest.mark.usefixtures("impatient")
async def test_swallowed_for_less_than_its_ttl_a_worker_goes_on_over_another_line(
    standby: WireClient, proxy: Proxy, kind: str, directions: tuple[str, ...]
) -> None:
    handoff = standby.dispatch(kind)
    async with dhp_client.connect(proxy.address) as client, client.claim(kinds=kind, ttl_ms=60_000) as task:
        proxy.silence(*directions)
        saving = asyncio.create_task(task.checkpoint({"page": 1}))
        await until(lambda: proxy.swallowed)
        proxy.mend()
        assert (await saving).seq == 1
        await task.complete("done")
    status = standby.status(handoff)
    assert (status["status"], status["attempt"], status["seq"], status["fence"]) == ("completed", 1, 1, 1)


async def test_held_up_for_a_moment_nothing_is_lost_and_nothing_is_said_twice(
    standby: WireClient, proxy: Proxy, kind: str
) -> None:
    handoff = standby.dispatch(kind)
    async with dhp_client.connect(proxy.address) as client, client.claim(kinds=kind) as task:
        proxy.hold()
        saving = asyncio.create_task(task.checkpoint({"page": 1}))
        await asyncio.sleep(0.2)
        assert standby.status(handoff)["seq"] == 0
        proxy.mend()
        assert not (await saving).duplicate
        assert proxy.connections == 2, "it is the same connection, and that of the heartbeats"


@pytest.mark.parametrize("flavour", ["async", "sync"])
def test_a_worker_that_vanished_without_a_word_is_replaced_when_its_lease_ends(
    standby: WireClient, proxy: Proxy, kind: str, flavour: str
) -> None:
    """Its host is gone: nobody ends its connections, which the daemon goes on having open."""
    handoff = standby.dispatch(kind)
    with ClientWorker(proxy.address, flavour) as worker:
        worker.call("claim", kinds=kind, ttl_ms=TTL_MS)
        worker.call("checkpoint", state={"page": 1})
        proxy.silence()
        worker.kill()
        taken = standby.claim(kind, wait_ms=60_000)
        assert (taken["handoff"], taken["checkpoint"]["state"]) == (handoff, {"page": 1})
        assert_a_full_lease(standby, handoff)


async def test_a_daemon_that_vanished_without_a_word_is_found_again_before_the_lease_ends(
    own_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host was reset: the old connections lead nowhere, and nobody says so. The heartbeats find out, for the calls too."""
    monkeypatch.setattr("dhp_client.link.SILENCE_MS", 600_000)
    with Proxy(own_daemon.tcp) as proxy:
        async with dhp_client.connect(proxy.address) as client:
            made = await client.dispatch("work", {})
            async with client.claim(kinds="work") as task:
                await task.checkpoint({"page": 1})
                begun_ms = task._hold.lease.deadline_ms
                await until(lambda: task._hold.lease.deadline_ms > begun_ms, "the heartbeats have their connection")
                proxy.silence()
                await asyncio.to_thread(own_daemon.restart)
                await until(lambda: proxy.swallowed)
                proxy.mend()
                assert (await task.checkpoint({"page": 2})).seq == 2
                await task.complete("done")
            assert [record["type"] for record in (await client.history(made.handoff)).records] == [
                *("dispatched", "claimed", "checkpointed", "checkpointed", "completed")
            ]


@pytest.mark.usefixtures("impatient")
async def test_a_waiting_claim_does_not_wait_for_ever_on_a_dead_line(
    standby: WireClient, proxy: Proxy, kind: str
) -> None:
    async with dhp_client.connect(proxy.address) as client:
        waiting = asyncio.ensure_future(client.claim(kinds=kind, wait_ms=600_000))
        await asyncio.sleep(0.1)
        proxy.silence()
        await until(lambda: proxy.swallowed)
        proxy.mend()
        handoff = standby.dispatch(kind)
        task = await waiting
        assert task is not None
        assert task.handoff == handoff
        await task.complete("done")
