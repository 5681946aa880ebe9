"""Blocking sockets to a daemon, for threads.

Owns connecting them, and that a forked child closes them at whatever moment it was forked; the event loop opens its own
(`link`).
"""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any, TypeVar

from . import forking
from .addresses import SocketAddress, TcpAddress, TlsAddress
from .trust import HANDSHAKE_WITHIN_MS

S = TypeVar("S", bound="OwnTlsSocket")


class OwnSocket(socket.socket):
    """A socket that a forked child doesn't keep, connected or not: known for that before there is a descriptor."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        forking.on_fork_in_child(self)
        super().__init__(*args, **kwargs)

    def after_fork_in_child(self) -> None:
        if self.fileno() >= 0:
            forking.close_raw(self.fileno())


class OwnTlsSocket(ssl.SSLSocket):
    """The same over TLS: once it doesn't block, what can't be done now is a BlockingIOError, as with any socket.

    `recv` is asked for more than a TLS record holds, so nothing decrypted stays behind that a selector wouldn't see.
    """

    def __new__(cls: type[S], *args: Any, **kwargs: Any) -> S:  # `ssl` makes it without calling its `__init__`.
        made = super().__new__(cls, *args, **kwargs)
        forking.on_fork_in_child(made)
        return made

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        with _may_block():
            return super().recv(buflen, flags)

    def send(self, data: Any, flags: int = 0) -> int:
        with _may_block():
            return super().send(data, flags)

    def shutdown(self, how: int) -> None:
        """Ends the sending side of the TCP connection alone, so that what comes can still be decrypted: `ssl` would give that up."""
        if how == socket.SHUT_WR:
            socket.socket.shutdown(self, how)
        else:
            super().shutdown(how)

    def after_fork_in_child(self) -> None:
        if self.fileno() >= 0:
            forking.close_raw(self.fileno())


@contextlib.contextmanager
def _may_block() -> Iterator[None]:
    try:
        yield
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        raise BlockingIOError("not before more has come or gone") from None


def connect_blocking(address: SocketAddress, timeout_ms: float) -> socket.socket:
    """A connected socket, encrypted where the address says so, whose operations take at most `timeout_ms` each. Raises OSError,
    `BadAddress`.
    """
    if not isinstance(address, TlsAddress):
        return reach(address, timeout_ms)
    context = address.trust.context()
    context.sslsocket_class = OwnTlsSocket
    plain = reach(address, timeout_ms)
    try:
        plain.settimeout(HANDSHAKE_WITHIN_MS / 1000)
        encrypted = context.wrap_socket(plain, server_hostname=address.server_name)
    except BaseException:
        plain.close()
        raise
    encrypted.settimeout(timeout_ms / 1000)
    return encrypted


def reach(address: SocketAddress, timeout_ms: float) -> socket.socket:
    """A socket connected to whoever accepts there, on which nothing has been said. Raises OSError."""
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
