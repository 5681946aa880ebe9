"""Daemons for the client's tests: a shared one for tests that only use it, and one of its own for those that hurt it."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import dhp_client
from tests.client.fake_daemon import FakeDaemon
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon that no test may hurt."""
    with DaemonProcess(tmp_path_factory.mktemp("shared") / "data") as daemon:
        yield daemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon that is this test's own."""
    with DaemonProcess(tmp_path / "data") as daemon:
        yield daemon


@pytest.fixture
def kind() -> str:
    """A kind that no other test uses."""
    return f"kind-{next(_numbers)}"


@pytest.fixture
async def client(shared_daemon: DaemonProcess) -> AsyncIterator[dhp_client.Client]:
    async with dhp_client.connect(shared_daemon.address) as client:
        yield client


@pytest.fixture
async def fake() -> AsyncIterator[FakeDaemon]:
    async with FakeDaemon() as fake:
        yield fake


@pytest.fixture
def proxy_to() -> Iterator[Callable[[DaemonProcess], Proxy]]:
    """Makes proxies that are gone after the test."""
    proxies: list[Proxy] = []

    def make(daemon: DaemonProcess) -> Proxy:
        proxies.append(Proxy(daemon.tcp))
        return proxies[-1]

    yield make
    for proxy in proxies:
        proxy.close()
