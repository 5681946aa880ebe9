"""A daemon that no test hurts, a client of it, and a kind of work of each test's own."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

import dhp_client
from tests.support.daemon_process import DaemonProcess

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("a2a") / "data") as running:
        yield running


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[dhp_client.Client]:
    async with dhp_client.connect(daemon.address) as connected:
        yield connected


@pytest.fixture
def kind() -> str:
    return f"a2a-{next(_numbers)}"
