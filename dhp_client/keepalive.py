"""The thread that keeps a client's leases alive, whatever the rest of the program is doing.

Owns the thread, connecting anew when its connection ends, and when what is held is released: when the client or its loop
ends without a word (the program: `exiting`). Does not own how that is said (`releasing`), what else is (`heartbeats`), the rules (`leases`)
nor claiming again (`hold`). A blocked event loop doesn't hold it up; native code that keeps the GIL does.
"""

import asyncio
import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Sequence

from dhp_protocol.errors import DHPError, Forbidden, Unauthenticated
from dhp_protocol.messages import Hello

from . import exiting, forking
from .addresses import Address
from .backoff import SHARE_OF_TTL, Backoff
from .blocking import connect_blocking
from .clock import monotonic_ms
from .exceptions import BadAddress, BadReply, ConnectionLost
from .heartbeats import Heartbeats
from .leases import LeaseTable, Loss
from .loop_watch import LoopWatch, place_of
from .releasing import place_of_running, release_all

log = logging.getLogger("dhp_client")

FIRST_PAUSE_MS = 20
MOST_PAUSE_MS = 1_000
CONNECT_TIMEOUT_MS = 2_000
HELLO_TIMEOUT_MS = 5_000
"""Longer than connecting: a daemon that has just come back to a crowd is slow, and whoever hangs up after it has taken in the
hello has a session that was seen and is gone, which costs the lease once the grace is over."""
LOOK_EVERY_MS = 1_000
"""A loop that is closed can't wake this thread, so it looks by itself."""


class _Stopped(Exception):
    """The thread is to end."""


class KeepAlive:
    """Renews what stands in `table` until it is stopped, or `loop`, on which the leases' work runs, is closed.

    `on_back` is called on `loop` when the daemon has answered on a connection after one that ended or wasn't to be had. While
    leases are held, a loop that doesn't run for `blocked_loop_ms` is told of in a warning (None: never).
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        table: LeaseTable,
        *,
        hello: Hello,
        loop: asyncio.AbstractEventLoop,
        on_back: Callable[[], None] = lambda: None,
        blocked_loop_ms: float | None = None,
    ) -> None:
        self._addresses = list(addresses)
        self._table = table
        self._hello = hello
        self._refused = 0  # Addresses in a row where the daemon didn't take this client.
        self._loop = loop
        self._on_back = on_back
        self._in_trouble = False
        self._loop_thread = threading.get_ident()
        self._watch = None if blocked_loop_ms is None else LoopWatch(blocked_loop_ms)
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._to_release = True
        self._wake_in: socket.socket | None = None
        self._wake_out: socket.socket | None = None
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Begins, unless it runs already."""
        if self._thread is not None or self._stopping:
            self.poke()
            return
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="dhp-keep-alive", daemon=True)
        exiting.running.add(self)
        self._thread.start()
        forking.on_fork_in_child(self)

    def poke(self) -> None:
        """Has it look again at once: there is a new lease, or the daemon is back.

        Takes no lock: a finalizer may come to this, also in the thread itself.
        """
        if self._wake_in is not None:
            # A full pipe is as good as one more byte in it, a closed one means that the thread is gone.
            with contextlib.suppress(OSError):
                self._wake_in.send(b"\0")

    def stop(self, *, release: bool) -> None:
        """Has it end soon, releasing what is held or leaving that to others. From any thread; the first word counts."""
        if not self._stopping:
            self._to_release, self._stopping = release, True
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
        exiting.running.discard(self)
        held, wake_in, self._socket, self._wake_in = self._socket, self._wake_in, None, None
        if wake_in is not None:
            wake_in.close()
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
                    self._end()
                    return
                except (Unauthenticated, Forbidden) as error:
                    self._addresses.append(self._addresses.pop(0))
                    self._refused += 1
                    if self._refused >= len(self._addresses):
                        self._give_up(error)
                        return
                except (OSError, ConnectionLost, BadAddress, BadReply, DHPError) as error:
                    log.debug("keep-alive: %s; connecting anew", error)
                except Exception:
                    log.exception("keep-alive: an error of its own; connecting anew")
                finally:
                    self._in_trouble = True
                    self._hang_up()
                if self._waits(backoff.next_ms(at_most_ms=self._table.shortest_ttl_ms() * SHARE_OF_TTL)):
                    self._end()
                    return
        finally:
            exiting.running.discard(self)
            if not self._stopping and len(self._table):
                log.error("keep-alive has ended: its leases are in doubt from now on")
            self._table.doubt_all(monotonic_ms())
            for end in (self._wake_in, self._wake_out):
                if end is not None:
                    end.close()

    def _waits(self, pause_ms: float) -> bool:
        """Waits for `pause_ms`, or until poked; whether it is time to end."""
        self._rest(pause_ms)
        return self._over()

    def _rest(self, pause_ms: float) -> None:
        assert self._wake_out is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_out, selectors.EVENT_READ)
            selector.select(pause_ms / 1000)
        self._swallow_pokes()

    def _over(self) -> bool:
        return self._stopping or self._loop.is_closed()

    def _serve(self, backoff: Backoff) -> None:
        """One connection's life."""
        connected = self._connect()
        self._socket = connected
        if self._over():
            raise _Stopped
        connected.settimeout(HELLO_TIMEOUT_MS / 1000)
        heartbeats = Heartbeats(connected, self._table)
        heartbeats.join(self._hello)
        self._refused = 0
        if self._in_trouble:
            self._in_trouble = False
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._on_back)
        backoff.reset()
        heartbeats.beat(first=True)
        assert self._wake_out is not None
        with selectors.DefaultSelector() as selector:
            selector.register(connected, heartbeats.interest)
            selector.register(self._wake_out, selectors.EVENT_READ)
            while True:
                selector.modify(connected, heartbeats.interest)
                until_ms = min(heartbeats.next_ms(), monotonic_ms() + self._look_at_the_loop())
                pause_ms = max(0.0, until_ms - monotonic_ms())
                ready = {key.fileobj: events for key, events in selector.select(pause_ms / 1000)}
                if self._wake_out in ready:
                    self._swallow_pokes()
                if self._over():
                    raise _Stopped
                for lease in self._table.take_forgotten(monotonic_ms()):
                    log.warning("the task of %s was dropped without an end: it isn't renewed any more", lease.handoff)
                heartbeats.go_on(ready.get(connected, 0))

    def _look_at_the_loop(self) -> float:
        """Warns, once, where it is blocked; gives when to look again, in milliseconds from now."""
        watch = self._watch
        if watch is None:
            return LOOK_EVERY_MS
        if not len(self._table):
            watch.rest()
            return LOOK_EVERY_MS
        asks, blocked_ms = watch.look(monotonic_ms())
        if asks:
            with contextlib.suppress(RuntimeError):  # It was closed, as this thread is about to see.
                self._loop.call_soon_threadsafe(self._loop_runs)
        if blocked_ms is not None:
            log.warning(
                "the event loop hasn't run for %.1f s: it is blocked in %s. Leases are kept alive meanwhile, and nothing else goes on.",
                blocked_ms / 1000,
                place_of(self._loop_thread),
            )
        return min(LOOK_EVERY_MS, watch.every_ms)

    def _loop_runs(self) -> None:
        self._loop_thread = threading.get_ident()
        if self._watch is not None:
            self._watch.answer()

    def _connect(self) -> socket.socket:
        problem: OSError = OSError("no address")
        for address in list(self._addresses):
            if self._over():
                raise _Stopped
            try:
                connected = connect_blocking(place_of_running(address), CONNECT_TIMEOUT_MS)
            except OSError as error:
                problem = error
                continue
            self._addresses.sort(key=lambda other, best=address: other != best)  # type: ignore[misc]
            return connected
        raise problem

    def _give_up(self, refusal: DHPError) -> None:
        """No daemon takes this client any more, so nothing can be renewed, and nothing released."""
        log.error("keep-alive: the daemon refuses this client, so its leases are lost: %s", refusal)
        self._stopping = True
        for lease in self._table.all():
            self._table.give_up(lease, Loss(refusal.code, lease.fence, ""))

    def _end(self) -> None:
        until_ms = monotonic_ms() + LOOK_EVERY_MS
        while not self._stopping and monotonic_ms() < until_ms:
            # The loop was closed. Whether the program crashes by what closed it, it tells when it ends.
            self._rest(LOOK_EVERY_MS)
        if self._to_release:
            self._release_held()

    def _release_held(self) -> None:
        leases = self._table.held(monotonic_ms())
        for lease in leases:  # Before anybody else may have them.
            self._table.give_up(lease, Loss("closed", lease.fence, ""))
        if leases:
            release_all(leases, self._addresses[0], self._hello, self._table)  # Where the daemon was seen last.

    def _swallow_pokes(self) -> None:
        assert self._wake_out is not None
        with contextlib.suppress(BlockingIOError):
            self._wake_out.recv(4096)

    def _hang_up(self) -> None:
        held, self._socket = self._socket, None
        if held is not None:
            held.close()
