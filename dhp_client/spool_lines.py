"""What stands in a spool file: lines chained to each other, and what they add up to.

Pure. Owns the form of a line, telling a torn end from damage, and what of it all still waits. The file is `spool_file`'s,
what is done about what waits `spooling`'s.

A line is `DIGEST SP BODY LF`; DIGEST is the beginning of the SHA-256 of the digest before and BODY, BODY one JSON object. So a
line that was written half is told from a whole one, and a line that is missing or changed from one that was never there.
"""

import hashlib
from collections import deque

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dhp_protocol.replies import StoredCheckpoint

VERSION = 1
FIRST_DIGEST = b"dhp-spool/1"
DIGEST_CHARS = 32
_NANO_DIGITS = 9


class Head(Struct, tag="head", tag_field="line", frozen=True, kw_only=True):
    """Whose writes these are, and what the last stored checkpoint before them is (`seq` 0: none).

    `unanswered` are the hashes of states that were sent as the next checkpoint and given up: any one may be stored.
    """

    handoff: str
    kind: str
    worker: str
    fence: int
    seq: int
    sha256: str | None
    unanswered: list[str]
    at: str
    pid: int
    version: int = VERSION


class KeptCheckpoint(Struct, tag="checkpoint", tag_field="line", frozen=True, kw_only=True):
    """A checkpoint that waits."""

    state: Raw
    sha256: str
    steps: int
    usd: Raw | UnsetType = UNSET
    activity: str | UnsetType = UNSET


class KeptSpend(Struct, tag="spend", tag_field="line", frozen=True, kw_only=True):
    """What was used up, and isn't counted yet."""

    usd: Raw
    steps: int
    nonce: str


class KeptEffect(Struct, tag="effect_done", tag_field="line", frozen=True, kw_only=True):
    """An effect that was carried out, and isn't on record yet."""

    step: str
    result: Raw


class KeptResult(Struct, tag="complete", tag_field="line", frozen=True, kw_only=True):
    """A result that isn't accepted yet. Nothing comes after it."""

    result: Raw


class Reclaimed(Struct, tag="reclaimed", tag_field="line", frozen=True, kw_only=True):
    """The handoff was claimed again, with nobody in between: what waits is sent under this fence."""

    fence: int


class Answered(Struct, tag="answered", tag_field="line", frozen=True, kw_only=True):
    """The oldest that waited has its answer, an `error` perhaps; the last stored checkpoint is this one now."""

    seq: int
    sha256: str | None
    error: str | None = None


class Void(Struct, tag="void", tag_field="line", frozen=True, kw_only=True):
    """What waits will never be sent: why, and the handoff's fence and status as they were told."""

    why: str
    fence: int
    status: str


Entry = KeptCheckpoint | KeptSpend | KeptEffect | KeptResult
Line = Head | Entry | Reclaimed | Answered | Void

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


def written(line: Line, digest: bytes) -> tuple[bytes, bytes]:
    """The bytes of `line` behind a line with `digest`, and its own digest."""
    body = _encode(line)
    own = _digest(digest, body)
    return b"%b %b\n" % (own, body), own


def parsed(text: bytes) -> Line:
    """The line with these bytes, which were found whole before. Payloads are copied out of them."""
    return _decode(text[DIGEST_CHARS + 1 : -1])


class Waiting(Struct, frozen=True):
    """Where an entry that waits stands in its file; `sha256` is a checkpoint's, `usd` and `steps` are what it spends."""

    start: int
    length: int
    sha256: str | None
    usd: float
    steps: int


class Contents(Struct):
    """What a file's lines add up to; `take` adds one more. `end` and `digest` are those of the last good line."""

    head: Head
    fence: int
    seq: int
    sha256: str | None
    end: int = 0
    digest: bytes = FIRST_DIGEST
    waiting: deque[Waiting] = msgspec.field(default_factory=deque)
    void: Void | None = None
    errors: list[str] = msgspec.field(default_factory=list)
    damaged: bool = False
    """Lines follow that don't belong to the chain: what they say isn't known."""

    @classmethod
    def of(cls, head: Head) -> "Contents":
        return cls(head=head, fence=head.fence, seq=head.seq, sha256=head.sha256)

    @property
    def empty(self) -> bool:
        """Whether nobody needs the file any more."""
        return not self.waiting and self.void is None and not self.damaged

    @property
    def checkpoints(self) -> int:
        """How many of what waits are checkpoints."""
        return sum(one.sha256 is not None for one in self.waiting)

    @property
    def usd(self) -> float:
        """What all that waits spends, in US dollars."""
        return round(sum(one.usd for one in self.waiting), _NANO_DIGITS)

    @property
    def steps(self) -> int:
        return sum(one.steps for one in self.waiting)

    def take(self, line: Line, length: int, digest: bytes) -> None:
        """The next good line, `length` bytes with its digest and its end."""
        start = self.end
        self.stands(length, digest)
        match line:
            case Head():
                pass
            case Reclaimed():
                self.fence = line.fence
            case Answered():
                if self.waiting:
                    self.waiting.popleft()
                self.seq, self.sha256 = line.seq, line.sha256
                if line.error is not None:
                    self.errors.append(line.error)
            case Void():
                self.void = line
            case KeptCheckpoint():
                self.waiting.append(Waiting(start, length, line.sha256, _usd(line.usd), line.steps))
            case KeptSpend():
                self.waiting.append(Waiting(start, length, None, _usd(line.usd), line.steps))
            case _:
                self.waiting.append(Waiting(start, length, None, 0.0, 0))

    def stands(self, length: int, digest: bytes) -> None:
        """A good line of `length` bytes is in the file, whose meaning counts already."""
        self.end, self.digest = self.end + length, digest

    def sent_up_to(self, stored: StoredCheckpoint | None) -> int | None:
        """How many of those that wait are with the daemon already, `stored` being the handoff's last checkpoint.

        They were sent in order, so a checkpoint that is stored has taken all before it along. None: `stored` is neither one of
        them nor what the first of them comes after.
        """
        seq, sha256 = (0, None) if stored is None else (stored.seq, stored.sha256)
        if (seq, sha256) == (self.seq, self.sha256):
            return 0
        ours = [number for number, one in enumerate(self.waiting, 1) if one.sha256 is not None]
        # One that was given up may be stored before them, and has its number from the first of them.
        leads = (0, 1) if self.head.unanswered and self.seq == self.head.seq else (0,)
        for lead in leads:
            place = seq - self.seq - 1 - lead
            if place == -1 and lead and sha256 in self.head.unanswered:
                return 0
            if 0 <= place < len(ours) and self.waiting[ours[place] - 1].sha256 == sha256:
                return ours[place]
        return None


def read(data: bytes) -> Contents | None:
    """What a file with these bytes holds; None: not even a head, so that nothing was ever kept in it.

    A last line that isn't whole was never acknowledged, and doesn't count. Anything else that is wrong is damage.
    """
    found: Contents | None = None
    start, digest = 0, FIRST_DIGEST
    while start < len(data):
        end = data.find(b"\n", start) + 1
        line = _checked(data[start:end], digest) if end else None
        if line is None or isinstance(line, Head) != (found is None):
            if found is not None:
                found.damaged = found.damaged or 0 < end < len(data)
            return found
        if isinstance(line, Head):
            found = Contents.of(line)
            found.damaged = line.version != VERSION
        assert found is not None
        digest = data[start : start + DIGEST_CHARS]
        found.take(line, end - start, digest)
        start = end
    return found


def _checked(text: bytes, digest: bytes) -> Line | None:
    """The line in `text`; None: it isn't whole, or belongs to another chain."""
    body = text[DIGEST_CHARS + 1 : -1]
    if text[: DIGEST_CHARS + 1] != _digest(digest, body) + b" ":
        return None
    try:
        line = _decode(body)
        if isinstance(line, KeptCheckpoint | KeptSpend):
            _usd(line.usd)
    except (msgspec.DecodeError, RecursionError):
        return None
    return line


def _digest(digest: bytes, body: bytes) -> bytes:
    return hashlib.sha256(digest + body).hexdigest()[:DIGEST_CHARS].encode()


def _usd(amount: Raw | UnsetType) -> float:
    return 0.0 if isinstance(amount, UnsetType) else msgspec.json.decode(amount, type=float)
