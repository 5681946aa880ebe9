"""Frames without I/O: bytes in, frames and faults out.

Owns where a frame begins and ends, and what is done with bytes that are none. Holds at most one frame's bytes, and
never those of a frame that is too long. Does not look inside a body (`messages`), nor write to a socket.

Two forms, told apart by the first byte: counted ``LEN SP BODY LF`` begins with a digit, bare ``BODY LF`` with ``{``.
"""

import re
from collections.abc import Iterator

import msgspec

from .errors import BadFrame, DHPError, FrameTooLarge

_LF = 0x0A
_CR = 0x0D
_EMPTY_LINES = re.compile(rb"\n+|(?:\r\n){1,1024}")
_OPENING_BRACE = 0x7B
_MAX_LENGTH_DIGITS = 10


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame's body, and which form its answer takes."""

    body: bytes
    counted: bool


class Fault(msgspec.Struct, frozen=True):
    """Bytes that are no frame: the error to answer with, in which form, and whether the connection ends after it."""

    error: DHPError
    counted: bool
    close: bool


def encode_frame(body: bytes, *, counted: bool) -> bytes:
    """The bytes of one frame. `body` holds no raw LF or CR."""
    return b"%d %b\n" % (len(body), body) if counted else body + b"\n"


class Framer:
    """Cuts a stream of bytes into frames.

    `feed` yields a `Frame` or a `Fault` for each line of the stream, in order; `hold` and `next` do the same one by one. After
    a fault with `close`, whatever still comes is ignored. `finish` is called at the end of the stream.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes  # May be changed; a frame that is too long already stays so.
        # One read as it came, which most often holds whole frames; a bytearray where something is left of reads before it.
        self._buffer: bytes | bytearray = b""
        self._start = 0  # What lies before it has been yielded.
        self._searched_bytes = 0  # Of a bare line: so many bytes from the start on are known to hold no LF.
        self._skip_bytes = 0  # Of a counted frame that is too long: the body and its LF still to come.
        self._discarding = False  # Up to the next LF.
        self._closed = False
        self._counted = False  # The form of the last good frame.

    @property
    def counted(self) -> bool:
        """The form in which an event, or the answer to something that is no frame, is sent."""
        return self._counted

    @property
    def held_bytes(self) -> int:
        """How much is held in memory that hasn't been yielded."""
        return len(self._buffer) - self._start

    @property
    def skipping(self) -> bool:
        """Whether the rest of a counted frame that isn't kept is still to come."""
        return self._skip_bytes > 0

    def feed(self, data: bytes) -> Iterator[Frame | Fault]:
        """Takes in `data` and yields what it completes."""
        self.hold(data)
        while (item := self.next()) is not None:
            yield item

    def hold(self, data: bytes) -> None:
        """Takes in `data` and looks at none of it yet."""
        if self._closed:
            return
        self._trim()
        if not self._buffer:
            self._buffer = data
            return
        if not isinstance(self._buffer, bytearray):
            self._buffer = bytearray(self._buffer)
        self._buffer += data

    def next(self) -> Frame | Fault | None:
        """The next thing that is complete; None: there is nothing more so far."""
        buffer, start = self._buffer, self._start
        if type(buffer) is bytes and not (self._skip_bytes or self._discarding):
            # The usual case, in short: a counted frame that lies there whole.
            space = buffer.find(b" ", start, start + _MAX_LENGTH_DIGITS + 1)
            digits = buffer[start:space] if space > start else b""
            if digits.isdigit() and digits[0] != 0x30:
                end = space + 1 + int(digits)
                if end < len(buffer) and buffer[end] == _LF and end - space <= self.max_frame_bytes + 1:
                    self._counted = True
                    if end + 1 == len(buffer):
                        self._drop()
                    else:
                        self._start = end + 1
                    return Frame(buffer[space + 1 : end], True)
        while self._start < len(self._buffer):
            taken, out = self._next(self._buffer, self._start)
            self._start += taken
            if self._closed or self._start == len(self._buffer):  # Nobody may ask again before there is something new.
                self._drop()
            if out is not None:
                return out
            if not taken:
                break
        if self._buffer:
            self._trim()
        return None

    def give_up(self) -> bool | None:
        """Lets go of the frame whose beginning is held, once `next` has given None; the rest is skipped unkept as it comes.

        Tells whether it is a counted one; None: no more than a few digits are held, and stay.
        """
        buffer, start = self._buffer, self._start
        held = len(buffer) - start
        if held and buffer[start] == _OPENING_BRACE:
            self._discarding = True
            self._searched_bytes = 0
            self._drop()
            return False
        space = buffer.find(b" ", start, start + _MAX_LENGTH_DIGITS + 1)
        if space < 0:
            return None
        self._counted = True
        self._skip_bytes = space + 1 + int(buffer[start:space]) + 1 - start - held
        self._drop()
        return True

    def close(self) -> None:
        """Whatever is held, and whatever still comes, is ignored."""
        self._closed = True
        self._drop()

    def finish(self) -> Iterator[Fault]:
        """The stream has ended: says so when it ended in the middle of a line."""
        if self._closed:
            return
        self._closed = True
        if self.held_bytes or self._skip_bytes:
            self._drop()
            yield Fault(BadFrame("The last line has no end: finish every frame with a line feed."), self._counted, True)

    def _trim(self) -> None:
        """Lets go of what has been yielded: many connections say nothing for long."""
        if self._start == len(self._buffer):
            self._drop()
        elif self._start:
            if isinstance(self._buffer, bytearray):
                del self._buffer[: self._start]
            else:
                self._buffer = bytearray(memoryview(self._buffer)[self._start :])
            self._start = 0

    def _drop(self) -> None:
        self._buffer = b""
        self._start = 0

    def _next(self, buffer: bytes | bytearray, start: int) -> tuple[int, Frame | Fault | None]:
        """How many bytes the next thing takes (0: more are needed), and what it is (None: nothing to tell)."""
        first = buffer[start]
        if 0x30 <= first <= 0x39 and not (self._skip_bytes or self._discarding):
            return self._next_counted(buffer, start)
        available = len(buffer) - start
        if self._skip_bytes:
            return self._skip(buffer, start, available)
        if self._discarding:
            end = buffer.find(b"\n", start)
            if end < 0:
                return available, None
            self._discarding = False
            return end + 1 - start, None
        if first == _OPENING_BRACE:
            return self._next_bare(buffer, start, available)
        if (empty := _EMPTY_LINES.match(buffer, start)) is not None:
            return empty.end() - start, None
        if first == _CR and available == 1:
            return 0, None
        self._discarding = True
        hint = "Begin a line with '{', or with the length of its body in bytes and a space."
        return 1, Fault(BadFrame(f"This line is no frame. {hint}"), self._counted, False)

    def _next_counted(self, buffer: bytes | bytearray, start: int) -> tuple[int, Frame | Fault | None]:
        space = buffer.find(b" ", start, start + _MAX_LENGTH_DIGITS + 1)
        digits = buffer[start : start + _MAX_LENGTH_DIGITS + 1] if space < 0 else buffer[start:space]
        if not digits.isdigit() or (digits[0] == 0x30 and len(digits) > 1) or len(digits) > _MAX_LENGTH_DIGITS:
            return self._close(
                BadFrame("The length before a frame is 1 to 10 digits, no leading zero, then one space.")
            )
        if space < 0:
            return 0, None
        size = int(digits)
        end = space + 1 + size
        if size > self.max_frame_bytes:
            self._counted = True
            self._skip_bytes = size + 1
            return space + 1 - start, Fault(_too_large(self.max_frame_bytes, size), True, False)
        if end >= len(buffer):
            return 0, None
        if buffer[end] != _LF:
            return self._close(
                BadFrame("A counted frame ends with a line feed right after its body; check the length.")
            )
        self._counted = True
        return end + 1 - start, Frame(bytes(memoryview(buffer)[space + 1 : end]), True)

    def _next_bare(self, buffer: bytes | bytearray, start: int, available: int) -> tuple[int, Frame | Fault | None]:
        end = buffer.find(b"\n", start + self._searched_bytes)
        size = (available if end < 0 else end - start) - (buffer[end - 1 if end >= 0 else -1] == _CR)
        if size > self.max_frame_bytes:
            return self._close(_too_large(self.max_frame_bytes, None), counted=False)
        if end < 0:
            self._searched_bytes = available
            return 0, None
        self._searched_bytes = 0
        self._counted = False
        return end + 1 - start, Frame(bytes(memoryview(buffer)[start : start + size]), False)

    def _skip(self, buffer: bytes | bytearray, start: int, available: int) -> tuple[int, Fault | None]:
        taken = min(available, self._skip_bytes)
        self._skip_bytes -= taken
        if not self._skip_bytes and buffer[start + taken - 1] != _LF:
            return self._close(
                BadFrame("A counted frame ends with a line feed right after its body; check the length.")
            )
        return taken, None

    def _close(self, error: DHPError, *, counted: bool | None = None) -> tuple[int, Fault]:
        self._closed = True
        return 1, Fault(error, self._counted if counted is None else counted, True)


def _too_large(limit: int, size: int | None) -> FrameTooLarge:
    known = {} if size is None else {"size": size}
    return FrameTooLarge(f"A frame's body may have {limit} bytes: send less at once.", limit=limit, **known)
