"""Where a daemon is: the forms of an address and what each means.

Owns reading addresses. Does not own connecting to them (`connection`, `keepalive`), nor the daemon that a directory
stands for (`embedded`).
"""

import errno
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from .exceptions import BadAddress
from .trust import Trust, trust_from, why_untrusted

DEFAULT_PORT = 8471
ENVIRONMENT_VARIABLE = "DHP_CONNECT"
DEFAULT_DIRECTORY = ".dhp"
MAX_SOCKET_PATH_BYTES = 107
"""What Linux takes; some event loops cut off the rest without a word."""

_HOST_AND_PORT = re.compile(r"^[\w.-]+:\d+\Z")


class TcpAddress(Struct, frozen=True):
    """A daemon behind a TCP port."""

    host: str
    port: int

    scheme: ClassVar = "tcp"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class TlsAddress(TcpAddress, frozen=True):
    """A daemon behind a TCP port that speaks TLS."""

    trust: Trust

    scheme: ClassVar = "tls"

    @property
    def server_name(self) -> str:
        """The name that its certificate must hold."""
        return self.trust.server_name or self.host

    def __str__(self) -> str:
        return super().__str__()


class UnixAddress(Struct, frozen=True):
    """A daemon behind a unix socket."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


class DirectoryAddress(Struct, frozen=True):
    """The daemon of a data directory, started when none runs there."""

    directory: Path

    def __str__(self) -> str:
        return str(self.directory)


SocketAddress = TcpAddress | UnixAddress
Address = SocketAddress | DirectoryAddress
AddressLike = str | os.PathLike[str]


def parse_addresses(
    given: AddressLike | Iterable[AddressLike] | None,
    environment: Mapping[str, str] = os.environ,
    trust: Trust | None = None,
) -> list[Address]:
    """The addresses to try in turn. None means `$DHP_CONNECT`, else the directory `.dhp` where the program stands.

    `trust` is what TLS goes by (None: what the environment says). Relative paths are resolved now, so that a later chdir changes nothing. Raises `BadAddress`.
    """
    if given is None:
        given = environment.get(ENVIRONMENT_VARIABLE) or os.path.join(os.curdir, DEFAULT_DIRECTORY)
    if isinstance(given, str | os.PathLike):
        given = [given]
    addresses = [parse_address(address, trust) for address in given]
    if not addresses:
        raise BadAddress("There is no address to connect to: give at least one.")
    return addresses


def parse_address(given: AddressLike, trust: Trust | None = None) -> Address:
    """One address: `tcp://HOST:PORT`, `tls://HOST:PORT`, `unix:PATH`, or a directory."""
    if not isinstance(given, str):
        given = os.fsdecode(given)
        _check_path(given)
        return DirectoryAddress(Path(given).absolute())
    if not given.strip():
        raise BadAddress("The address is empty: leave it out, or write tcp://HOST:PORT, unix:PATH, or a directory.")
    _check_path(given)
    scheme, separator, rest = given.partition("://")
    if separator and scheme == "tcp":
        return _tcp(given, rest)
    if separator and scheme == "tls":
        plain = _tcp(given, rest)
        return TlsAddress(plain.host, plain.port, trust or trust_from())
    if separator and scheme != "unix":
        raise BadAddress(f"{given}: an address begins with tcp://, tls:// or unix:, or is a directory.")
    if given.startswith("unix:"):
        path = rest if separator else given.removeprefix("unix:")
        if not path:
            raise BadAddress(f"{given}: the path of the socket is missing.")
        path = os.path.abspath(path)
        if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            raise BadAddress(f"{given}: too long, a socket's whole path may have {MAX_SOCKET_PATH_BYTES} bytes.")
        return UnixAddress(path)
    if _HOST_AND_PORT.match(given):
        raise BadAddress(f"{given}: write tcp://{given}, or ./{given} if it is a directory.")
    return DirectoryAddress(Path(given).absolute())


def unusable(address: Address, error: Exception) -> BadAddress | None:
    """What to say of a first failure at `address` that waiting won't mend; None where the daemon may just not be up yet."""
    untrusted = why_untrusted(address, error) or why_untrusted(address, error.__cause__)
    if untrusted is not None:
        return untrusted
    if isinstance(error, socket.gaierror | UnicodeError):
        return BadAddress(f"{address}: there is no host of that name ({error}): check it, or give its number.")
    if not isinstance(error, OSError):
        return None
    why = "it is no directory" if error.errno == errno.EEXIST else error.strerror or str(error)
    if isinstance(address, DirectoryAddress):
        if error.filename is None:  # It comes from a socket, whose daemon may just be ending.
            return None
        at = f" ({error.filename})" if str(error.filename) != str(address) else ""
        return BadAddress(f"{address} can't be a daemon's directory: {why}{at}. Give a directory you can write to.")
    if isinstance(address, UnixAddress) and os.path.isdir(address.path):
        return BadAddress(f"{address} is a directory: give it without unix:, or name the socket in it.")
    if error.errno not in _NEVER:
        return None
    return BadAddress(f"{address} can't be connected to: {why}. Check the address, and who may use it.")


_NEVER = frozenset(
    (
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.ENOTSOCK,
        errno.EPROTOTYPE,
        errno.EINVAL,
        errno.EAFNOSUPPORT,
    )
)


def _check_path(given: str) -> None:
    if "\0" in given:
        raise BadAddress(f"{given!r} holds a NUL character, which no address has.")


def _tcp(given: str, rest: str) -> TcpAddress:
    rest = rest.removesuffix("/")
    match = re.match(r"^(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:/@\s]+))(?::(?P<port>\d{1,5}))?\Z", rest)
    port = DEFAULT_PORT if match is None or match["port"] is None else int(match["port"])
    if match is None or not 0 < port < 65536:
        scheme = given.partition("://")[0]
        raise BadAddress(f"{given}: write {scheme}://HOST:PORT, with an IPv6 address in brackets.")
    return TcpAddress(match["v6"] or match["host"], port)
