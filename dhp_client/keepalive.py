"""The thread that keeps a client's leases alive, whatever the rest of the program is doing.

Owns a blocking connection of its own in the client's session, one heartbeat frame for all leases, and hearing at once
that a lease is gone. Does not own the rules (`leases`) nor claiming again (`task`). A blocked event loop doesn't hold
it up; native code that keeps the GIL does.
"""

import asyncio
import contextlib
import itertools
import logging
import selectors
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from dhp_protocol.errors import DHPError, NotFound
from dhp_protocol.limits import MAX_LEASES, Limits
from dhp_protocol.messages import GetStatus, Heartbeat, Hello, LeaseRef, Request
from dhp_protocol.replies import AnyEvent, CancelledEvent, HeartbeatReply, HelloReply, LeaseLostEvent, StatusReply

from . import embedded, forking
from .addresses import Address, DirectoryAddress, SocketAddress
from .backoff import Backoff
from .blocking import connect_blocking
from .clock import monotonic_ms
from .exceptions import BadReply, ConnectionLost
from .leases import LeaseTable, Loss, loss_from_status
from .wire import Inbox, Reply, decode_reply, encode_request

log = logging.getLogger("dhp_client")

FIRST_PAUSE_MS = 20
MOST_PAUSE_MS = 1_000
CONNECT_TIMEOUT_MS = 2_000
LEAST_ANSWER_MS = 1_000
LOOK_EVERY_MS = 1_000
"""A loop that is closed can't wake this thread, so it looks by itself."""
RECEIVE_BYTES = 65_536


class _Stopped(Exception):
    """The thread is to end."""


@dataclass(frozen=True)
class _Asked:
    """A request that waits for its answer: when it was sent, and about which leases."""

    sent_ms: float
    leases: Sequence[LeaseRef]
    is_heartbeat: bool


def tell_table(table: LeaseTable, event: AnyEvent) -> None:
    """Takes an event about a lease into `table`; other events are no business of leases."""
    if isinstance(event, LeaseLostEvent):
        fence = event.fence + 1  # The event comes with the very change that ended the lease.
        table.report(event.handoff, event.fence, Loss(event.why, fence, event.status))
    elif isinstance(event, CancelledEvent):
        table.report(event.handoff, event.fence, Loss("cancelled", event.fence + 1, "cancelled"))


class KeepAlive:
    """Renews what stands in `table` until it is stopped, or `loop`, on which the leases' work runs, is closed."""

    def __init__(
        self,
        addresses: Sequence[Address],
        table: LeaseTable,
        *,
        name: str,
        session: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._addresses = list(addresses)
        self._table = table
        self._hello = Hello(client=name, session=session)
        self._loop = loop
        self._ids = itertools.count(1)
        self._limits = Limits()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._poked = threading.Event()
        self._wake_in: socket.socket | None = None
        self._wake_out: socket.socket | None = None
        self._socket: socket.socket | None = None
        self._inbox = Inbox()
        self._asked: dict[int, _Asked] = {}

    def start(self) -> None:
        """Begins, unless it runs already."""
        if self._thread is not None or self._stopping:
            self.poke()
            return
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="dhp-keep-alive", daemon=True)
        self._thread.start()
        forking.on_fork_in_child(self)

    def poke(self) -> None:
        """Has it look again at once: there is a new lease, or the daemon is back."""
        self._poked.set()
        if self._wake_in is not None:
            # A full pipe is as good as one more byte in it, a closed one means that the thread is gone.
            with contextlib.suppress(OSError):
                self._wake_in.send(b"\0")

    def stop(self) -> None:
        """Has it end soon; leases are no longer renewed. From any thread, more than once."""
        self._stopping = True
        self.poke()

    def join(self, timeout_ms: float) -> None:
        """Waits until the thread is gone."""
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def after_fork_in_child(self) -> None:
        self._stopping = True
        self._poked = threading.Event()  # The old one's lock may be held by a thread that doesn't exist here.
        held, self._socket, self._wake_in = self._socket, None, None
        if held is not None and held.fileno() >= 0:
            forking.close_raw(held.fileno())

    # What runs in the thread.

    def _run(self) -> None:
        backoff = Backoff(FIRST_PAUSE_MS, MOST_PAUSE_MS)
        try:
            while True:
                try:
                    self._serve(backoff)
                except _Stopped:
                    return
                except (OSError, ConnectionLost, BadReply, DHPError) as error:
                    log.debug("keep-alive: %s; connecting anew", error)
                except Exception:
                    log.exception("keep-alive: an error of its own; connecting anew")
                finally:
                    self._hang_up()
                if self._waits(backoff.next_ms()):
                    return
        finally:
            if not self._stopping and len(self._table):
                log.error("keep-alive has ended: its leases are in doubt from now on")
            self._table.doubt_all(monotonic_ms())
            for end in (self._wake_in, self._wake_out):
                if end is not None:
                    end.close()

    def _waits(self, pause_ms: float) -> bool:
        """Waits for `pause_ms`, or until poked; whether it is time to end."""
        self._poked.wait(pause_ms / 1000)
        self._poked.clear()
        return self._over()

    def _over(self) -> bool:
        return self._stopping or self._loop.is_closed()

    def _serve(self, backoff: Backoff) -> None:
        """One connection's life."""
        connected = self._connect()
        self._socket = connected
        if self._over():
            raise _Stopped
        self._inbox, self._asked = Inbox(), {}
        self._say_hello(connected)
        backoff.reset()
        self._beat(connected)
        assert self._wake_out is not None
        with selectors.DefaultSelector() as selector:
            selector.register(connected, selectors.EVENT_READ)
            selector.register(self._wake_out, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select(self._until_next_ms() / 1000)}
                if self._wake_out in ready:
                    self._swallow_pokes()
                if self._over():
                    raise _Stopped
                if connected in ready:
                    self._receive(connected)
                self._check_answers()
                due_ms = self._table.next_beat_ms()
                if due_ms is not None and monotonic_ms() >= due_ms:
                    self._beat(connected)

    def _connect(self) -> socket.socket:
        problem: OSError = OSError("no address")
        for address in list(self._addresses):
            if self._over():
                raise _Stopped
            try:
                connected = connect_blocking(_place_of(address), CONNECT_TIMEOUT_MS)
            except OSError as error:
                problem = error
                continue
            self._addresses.sort(key=lambda other, best=address: other != best)  # type: ignore[misc]
            return connected
        raise problem

    def _say_hello(self, connected: socket.socket) -> None:
        """Joins the session. Nothing else is on its way yet, so the first reply is hello's."""
        self._send(connected, self._hello)
        welcome: HelloReply | None = None
        while welcome is None:
            if self._over():
                raise _Stopped
            for item in self._inbox.feed(_receive_some(connected)):
                if isinstance(item, Reply):
                    if item.error is not None:
                        raise item.error
                    welcome = decode_reply(item.body, HelloReply)
                else:
                    tell_table(self._table, item)
        self._limits = welcome.limits

    def _beat(self, connected: socket.socket) -> None:
        now_ms = monotonic_ms()
        leases = self._table.beat(now_ms)
        for start in range(0, len(leases), MAX_LEASES):
            some = leases[start : start + MAX_LEASES]
            self._ask(connected, Heartbeat(id=next(self._ids), leases=some), _Asked(now_ms, some, is_heartbeat=True))

    def _ask(self, connected: socket.socket, request: Request, asked: _Asked) -> None:
        assert isinstance(request.id, int)
        self._asked[request.id] = asked
        self._send(connected, request)

    def _send(self, connected: socket.socket, request: Request) -> None:
        connected.sendall(encode_request(request, self._limits))

    def _receive(self, connected: socket.socket) -> None:
        for item in self._inbox.feed(_receive_some(connected)):
            if isinstance(item, Reply):
                self._answered(connected, item)
            else:
                tell_table(self._table, item)

    def _answered(self, connected: socket.socket, reply: Reply) -> None:
        asked = self._asked.pop(reply.id, None) if isinstance(reply.id, int) else None
        if asked is None:
            if reply.error is not None:
                raise reply.error
            return
        if not asked.is_heartbeat:
            self._learned(asked.leases[0], reply)
            return
        if reply.error is not None:
            if reply.error.retry == "no":
                raise reply.error
            return  # It may pass: the next beat comes before the lease ends.
        answer = decode_reply(reply.body, HeartbeatReply)
        renewed, lost, now_ms = set(answer.renewed), set(answer.lost), monotonic_ms()
        for lease in asked.leases:
            if lease.handoff in renewed:
                self._table.renewed(lease.handoff, lease.fence, asked.sent_ms, now_ms)
            elif lease.handoff in lost:  # Why, and whether anybody has it by now, is told by its status.
                request = GetStatus(id=next(self._ids), handoff=lease.handoff)
                self._ask(connected, request, _Asked(now_ms, [lease], is_heartbeat=False))

    def _learned(self, lease: LeaseRef, reply: Reply) -> None:
        if isinstance(reply.error, NotFound):
            self._table.report(lease.handoff, lease.fence, Loss("superseded", lease.fence, "not_found"))
        elif reply.error is None:
            found = decode_reply(reply.body, StatusReply)
            self._table.report(lease.handoff, lease.fence, loss_from_status(found, lease.fence))
        # Any other error: the next heartbeat says "lost" again, and the question is asked again.

    def _until_next_ms(self) -> float:
        """How long there is nothing to do but to listen."""
        now_ms = monotonic_ms()
        moments = [now_ms + LOOK_EVERY_MS]
        moments += [asked.sent_ms + self._answer_within_ms() for asked in self._asked.values()]
        due_ms = self._table.next_beat_ms()
        if due_ms is not None:
            moments.append(due_ms)
        return max(0.0, min(moments) - now_ms)

    def _check_answers(self) -> None:
        now_ms = monotonic_ms()
        if any(now_ms - asked.sent_ms > self._answer_within_ms() for asked in self._asked.values()):
            raise ConnectionLost("no answer in time")

    def _answer_within_ms(self) -> float:
        beats = [lease.heartbeat_ms for lease in self._table.all()]
        return max(LEAST_ANSWER_MS, min(beats, default=0))

    def _swallow_pokes(self) -> None:
        assert self._wake_out is not None
        self._poked.clear()
        with contextlib.suppress(BlockingIOError):
            self._wake_out.recv(4096)

    def _hang_up(self) -> None:
        held, self._socket = self._socket, None
        if held is not None:
            held.close()


def _place_of(address: Address) -> SocketAddress:
    """Never starts a daemon: that is the client's to decide."""
    return embedded.locate(address.directory) if isinstance(address, DirectoryAddress) else address


def _receive_some(connected: socket.socket) -> bytes:
    data = connected.recv(RECEIVE_BYTES)
    if not data:
        raise ConnectionLost("the daemon has closed the connection")
    return data
