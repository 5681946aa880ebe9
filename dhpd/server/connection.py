"""One connection: what the transport says, what the desk wants said, and how it ends.

Owns back-pressure, half-close, and the way a connection ends. Does not own what is taken in (`intake`), what lies unsent
(`outbox`), when its turn is (`turns`), nor who is silent for too long (`silence`). Knows nothing of leases or handoffs: what a
request means is the desk's business.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from msgspec import UNSET, UnsetType

from dhp_protocol.errors import DHPError, Overloaded
from dhp_protocol.framing import Fault, encode_frame
from dhp_protocol.messages import RequestId
from dhp_protocol.replies import error_reply_body

from .commons import Commons
from .intake import Desk, Intake
from .outbox import Outbox
from .peers import has_ended, is_local, keep_alive, unheard_ms
from .tls import CERTIFICATE_NAME

DRAIN_S = 1.0
"""How long a connection that is closed after an answer is still read from, so that the answer arrives."""
UNREAD_S = 30.0
"""How long a peer that has ended its input may take nothing of its answers."""
LONG_READ_BYTES = 64 * 1024
"""A read of so many bytes always lines up: the loop would read on for as long as the peer sends."""
LONG_READ_S = 0.00025
"""So long the loop takes for one, roughly. It counts beforehand for whoever is read from again, or one poll would read from hundreds."""
READ_S_PER_BYTE = 2e-9
SHORT_READ_BYTES = 16 * 1024
"""A shorter read costs next to nothing, and whoever says so little comes before those who say much. (Over TLS few reads are longer than two records.)"""


class Connection(asyncio.Protocol):
    def __init__(self, number: int, desk: Desk, commons: Commons) -> None:
        self.number = number
        self.local = False
        self.over_tcp = True
        self.certificate_name: str | None = None
        self.closing = False
        """Nothing more is taken in."""
        self.outbox = Outbox(self, commons)
        self.heard_s = commons.clock_s()
        """When something last came."""
        self.received_bytes = 0
        self._desk = desk
        self._commons = commons
        self._clock_s = commons.clock_s
        self._turns = commons.turns
        self._intake = Intake(self, desk, commons)
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._eof = False
        self._input_ended = False
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
        self.outbox.open(transport, self._commons.config.max_unsent_bytes)
        keep_alive(transport.get_extra_info("socket"), self._commons.config.vanished_ms)
        if not self._desk.opened(self):
            self._commons.hits.connections_refused += 1
            self.send_error(UNSET, Overloaded("All connections are taken: try again later.", after_ms=1000), False)
            self.flush()
            self._end()

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._clock_s()
        self.received_bytes += len(data)
        if self.closing:
            return
        intake = self._intake
        intake.framer.hold(data)
        is_short, is_long = len(data) < SHORT_READ_BYTES, len(data) >= LONG_READ_BYTES
        if not is_short:
            self._turns.charge(len(data) * READ_S_PER_BYTE)
        if is_long or not self._turns.take_at_once(self):
            intake.more = True
            self._turns.line_up(self, new=is_short)
            if is_long or intake.framer.held_bytes >= LONG_READ_BYTES:
                self._consider_reading(has_much=True)
            intake.measure()

    def eof_received(self) -> bool:
        self._eof = True
        self._consider_end()
        return True  # The answers still go out; `_end` closes.

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.closing = True
        self.outbox.close()
        self._turns.leave(self)
        self._intake.close()
        for handle in (self._last_moment, self._unread):
            if handle is not None:
                handle.cancel()
        self._desk.closed(self)

    def pause_writing(self) -> None:
        self.outbox.paused()
        self._consider_reading()
        self._unread = self._after_unread_s(self._left_unread)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self.outbox.resumed()
        if self.outbox.missed_events:
            self.outbox.missed_events = False
            self._desk.reads_again(self)
        self._consider_reading()

    # --- the turns' side ---------------------------------------------------------------------------------------------

    def take_turn(self, is_over: Callable[[], bool]) -> None:
        """Takes what has come to the desk, no more than can be answered."""
        if not self.closing:
            self._intake.take(is_over)
            self.worked()

    # --- the intake's side -------------------------------------------------------------------------------------------

    def worked(self) -> None:
        """All that could be taken in has been handed over."""
        self._desk.worked()
        self.flush()
        self._consider_reading()
        if self._eof:
            self._consider_end()
        if not self.closing:
            self._intake.measure()
            if self._intake.mid_frame:
                self._commons.silence.unfinished(self)

    def fault(self, fault: Fault) -> None:
        """What has come is no frame."""
        self.send_error(UNSET, fault.error, fault.counted)
        if fault.close:
            self.closing = True
            self._desk.input_ended(self)

    def input_gives_way(self) -> None:
        """There is no room for what is held of its input: an unfinished frame is skipped, and who doesn't read is closed."""
        if self.closing:
            return
        counted = self._intake.give_way()
        if counted is not None:
            self._commons.hits.frames_overloaded += 1
            self.send_error(UNSET, _no_room(), counted)
            self.flush()
        elif self._intake.more and self._intake.full():
            self._commons.hits.frames_overloaded += 1
            self.end_with(_no_room())

    # --- the desk's side ---------------------------------------------------------------------------------------------

    def send_reply(self, body: bytes, counted: bool) -> None:
        """Answers one request; leaves with the next `flush`."""
        self._intake.unanswered -= 1
        self.outbox.frames.append(encode_frame(body, counted=counted))

    def send_error(self, request_id: RequestId | UnsetType, error: DHPError, counted: bool) -> None:
        """Answers something that is no good request."""
        self.outbox.frames.append(encode_frame(error_reply_body(request_id, error), counted=counted))

    def send_event(self, body: bytes) -> None:
        """Says something unasked; leaves with the next `flush`."""
        self.outbox.frames.append(encode_frame(body, counted=self._intake.framer.counted))

    def send_hint(self, body: bytes) -> None:
        """As `send_event`, unless the peer doesn't read: then `reads_again` is called instead, when it does."""
        if self.outbox.unread:
            self.outbox.missed_events = True
        else:
            self.send_event(body)

    def flush(self) -> None:
        """Writes what was gathered, in one go."""
        if self.outbox.frames:
            if self._ended:
                self.outbox.frames.clear()
            else:
                self.outbox.write()
        self._intake.answered()
        if self._paused:
            self._consider_reading()
        self._end_when_answered()

    def bound_frames(self, max_bytes: int) -> None:
        """From the next frame on, a body may have so many bytes."""
        self._intake.framer.max_frame_bytes = max_bytes

    def answers_give_way(self) -> None:
        """There is no room for what it doesn't read, and nothing can be said to it."""
        self._commons.hits.connections_unread += 1
        self.abort()

    def end_soon(self) -> None:
        """Takes nothing more in, and ends the connection once what was asked is answered, or after a second."""
        if self._transport is None or self.closing:
            return
        self.closing = True
        self._intake.stop()
        self._turns.leave(self)
        self._last_moment = asyncio.get_running_loop().call_later(DRAIN_S, self._transport.abort)
        self._desk.input_ended(self)
        self._desk.worked()
        self._end_when_answered()

    def end_with(self, error: DHPError) -> None:
        """Says why, and ends the connection as `end_soon` does."""
        if self._transport is None or self.closing:
            return
        self.send_error(UNSET, error, self._intake.framer.counted)
        self.end_soon()
        self.flush()

    def abort(self) -> None:
        """Ends the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def shut(self) -> None:
        """Ends the connection once what was sent has gone."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    # --- the side of who looks after silent ones ---------------------------------------------------------------------

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun whose end hasn't come."""
        return self._intake.mid_frame and not self.closing

    @property
    def frames(self) -> int:
        """How many have been taken in."""
        return self._intake.frames

    @property
    def owes_answers(self) -> bool:
        """Whether something that came isn't answered, or the answer isn't read."""
        return self._intake.unanswered > 0 or self._intake.busy or self.outbox.unread

    @property
    def is_held_back(self) -> bool:
        """Whether it isn't read from at this moment."""
        return self._paused

    def unheard_ms(self) -> int:
        """For how long its host has confirmed nothing; 0 where that can't be told."""
        return unheard_ms(self._transport.get_extra_info("socket")) if self._transport is not None else 0

    # --- inside ------------------------------------------------------------------------------------------------------

    def _consider_end(self) -> None:
        """Once all that came before the end of the input has been taken in, the input has ended."""
        if self._input_ended or self._intake.busy:
            return
        self._intake.finish()
        self._input_ended = True
        self._desk.input_ended(self)
        self.worked()
        if self._ended and self._transport is not None:
            self._transport.close()  # It was only drained, so that the last answer arrives.

    def _consider_reading(self, *, has_much: bool = False) -> None:
        """Reads no more than can be answered, and nothing of who `has_much` to be taken in: the peer's own buffers fill, and it waits."""
        if self._transport is None:
            return
        full = not self.closing and self._intake.full()
        if full or self._intake.more:
            if not self._paused and (full or has_much or self._intake.framer.held_bytes >= LONG_READ_BYTES):
                self._paused = True
                self._transport.pause_reading()
            if not full:
                self._turns.line_up(self)
        elif self._paused:
            self._paused = False
            self._turns.charge(LONG_READ_S)
            self._transport.resume_reading()

    def _after_unread_s(self, look: Callable[[int], None]) -> asyncio.TimerHandle:
        """Has `look` called after `UNREAD_S`, with how much had left by now."""
        return asyncio.get_running_loop().call_later(UNREAD_S, look, self.outbox.gone_bytes())

    def _left_unread(self, gone_bytes: int) -> None:
        """A peer that is there may read when it likes; one that won't send anything more is given up, unless it reads on."""
        if self._transport is None:
            return
        # While answers lie unread nothing is read either, so the end of its input may not have been seen.
        ended = self._input_ended or self.closing or has_ended(self._transport.get_extra_info("socket"))
        if ended and self.outbox.gone_bytes() <= gone_bytes:
            self._transport.abort()
        else:
            self._unread = self._after_unread_s(self._left_unread)

    def _left_unread_at_the_end(self, gone_bytes: int) -> None:
        """All has been said, and waits for the peer to read it, as slowly as it can."""
        if self._transport is None:
            return
        if self.outbox.gone_bytes() <= gone_bytes:
            self._transport.abort()
        else:
            self._last_moment = self._after_unread_s(self._left_unread_at_the_end)

    def _end_when_answered(self) -> None:
        intake = self._intake
        if (
            (self._input_ended or self.closing)
            and intake.unanswered <= 0
            and not intake.more
            and not self.outbox.frames
        ):
            self._end()

    def _end(self) -> None:
        """Says that nothing more comes, and lets what was said arrive."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._ended:
            return
        self._ended = True
        if self._input_ended:
            transport.close()
            if self._last_moment is None:
                self._last_moment = self._after_unread_s(self._left_unread_at_the_end)
            return
        self.closing = True
        self._consider_reading()
        if transport.can_write_eof():
            transport.write_eof()
        if self._last_moment is None:
            self._last_moment = asyncio.get_running_loop().call_later(DRAIN_S, transport.abort)


def _no_room() -> Overloaded:
    return Overloaded(
        "The daemon holds as much unfinished input as it may: send the request again later.", after_ms=1000
    )
