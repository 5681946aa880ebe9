"""What the end-to-end tests of the daemon share: a real process, and connections to it that speak raw frames."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient, connections

Connect = Callable[..., WireClient]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon on TCP and on a unix socket."""
    with DaemonProcess(tmp_path / "data", listen=("127.0.0.1:0", f"unix:{tmp_path}/dhpd.sock")) as running:
        yield running
    assert_no_mistake(running)


def assert_no_mistake(daemon: DaemonProcess) -> None:
    """Its log tells of no mistake of its own; it never does by an answer alone."""
    assert "Traceback" not in daemon.stderr
    assert "Fatal" not in daemon.stderr


@pytest.fixture
def connect(daemon: DaemonProcess) -> Iterator[Connect]:
    """Opens connections to `daemon`, by TCP unless told another address; they are closed at the end of the test."""
    with connections(lambda: daemon.tcp) as open_one:
        yield open_one


@pytest.fixture
def client(connect: Connect) -> WireClient:
    """One connection, without `hello`."""
    return connect()
