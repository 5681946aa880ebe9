"""One daemon for all of them, on real sockets, in a thread of the tests' own process: none of them hurts it."""

from collections.abc import AsyncIterator, Iterator

import pytest

import dhp_client
import dhp_client.sync
from tests.support.in_process_daemon import InProcessDaemon

MAX_STATE_BYTES = 256 * 1024
"""Less than usual, so that what is too large need not be very large."""


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where it is."""
    with InProcessDaemon(tmp_path_factory.mktemp("frameworks"), max_state_bytes=MAX_STATE_BYTES) as daemon:
        yield daemon.address


@pytest.fixture
async def client(address: str) -> AsyncIterator[dhp_client.Client]:
    async with dhp_client.connect(address) as client:
        yield client


@pytest.fixture
def sync_client(address: str) -> Iterator[dhp_client.sync.Client]:
    with dhp_client.sync.connect(address) as client:
        yield client
