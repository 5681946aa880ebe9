"""How deep JSON text is nested, found out slice by slice.

Owns the scan, which whoever may not stop for long takes in steps: each looks at one slice and takes a fraction of a
millisecond, however the text was made. Linear, and made of passes in C. Pure.
"""

from itertools import accumulate

SLICE_BYTES = 16 * 1024
COUNTED_BYTES = 128 * 1024
_ROUNDS = 4


class DepthScan:
    """`while not scan.step(): …`, then `scan.too_deep`. Where the brackets don't match, either answer may come."""

    def __init__(self, body: bytes, max_depth: int) -> None:
        self.too_deep = False
        self._body = body
        self._max_depth = max_depth
        self._at = 0
        self._openings = 0
        self._exact = False  # Most text has so few brackets that nothing else need be looked at.
        self._depth = 0
        self._in_string = False
        self._carried = b""

    def step(self) -> bool:
        """Looks at the next slice; tells whether the answer is known."""
        piece = self._body[self._at : self._at + (SLICE_BYTES if self._exact else COUNTED_BYTES)]
        self._at += len(piece)
        if self._exact:
            self._measure(piece)
            return self.too_deep or self._at >= len(self._body)
        self._openings += piece.count(b"{") + piece.count(b"[")
        if self._openings <= self._max_depth:
            return self._at >= len(self._body)
        self._exact = True
        self._at = 0
        return False

    def _measure(self, piece: bytes) -> None:
        """Adds up the levels of one slice, which begins where the last one ended: perhaps within a string, or an escape."""
        piece = self._carried + piece
        self._carried = b""
        if b"\\" in piece:
            if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
                piece, self._carried = piece[:-1], b"\\"
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        marks = piece.translate(_ROUNDED, _NEITHER_BRACKET_NOR_QUOTE)
        if self._in_string:
            marks = b'"' + marks
        parts = marks.split(b'"')  # Every other one stood in a string.
        self._in_string = len(parts) % 2 == 0
        marks = b"".join(parts[::2])
        self.too_deep = self._passes(marks)
        self._depth += marks.count(b"(") - marks.count(b")")

    def _passes(self, marks: bytes) -> bool:
        """Whether a level beyond the limit is reached within these brackets."""
        room = self._max_depth - self._depth
        shallower = marks
        for _ in range(_ROUNDS):
            shallower = shallower.replace(
                b"()", b""
            )  # The innermost pairs: what is left is one level less deep at most.
        if shallower.count(b"(") + _ROUNDS <= room:
            return False
        return _highest(shallower) + _ROUNDS > room and _highest(marks) > room


def _highest(marks: bytes) -> int:
    return max(accumulate(memoryview(marks.translate(_STEPS)).cast("b")), default=0)


def nested_deeper(body: bytes, max_depth: int) -> bool:
    """Whether JSON text has more than `max_depth` levels; where the brackets don't match, either answer may come."""
    scan = DepthScan(body, max_depth)
    while not scan.step():
        pass
    return scan.too_deep


_ROUNDED = bytes.maketrans(b"[{]}", b"(())")
_NEITHER_BRACKET_NOR_QUOTE = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_STEPS = bytes.maketrans(b"()", b"\x01\xff")  # As signed bytes: one level down, one up.
