"""One connection's input: bytes in, requests to the desk, no more than can be answered.

Owns framing, what is taken in and when that is enough, and how much of it is held. Does not own when its turn is (`turns`), nor
when is read, what is answered, and how the connection ends (`connection`).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from dhp_protocol.decoding import RequestFault, decode_request
from dhp_protocol.framing import Fault, Frame, Framer
from dhp_protocol.messages import AnyRequest, Hello

from .commons import Commons
from .long_frames import LONG_BODY_BYTES
from .room import FREE_BYTES

if TYPE_CHECKING:
    from .connection import Connection

FRAMES_AT_ONCE = 8
"""So many are read before they are handed over."""


class Desk(Protocol):
    """Who takes the requests."""

    max_prepared: int
    """A connection with fewer unanswered requests isn't full."""

    def opened(self, connection: "Connection") -> bool:
        """A connection has come; False: there is no room for it."""

    def request(self, connection: "Connection", request: AnyRequest, counted: bool) -> None:
        """A good request has come."""

    async def explain(self, connection: "Connection", body: bytes) -> RequestFault | None:
        """What is wrong with a request, however long that takes to find; None: nothing is."""

    def waiting(self, connection: "Connection") -> int:
        """How many of the connection's unanswered requests wait for something that others do."""

    def is_full(self, connection: "Connection") -> bool:
        """Whether as much of the connection's is being prepared as may be; `flush` is called when that is over."""

    def worked(self) -> None:
        """All that one read brought has been handed over."""

    def reads_again(self, connection: "Connection") -> None:
        """It hadn't read for so long that events were left out, and reads now."""

    def input_ended(self, connection: "Connection") -> None:
        """Nothing more will come on this connection."""

    def closed(self, connection: "Connection") -> None:
        """The connection is gone."""


class Intake:
    def __init__(self, connection: "Connection", desk: Desk, commons: Commons) -> None:
        self.framer = Framer(commons.config.max_frame_bytes)
        self.unanswered = 0
        self.more = False
        """There may be frames in the framer that haven't been taken in."""
        self.frames = 0
        """Taken in since the beginning."""
        self._connection = connection
        self._desk = desk
        self._long_frames = commons.long_frames
        self._room = commons.input
        self._max_depth = commons.config.max_depth
        self._max_requests = commons.config.max_inflight_requests
        self._few_requests = min(desk.max_prepared, self._max_requests)
        self._max_bytes = commons.config.max_inflight_bytes
        self._taken: list[tuple[AnyRequest, bool]] = []  # Read, and about to be handed over.
        self._taken_bytes = 0  # Since there was last nothing to answer.
        self._told_bytes = 0  # So much of that the room knows of.
        self._long: asyncio.Task[None] | None = None  # Takes in a long frame; those behind it wait in the framer.
        self._gives_way = False

    @property
    def busy(self) -> bool:
        """Whether something of what has come isn't at the desk yet."""
        return self.more or self._long is not None

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun whose end hasn't come, so that the peer is to go on."""
        return not self.busy and (self.framer.held_bytes > 0 or self.framer.skipping)

    def take(self, is_over: Callable[[], bool]) -> None:
        """Takes what has come to the desk, no more than can be answered; the framer keeps the rest."""
        self.more = False
        while (item := self.framer.next()) is not None:
            self._take(item)
            if self._connection.closing:  # Nothing after what closes is taken in, and its answer ends the connection.
                break
            over = is_over()
            if over or len(self._taken) >= FRAMES_AT_ONCE or self._may_be_full():
                self._hand_over()
                if over or self.full():
                    self.more = self.framer.held_bytes > 0
                    break
        self._hand_over()

    def finish(self) -> None:
        """The input has ended, and all that was whole is taken in: a rest of a line is answered."""
        for fault in self.framer.finish():
            self._take(fault)

    def stop(self) -> None:
        """Nothing more is taken in; what is in hand goes on."""
        self.more = False
        self.framer.close()
        self._room.hold(self._connection, 0)

    def close(self) -> None:
        """The connection is gone."""
        self.stop()
        if self._long is not None:
            self._long.cancel()
        self._nothing_in_hand()

    # --- how much -----------------------------------------------------------------------------------------------------

    def full(self) -> bool:
        """Whether what is taken in and not answered, or not read by the peer, has reached its bound."""
        if not self._may_be_full():
            return False
        if self._long is not None or self._connection.outbox.unread or self._desk.is_full(self._connection):
            return True
        in_flight = self.unanswered - self._desk.waiting(self._connection)
        if in_flight <= 0:
            self._nothing_in_hand()
        return in_flight >= self._max_requests or self._taken_bytes >= self._max_bytes

    def measure(self) -> None:
        """Tells the room how much is held; what is held may have to be let go of then."""
        self._room.hold(self._connection, self.framer.held_bytes)
        new_bytes = self._taken_bytes - self._told_bytes
        if new_bytes > FREE_BYTES:
            self._told_bytes = self._taken_bytes
            self._room.work(new_bytes)
        if self._gives_way and not self.more:
            self._connection.input_gives_way()

    def answered(self) -> None:
        """Something was: where nothing is in hand any more, the room is another's."""
        if self._told_bytes and self.unanswered - self._desk.waiting(self._connection) <= 0:
            self._nothing_in_hand()

    def give_way(self) -> bool | None:
        """Lets go of an unfinished frame; tells whether it was a counted one. None: there is none, or its turn comes first."""
        self._gives_way = self.more
        return None if self.more else self.framer.give_up()

    def _may_be_full(self) -> bool:
        """Whether `full` has to be asked."""
        few = self.unanswered < self._few_requests and self._taken_bytes < self._max_bytes
        return not few or self._long is not None or self._connection.outbox.unread

    def _nothing_in_hand(self) -> None:
        self._room.work(-self._told_bytes)
        self._taken_bytes = self._told_bytes = 0

    # --- taking in ----------------------------------------------------------------------------------------------------

    def _take(self, item: Frame | Fault) -> None:
        self.frames += 1
        if isinstance(item, Fault):
            self._hand_over()
            self._connection.fault(item)
            return
        body = item.body
        self.unanswered += 1
        self._taken_bytes += len(body)
        if len(body) > LONG_BODY_BYTES:
            self._hand_over()
            self._long = asyncio.get_running_loop().create_task(self._take_long(item))
            return
        try:
            request = decode_request(body, self._max_depth)
        except RequestFault as fault:
            self._hand_over()
            self._answer_fault(fault, item.counted)
        else:
            self._taken.append((request, item.counted))
            if isinstance(request, Hello):  # How long the next frame may be depends on it.
                self._hand_over()

    def _hand_over(self) -> None:
        """Takes what was read to the desk, in order. Reading some, and then handing them over, is quicker than one by one."""
        if self._taken:
            taken, self._taken = self._taken, []
            for request, counted in taken:
                if self._connection.closing:  # By a hello that was refused, behind which nothing was read.
                    break
                self._desk.request(self._connection, request, counted)

    async def _take_long(self, frame: Frame) -> None:
        explain = partial(self._desk.explain, self._connection)
        try:
            await self._long_frames.take(frame.body, explain, partial(self._take_decoded, frame.counted))
        except RequestFault as fault:
            self._long = None
            self._answer_fault(fault, frame.counted)
            self._connection.worked()

    def _take_decoded(self, counted: bool, request: AnyRequest) -> None:
        self._long = None
        self._desk.request(self._connection, request, counted)
        self._connection.worked()

    def _answer_fault(self, fault: RequestFault, counted: bool) -> None:
        self.unanswered -= 1
        self._connection.send_error(fault.request_id, fault.error, counted)
