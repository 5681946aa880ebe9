"""What the tests of faults share: a daemon to hurt, on TCP and on a unix socket, and connections that nothing hurts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy
from tests.support.wire_client import WireClient


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path / "data", listen=("127.0.0.1:0", f"unix:{tmp_path}/dhpd.sock")) as running:
        yield running
    assert "Traceback" not in running.stderr


@pytest.fixture
def standby(daemon: DaemonProcess) -> Iterator[WireClient]:
    """A connection in a session of its own, by the unix socket."""
    with WireClient(daemon.unix) as client:
        client.call("hello", session="standby")
        yield client


@pytest.fixture
def proxy(daemon: DaemonProcess) -> Iterator[Proxy]:
    with Proxy(daemon.tcp) as between:
        yield between
