"""Reading addresses."""

import os
from pathlib import Path

import pytest

from dhp_client.addresses import DirectoryAddress, TcpAddress, UnixAddress, parse_address, parse_addresses
from dhp_client.exceptions import BadAddress


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("tcp://127.0.0.1:8471", TcpAddress("127.0.0.1", 8471)),
        ("tcp://host", TcpAddress("host", 8471)),
        ("tcp://host:1/", TcpAddress("host", 1)),
        ("tcp://[::1]:9000", TcpAddress("::1", 9000)),
        ("unix:/run/dhpd.sock", UnixAddress("/run/dhpd.sock")),
        ("unix:///run/dhpd.sock", UnixAddress("/run/dhpd.sock")),
        ("/srv/work", DirectoryAddress(Path("/srv/work"))),
        (Path("/srv/work"), DirectoryAddress(Path("/srv/work"))),
        ("/srv/a:b", DirectoryAddress(Path("/srv/a:b"))),
    ],
)
def test_each_form_of_an_address_is_read(given: str | Path, meant: object) -> None:
    assert parse_address(given) == meant


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("tls://::1:8471", "tls://HOST:PORT"),
        ("http://host", "begins with"),
        ("localhost:8471", "tcp://localhost:8471"),
        ("tcp://", "HOST:PORT"),
        ("tcp://host:0", "HOST:PORT"),
        ("tcp://host:99999", "HOST:PORT"),
        ("tcp://::1:8471", "brackets"),
        ("unix:", "path"),
        ("", "empty"),
        (" \n", "empty"),
        ("/srv/\0", "NUL"),
        (Path("/srv/\0"), "NUL"),
    ],
)
def test_what_is_no_address_is_refused_with_a_hint(given: str | Path, hint: str) -> None:
    with pytest.raises(BadAddress, match=hint):
        parse_address(given)


@pytest.mark.parametrize("text", ["tcp://127.0.0.1:8471", "tcp://[::1]:9000", "unix:/run/dhpd.sock"])
def test_an_address_is_shown_as_it_is_given(text: str) -> None:
    assert str(parse_address(text)) == text


def test_without_an_address_the_environment_tells_or_the_directory_here(tmp_path: Path) -> None:
    assert parse_addresses(None, {"DHP_CONNECT": "tcp://host:1"}) == [TcpAddress("host", 1)]
    assert parse_addresses(None, {}) == [DirectoryAddress(Path.cwd() / ".dhp")]


def test_several_addresses_keep_their_order_and_none_is_refused() -> None:
    assert parse_addresses(["tcp://a:1", "unix:/b"]) == [TcpAddress("a", 1), UnixAddress("/b")]
    with pytest.raises(BadAddress):
        parse_addresses([])


def test_a_relative_directory_stays_where_it_was_after_a_chdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    address = parse_address("./work")
    monkeypatch.chdir(os.sep)
    assert address == DirectoryAddress(tmp_path / "work")
