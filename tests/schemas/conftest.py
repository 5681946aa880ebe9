"""What the tests with a worker process, and those with a daemon, share."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from dhpd.sandbox.queueing import Queue
from dhpd.server.output_schemas import Schemas
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient, connections

from .support import SOON

Connect = Callable[[], WireClient]


@pytest.fixture
async def schemas() -> AsyncIterator[Schemas]:
    """With bounds that are reached soon."""
    queue = Queue(SOON)
    yield Schemas(queue)
    await queue.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture
def connect(daemon: DaemonProcess) -> Iterator[Connect]:
    """Opens connections to `daemon`; they are closed at the end of the test."""
    with connections(lambda: daemon.tcp) as open_one:
        yield open_one


@pytest.fixture
def client(connect: Connect) -> WireClient:
    return connect()
