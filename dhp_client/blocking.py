"""Blocking sockets to a daemon, for threads.

Owns connecting them; the event loop opens its own (`link`).
"""

import socket

from .addresses import SocketAddress, TcpAddress


def connect_blocking(address: SocketAddress, timeout_ms: float) -> socket.socket:
    """A connected socket whose operations take at most `timeout_ms` each. Raises OSError."""
    if isinstance(address, TcpAddress):
        connected = socket.create_connection((address.host, address.port), timeout=timeout_ms / 1000)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(timeout_ms / 1000)
        connected.connect(address.path)
    except BaseException:
        connected.close()
        raise
    return connected
