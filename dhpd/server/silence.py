"""Silence: connections from which nothing comes, or not enough.

Owns who has been silent the longest, and what follows: who has nothing open and doesn't speak is closed after a while, or
earlier where another one needs the place; a frame that doesn't come to its end is given up; a host that has vanished is
found. Does not own what is open on a connection (`desk`), nor how one ends (`connection`).
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dhp_protocol.errors import BadFrame, Overloaded
from dhp_protocol.replies import LimitsHit
from dhpd.config import Config

from .room import Room

if TYPE_CHECKING:
    from .connection import Connection

LOOK_EVERY_S = 1.0
SHORTEST_LOOK_S = 0.05
"""However short a time is set: a look at very many connections takes milliseconds."""
PROGRESS_BYTES = 64 * 1024
"""An unfinished frame that grew by so much in its time has that time anew: the slowest that is waited for."""
SPARED_S = 1.0
"""Who spoke so short a time ago isn't closed to make room."""
LOOKS_FOR_ROOM = 64
"""So many are looked at for one place at most."""
MAX_LEAVING = 32
"""So many who make room may still be on their way out: each has an open file until then."""
LOOKS_AT_ONCE = 500
"""After so many connections the loop has its turn."""


class Opened(Protocol):
    """What is known of connections elsewhere."""

    def is_idle(self, connection: "Connection") -> bool:
        """Whether nothing of it is open: it holds no lease, waits for nothing, watches nothing, and is owed no answer."""

    def has_said_hello(self, connection: "Connection") -> bool:
        """Whether it is known whose it is."""


class _Mark(NamedTuple):
    """How far an unfinished frame was when its time began; `noticed`: it was too slow at the last look as well."""

    since_s: float
    frames: int
    received_bytes: int
    noticed: bool = False


class Silence:
    def __init__(
        self, config: Config, clock_s: Callable[[], float], hits: LimitsHit, unsent: "Room[Connection]"
    ) -> None:
        """`unsent` are those who hold answers that aren't read."""
        self._clock_s = clock_s
        self._hits = hits
        self._unsent = unsent
        self._idle_s = config.idle_ms / 1000
        self._frame_s = config.frame_within_ms / 1000
        self._vanished_ms = config.vanished_ms
        shortest_s = min(self._idle_s, self._frame_s, config.vanished_ms / 1000)
        self.every_s = max(SHORTEST_LOOK_S, min(LOOK_EVERY_S, shortest_s / 4))
        """So often is looked."""
        self.opened: Opened
        """Who knows what is open; there is nobody before the start."""
        self._connections: dict[int, Connection] = {}
        self._leaving: set[int] = set()
        # Who spoke the longest ago, as far as is known: when, and the connection's number.
        self._by_silence: list[tuple[float, int]] = []
        self._unfinished: dict[Connection, _Mark] = {}

    def start(self, opened: Opened) -> "asyncio.Task[None]":
        """Looks after the connections from now on, until the task is cancelled."""
        self.opened = opened
        return asyncio.create_task(self._run())

    def came(self, connection: "Connection") -> None:
        """It has a place from now on."""
        self._connections[connection.number] = connection
        heapq.heappush(self._by_silence, (connection.heard_s, connection.number))

    def went(self, connection: "Connection") -> None:
        """It is gone."""
        self._connections.pop(connection.number, None)
        self._leaving.discard(connection.number)
        self._unfinished.pop(connection, None)

    def unfinished(self, connection: "Connection") -> None:
        """A frame has begun there whose end hasn't come."""
        if connection not in self._unfinished:
            self._unfinished[connection] = self._mark(connection)

    @property
    def leaving(self) -> int:
        """How many still have a place, but have been told to go."""
        return len(self._leaving)

    def make_room(self) -> bool:
        """Closes the connection that has been silent the longest and has nothing open; tells whether there was one."""
        if len(self._leaving) >= MAX_LEAVING:
            return False
        now_s = self._clock_s()
        for _ in range(LOOKS_FOR_ROOM):
            connection = self._longest_silent(now_s - SPARED_S)
            if connection is None:
                return False
            if self.opened.is_idle(connection):
                self._hits.connections_displaced += 1
                self._leaving.add(connection.number)
                connection.end_with(_displaced())
                return True
            heapq.heappush(self._by_silence, (now_s, connection.number))
        return False

    def look(self) -> None:
        """Has those go who were silent for too long, or whose frame doesn't come to its end."""
        self._look_at_idle()
        self._look_at_frames()
        for connection in self._unsent.holders():
            connection.outbox.measure()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.every_s)
            self.look()
            await self._look_at_hosts()

    def _longest_silent(self, before_s: float) -> "Connection | None":
        """Takes out who has been silent since before then, and the longest; None: nobody has."""
        while self._by_silence and self._by_silence[0][0] <= before_s:
            silent_since_s, number = heapq.heappop(self._by_silence)
            connection = self._connections.get(number)
            if connection is None or number in self._leaving:
                continue
            if connection.heard_s <= silent_since_s:
                return connection
            heapq.heappush(self._by_silence, (connection.heard_s, number))
        return None

    def _look_at_idle(self) -> None:
        now_s = self._clock_s()
        for _ in range(LOOKS_AT_ONCE):
            connection = self._longest_silent(now_s - self._idle_s)
            if connection is None:
                return
            if self.opened.is_idle(connection) and not self.opened.has_said_hello(connection):
                self._hits.connections_idle += 1
                connection.end_with(_idle(self._idle_s))
            else:
                heapq.heappush(self._by_silence, (now_s, connection.number))

    def _look_at_frames(self) -> None:
        """Twice before anything follows: a daemon that was stopped reads first what has come meanwhile."""
        now_s = self._clock_s()
        for connection, mark in list(self._unfinished.items()):
            if not connection.mid_frame:
                del self._unfinished[connection]
            elif (
                mark.frames != connection.frames
                or connection.received_bytes - mark.received_bytes >= PROGRESS_BYTES
                or connection.is_held_back
            ):
                self._unfinished[connection] = self._mark(connection)
            elif now_s - mark.since_s < self._frame_s:
                continue
            elif mark.noticed:
                self._hits.frames_unfinished += 1
                connection.end_with(_unfinished(self._frame_s))
            else:
                self._unfinished[connection] = mark._replace(noticed=True)

    async def _look_at_hosts(self) -> None:
        before_s = self._clock_s() - self._vanished_ms / 1000
        for number, connection in enumerate(list(self._connections.values())):
            if connection.heard_s < before_s and connection.unheard_ms() >= self._vanished_ms:
                self._hits.connections_vanished += 1
                connection.abort()
            if number % LOOKS_AT_ONCE == LOOKS_AT_ONCE - 1:
                await asyncio.sleep(0)

    def _mark(self, connection: "Connection") -> _Mark:
        return _Mark(self._clock_s(), connection.frames, connection.received_bytes)


def _seconds(count_s: float) -> str:
    return f"{count_s:g} s"


def _idle(idle_s: float) -> Overloaded:
    error = Overloaded(
        f"Nothing came on this connection for {_seconds(idle_s)} and nothing is open on it, so it is closed: connect again, "
        "and say hello to stay longer."
    )
    error.retry = "now"
    return error


def _displaced() -> Overloaded:
    error = Overloaded(
        "All connections are taken, and this one was silent the longest: connect again when it is needed."
    )
    error.retry = "now"
    return error


def _unfinished(frame_s: float) -> BadFrame:
    error = BadFrame(
        f"This frame didn't come to its end within {_seconds(frame_s)}, at {PROGRESS_BYTES} bytes in that time at least: "
        "send it again, whole."
    )
    error.retry = "now"  # Its sender may have been stopped, or cut off, and means well.
    return error
