"""What a connection's socket tells of its peer.

Owns the questions to the socket, and its settings; what follows from an answer is the connection's business.
"""

import asyncio
import select
import socket
from typing import Any

KEEPALIVE_IDLE_S = 15


def is_local(transport: asyncio.Transport) -> bool:
    """Whether the peer is on this machine, so that its end is seen at once."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return True
    host = str(peer[0])
    return host.startswith("127.") or host in ("::1", "::ffff:127.0.0.1")


def has_ended(sock: Any) -> bool:
    """Whether the peer will send nothing more, even if something that it sent is still to be read."""
    if sock is None or not hasattr(select, "POLLRDHUP"):
        return False
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


def keep_alive(sock: Any) -> None:
    """A peer whose host is gone is noticed, even when nothing is said."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", KEEPALIVE_IDLE_S), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
