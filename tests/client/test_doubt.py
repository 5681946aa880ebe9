"""Nobody answers and the lease's own deadline passes: nothing is written, nothing is thrown away."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw

import dhp_client
from dhp_client.clock import monotonic_ms
from dhp_protocol.errors import AlreadyClaimed
from dhp_protocol.replies import (
    CheckpointReply,
    ClaimReply,
    CompleteReply,
    HeartbeatReply,
    LeaseLostEvent,
    StatusReply,
    StoredCheckpoint,
)
from tests.client.fake_daemon import HANDOFF, Connection, FakeDaemon, grant
from tests.client.losing import losing
from tests.client.test_leases import status
from tests.client.waiting import until
from tests.support.daemon_process import DaemonProcess

TTL_MS = 300


async def grants_shortly(connection: Connection, request: Any) -> ClaimReply:
    return grant(ttl_ms=TTL_MS)


async def stored(connection: Connection, request: Any) -> CheckpointReply:
    return CheckpointReply(seq=request.seq, sha256=request.sha256, duplicate=False)


async def silence(connection: Connection, request: Any) -> None:
    return None


async def test_no_write_leaves_after_the_clients_own_deadline(fake: FakeDaemon) -> None:
    renew = fake.answers["heartbeat"]
    fake.answers |= {"claim": grants_shortly, "checkpoint": stored, "heartbeat": silence}
    async with dhp_client.connect(fake.address) as client, client.claim(kinds="fetch") as task:
        await until(lambda: task.in_doubt)
        saving = asyncio.create_task(task.checkpoint(1))
        await asyncio.sleep(TTL_MS / 1000)
        assert not fake.of("checkpoint"), "the requests' connection is fine, but the lease may be over"
        assert not task.lost
        fake.answers["heartbeat"] = renew
        await saving
        order = [request.__struct_config__.tag for request in fake.received]
        assert order.index("heartbeat") < order.index("checkpoint")
        assert not task.in_doubt


async def test_an_answered_write_renews_like_a_heartbeat(fake: FakeDaemon) -> None:
    fake.answers |= {"claim": grants_shortly, "checkpoint": stored, "heartbeat": silence}
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        for n in range(10):
            await task.checkpoint(n)
            await asyncio.sleep(TTL_MS / 1000 / 5)
        assert not task.in_doubt


async def test_a_late_answer_does_not_make_a_lease_longer_than_it_is(fake: FakeDaemon) -> None:
    async def late(connection: Connection, request: Any) -> HeartbeatReply:
        await asyncio.sleep(0.9 * TTL_MS / 1000)
        return HeartbeatReply(renewed=[HANDOFF], lost=[])

    fake.answers |= {"claim": grants_shortly, "heartbeat": late, "checkpoint": stored}
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        lease = task._hold.lease
        await until(lambda: len(fake.of("heartbeat")) > 2)
        first_deadline = lease.deadline_ms
        await until(lambda: lease.deadline_ms > first_deadline)
        # It was moved just now, by an answer that took 270 of the 300 ms.
        assert lease.deadline_ms - monotonic_ms() < 0.5 * TTL_MS


async def test_a_body_runs_on_in_doubt_and_is_given_up_when_that_lasts_too_long(fake: FakeDaemon) -> None:
    fake.answers |= {"claim": grants_shortly, "heartbeat": silence}
    async with dhp_client.connect(fake.address, in_doubt_ms=400) as client:
        with losing() as lost:
            async with client.claim(kinds="fetch") as task:
                await until(lambda: task.in_doubt)
                await asyncio.sleep(60)
        assert lost.value.details["why"] == "in_doubt"


async def test_a_write_that_waits_in_doubt_is_told_when_it_lasts_too_long(fake: FakeDaemon) -> None:
    fake.answers |= {"claim": grants_shortly, "heartbeat": silence}
    async with dhp_client.connect(fake.address, in_doubt_ms=200) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        await until(lambda: task.in_doubt)
        with pytest.raises(dhp_client.LeaseLost):
            await task.complete(1)
    assert not fake.of("complete")


async def test_handing_back_in_doubt_is_tried_for_a_bounded_time(fake: FakeDaemon) -> None:
    fake.answers |= {"claim": grants_shortly, "heartbeat": silence}
    async with dhp_client.connect(fake.address, retry_ms=150) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        await until(lambda: task.in_doubt)
        with pytest.raises(dhp_client.InDoubt):
            await task.release()


def ended_once(fake: FakeDaemon, **checkpoint: Any) -> None:
    """The lease with fence 1 is gone at the first heartbeat, and nobody has claimed since."""

    async def claim(connection: Connection, request: Any) -> ClaimReply:
        if len(fake.of("claim")) == 1:
            return grant(ttl_ms=TTL_MS)
        kept = StoredCheckpoint(at="", **checkpoint) if checkpoint else None
        return grant(fence=3, ttl_ms=TTL_MS, checkpoint=kept)

    async def heartbeat(connection: Connection, request: Any) -> HeartbeatReply:
        gone = [lease.handoff for lease in request.leases if lease.fence == 1]
        return HeartbeatReply(renewed=[lease.handoff for lease in request.leases if lease.fence != 1], lost=gone)

    async def tell(connection: Connection, request: Any) -> StatusReply:
        return status("orphaned", 2)

    fake.answers |= {"claim": claim, "heartbeat": heartbeat, "status": tell, "checkpoint": stored}


async def test_a_lease_that_ended_unclaimed_is_claimed_again_by_id_and_writes_go_on(fake: FakeDaemon) -> None:
    ended_once(fake)
    async with dhp_client.connect(fake.address) as client, client.claim(kinds="fetch", worker="me") as task:
        await until(lambda: task.fence == 3)
        await task.checkpoint("on we go")
        assert (task.lost, task.in_doubt, task.attempt) == (False, False, 2)
    first, again = fake.of("claim")
    assert (again.handoff, again.worker, again.ttl_ms) == (HANDOFF, "me", TTL_MS)
    assert first.nonce != again.nonce
    assert [(request.seq, request.fence) for request in fake.of("checkpoint")] == [(1, 3)]


async def test_what_was_stored_by_somebody_else_meanwhile_is_not_overwritten(fake: FakeDaemon) -> None:
    ended_once(fake, seq=1, state=Raw(b"1"), sha256="6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b")
    async with dhp_client.connect(fake.address) as client:
        with losing():
            async with client.claim(kinds="fetch"):
                await asyncio.sleep(60)
    assert [(release.handoff, release.fence) for release in fake.of("release")] == [(HANDOFF, 3)]


async def test_an_end_that_somebody_used_is_a_loss(fake: FakeDaemon) -> None:
    ended_once(fake)
    claim = fake.answers["claim"]

    async def taken(connection: Connection, request: Any) -> Any:
        if len(fake.of("claim")) > 1:
            raise AlreadyClaimed("taken", handoff=HANDOFF, holder="other")
        return await claim(connection, request)

    async def tell(connection: Connection, request: Any) -> StatusReply:
        return status("running", 3) if len(fake.of("claim")) > 1 else status("orphaned", 2)

    fake.answers |= {"claim": taken, "status": tell}
    async with dhp_client.connect(fake.address) as client:
        with losing() as lost:
            async with client.claim(kinds="fetch"):
                await asyncio.sleep(60)
    assert lost.value.details == {"why": "superseded", "fence": 3, "status": "running"}


async def test_a_write_that_meets_the_end_first_is_carried_through_after_claiming_again(fake: FakeDaemon) -> None:
    ended_once(fake)

    async def refuse_the_old_fence(connection: Connection, request: Any) -> CompleteReply:
        if request.fence == 1:
            raise dhp_client.LeaseLost("no", why="expired", fence=2, status="orphaned")
        return CompleteReply(duplicate=False)

    fake.answers["complete"] = refuse_the_old_fence
    async with dhp_client.connect(fake.address) as client:
        async with client.claim(kinds="fetch") as task:
            await task.complete("done")
        assert (task.ended, task.lost) == ("completed", False)
    assert [request.fence for request in fake.of("complete")] == [1, 3]


async def test_an_event_that_tells_the_end_is_enough(fake: FakeDaemon) -> None:
    ended_once(fake)
    del fake.answers["status"]
    fake.answers["heartbeat"] = FakeDaemon()._renew_all
    async with dhp_client.connect(fake.address) as client, client.claim(kinds="fetch") as task:
        fake.connections[0].event(LeaseLostEvent(handoff=HANDOFF, fence=1, why="expired", status="orphaned"))
        await until(lambda: task.fence == 3)


async def test_a_daemon_that_is_away_for_many_ttls_costs_no_running_body_its_work(daemon: DaemonProcess) -> None:
    async with dhp_client.connect(daemon.address) as client:
        made = await client.dispatch("k", {})
        async with client.claim(kinds="k", ttl_ms=500) as task:
            await task.checkpoint({"page": 1})
            daemon.kill()
            await until(lambda: task.in_doubt)
            saving = asyncio.create_task(task.checkpoint({"page": 2}))
            await asyncio.sleep(1.1)
            assert not saving.done()
            await asyncio.to_thread(daemon.start)
            assert (await saving).seq == 2
            await task.complete("done")
        assert (await client.result(made.handoff)).result == "done"
