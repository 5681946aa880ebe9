"""What a program says and what it merely prints: its output, split into commands and everything else.

Owns which lines are commands, and how much of one is ever held. Pure. What comes of a command is `attempt`'s.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from dhp_client.payload import decode

NAMES = ("checkpoint", "result", "fail", "spend", "activity")
UNDECIDED_BYTES = 64
"""So much of a line shows whether it begins as a command does."""

_BEGINNING = re.compile(rb'[ \t]*\{[ \t]*"(%s)"[ \t]*:' % "|".join(NAMES).encode())
_PERHAPS = re.compile(rb"[ \t]*(?:\{|\Z)")


class Command(msgspec.Struct, frozen=True):
    """`{NAME: VALUE}` on a line of its own, decoded."""

    name: str
    value: Any


class Misfit(msgspec.Struct, frozen=True):
    """The line that is passed through next begins as a command does, and isn't one."""

    name: str
    why: str


class Lines:
    """Takes a program's output in pieces of any size. What is no command comes out as it went in, byte for byte.

    A line that begins as none is passed on at once, whole or not; of one that does, `max_line_bytes` are held at most.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._held = bytearray()
        """The beginning of a line that may be a command."""
        self._passing = False
        """Whether the line that comes in is known to be none."""

    def feed(self, piece: bytes) -> Iterator[bytes | Command | Misfit]:
        """What `piece` completes, in order; what is passed through comes in pieces as large as that allows."""
        passed = bytearray()
        at = 0
        while at < len(piece):
            end = piece.find(b"\n", at) + 1
            part = piece[at : end or len(piece)]
            at += len(part)
            found: Command | Misfit | None = None
            if self._passing:
                passed += part
                self._passing = not end
                continue
            self._held += part
            if not end and self._may_be_command():
                continue
            found = self._read()
            if found is not None and passed:
                yield bytes(passed)
                passed.clear()
            if found is not None:
                yield found
            if not isinstance(found, Command):
                passed += self._held
            self._held.clear()
            self._passing = not end
        if passed:
            yield bytes(passed)

    def end(self) -> Iterator[bytes | Command | Misfit]:
        """Nothing more comes: a last line needs no line feed."""
        found = self._read()
        if found is not None:
            yield found
        if self._held and not isinstance(found, Command):
            yield bytes(self._held)
        self._held.clear()

    def _may_be_command(self) -> bool:
        """Whether the line that is held so far, which hasn't ended, is to be held on."""
        if len(self._held) <= UNDECIDED_BYTES:
            return _PERHAPS.match(self._held) is not None
        return len(self._held) <= self._max_line_bytes and _BEGINNING.match(self._held) is not None

    def _read(self) -> Command | Misfit | None:
        """The command that the line held is; None where it doesn't even begin as one."""
        line = self._held
        begun = _BEGINNING.match(line)
        if begun is None:
            return None
        name = begun[1].decode()
        if len(line) > self._max_line_bytes:
            return Misfit(name, f"it is longer than {self._max_line_bytes} bytes")
        try:
            members = msgspec.json.decode(line, type=dict[str, Raw])
            if len(members) == 1:
                return Command(name, decode(members[name]))
        except (ValueError, RecursionError) as error:  # What msgspec raises, and bad UTF-8, are ValueErrors too.
            why = str(error) if isinstance(error, ValueError) else "it is nested too deep"
            return Misfit(name, f"it is no JSON ({why})")
        return Misfit(name, "it has other members besides")
