"""Where the daemon listens: addresses, and the sockets for them.

Owns how an address is written, which ones need tokens and TLS, and stale socket files. Sockets that a service manager hands over
have the same rules (`handed`).
"""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from dhp_protocol.places import host_and_port, host_port_text, is_loopback
from dhpd.config import Config, ConfigError

DEFAULT_TCP = "127.0.0.1:8471"
BACKLOG = 1024
MAX_UNIX_PATH_BYTES = 107


class UnixAddress(Struct, frozen=True):
    path: Path


class TcpAddress(Struct, frozen=True):
    """`places` are the numbers that `host` stood for when it was looked at: no others are listened on."""

    host: str
    port: int
    places: tuple[str, ...]


class AddressTaken(Exception):
    """Somebody else listens there; the message says where."""


def addresses_of(config: Config, data: Path) -> list[UnixAddress | TcpAddress]:
    """What the settings say; raises `ConfigError`."""
    if config.listen is None:
        return [_tcp(DEFAULT_TCP, config), _unix(str(data / "dhpd.sock"))]
    return [
        _unix(text.removeprefix("unix:")) if text.startswith("unix:") else _tcp(text, config) for text in config.listen
    ]


def _unix(text: str) -> UnixAddress:
    if not text:
        raise ConfigError("unix: needs a path, as in unix:/run/dhpd.sock.")
    path = Path(text).absolute()
    if len(os.fsencode(path)) > MAX_UNIX_PATH_BYTES:
        raise ConfigError(f"The socket's path may have {MAX_UNIX_PATH_BYTES} bytes: choose a shorter one than {path}.")
    return UnixAddress(path)


def _tcp(text: str, config: Config) -> TcpAddress:
    if text.startswith("tls://") and config.tls_cert is None:
        raise ConfigError(f"{text} needs a certificate: give --tls-cert FILE and --tls-key FILE.")
    found = host_and_port(text.removeprefix("tls://").removeprefix("tcp://"))
    if found is None:
        raise ConfigError(f"{text!r} is no address: write HOST:PORT or unix:PATH.")
    host, port = found
    places = _places_of(host)
    check_reach(host, places, config)
    return TcpAddress(host, port, places)


def check_reach(host: str, places: tuple[str, ...], config: Config) -> None:
    """Raises `ConfigError` where strangers could reach `host`, which stands for `places`, and nothing keeps them out."""
    missing = [
        flags
        for flags, given in (("--tokens", config.tokens), ("--tls-cert with --tls-key", config.tls_cert))
        if given is None
    ]
    if missing and not config.insecure and not all(map(is_loopback, places)):
        raise ConfigError(f"{host} can be reached from outside: add {' and '.join(missing)}, or --insecure.")


def _places_of(host: str) -> tuple[str, ...]:
    """The numbers of a host, all of them; just `host` where that stands for none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return (host,)
    return tuple(dict.fromkeys(str(place[0]) for *_, place in found))


async def listen(
    address: UnixAddress | TcpAddress, protocol: Callable[[], asyncio.BaseProtocol], *, tls: bool = False
) -> tuple[asyncio.Server, list[str]]:
    """Opens the address; gives the server, and its addresses as a client takes them. Raises `AddressTaken`.

    `tls` tells what `protocol` speaks.
    """
    loop = asyncio.get_running_loop()
    if isinstance(address, UnixAddress):
        sock = _bind_unix(address.path)
        return await loop.create_unix_server(protocol, sock=sock, backlog=BACKLOG), [f"unix:{address.path}"]
    try:
        server = await loop.create_server(protocol, address.places, address.port, backlog=BACKLOG)
    except OSError as error:
        raise AddressTaken(f"{address.host}:{address.port} can't be listened on: {_why(error)}.") from None
    except UnicodeError:
        raise AddressTaken(f"{address.host}:{address.port} can't be listened on: that is no host's name.") from None
    return server, [address_text("tls" if tls else "tcp", sock.getsockname()) for sock in server.sockets]


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            "another process does, perhaps another dhpd; choose where with --listen HOST:PORT (port 0 takes a free one)"
        )
    return error.strerror or str(error)


def address_text(scheme: str, name: tuple[str, int]) -> str:
    """As a client takes it."""
    return f"{scheme}://{host_port_text(*name[:2])}"


def _bind_unix(path: Path) -> socket.socket:
    """A socket that only this user can reach; a file that nobody listens on any more is replaced."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists():
            _remove_stale(path)
        before = os.umask(0o177)
        try:
            sock.bind(str(path))
        finally:
            os.umask(before)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise AddressTaken(f"unix:{path} can't be listened on: {error.strerror or error}.") from None
    except AddressTaken:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


class SocketFile:
    """A unix socket's file, as it was when this process bound it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = _identity(path)

    def remove(self) -> None:
        """Removes it, unless another process has put its own there since: closing a server leaves the file."""
        if self._identity is not None and _identity(self._path) == self._identity:
            self._path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def socket_files(addresses: list[str]) -> list[SocketFile]:
    """The files of those addresses that have one."""
    return [SocketFile(Path(text.removeprefix("unix:"))) for text in addresses if text.startswith("unix:")]


def _remove_stale(path: Path) -> None:
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise AddressTaken(f"unix:{path} can't be listened on: a file that is no socket is there.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
        except OSError as error:
            raise AddressTaken(f"unix:{path} can't be listened on: {error.strerror or error}.") from None
        else:
            raise AddressTaken(f"unix:{path} can't be listened on: another process does.")
