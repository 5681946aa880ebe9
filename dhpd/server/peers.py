"""What a connection's socket tells of its peer.

Owns the questions to the socket, and its settings; what follows from an answer is the connection's business.
"""

import asyncio
import select
import socket
import sys
from typing import Any

PROBES = 6
"""The system's own bound, for where it can't be told how long a peer was unheard."""
_LAST_ACK_AT = 56
"""Of `tcpi_last_ack_recv` in Linux's `struct tcp_info`."""


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


def keep_alive(sock: Any, vanished_ms: int) -> None:
    """Has the peer's host asked often enough whether it is there that `unheard_ms` of one that is stays well below `vanished_ms`."""
    if not _is_tcp(sock):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle_s, again_s = max(1, vanished_ms // 3_000), max(1, vanished_ms // 9_000)
    for option, value in (("TCP_KEEPIDLE", idle_s), ("TCP_KEEPINTVL", again_s), ("TCP_KEEPCNT", PROBES)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def unheard_ms(sock: Any) -> int:
    """For how long the peer's host has confirmed nothing, not even that it is there; 0 where that can't be told.

    `TCP_USER_TIMEOUT` would tell it as well, but takes a peer that is there and doesn't read for one that is gone.
    """
    if not _is_tcp(sock) or not hasattr(socket, "TCP_INFO"):
        return 0
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_ACK_AT + 4)
    return int.from_bytes(info[_LAST_ACK_AT:], sys.byteorder) if len(info) == _LAST_ACK_AT + 4 else 0


def _is_tcp(sock: Any) -> bool:
    return sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6)
