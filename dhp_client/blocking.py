"""Blocking sockets to a daemon, for threads.

Owns connecting them, and that a forked child closes them at whatever moment it was forked; the event loop opens its own
(`link`).
"""

import socket
from typing import Any

from . import forking
from .addresses import SocketAddress, TcpAddress


class OwnSocket(socket.socket):
    """A socket that a forked child doesn't keep, connected or not: known for that before there is a descriptor."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        forking.on_fork_in_child(self)
        super().__init__(*args, **kwargs)

    def after_fork_in_child(self) -> None:
        if self.fileno() >= 0:
            forking.close_raw(self.fileno())


def connect_blocking(address: SocketAddress, timeout_ms: float) -> socket.socket:
    """A connected socket whose operations take at most `timeout_ms` each. Raises OSError."""
    if not isinstance(address, TcpAddress):
        return _connected(OwnSocket(socket.AF_UNIX, socket.SOCK_STREAM), address.path, timeout_ms)
    problem: OSError = OSError("the host has no address")
    for family, kind, protocol, _, place in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
        try:
            connected = _connected(OwnSocket(family, kind, protocol), place, timeout_ms)
        except OSError as error:
            problem = error
            continue
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected
    raise problem


def _connected(opened: socket.socket, place: Any, timeout_ms: float) -> socket.socket:
    try:
        opened.settimeout(timeout_ms / 1000)
        opened.connect(place)
    except BaseException:
        opened.close()
        raise
    return opened
