"""One connection: bytes in, frames to the desk, bytes out, and no more than a bound of either.

Owns framing, back-pressure, half-close, and the way a connection ends. Does not own when its turn is (`turns`). Knows nothing
of leases or handoffs: what a request means is the desk's business.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from msgspec import UNSET, UnsetType

from dhp_protocol.decoding import RequestFault, decode_request
from dhp_protocol.errors import DHPError, Overloaded
from dhp_protocol.framing import Fault, Frame, Framer, encode_frame
from dhp_protocol.messages import AnyRequest, Hello, RequestId
from dhp_protocol.replies import error_reply_body
from dhpd.config import Config

from .long_frames import LONG_BODY_BYTES, LongFrames
from .peers import has_ended, is_local, keep_alive
from .tls import CERTIFICATE_NAME
from .turns import Turns

DRAIN_S = 1.0
"""How long a connection that is closed after an answer is still read from, so that the answer arrives."""
UNREAD_S = 30.0
"""How long a peer that has ended its input may leave its answers unread."""
FRAMES_AT_ONCE = 8
"""So many are read before they are handed over."""
LONG_READ_BYTES = 64 * 1024
"""A read of so many bytes always lines up: the loop would read on for as long as the peer sends."""


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

    def input_ended(self, connection: "Connection") -> None:
        """Nothing more will come on this connection."""

    def closed(self, connection: "Connection") -> None:
        """The connection is gone."""


class Connection(asyncio.Protocol):
    def __init__(self, number: int, desk: Desk, config: Config, turns: Turns, long_frames: LongFrames) -> None:
        self.number = number
        self.local = False
        self.over_tcp = True
        self.certificate_name: str | None = None
        self.unanswered = 0
        self.writable = asyncio.Event()
        self.writable.set()
        self._desk = desk
        self._config = config
        self._turns = turns
        self._long_frames = long_frames
        self._few_requests = min(desk.max_prepared, config.max_inflight_requests)
        self._max_bytes = config.max_inflight_bytes
        self._framer = Framer(config.max_frame_bytes)
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._taken: list[tuple[AnyRequest, bool]] = []  # Read, and about to be handed over.
        self._taken_bytes = 0  # Since there was last nothing to answer.
        self._more = False  # There may be frames in the framer that haven't been taken in.
        self._long: asyncio.Task[None] | None = None  # Takes in a long frame; those behind it wait in the framer.
        self._paused = False
        self._unread_answers = False  # More than may lie unsent: the peer doesn't read.
        self._eof = False
        self._input_ended = False
        self._closing = False
        self._ended = False
        self._last_moment: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # --- the transport's side ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by class.
        self._transport = transport
        self.local = is_local(transport)
        self.over_tcp = transport.get_extra_info("socket").family != socket.AF_UNIX
        self.certificate_name = transport.get_extra_info(CERTIFICATE_NAME)
        transport.set_write_buffer_limits(high=self._config.max_unsent_bytes)
        keep_alive(transport.get_extra_info("socket"))
        if not self._desk.opened(self):
            self.send_error(UNSET, Overloaded("All connections are taken: try again later.", after_ms=1000), False)
            self.flush()
            self._end()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._framer.hold(data)
        is_long = len(data) >= LONG_READ_BYTES
        if is_long or not self._turns.take_at_once(self):
            self._more = True
            self._turns.line_up(self, new=not is_long)
            if is_long or self._framer.held_bytes >= LONG_READ_BYTES:
                self._consider_reading()

    def eof_received(self) -> bool:
        self._eof = True
        self._consider_end()
        return True  # The answers still go out; `_end` closes.

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closing = True
        self.writable.set()
        self._turns.leave(self)
        for handle in (self._last_moment, self._unread, self._long):
            if handle is not None:
                handle.cancel()
        self._desk.closed(self)

    def pause_writing(self) -> None:
        self._unread_answers = True
        self.writable.clear()
        self._consider_reading()
        self._unread = asyncio.get_running_loop().call_later(UNREAD_S, self._left_unread)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._unread_answers = False
        self.writable.set()
        self._consider_reading()

    # --- the turns' side ---------------------------------------------------------------------------------------------

    def take_turn(self, is_over: Callable[[], bool]) -> None:
        """Takes what has come to the desk, no more than can be answered; the framer keeps the rest."""
        if self._closing:
            return
        self._more = False
        while (item := self._framer.next()) is not None:
            self._take(item)
            if self._closing:  # Nothing after what closes is taken in, and its answer ends the connection.
                break
            over = is_over()
            if over or len(self._taken) >= FRAMES_AT_ONCE or self._may_be_full():
                self._hand_over()
                if over or self._full():
                    self._more = self._framer.held_bytes > 0
                    break
        self._hand_over()
        self._worked()

    # --- the desk's side ---------------------------------------------------------------------------------------------

    def send_reply(self, body: bytes, counted: bool) -> None:
        """Answers one request; leaves with the next `flush`."""
        self.unanswered -= 1
        self._out.append(encode_frame(body, counted=counted))

    def send_error(self, request_id: RequestId | UnsetType, error: DHPError, counted: bool) -> None:
        """Answers something that is no good request."""
        self._out.append(encode_frame(error_reply_body(request_id, error), counted=counted))

    def send_event(self, body: bytes) -> None:
        """Says something unasked; leaves with the next `flush`."""
        self._out.append(encode_frame(body, counted=self._framer.counted))

    def flush(self) -> None:
        """Writes what was gathered, in one go."""
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            if self._transport is not None and not self._transport.is_closing() and not self._ended:
                self._transport.write(data)
        if self._paused:
            self._consider_reading()
        self._end_when_answered()

    def bound_frames(self, max_bytes: int) -> None:
        """From the next frame on, a body may have so many bytes."""
        self._framer.max_frame_bytes = max_bytes

    def end_soon(self) -> None:
        """Takes nothing more in, and ends the connection once what was asked is answered, or after a second."""
        if self._transport is None or self._closing:
            return
        self._closing = True
        self._more = False
        self._last_moment = asyncio.get_running_loop().call_later(DRAIN_S, self._transport.abort)
        self._desk.input_ended(self)
        self._desk.worked()
        self._end_when_answered()

    def abort(self) -> None:
        """Ends the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def shut(self) -> None:
        """Ends the connection once what was sent has gone."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _take(self, item: Frame | Fault) -> None:
        if isinstance(item, Fault):
            self._hand_over()
            self.send_error(UNSET, item.error, item.counted)
            if item.close:
                self._closing = True
                self._desk.input_ended(self)
            return
        body = item.body
        self.unanswered += 1
        self._taken_bytes += len(body)
        if len(body) > LONG_BODY_BYTES:
            self._hand_over()
            self._long = asyncio.get_running_loop().create_task(self._take_long(item))
            return
        try:
            request = decode_request(body, self._config.max_depth)
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
                if self._closing:  # By a hello that was refused, behind which nothing was read.
                    break
                self._desk.request(self, request, counted)

    async def _take_long(self, frame: Frame) -> None:
        try:
            await self._long_frames.take(
                frame.body, partial(self._desk.explain, self), partial(self._take_decoded, frame.counted)
            )
        except RequestFault as fault:
            self._long = None
            self._answer_fault(fault, frame.counted)
            self._worked()

    def _take_decoded(self, counted: bool, request: AnyRequest) -> None:
        self._long = None
        self._desk.request(self, request, counted)
        self._worked()

    def _answer_fault(self, fault: RequestFault, counted: bool) -> None:
        self.unanswered -= 1
        self.send_error(fault.request_id, fault.error, counted)

    def _may_be_full(self) -> bool:
        """Whether `_full` has to be asked."""
        few = self.unanswered < self._few_requests and self._taken_bytes < self._max_bytes
        return not few or self._long is not None or self._unread_answers

    def _full(self) -> bool:
        """Whether what is taken in and not answered, or not read by the peer, has reached its bound."""
        if not self._may_be_full():
            return False
        if self._long is not None or self._unread_answers or self._desk.is_full(self):
            return True
        in_flight = self.unanswered - self._desk.waiting(self)
        if in_flight <= 0:
            self._taken_bytes = 0
        return in_flight >= self._config.max_inflight_requests or self._taken_bytes >= self._max_bytes

    def _worked(self) -> None:
        self._desk.worked()
        self.flush()
        self._consider_reading()
        if self._eof:
            self._consider_end()

    def _consider_end(self) -> None:
        """Once all that came before the end of the input has been taken in, the input has ended."""
        if self._input_ended or self._more or self._long is not None:
            return
        for fault in self._framer.finish():
            self._take(fault)
        self._input_ended = True
        self._desk.input_ended(self)
        self._worked()
        if self._ended and self._transport is not None:
            self._transport.close()  # It was only drained, so that the last answer arrives.

    def _consider_reading(self) -> None:
        """Reads no more than can be answered: the peer's own buffers fill, and it waits."""
        if self._transport is None:
            return
        full = self._full()
        if full or self._more:
            if not self._paused and (full or self._framer.held_bytes >= LONG_READ_BYTES):
                self._paused = True
                self._transport.pause_reading()
            if not full:
                self._turns.line_up(self)
        elif self._paused:
            self._paused = False
            self._transport.resume_reading()

    def _left_unread(self) -> None:
        """A peer that is there may read when it likes; one that won't send anything more is given up."""
        if self._transport is None:
            return
        # While answers lie unread nothing is read either, so the end of its input may not have been seen.
        if self._input_ended or self._closing or has_ended(self._transport.get_extra_info("socket")):
            self._transport.abort()
        else:
            self._unread = asyncio.get_running_loop().call_later(UNREAD_S, self._left_unread)

    def _end_when_answered(self) -> None:
        if (self._input_ended or self._closing) and self.unanswered <= 0 and not self._more and not self._out:
            self._end()

    def _end(self) -> None:
        """Says that nothing more comes, and lets what was said arrive."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._ended:
            return
        self._ended = True
        loop = asyncio.get_running_loop()
        wait_s = UNREAD_S if self._input_ended else DRAIN_S
        if self._input_ended:
            transport.close()
        else:
            self._closing = True
            if transport.can_write_eof():
                transport.write_eof()
        if self._last_moment is None:
            self._last_moment = loop.call_later(wait_s, transport.abort)
