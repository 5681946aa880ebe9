"""What the keep-alive says over one connection, and what it makes of the answers.

Owns joining the session, one heartbeat frame for all leases, and asking why a lease wasn't renewed. It never waits for
the daemon to read: one that waits for its own answers to be read reads nothing either. Does not own the thread and its
connecting (`keepalive`), nor the rules (`leases`).
"""

import itertools
import selectors
import socket
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from dhp_protocol.errors import NotFound
from dhp_protocol.limits import MAX_LEASES, Limits
from dhp_protocol.messages import GetStatus, Heartbeat, Hello, LeaseRef, Request
from dhp_protocol.replies import (
    AnyEvent,
    CancelledEvent,
    HeartbeatReply,
    HelloReply,
    LeaseLostEvent,
    StatusReply,
)

from .clock import monotonic_ms
from .exceptions import ConnectionLost
from .leases import LeaseTable, Loss, loss_from_status
from .wire import Inbox, Reply, decode_reply, encode_request

LEAST_ANSWER_MS = 1_000
QUESTIONS_AT_ONCE = 64
"""So many lost leases are asked about together; the next ones when these are answered."""
RECEIVE_BYTES = 65_536


class _Asked(Struct, frozen=True):
    """A request that waits for its answer: when it was sent, and about which leases."""

    sent_ms: float
    leases: Sequence[LeaseRef]
    is_heartbeat: bool


class Heartbeats:
    """One connection's life after connecting. All of it runs in the keep-alive thread."""

    def __init__(self, connected: socket.socket, table: LeaseTable) -> None:
        self._socket = connected
        self._table = table
        self._limits = Limits()
        self._ids = itertools.count(1)
        self._inbox = Inbox()
        self._unsent = bytearray()
        self._asked: dict[int, _Asked] = {}
        self._unexplained: deque[LeaseRef] = deque()
        self._questioned: set[LeaseRef] = set()
        """Those in `_unexplained`, and those whose question has no answer yet."""

    def join(self, hello: Hello) -> None:
        """Says hello, waiting for the answer as long as the socket does; from then on nothing waits."""
        self._send(hello)
        welcome: HelloReply | None = None
        while welcome is None:
            # Nothing else is on its way yet, so the first reply is hello's.
            for item in self._inbox.feed(receive_some(self._socket)):
                if isinstance(item, Reply):
                    if item.error is not None:
                        raise item.error
                    welcome = decode_reply(item.body, HelloReply)
                else:
                    tell_table(self._table, item)
        self._limits = welcome.limits
        self._socket.setblocking(False)

    @property
    def interest(self) -> int:
        """What a selector is to watch the connection for."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def next_ms(self) -> float:
        """Until when there is nothing to do but to listen; infinite without leases and requests."""
        due_ms = self._table.next_beat_ms()
        return min(self._overdue_at_ms(), float("inf") if due_ms is None else due_ms)

    def go_on(self, ready: int) -> None:
        """Does what `ready`, the selector's word, allows and the time demands. Raises `ConnectionLost`, OSError."""
        if ready & selectors.EVENT_READ:
            self._receive()
        self._flush()
        now_ms = monotonic_ms()
        if now_ms > self._overdue_at_ms():
            raise ConnectionLost("no answer in time")
        due_ms = self._table.next_beat_ms()
        if due_ms is not None and now_ms >= due_ms:
            self.beat()

    def beat(self, *, first: bool = False) -> None:
        """Renews everything; `first` on this connection."""
        now_ms = monotonic_ms()
        leases = self._table.beat(now_ms, first=first)
        for start in range(0, len(leases), MAX_LEASES):
            some = leases[start : start + MAX_LEASES]
            self._ask(Heartbeat(id=next(self._ids), leases=some), _Asked(now_ms, some, is_heartbeat=True))

    def _ask(self, request: Request, asked: _Asked) -> None:
        assert isinstance(request.id, int)
        self._asked[request.id] = asked
        self._send(request)

    def _send(self, request: Request) -> None:
        self._unsent += encode_request(request, self._limits)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return  # The selector tells when there is room.

    def _receive(self) -> None:
        try:
            data = receive_some(self._socket)
        except BlockingIOError:
            return  # Over TLS, a part of what can only be read whole.
        for item in self._inbox.feed(data):
            if isinstance(item, Reply):
                self._answered(item)
            else:
                tell_table(self._table, item)
        self._ask_why()

    def _answered(self, reply: Reply) -> None:
        asked = self._asked.pop(reply.id, None) if isinstance(reply.id, int) else None
        if asked is None:
            if reply.error is not None:
                raise reply.error
        elif not asked.is_heartbeat:
            self._learned(asked.leases[0], reply)
        elif reply.error is None:
            self._renewed(asked, decode_reply(reply.body, HeartbeatReply))
        elif reply.error.retry == "no":
            raise reply.error
        # Any other error may pass: the next beat comes before the lease ends.

    def _renewed(self, asked: _Asked, answer: HeartbeatReply) -> None:
        renewed, lost, now_ms = set(answer.renewed), set(answer.lost), monotonic_ms()
        for lease in asked.leases:
            if lease.handoff in renewed:
                self._table.renewed(lease.handoff, lease.fence, asked.sent_ms, now_ms)
            elif lease.handoff in lost and lease not in self._questioned:
                self._questioned.add(lease)
                self._unexplained.append(lease)

    def _ask_why(self) -> None:
        """Why leases are lost, and whether anybody has them by now, is told by their status."""
        if len(self._questioned) > len(self._unexplained):
            return  # The questions before these aren't all answered.
        now_ms = monotonic_ms()
        for _ in range(min(QUESTIONS_AT_ONCE, len(self._unexplained))):
            lease = self._unexplained.popleft()
            request = GetStatus(id=next(self._ids), handoff=lease.handoff)
            self._ask(request, _Asked(now_ms, [lease], is_heartbeat=False))

    def _learned(self, lease: LeaseRef, reply: Reply) -> None:
        self._questioned.discard(lease)
        if isinstance(reply.error, NotFound):
            self._table.report(lease.handoff, lease.fence, Loss("superseded", lease.fence, "not_found"))
        elif reply.error is None:
            found = decode_reply(reply.body, StatusReply)
            self._table.report(lease.handoff, lease.fence, loss_from_status(found, lease.fence))
        # Any other error: the next heartbeat says "lost" again, and the question is asked again.

    def _overdue_at_ms(self) -> float:
        """When the oldest request will have waited too long."""
        oldest = next(iter(self._asked.values()), None)
        return float("inf") if oldest is None else oldest.sent_ms + self._answer_within_ms()

    def _answer_within_ms(self) -> float:
        beats = [lease.heartbeat_ms for lease in self._table.all()]
        return max(LEAST_ANSWER_MS, min(beats, default=0))


def tell_table(table: LeaseTable, event: AnyEvent) -> None:
    """Takes an event about a lease into `table`; other events are no business of leases."""
    if isinstance(event, LeaseLostEvent):
        fence = event.fence + 1  # The event comes with the very change that ended the lease.
        table.report(event.handoff, event.fence, Loss(event.why, fence, event.status))
    elif isinstance(event, CancelledEvent):
        table.report(event.handoff, event.fence, Loss("cancelled", event.fence + 1, "cancelled"))


def receive_some(connected: socket.socket) -> bytes:
    """What has arrived. Raises `ConnectionLost` when nothing more will."""
    data = connected.recv(RECEIVE_BYTES)
    if not data:
        raise ConnectionLost("the daemon has closed the connection")
    return data
