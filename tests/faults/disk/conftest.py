"""What the tests of a failing disk share: a daemon whose calls on files fail when told to, and connections to it."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_process import DaemonProcess
from tests.support.fault_shim import FaultShim, compiled
from tests.support.wire_client import WireClient, connections

Connect = Callable[..., WireClient]

BALLAST_BYTES = 1024 * 1024
WITHIN_S = 30.0


@pytest.fixture(scope="session")
def shim_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = compiled(tmp_path_factory.mktemp("shim"))
    if library is None:
        pytest.skip("there is no C compiler to make the shim with")
    return library


@pytest.fixture
def shim(shim_library: Path, tmp_path: Path) -> FaultShim:
    return FaultShim(shim_library, tmp_path)


@pytest.fixture
def daemon(shim: FaultShim, tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon under the shim, with a small ballast, on a unix socket."""
    env = {**shim.env, "DHPD_BALLAST_BYTES": str(BALLAST_BYTES)}
    with DaemonProcess(tmp_path / "data", listen=(f"unix:{tmp_path}/dhpd.sock",), env=env) as running:
        yield running
    assert "Traceback" not in running.stderr


@pytest.fixture
def connect(daemon: DaemonProcess) -> Iterator[Connect]:
    """Opens connections to `daemon`; they are closed at the end of the test."""
    with connections(lambda: daemon.unix) as open_one:
        yield open_one


@pytest.fixture
def client(connect: Connect) -> WireClient:
    return connect()


def until_health(client: WireClient, status: str) -> dict[str, Any]:
    """Returns once `health` says so."""
    until = time.monotonic() + WITHIN_S
    while (health := client.call("health"))["status"] != status:
        assert time.monotonic() < until, f"health isn't {status}: {health}"
        time.sleep(0.01)
    return health


def insist(client: WireClient, op: str, **members: Any) -> dict[str, Any]:
    """Sends a request again and again for as long as the store is away, as a client does; gives the answer, good or not."""
    until = time.monotonic() + WITHIN_S
    while True:
        reply = client.reply(client.send(op, **members))
        if reply["ok"] or reply["error"]["code"] != "store_unavailable":
            return reply
        assert reply["error"]["retry"] == "later"
        assert time.monotonic() < until, f"the store stays away: {reply}"
        time.sleep(0.01)


@contextmanager
def in_transaction(daemon: DaemonProcess, begin: str) -> Iterator[None]:
    """Another process has the file open, in a transaction, and does nothing more."""
    script = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute(sys.argv[2]);"
        "db.execute('select count(*) from journal').fetchone(); print('there', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(daemon.data / "dhpd.sqlite"), begin]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        yield
        process.communicate(timeout=30)
