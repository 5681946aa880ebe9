"""Which addresses may be listened on: those that can be reached from outside need tokens and TLS, or `--insecure`."""

import socket
from pathlib import Path
from typing import Any

import pytest

from dhpd.config import Config, ConfigError
from dhpd.server.listeners import TcpAddress, addresses_of

TOKENS = {"tokens": "t"}
TLS = {"tls_cert": "c", "tls_key": "k"}
OUTSIDE = [
    "0.0.0.0:1",
    "[::]:1",
    "192.0.2.1:1",
    "[2001:db8::1]:1",
    "[::ffff:192.0.2.1]:1",
    "[fe80::1%lo]:1",
    "outside.test:1",
    "both.test:1",
    "nowhere.test:1",
]
INSIDE = ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1", "inside.test:1"]
HOSTS = {
    "outside.test": ["192.0.2.7"],
    "both.test": ["127.0.0.1", "192.0.2.7", "127.0.0.1"],
    "inside.test": ["127.0.0.1", "::1"],
    "localhost": ["::1", "127.0.0.1"],
}


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = socket.getaddrinfo

    def look_up(host: str, *rest: Any, **options: Any) -> Any:
        if host == "nowhere.test":
            raise socket.gaierror(socket.EAI_NONAME, "no such host")
        return [found for place in HOSTS.get(host, [host]) for found in asked(place, *rest, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def looked_at(listen: str, **settings: Any) -> TcpAddress:
    (address,) = addresses_of(Config(listen=[listen], **settings), Path("/data"))
    assert isinstance(address, TcpAddress)
    return address


@pytest.mark.parametrize("listen", OUTSIDE)
def test_what_can_be_reached_from_outside_needs_tokens_and_tls_or_insecure(listen: str) -> None:
    for settings, missing in (
        ({}, "add --tokens and --tls-cert with --tls-key, or --insecure"),
        (TOKENS, "add --tls-cert with --tls-key, or --insecure"),
        (TLS, "add --tokens, or --insecure"),
        ({**TLS, "tls_client_ca": "ca"}, "add --tokens, or --insecure"),
    ):
        with pytest.raises(ConfigError, match="can be reached from outside") as refused:
            looked_at(listen, **settings)
        assert missing in str(refused.value)
    looked_at(listen, **TOKENS, **TLS)
    looked_at(listen, insecure=True)


@pytest.mark.parametrize("listen", INSIDE)
def test_loopback_needs_nothing(listen: str) -> None:
    looked_at(listen)


def test_a_host_is_looked_up_once_and_nothing_else_is_listened_on() -> None:
    assert looked_at("both.test:1", insecure=True).places == ("127.0.0.1", "192.0.2.7")
    assert looked_at("localhost:1").places == ("::1", "127.0.0.1")


def test_an_address_that_says_tls_needs_a_certificate() -> None:
    with pytest.raises(ConfigError, match="give --tls-cert FILE and --tls-key FILE"):
        looked_at("tls://127.0.0.1:1")
    assert looked_at("tls://127.0.0.1:1", **TLS).port == 1
