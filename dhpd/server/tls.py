"""TLS between a TCP connection and who speaks on it: bytes in, decrypted bytes out, and the other way round.

Owns the handshake's steps, that no more is en- or decrypted at once than takes half a millisecond, and the end of input and of
output, each by itself: as over plain TCP, what was received before the peer's end is answered after it, which asyncio's own TLS
has no way for. Does not own when a step is done (`handshakes`, `passes`), nor the files (`certificates`).
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from msgspec import UNSET

from dhp_protocol.errors import BadFrame, DHPError, Forbidden
from dhp_protocol.framing import encode_frame
from dhp_protocol.replies import error_reply_body

from .certificates import name_in
from .clock import monotonic_s
from .handshakes import Handshakes
from .passes import Passes

CERTIFICATE_NAME = "certificate_name"
"""Under this `get_extra_info` has the name in the peer's certificate; None where none was asked for."""
RECORD_BYTES = 16 * 1024
"""What one TLS record holds at most."""
READ_BYTES = 32 * 1024
"""So much is read at once. What OpenSSL has once held on its way in or out it keeps room for as long as the connection lives."""
DECRYPT_S = 0.0005
"""So long is decrypted at once, and one record more: a peer may send many that hold a byte each."""
ENCRYPT_BYTES = 64 * 1024
"""So much is encrypted at once."""
DRAIN_S = 1.0
"""How long a peer that is refused is still read from, so that it hears why."""
FIRST_BYTE = 0x16
"""Whoever speaks TLS begins with it."""

# One for all connections: what is read is taken out before anything else is.
_just_read = memoryview(bytearray(READ_BYTES))


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """To the TCP connection a protocol, to the connection's own protocol, made by `make` when the handshake is done, a transport."""

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
        handshakes: Handshakes,
        passes: Passes,
    ) -> None:
        super().__init__()
        self._make = make
        self._handshakes = handshakes
        self._passes = passes
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw: asyncio.Transport
        self._peer = ""
        self._name: str | None = None
        self._above: asyncio.Protocol | None = None  # Once the handshake is done.
        self._received_any = False
        self._last_moment: asyncio.TimerHandle | None = None

        self._raw_reads = True
        self._above_reads = True
        self._undecrypted = False  # There may be more to decrypt; until then nothing more is read.
        self._deaf = False  # What still comes is of no interest.
        self._input_ended = False

        self._raw_writes = True
        self._above_writes = True
        self._unencrypted: deque[memoryview] = deque()
        self._unencrypted_bytes = 0
        self._max_unencrypted_bytes = ENCRYPT_BYTES
        self._then: Callable[[], None] | None = None  # What follows when all has been said: nothing more will be.
        self._output_ended = False
        self._closing = False

    # --- the TCP connection's side -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("a peer that has gone",)
        self._peer = str(peer[0])
        self._handshakes.began(self, self._peer)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _just_read

    def buffer_updated(self, nbytes: int) -> None:
        data = _just_read[:nbytes]
        if self._deaf:
            return
        if self._above is not None:
            self._incoming.write(data)
            self._decrypt()
            return
        if not self._received_any and data[0] != FIRST_BYTE:
            self._refuse_plain()
            return
        self._received_any = True
        self._incoming.write(data)
        self._read(False)  # No more is held than was read at once.
        self._handshakes.line_up(self)

    def eof_received(self) -> bool:
        if self._above is None or self._output_ended:
            self._raw.close()
        self._end_input()
        return True  # The answers still go out.

    def pause_writing(self) -> None:
        self._raw_writes = False
        self._consider_writing()

    def resume_writing(self) -> None:
        self._raw_writes = True
        if self._unencrypted:
            self._passes.line_up(self)
        self._consider_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self._handshakes.ended(self)
        self._passes.leave(self)
        if self._last_moment is not None:
            self._last_moment.cancel()
        if self._above is not None:
            self._above.connection_lost(exc)

    # --- the side of who says when ------------------------------------------------------------------------------------

    def step(self) -> None:
        if self._raw.is_closing():
            return
        if self._above is None:
            self._shake()
            return
        if self._undecrypted and self._above_reads and not self._deaf:
            self._decrypt()
        if self._unencrypted:
            self._encrypt()

    def give_up(self) -> None:
        self._raw.abort()

    # --- the side of the protocol above ------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._then is not None or not data:
            return
        at_once = not self._unencrypted and len(data) <= ENCRYPT_BYTES
        self._unencrypted.append(memoryview(data))
        self._unencrypted_bytes += len(data)
        if at_once:
            self._encrypt()
        else:
            self._passes.line_up(self)
            self._consider_writing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._name if name == CERTIFICATE_NAME else self._raw.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)
        self._max_unencrypted_bytes = ENCRYPT_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size() + self._unencrypted_bytes

    def pause_reading(self) -> None:
        self._above_reads = False
        self._consider_reading()

    def resume_reading(self) -> None:
        self._above_reads = True
        self._consider_reading()

    def is_closing(self) -> bool:
        return self._closing or self._raw.is_closing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._end_output(self._raw.write_eof)

    def close(self) -> None:
        self._closing = self._deaf = True
        self._end_output(self._raw.close)

    def abort(self) -> None:
        self._raw.abort()

    # --- the handshake -----------------------------------------------------------------------------------------------

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            self._read(True)
        except ssl.SSLError as error:
            self._flush()  # It holds the alert that says the same to the peer.
            self._refuse(_why(error))
        else:
            self._flush()
            self._admit()

    def _admit(self) -> None:
        self._handshakes.ended(self)
        if self._tls.context.verify_mode == ssl.CERT_REQUIRED:
            self._name = name_in(self._tls.getpeercert() or {})
            if self._name is None:
                self._refuse_nameless()
                return
        self._above = self._make()
        self._above.connection_made(self)
        if not self._deaf:
            self._decrypt()  # Its first words may have come with the last of the handshake.

    def _refuse_nameless(self) -> None:
        hint = "get one with an e-mail address of at most 128 characters"
        told = Forbidden(f"Your certificate has no name that a worker can have: {hint}.", role="worker")
        self._tls.write(_told(told))
        self._say_end()
        self._refuse("its certificate has no name that a worker can have")

    def _refuse_plain(self) -> None:
        self._raw.write(_told(BadFrame("This port speaks TLS: connect with tls:// instead of tcp://.")))
        self._refuse("it doesn't speak TLS")

    def _refuse(self, why: str) -> None:
        """Ends the connection, once what it was told has had time to arrive."""
        self._handshakes.failed(self._peer, why)
        self._handshakes.ended(self)
        self._deaf = True
        self._read(True)
        if not self._raw.is_closing():
            self._raw.write_eof()
        self._last_moment = asyncio.get_running_loop().call_later(DRAIN_S, self._raw.abort)

    # --- input -------------------------------------------------------------------------------------------------------

    def _decrypt(self) -> None:
        """Hands on what can be decrypted in a short while, in one piece."""
        pieces: list[bytes] = []
        ended = broken = False
        self._undecrypted = False
        until_s = monotonic_s() + DECRYPT_S
        try:
            while piece := self._tls.read(RECORD_BYTES):
                pieces.append(piece)
                if monotonic_s() >= until_s:
                    self._undecrypted = True
                    break
            else:
                ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError:  # It was tampered with, or is no TLS any more. What came before is good.
            broken = True
        self._flush()
        assert self._above is not None
        if pieces:
            self._above.data_received(b"".join(pieces))
        if ended:
            self._end_input()
        elif broken:
            self._deaf = True
            self._raw.close()
        self._consider_reading()

    def _end_input(self) -> None:
        """The peer's end of TLS, or of TCP without a word: each frame tells its own end, so nothing is cut off unnoticed."""
        if self._above is not None and not self._input_ended:
            self._input_ended = self._deaf = True
            self._above.eof_received()

    def _consider_reading(self) -> None:
        """Of what nobody wants any more the end is still to be seen."""
        if self._undecrypted and self._above_reads and not self._deaf:
            self._passes.line_up(self)
        self._read(self._deaf or (self._above_reads and not self._undecrypted))

    def _read(self, wanted: bool) -> None:
        if wanted == self._raw_reads or self._raw.is_closing():
            return
        self._raw_reads = wanted
        if wanted:
            self._raw.resume_reading()
        else:
            self._raw.pause_reading()

    # --- output ------------------------------------------------------------------------------------------------------

    def _encrypt(self) -> None:
        """Sends a piece of what there is to say, as long as the peer reads."""
        room_bytes = ENCRYPT_BYTES
        try:
            while self._unencrypted and room_bytes > 0 and self._raw_writes:
                first = self._unencrypted[0]
                sent = self._tls.write(first[:RECORD_BYTES])
                room_bytes -= sent
                self._unencrypted_bytes -= sent
                if sent < len(first):
                    self._unencrypted[0] = first[sent:]
                else:
                    self._unencrypted.popleft()
                self._flush()
        except ssl.SSLError:
            self._raw.abort()
            return
        if not self._unencrypted:
            self._finish_output()
        elif self._raw_writes:
            self._passes.line_up(self)
        self._consider_writing()

    def _consider_writing(self) -> None:
        """Has the protocol above say no more for now, or again."""
        if self._above is None:
            return
        if self._above_writes:
            if not self._raw_writes or self._unencrypted_bytes > self._max_unencrypted_bytes:
                self._above_writes = False
                self._above.pause_writing()
        elif self._raw_writes and self._unencrypted_bytes <= self._max_unencrypted_bytes // 4:
            self._above_writes = True
            self._above.resume_writing()

    def _end_output(self, then: Callable[[], None]) -> None:
        """Nothing more will be said: once what there is has gone out, says so, and does `then`."""
        self._then = then
        self._consider_reading()
        if not self._unencrypted:
            self._finish_output()

    def _finish_output(self) -> None:
        if self._then is not None:
            self._say_end()
            self._then()

    def _say_end(self) -> None:
        if not self._output_ended:
            self._output_ended = self._deaf = True
            with contextlib.suppress(ssl.SSLError):  # It says that the peer hasn't said the same yet.
                self._tls.unwrap()
            self._flush()
            self._consider_reading()

    def _flush(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())


def _told(error: DHPError) -> bytes:
    return encode_frame(error_reply_body(UNSET, error), counted=False)


def _why(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate isn't good here: {error.verify_message}"
    return (error.reason or "the handshake failed").replace("_", " ").lower()
