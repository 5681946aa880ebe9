"""What the tests of faults share: daemons on TCP and on a unix socket, and connections that nothing hurts."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess
from tests.support.namespaces import Network, missing
from tests.support.proxy import Proxy
from tests.support.wire_client import WireClient

_numbers = itertools.count(1)


def running(folder: Path) -> Iterator[DaemonProcess]:
    """A daemon, whose log tells of no mistake of its own at the end."""
    with DaemonProcess(folder / "data", listen=("127.0.0.1:0", f"unix:{folder}/dhpd.sock")) as started:
        yield started
    assert "Traceback" not in started.stderr


@pytest.fixture(scope="session")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon that no test may end; who pauses it resumes it."""
    yield from running(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def own_daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon that is this test's own."""
    yield from running(tmp_path)


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    """Three hosts; who stops their traffic mends it."""
    why = missing()
    if why is not None:
        pytest.skip(f"needs network namespaces: {why}")
    with Network() as made:
        yield made


@pytest.fixture
def kind() -> str:
    """A kind that no other test uses."""
    return f"kind-{next(_numbers)}"


@pytest.fixture
def standby(shared_daemon: DaemonProcess) -> Iterator[WireClient]:
    """A connection in a session of its own, by the unix socket."""
    with WireClient(shared_daemon.unix) as client:
        client.call("hello", session=f"standby-{next(_numbers)}")
        yield client


@pytest.fixture
def proxy(shared_daemon: DaemonProcess) -> Iterator[Proxy]:
    with Proxy(shared_daemon.tcp) as between:
        yield between
