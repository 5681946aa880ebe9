"""Getting work, or not."""

import asyncio
import hashlib
from typing import Any

import pytest
from msgspec import Raw

import dhp_client
from dhp_protocol.errors import LeaseLost
from dhp_protocol.replies import ClaimReply, NothingToClaim, StoredCheckpoint
from tests.client.fake_daemon import HANDOFF, INTENT, Connection, FakeDaemon, grant
from tests.client.waiting import until, until_async
from tests.support.daemon_process import DaemonProcess


async def test_a_task_shows_what_was_claimed(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {"url": "http://x", "n": [1, 2]})
    task = await client.claim(kinds=[kind, "other"], worker="me")
    assert task is not None
    assert (task.handoff, task.kind, task.inputs) == (made.handoff, kind, {"url": "http://x", "n": [1, 2]})
    assert hashlib.sha256(task.intent).hexdigest() == made.handoff
    assert (task.state, task.seq, task.fence, task.attempt, task.was) == (None, 0, 1, 1, "pending")
    assert (task.worker, task.lost, task.in_doubt, task.ended) == ("me", False, False, None)
    await task.release()


async def test_a_standby_goes_on_from_the_last_checkpoint(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    async with client.claim(made.handoff) as task:
        await task.checkpoint({"page": 19})
        await task.checkpoint({"page": 20})
    async with client.claim(made.handoff) as task:
        assert (task.state, task.seq, task.fence, task.attempt) == ({"page": 20}, 2, 3, 2)
        assert (await task.checkpoint({"page": 21})).seq == 3
        assert task.state == {"page": 21}
        await task.complete(None)


async def test_nothing_to_claim_is_none_or_an_exception_where_a_block_was_to_run(
    client: dhp_client.Client, kind: str
) -> None:
    assert await client.claim(kinds=kind) is None
    assert await client.claim(kinds=kind, wait_ms=30) is None
    with pytest.raises(dhp_client.NothingToClaim):
        async with client.claim(kinds=kind):
            pytest.fail("there was nothing to run this with")


async def test_a_waiting_claim_gets_what_is_dispatched_later(client: dhp_client.Client, kind: str) -> None:
    waiting = asyncio.create_task(_await(client.claim(kinds=kind, wait_ms=20_000)))
    await until_async(lambda: _waits(client))
    made = await client.dispatch(kind, {})
    task = await waiting
    assert task is not None
    assert task.handoff == made.handoff
    await task.complete(None)


async def test_a_claim_says_what_it_wants(client: dhp_client.Client) -> None:
    with pytest.raises(ValueError):
        client.claim()
    with pytest.raises(ValueError):
        client.claim("a" * 64, kinds="k")


async def test_only_what_is_orphaned_is_recovered(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    with pytest.raises(dhp_client.DHPError):
        await client.recover(made.handoff)
    assert (await client.status(made.handoff)).status == "pending"


async def test_what_somebody_holds_is_already_claimed(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    async with client.claim(made.handoff) as task:
        with pytest.raises(dhp_client.AlreadyClaimed):
            await client.claim(made.handoff)
        await task.complete(1)
    with pytest.raises(dhp_client.NotClaimable):
        await client.claim(made.handoff)


async def test_a_cancelled_wait_takes_nothing_away(client: dhp_client.Client, kind: str) -> None:
    waiting = asyncio.create_task(_await(client.claim(kinds=kind, wait_ms=60_000)))
    await until_async(lambda: _waits(client))
    waiting.cancel()
    await until_async(lambda: _waits_no_more(client))
    made = await client.dispatch(kind, {})
    assert (await client.status(made.handoff)).attempt == 0


async def test_a_claim_that_is_cancelled_while_it_is_being_granted_is_given_back(fake: FakeDaemon) -> None:
    asked: list[Any] = []

    async def grant_late(connection: Connection, request: Any) -> ClaimReply | None:
        asked.append(request)
        # The first sending is granted, but its answer never comes; the same nonce gets the same lease.
        return None if len(asked) == 1 else grant(fence=5)

    fake.answers["claim"] = grant_late
    async with dhp_client.connect(fake.address) as client:
        waiting = asyncio.create_task(_await(client.claim(kinds="fetch", wait_ms=60_000)))
        await until(lambda: asked)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: fake.of("release"))
    first, withdrawn = asked
    assert first.nonce == withdrawn.nonce
    assert withdrawn.wait_ms == 0
    (released,) = fake.of("release")
    assert (released.handoff, released.fence) == (HANDOFF, 5)


async def test_every_claim_has_a_nonce_of_its_own(fake: FakeDaemon) -> None:
    async with dhp_client.connect(fake.address) as client:
        for _ in range(3):
            assert await client.claim(kinds="fetch") is None
    assert len({claim.nonce for claim in fake.of("claim")}) == 3


async def test_a_claim_that_was_not_answered_is_sent_again_with_its_nonce_and_the_time_left(fake: FakeDaemon) -> None:
    async def drop_the_first(connection: Connection, request: Any) -> NothingToClaim | None:
        if len(fake.of("claim")) == 1:
            await asyncio.sleep(0.05)
            connection.drop()
            return None
        return NothingToClaim()

    fake.answers["claim"] = drop_the_first
    async with dhp_client.connect(fake.address) as client:
        assert await client.claim(kinds="fetch", wait_ms=10_000) is None
    first, second = fake.of("claim")
    assert first.nonce == second.nonce
    assert second.wait_ms < first.wait_ms <= 10_000


async def test_a_lease_that_ended_before_its_answer_came_is_asked_for_anew(fake: FakeDaemon) -> None:
    async def too_late_once(connection: Connection, request: Any) -> ClaimReply:
        if len(fake.of("claim")) == 1:
            raise LeaseLost("too late", why="expired", fence=2, status="orphaned")
        return grant(fence=3)

    fake.answers["claim"] = too_late_once
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch")
        assert task is not None
        assert task.fence == 3
        first, second = fake.of("claim")
        assert first.nonce != second.nonce


async def test_a_wait_longer_than_the_daemon_allows_is_waited_in_parts(fake: FakeDaemon) -> None:
    fake.limits = type(fake.limits)(max_wait_ms=10)

    async def after_three(connection: Connection, request: Any) -> ClaimReply | NothingToClaim:
        await asyncio.sleep(0.01)
        return grant() if len(fake.of("claim")) == 3 else NothingToClaim()

    fake.answers["claim"] = after_three
    async with dhp_client.connect(fake.address) as client:
        assert await client.claim(kinds="fetch", wait_ms=10_000) is not None


async def test_a_lease_that_was_waited_for_is_renewed_before_it_is_handed_out(fake: FakeDaemon) -> None:
    async def slow(connection: Connection, request: Any) -> ClaimReply:
        await asyncio.sleep(0.3)
        return grant(ttl_ms=600)

    fake.answers["claim"] = slow
    async with dhp_client.connect(fake.address) as client:
        task = await client.claim(kinds="fetch", wait_ms=10_000)
        assert task is not None
        assert fake.of("heartbeat"), "when it was granted isn't known, so it counts from a renewal"
        assert not task.in_doubt


STATE = b'{"page":7}'


@pytest.mark.parametrize(
    "reply",
    [
        grant(intent=INTENT.replace(b"1", b"2")),
        grant(checkpoint=StoredCheckpoint(seq=1, state=Raw(STATE), sha256="0" * 64, at="")),
    ],
    ids=["intent", "checkpoint"],
)
async def test_what_was_changed_is_not_handed_out_but_given_back(fake: FakeDaemon, reply: ClaimReply) -> None:
    async def changed(connection: Connection, request: Any) -> ClaimReply:
        return reply

    fake.answers["claim"] = changed
    async with dhp_client.connect(fake.address) as client:
        with pytest.raises(dhp_client.IntegrityError):
            await client.claim(kinds="fetch")
        assert [release.fence for release in fake.of("release")] == [1]


async def test_a_waiting_claim_survives_the_daemons_restart(daemon: DaemonProcess) -> None:
    async with dhp_client.connect(daemon.address) as client:
        waiting = asyncio.create_task(_await(client.claim(kinds="k", wait_ms=50_000)))
        await until_async(lambda: _waits(client))
        await asyncio.to_thread(daemon.restart)
        await client.dispatch("k", {})
        task = await waiting
        assert task is not None
        await task.complete(None)


async def _await(claiming: Any) -> dhp_client.Task | None:
    task: dhp_client.Task | None = await claiming
    return task


async def _waits(client: dhp_client.Client) -> bool:
    return (await client.stats()).waiting_claims > 0


async def _waits_no_more(client: dhp_client.Client) -> bool:
    return (await client.stats()).waiting_claims == 0
