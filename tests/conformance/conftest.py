"""One daemon for all conformance tests, over TCP and over a Unix socket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    directory: Path = tmp_path_factory.mktemp("conformance")
    with DaemonProcess(directory / "data", listen=("127.0.0.1:0", f"unix:{directory}/dhpd.sock")) as process:
        yield process


@pytest.fixture(scope="session")
def small_frames_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon that takes bodies of 8,192 bytes at most."""
    data = tmp_path_factory.mktemp("small-frames") / "data"
    limits = {"FRAME": "8192", "STATE": "1024", "RESULT": "1024", "INTENT": "1024"}
    with DaemonProcess(data, env={f"DHPD_MAX_{name}_BYTES": limit for name, limit in limits.items()}) as process:
        yield process


@pytest.fixture(scope="session", params=["tcp", "unix"])
def address(request: pytest.FixtureRequest, daemon: DaemonProcess) -> str:
    return daemon.tcp if request.param == "tcp" else daemon.unix
