"""Sockets that a service manager opened and hands over: connections wait in them while no daemon runs, and a restart refuses nobody.

Owns which of them may be listened on, by the rules for every address, and which addresses of the settings they stand for. Does not
own how they are handed over (`dhpd.systemd.sockets`). Their files are the manager's: they are left where they are.
"""

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from dhpd.config import Config, ConfigError

from .listeners import BACKLOG, TcpAddress, UnixAddress, address_text, check_reach


class HandedSocket(Struct, frozen=True):
    """One of them; `address` is what the settings would have called it."""

    sock: socket.socket
    address: UnixAddress | TcpAddress


def handed_over(sockets: Sequence[tuple[str, socket.socket]], config: Config) -> list[HandedSocket]:
    """What may be listened on; raises `ConfigError` if any of it may not. `sockets`: each with its name."""
    return [HandedSocket(sock, _address(name, sock, config)) for name, sock in sockets]


def _address(name: str, sock: socket.socket, config: Config) -> UnixAddress | TcpAddress:
    place = sock.getsockname()
    if sock.family != socket.AF_UNIX:
        host, port = place[:2]
        check_reach(host, (host,), config)
        return TcpAddress(host, port, (host,))
    if isinstance(place, bytes) or not place:
        raise ConfigError(
            f"The socket {name} that was handed over has no file that says who may connect: give it a path."
        )
    path = Path(os.fsdecode(place))
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(
            f"The socket {name} that was handed over was bound to {path}, where nobody finds it: {error.strerror}. Restart the socket unit that opened it."
        ) from None
    if mode & stat.S_IWOTH and not config.insecure:
        raise ConfigError(
            f"Everybody on this machine may connect to {path} ({name}), as admin: set SocketMode=0660, or --insecure."
        )
    return UnixAddress(path)


def still_to_open(
    addresses: Sequence[UnixAddress | TcpAddress], handed: Sequence[HandedSocket], config: Config
) -> list[UnixAddress | TcpAddress]:
    """Which of the settings' addresses weren't handed over. Where the settings name none, what was handed over is all."""
    if handed and config.listen is None:
        return []
    return [address for address in addresses if not any(_same(address, each.address) for each in handed)]


def _same(address: UnixAddress | TcpAddress, handed: UnixAddress | TcpAddress) -> bool:
    if isinstance(address, TcpAddress) and isinstance(handed, TcpAddress):
        return address.port == handed.port and set(handed.places) <= set(address.places)
    return address == handed


async def serve_on(
    handed: HandedSocket, protocol: Callable[[], asyncio.BaseProtocol], *, tls: bool
) -> tuple[asyncio.Server, str]:
    """The server, and its address as a client takes it; `tls` tells what `protocol` speaks."""
    loop = asyncio.get_running_loop()
    if isinstance(handed.address, UnixAddress):
        return await loop.create_unix_server(protocol, sock=handed.sock, backlog=BACKLOG), f"unix:{handed.address.path}"
    server = await loop.create_server(protocol, sock=handed.sock, backlog=BACKLOG)
    return server, address_text("tls" if tls else "tcp", handed.sock.getsockname())
