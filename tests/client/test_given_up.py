"""A checkpoint that was given up while nobody knew whether it counts: the next one goes on, whichever it was."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dhp_client
from dhp_protocol.errors import CheckpointConflict, StoreUnavailable
from dhp_protocol.replies import CheckpointReply, ClaimReply
from tests.client.fake_daemon import Connection, FakeDaemon, grant
from tests.client.waiting import until_async
from tests.support.in_process_daemon import InProcessDaemon
from tests.support.unreliable_store import Failure


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[InProcessDaemon]:
    """A daemon whose store can be made to fail."""
    with InProcessDaemon(tmp_path) as daemon:
        yield daemon


async def grants(connection: Connection, request: Any) -> ClaimReply:
    return grant()


@pytest.mark.parametrize("failure", ["kept", "lost"])
async def test_a_checkpoint_follows_one_that_was_given_up(failing: InProcessDaemon, failure: Failure) -> None:
    async with dhp_client.connect(failing.address, retry_ms=200) as client:
        await client.dispatch("k", {})
        async with client.claim(kinds="k") as task:
            await task.checkpoint("first")
            failing.store.away, failing.store.failure = True, failure
            with pytest.raises(dhp_client.DHPError):
                await task.checkpoint("given up")
            with pytest.raises(dhp_client.DHPError):
                await task.checkpoint("given up too")
            failing.store.away, failing.store.failure = False, None

            async def stored() -> bool:
                try:
                    await task.checkpoint("goes on")
                except StoreUnavailable:
                    return False
                return True

            await until_async(stored)
            found = await client.last_checkpoint(task.handoff)
            assert found is not None
            assert (found.state, found.seq) == ("goes on", task.seq)
            await task.checkpoint("and on")
            assert not task.lost


async def test_a_conflict_with_what_this_client_never_sent_is_told(fake: FakeDaemon) -> None:
    async def conflicts(connection: Connection, request: Any) -> CheckpointReply:
        raise CheckpointConflict("no", seq=request.seq, expected="0" * 64, got=request.sha256)

    fake.answers |= {"claim": grants, "checkpoint": conflicts}
    async with dhp_client.connect(fake.address) as client, client.claim(kinds="fetch") as task:
        with pytest.raises(CheckpointConflict):
            await task.checkpoint(1)
        assert task.seq == 0
