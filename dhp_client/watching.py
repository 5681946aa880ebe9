"""Following what happens, record by record, without missing any.

Owns one watch: a connection of its own, so that a slow reader holds up nothing else, and taking it up again from the
last position after an outage. What is gone from the daemon's history before it was read is told (`lagged`).
"""

import asyncio
import contextlib
import weakref
from collections import deque
from typing import Any

import msgspec
from msgspec import UNSET

from dhp_protocol.messages import GetStatus
from dhp_protocol.messages import Watch as WatchRequest
from dhp_protocol.replies import AnyEvent, LaggedEvent, RecordEvent, StatusReply, WatchReply

from .backoff import Patience
from .clock import monotonic_ms
from .exceptions import ConnectionLost, NotConnected
from .link import Link
from .session import Session

MAX_UNREAD = 1_000
"""Events kept for a reader; beyond that the daemon is held back, and goes on from its disk when it is read again."""


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One record of one handoff. `position` is its place in the whole store; `record` is all of it.

    With the `type` `lagged` it is none: of the records up to `position` that weren't given yet, some were pruned or forgotten
    before this reader came there. `handoff` is empty then, and `record` has only these two members. `list` and `status` tell how
    things stand.
    """

    handoff: str
    position: int
    type: str
    record: dict[str, Any]


class Watch:
    """An endless iteration over records. `aclose()` ends it, and so does forgetting it.

    `position` is that of the last record given, or where the watch began: give it as `after` to go on from there.
    """

    def __init__(self, session: Session, *, handoff: str | None, kinds: list[str] | None, after: int | None) -> None:
        self.position = after
        self._session = session
        self._handoff = handoff
        self._kinds = kinds
        self._feed: _Feed | None = None
        self._done = False
        self._known = False

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> WatchEvent:
        patience = Patience(self._session.connection.retry_ms)
        while not self._done:
            self._session.check_usable()
            try:
                if self._feed is None:
                    await self._begin()
                    patience.restart()
                event = await self._next()
            except (OSError, ConnectionLost, NotConnected) as error:
                self._drop_feed()
                pause_ms = patience.pause_ms(monotonic_ms())
                if pause_ms is None:
                    raise NotConnected(f"The watch found no daemon to go on with: {error}") from error
                await asyncio.sleep(pause_ms / 1000)
            else:
                if event is not None:
                    return event
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Ends the watch."""
        self._done = True
        self._drop_feed()

    async def __aenter__(self) -> "Watch":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _begin(self) -> None:
        feed = _Feed()
        connection = self._session.connection
        if self._handoff is not None and not self._known:  # One that there isn't would be waited for without end.
            asked = GetStatus(handoff=self._handoff)
            await connection.call(lambda: asked, StatusReply)
            self._known = True
        link = await connection.open_side_link(feed.take_in, feed.end)
        feed.hold(link, weakref.finalize(self, _abort, self._session.loop, link))
        request = WatchRequest(
            handoff=UNSET if self._handoff is None else self._handoff,
            kinds=UNSET if self._kinds is None else self._kinds,
            after=UNSET if self.position is None else self.position,
        )
        try:
            answer = await connection.exchange_on(link, request, WatchReply)
        except BaseException:
            feed.drop()
            raise
        if self.position is None:
            self.position = answer.position
        self._feed = feed

    async def _next(self) -> WatchEvent | None:
        assert self._feed is not None
        event = await self._feed.next()
        if isinstance(event, LaggedEvent):
            if event.lost != "records":  # Its session holds nothing, so it lost nothing.
                return None
            self.position = event.after
            lagged = {"type": "lagged", "position": event.after}
            return WatchEvent(handoff="", position=event.after, type="lagged", record=lagged)
        record = msgspec.json.decode(event.record, type=dict[str, Any])
        self.position = int(record["position"])
        return WatchEvent(handoff=event.handoff, position=self.position, type=str(record["type"]), record=record)

    def _drop_feed(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.drop()


class _Feed:
    """What one connection has brought and nobody has read yet."""

    def __init__(self) -> None:
        self._events: deque[RecordEvent | LaggedEvent] = deque()
        self._link: Link | None = None
        self._finalizer: weakref.finalize[..., Watch] | None = None
        self._ended = False
        self._paused = False
        self._arrived = asyncio.Event()

    def hold(self, link: Link, finalizer: "weakref.finalize[..., Watch]") -> None:
        """`finalizer` ends `link` when nobody holds the watch any more."""
        self._link, self._finalizer = link, finalizer
        finalizer.atexit = False

    def take_in(self, event: AnyEvent) -> None:
        if isinstance(event, RecordEvent | LaggedEvent):
            self._events.append(event)
            self._arrived.set()
            self._push_back()

    def end(self, link: Link) -> None:
        self._ended = True
        self._arrived.set()

    async def next(self) -> RecordEvent | LaggedEvent:
        """The next event; `ConnectionLost` after the last one."""
        while not self._events:
            if self._ended:
                raise ConnectionLost("The watch's connection has ended.")
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        self._push_back()
        return event

    def drop(self) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._link is not None:
            self._link.abort()

    def _push_back(self) -> None:
        wanted = len(self._events) > (MAX_UNREAD // 2 if self._paused else MAX_UNREAD)
        if wanted != self._paused and self._link is not None:
            self._paused = wanted
            self._link.pause_reading(wanted)


def _abort(loop: asyncio.AbstractEventLoop, link: Link) -> None:
    with contextlib.suppress(RuntimeError):  # The loop is closed, and its connections with it.
        loop.call_soon_threadsafe(link.abort)
