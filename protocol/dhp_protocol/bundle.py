"""Bundles: one handoff as JSON lines, to be carried from one daemon to another.

Owns the form of the lines, the chain that ties each to the one before, and which line is wrong. Knows nothing of what
records mean (the daemon's engine). A bundle is an envelope, a line for each record, and a trailer. Payloads and the intent
are text inside of a line, so that they survive, byte for byte, whatever reads and writes the lines as JSON; the chain is over
the rest of each line in canonical form. It shows that nothing was changed, not who made the bundle. Pure.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from .decoding import doubled_member
from .errors import InvalidRequest
from .intent import canonical, handoff_id, parse_exact
from .messages import Count, HandoffId, Sha256

FORMAT: Literal["dhp-bundle/1"] = "dhp-bundle/1"

MAX_FAULT_CHARS = 300

PIECE_BYTES = 32 * 1024
"""So much of a long text is written in well under a millisecond."""

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Envelope(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line. `intent` is its canonical form as text.

    `n` is the number of the `exported` record at the source, so all records here come before it; `seq` is the newest
    checkpoint's then (0: none), `steps` and `usd_nano` are the sums then, those of pruned checkpoints included.
    """

    bundle: Literal["dhp-bundle/1"]
    handoff: HandoffId
    n: Count
    seq: Count
    steps: Count
    usd_nano: Count
    intent: str
    chain: Sha256


class _RecordLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    record: Raw
    sha256: Sha256 | UnsetType = UNSET
    payload: str | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    chain: Sha256


class Trailer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last line: how many records there were."""

    records: Count
    chain: Sha256


class BundledRecord(Struct, frozen=True):
    """A line with a record: the record's members, and its payload's hash and bytes (None: it has none, or not any more)."""

    members: dict[str, Any]
    sha256: str | None
    payload: bytes | None


class BundleWriter:
    """Makes the lines, without LF. `lines` and `chain` are those of an earlier writer whose bundle goes on here.

    A line may be megabytes long, so it is to be had in pieces too, each of which takes well under a millisecond; it is
    counted, and in the chain, from the call on.
    """

    def __init__(self, lines: int = 0, chain: str = "") -> None:
        self.lines = lines
        self.chain = chain

    def envelope(self, handoff: str, intent: bytes, *, n: int, seq: int, steps: int, usd_nano: int) -> bytes:
        """The first line; `intent` is in canonical form."""
        return b"".join(self.envelope_pieces(handoff, intent, n=n, seq=seq, steps=steps, usd_nano=usd_nano))

    def envelope_pieces(
        self, handoff: str, intent: bytes, *, n: int, seq: int, steps: int, usd_nano: int
    ) -> Iterator[bytes]:
        """The first line, in pieces, at least one."""
        assert not self.lines, "an envelope comes first"
        head = {"bundle": FORMAT, "handoff": handoff, "n": n, "seq": seq, "steps": steps, "usd_nano": usd_nano}
        return _pieces(head, _as_text("intent", intent), self._linked(head))

    def record(self, members: dict[str, Any], sha256: str | None = None, payload: bytes | None = None) -> bytes:
        """A record's line; `sha256` is its payload's, kept or not."""
        return b"".join(self.record_pieces(members, sha256, payload))

    def record_pieces(
        self, members: dict[str, Any], sha256: str | None = None, payload: bytes | None = None
    ) -> Iterator[bytes]:
        """A record's line, in pieces, at least one."""
        head = {"record": members} if sha256 is None else {"record": members, "sha256": sha256}
        return _pieces(head, iter(()) if payload is None else _carried(payload), self._linked(head))

    def trailer(self) -> bytes:
        """The last line."""
        head = {"records": self.lines - 1}
        return b"".join(_pieces(head, iter(()), self._linked(head)))

    def _linked(self, head: dict[str, Any]) -> str:
        self.lines += 1
        self.chain = _link(self.chain, head)
        return self.chain


class BundleReader:
    """Takes a bundle's lines in order, and says of each what it is.

    Whatever is wrong with a line is `InvalidRequest` with its number, from 1, as `line`; the reader is of no use then.
    """

    def __init__(self) -> None:
        self.line = 0
        self.finished = False
        self._chain = ""

    def take(self, text: bytes) -> Envelope | BundledRecord | Trailer:
        """The next line."""
        self.line += 1
        if self.finished:
            raise line_fault(self.line, "comes after the trailer, which is the last one")
        try:
            return self._take(text)
        except InvalidRequest as error:
            raise error if "line" in error.details else line_fault(self.line, f"can't be read: {error}") from None
        except msgspec.ValidationError as error:
            raise line_fault(self.line, f"is none of this place in a bundle: {error}") from None
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):  # Of text, what isn't UTF-8 passes for long.
            raise line_fault(self.line, "is no JSON object") from None

    def _take(self, text: bytes) -> Envelope | BundledRecord | Trailer:
        names = _decode_members(text)
        doubled = doubled_member(text.strip())
        if doubled is not None:
            raise line_fault(self.line, f"holds {doubled[:64]!r} twice")
        if self.line == 1:
            return self._envelope(msgspec.json.decode(text, type=Envelope))
        if "records" in names:
            return self._trailer(msgspec.json.decode(text, type=Trailer))
        return self._record(msgspec.json.decode(text, type=_RecordLine))

    def _envelope(self, found: Envelope) -> Envelope:
        names = ("bundle", "handoff", "n", "seq", "steps", "usd_nano")
        self._follow({name: getattr(found, name) for name in names}, found.chain)
        if handoff_id(found.intent.encode()) != found.handoff:
            raise line_fault(self.line, "holds an intent that doesn't have the handoff's id as its hash")
        return found

    def _record(self, found: _RecordLine) -> BundledRecord:
        members = parse_exact(bytes(found.record), member="record")
        if not isinstance(members, dict):
            raise line_fault(self.line, "holds a record that is no object")
        sha256 = None if found.sha256 is UNSET else found.sha256
        self._follow({"record": members} if sha256 is None else {"record": members, "sha256": sha256}, found.chain)
        payload = self._payload(found)
        if payload is not None and hashlib.sha256(payload).hexdigest() != sha256:
            raise line_fault(self.line, "holds a payload that doesn't have the hash that is given for it")
        return BundledRecord(members, sha256, payload)

    def _payload(self, found: _RecordLine) -> bytes | None:
        if found.payload_base64 is UNSET:
            return None if found.payload is UNSET else found.payload.encode()
        if found.payload is not UNSET:
            raise line_fault(self.line, "holds its payload twice")
        try:
            payload = base64.b64decode(found.payload_base64, validate=True)
        except (binascii.Error, ValueError):
            payload = b""
        if not payload or base64.b64encode(payload).decode() != found.payload_base64:
            raise line_fault(self.line, "holds a payload that is no Base64")
        return payload

    def _trailer(self, found: Trailer) -> Trailer:
        self._follow({"records": found.records}, found.chain)
        if found.records != self.line - 2:
            raise line_fault(self.line, f"counts {found.records} records, and {self.line - 2} came")
        self.finished = True
        return found

    def _follow(self, head: dict[str, Any], chain: str) -> None:
        self._chain = _link(self._chain, head)
        if self._chain != chain:
            raise line_fault(self.line, "was changed, or isn't the one that follows here")


def check_bundle(lines: Iterable[bytes]) -> Envelope:
    """The envelope of a whole bundle that nobody has changed; raises `InvalidRequest` with the number of the wrong line."""
    reader = BundleReader()
    envelope = None
    for text in lines:
        found = reader.take(text)
        if isinstance(found, Envelope):
            envelope = found
    if envelope is None or not reader.finished:
        raise line_fault(reader.line + 1, "is missing: the bundle has no end")
    return envelope


def line_fault(line: int, what: str) -> InvalidRequest:
    """Says what is wrong with a line; not at length, since it may be told of a stranger's text."""
    told = what if len(what) <= MAX_FAULT_CHARS else f"{what[:MAX_FAULT_CHARS]}…"
    return InvalidRequest(f"Line {line} of the bundle {told.rstrip('.')}.", member="records", line=line)


def _link(chain: str, head: dict[str, Any]) -> str:
    """The next link: the hash of the one before, and of the line without what is told by a hash in it."""
    text = _encode_sorted(head)
    if (
        not text.isascii()
    ):  # Without fractions, of which no record holds any, the two forms differ in the order of names.
        text = canonical(head, member="record")
    return hashlib.sha256(chain.encode() + b"\n" + text).hexdigest()


def _pieces(head: dict[str, Any], carried: Iterator[bytes], chain: str) -> Iterator[bytes]:
    """A line: what the chain is over, what is carried beside it, and the chain."""
    yield _encode(head)[:-1]
    yield from carried
    yield b',"chain":"%b"}' % chain.encode()


def _carried(payload: bytes) -> Iterator[bytes]:
    """A payload as text; where escaping would make more of it than Base64 does, as that, so that a line fits a frame."""
    escaped_bytes = len(payload)
    for start in range(0, len(payload), PIECE_BYTES):
        piece = payload[start : start + PIECE_BYTES]
        escaped_bytes += len(piece) - len(piece.translate(None, _ESCAPED))
        yield b""
    if escaped_bytes > 4 * -(-len(payload) // 3):
        yield from _as_base64("payload_base64", payload)
    else:
        yield from _as_text("payload", payload)


_ESCAPED = b'"\\\t\n\r'
"""What JSON text may hold that is two bytes long in a string."""


def _as_base64(name: str, payload: bytes) -> Iterator[bytes]:
    yield b',"%b":"' % name.encode()
    whole = PIECE_BYTES - PIECE_BYTES % 3  # Only the last piece is padded.
    for start in range(0, len(payload), whole):
        yield base64.b64encode(payload[start : start + whole])
    yield b'"'


def _as_text(name: str, payload: bytes) -> Iterator[bytes]:
    yield b',"%b":"' % name.encode()
    start = 0
    while start < len(payload):
        end = start + PIECE_BYTES
        while end < len(payload) and payload[end] & 0xC0 == 0x80:  # Not in the middle of a character.
            end -= 1
        yield _encode(payload[start:end].decode())[1:-1]
        start = end
    yield b'"'
