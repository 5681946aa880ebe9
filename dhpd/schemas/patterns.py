"""From a pattern in ECMA-262's notation to one of Python's that means the same.

Owns the translation and what is refused by name: back references (the notations differ in them, and they make matching
hard), properties that Python has no tables for, and what isn't ECMA-262 at all. Read as with the flag `u`, but where
that flag forbids what everybody writes (`\\-`, a lone `{`, `[\\w-.]`), it is taken as it is without. Pure.

A translated pattern can still take for ever on some string: whoever searches with it bounds the time from outside.
"""

import re
from typing import NoReturn

from .character_sets import (
    DIGITS,
    LINE_ENDS,
    SPACE,
    WORD,
    Ranges,
    complement,
    of_property,
    union,
    written,
)
from .sites import Search
from .values import shown

MAX_PATTERN_CHARS = 10_000
MAX_GROUPS_DEEP = 100

_QUANTIFIER = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_GROUP_NAME = re.compile(r"<[A-Za-z_$][A-Za-z0-9_$]*>")
_HEX = re.compile(r"[0-9A-Fa-f]+\Z")
_CONTROL = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}
_SETS = {
    "d": DIGITS,
    "D": complement(DIGITS),
    "w": WORD,
    "W": complement(WORD),
    "s": SPACE,
    "S": complement(SPACE),
}
_BOUNDARY = r"(?a:\b)"
_ANY_BUT_LINE_ENDS = written(complement(LINE_ENDS))


def compile_pattern(source: str) -> Search:
    """Finds the pattern anywhere in a string. Raises `ValueError` with a clause that says what can't be enforced."""
    if len(source) > MAX_PATTERN_CHARS:
        raise ValueError(f"has more than {MAX_PATTERN_CHARS} characters")
    try:
        return re.compile(_Translation(source).run()).search
    except re.error as error:
        raise ValueError(f"can't be used ({error.msg})") from None
    except (RecursionError, OverflowError):
        raise ValueError("is too large to be used") from None


class _Translation:
    """One pattern on its way. `_at` is where it is; `_repeatable` whether what came last may be repeated."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._out: list[str] = []
        self._open: list[bool] = []  # For each open group, whether it may be repeated.
        self._repeatable = False

    def run(self) -> str:
        while self._at < len(self._source):
            self._next()
        if self._open:
            self._refuse("has a group that isn't closed")
        return "".join(self._out)

    def _next(self) -> None:
        mark = self._take()
        match mark:
            case "\\":
                self._escape()
            case "[":
                self._put(written(self._set()))
            case "(":
                self._open_group()
            case ")":
                if not self._open:
                    self._refuse("closes a group that isn't open")
                self._put(")", repeatable=self._open.pop())
            case "|" | "^":
                self._put(mark, repeatable=False)
            case "$":
                self._put(r"\Z", repeatable=False)
            case ".":
                self._put(_ANY_BUT_LINE_ENDS)
            case "*" | "+" | "?":
                self._repeat(mark)
            case "{":
                self._brace()
            case _:
                self._put(re.escape(mark))

    def _take(self) -> str:
        if self._at >= len(self._source):
            self._refuse("ends in the middle")
        self._at += 1
        return self._source[self._at - 1]

    def _skip(self, text: str) -> bool:
        """Steps over `text` if it comes next."""
        if self._source.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _put(self, text: str, *, repeatable: bool = True) -> None:
        self._out.append(text)
        self._repeatable = repeatable

    def _refuse(self, clause: str) -> NoReturn:
        raise ValueError(f"({shown(self._source)}) {clause}")

    # --- groups and repetition ---------------------------------------------------------------------------------------

    def _open_group(self) -> None:
        if len(self._open) >= MAX_GROUPS_DEEP:
            self._refuse(f"has groups more than {MAX_GROUPS_DEEP} deep")
        for opening in ("?=", "?!", "?<=", "?<!"):
            if self._skip(opening):
                self._put(f"({opening}", repeatable=False)
                self._open.append(False)
                return
        if not self._skip("?:") and self._skip("?"):
            name = _GROUP_NAME.match(self._source, self._at)
            if name is None:
                self._refuse("has a group of a kind that ECMA-262 doesn't have")
            self._at = name.end()
        self._put("(?:", repeatable=False)  # Nothing refers back to it.
        self._open.append(True)

    def _brace(self) -> None:
        bounds = _QUANTIFIER.match(self._source, self._at - 1)
        if bounds is None:
            self._put(r"\{")
            return
        self._at = bounds.end()
        least, comma, most = bounds.groups()
        if max(len(least), len(most or "")) > 9:
            self._refuse("repeats more often than can be counted here")
        if most and int(most) < int(least):
            self._refuse(f"repeats from {least} down to {most}")
        self._repeat(f"{{{int(least)}{comma or ''}{int(most) if most else ''}}}")

    def _repeat(self, quantifier: str) -> None:
        if not self._repeatable:
            self._refuse(f"has nothing that {quantifier} could repeat")
        self._put(quantifier + ("?" if self._skip("?") else ""), repeatable=False)

    # --- characters --------------------------------------------------------------------------------------------------

    def _escape(self) -> None:
        if self._skip("b"):
            self._put(_BOUNDARY, repeatable=False)
        elif self._skip("B"):
            self._put(f"(?!{_BOUNDARY})", repeatable=False)
        else:
            found = self._escaped()
            self._put(re.escape(chr(found)) if isinstance(found, int) else written(found))

    def _escaped(self) -> int | Ranges:
        """What stands behind a backslash: a character or a set."""
        mark = self._take()
        if mark in _SETS:
            return _SETS[mark]
        if mark in _CONTROL:
            return _CONTROL[mark]
        if mark in "pP":
            return self._property(negated=mark == "P")
        if mark == "0" and not self._source[self._at : self._at + 1].isdecimal():
            return 0
        if mark == "c":
            return self._control()
        if mark == "x":
            return self._hex(2)
        if mark == "u":
            return self._code_point()
        if mark in "123456789k":
            self._refuse("refers back to a group, which isn't supported")
        if mark.isascii() and mark.isalnum():
            self._refuse(f"holds \\{mark}, which ECMA-262 doesn't have")
        return ord(mark)

    def _control(self) -> int:
        letter = self._take()
        if not (letter.isascii() and letter.isalpha()):
            self._refuse("holds \\c without a letter")
        return ord(letter) % 32

    def _property(self, *, negated: bool) -> Ranges:
        end = self._source.find("}", self._at)
        if not self._skip("{") or end < 0:
            self._refuse("holds \\p without a name")
        name = self._source[self._at : end]
        self._at = end + 1
        ranges = of_property(name)
        if ranges is None:
            self._refuse(f"asks for the property {shown(name)}: only Unicode's general categories are supported")
        return complement(ranges) if negated else ranges

    def _hex(self, digits: int) -> int:
        text = self._source[self._at : self._at + digits]
        if len(text) != digits or not _HEX.match(text):
            self._refuse("holds a character's number that isn't whole")
        self._at += digits
        return int(text, 16)

    def _code_point(self) -> int:
        if self._skip("{"):
            end = self._source.find("}", self._at)
            text = self._source[self._at : max(end, self._at)]
            if not 1 <= len(text) <= 8 or not _HEX.match(text) or int(text, 16) > 0x10FFFF:
                self._refuse("holds a character's number that isn't whole")
            self._at = end + 1
            return int(text, 16)
        code = self._hex(4)
        if 0xD800 <= code < 0xDC00 and self._skip("\\u"):
            low = self._hex(4)
            if 0xDC00 <= low < 0xE000:
                return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
            self._refuse("holds half a surrogate pair")
        return code

    # --- sets --------------------------------------------------------------------------------------------------------

    def _set(self) -> Ranges:
        """What stands in brackets, the opening one of which has been taken."""
        negated = self._skip("^")
        members: list[Ranges] = []
        while not self._skip("]"):
            member = self._member()
            if self._source.startswith("-", self._at) and not self._source.startswith("-]", self._at):
                self._at += 1
                end = self._member()
                if isinstance(member, int) and isinstance(end, int):
                    if end < member:
                        self._refuse("has a range that runs backwards")
                    members.append(((member, end),))
                    continue
                members += [_as_set(end), ((0x2D, 0x2D),)]  # Between sets, the hyphen is itself.
            members.append(_as_set(member))
        ranges = union(members)
        return complement(ranges) if negated else ranges

    def _member(self) -> int | Ranges:
        mark = self._take()
        if mark != "\\":
            return ord(mark)
        if self._skip("b"):
            return 0x08
        if self._skip("-"):
            return 0x2D
        return self._escaped()


def _as_set(member: int | Ranges) -> Ranges:
    return ((member, member),) if isinstance(member, int) else member
