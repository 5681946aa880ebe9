"""Giving back what a client holds when it ends without a word.

Owns saying so over a connection of its own, as well as that goes in a short time. When, and what is held, is `keepalive`'s.
"""

import logging
import socket
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from dhp_protocol.errors import DHPError
from dhp_protocol.limits import Limits
from dhp_protocol.messages import Hello, Release

from . import embedded
from .addresses import Address, DirectoryAddress, SocketAddress
from .blocking import connect_blocking
from .exceptions import BadAddress, BadReply, ConnectionLost
from .heartbeats import Heartbeats, receive_some
from .leases import Lease, LeaseTable
from .wire import Inbox, Reply, encode_request

log = logging.getLogger("dhp_client")

STEP_TIMEOUT_MS = 2_000
RELEASED_AT_ONCE = 64


def release_all(leases: Sequence[Lease], address: Address, hello: Hello, table: LeaseTable) -> None:
    """Releases `leases` at `address`; what can't be ends by itself, and is logged.

    Over another connection than the keep-alive's, which may stand in the middle of a frame.
    """
    try:
        with connect_blocking(place_of_running(address), STEP_TIMEOUT_MS) as connected:
            if hello.token is not UNSET:  # In a session of its own, which ends with this connection.
                Heartbeats(connected, table).join(msgspec.structs.replace(hello, session=UNSET))
                connected.settimeout(STEP_TIMEOUT_MS / 1000)
            for start in range(0, len(leases), RELEASED_AT_ONCE):
                _release(connected, leases[start : start + RELEASED_AT_ONCE])
    except (OSError, ConnectionLost, BadAddress, BadReply, DHPError) as error:
        log.warning("%d leases couldn't be given back, they end by themselves: %s", len(leases), error)


def place_of_running(address: Address) -> SocketAddress:
    """Where a daemon of `address` is. Never starts one: that is the client's to decide."""
    return embedded.locate(address.directory) if isinstance(address, DirectoryAddress) else address


def _release(connected: socket.socket, leases: Sequence[Lease]) -> None:
    """So few that they can be sent before an answer is read."""
    reason, limits = "its program let go of it", Limits()
    requests = [
        Release(id=number, handoff=lease.handoff, fence=lease.fence, reason=reason)
        for number, lease in enumerate(leases)
    ]
    connected.sendall(b"".join(encode_request(request, limits) for request in requests))
    inbox, answered = Inbox(), 0
    while answered < len(leases):
        answered += sum(isinstance(item, Reply) for item in inbox.feed(receive_some(connected)))
