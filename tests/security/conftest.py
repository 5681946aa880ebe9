"""What the tests of TLS share: an authority, a daemon that asks for certificates, and ways to speak to it."""

import socket
import ssl
from collections.abc import Callable, Iterator

import pytest

from tests.security.authority import Authority, Identity
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="session")
def server(authority: Authority) -> Identity:
    return authority.issue("127.0.0.1", "localhost")


@pytest.fixture(scope="session")
def ada(authority: Authority) -> Identity:
    return authority.issue("ada@example.org", "ada.example.org")


@pytest.fixture(scope="session")
def bob(authority: Authority) -> Identity:
    return authority.issue("bob.example.org", common_name="somebody else")


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, authority: Authority, server: Identity) -> Iterator[DaemonProcess]:
    """A daemon that asks for certificates, which no test may hurt."""
    flags = [*server.flags, "--tls-client-ca", str(authority.ca_file)]
    folder = tmp_path_factory.mktemp("mutual")
    listen = ("127.0.0.1:0", f"unix:{folder}/dhpd.sock")
    with DaemonProcess(folder / "data", listen=listen, arguments=flags) as daemon:
        yield daemon
    assert "Traceback" not in daemon.stderr
    assert "Fatal" not in daemon.stderr


@pytest.fixture
def speak(authority: Authority) -> Iterator[Callable[..., WireClient]]:
    """Opens raw connections over TLS; they are closed at the end of the test."""
    opened: list[WireClient] = []

    def open_one(daemon: DaemonProcess, identity: Identity | None = None) -> WireClient:
        opened.append(WireClient(encrypted(daemon, authority, identity)))
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


def encrypted(daemon: DaemonProcess, authority: Authority, identity: Identity | None = None) -> ssl.SSLSocket:
    """A connection that has shaken hands."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    if identity is not None:
        context.load_cert_chain(identity.cert_file, identity.key_file)
    return context.wrap_socket(plain(daemon), server_hostname="127.0.0.1")


def plain(daemon: DaemonProcess) -> socket.socket:
    """A TCP connection to where the daemon speaks TLS."""
    return socket.create_connection(("127.0.0.1", port_of(daemon)), timeout=30)


def port_of(daemon: DaemonProcess) -> int:
    address = next(address for address in daemon.addresses if address.startswith("tls://"))
    return int(address.rpartition(":")[2])
