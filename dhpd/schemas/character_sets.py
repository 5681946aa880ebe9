"""Sets of characters as ranges of code points, and the named ones of ECMA-262.

Owns what `\\d`, `\\w`, `\\s` and `\\p{…}` stand for, and how a set is written in Python's notation. Unicode's general
categories are those of the Python that runs this. Pure.
"""

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

Ranges = tuple[tuple[int, int], ...]
"""From and to, both inclusive; in order, apart from one another."""

LAST = 0x10FFFF
EVERYTHING: Ranges = ((0, LAST),)
DIGITS: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Ranges = (
    *((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))

_LONG_NAMES = {
    "Letter": "L",
    "Cased_Letter": "LC",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm",
    "Other_Letter": "Lo",
    "Mark": "M",
    "Combining_Mark": "M",
    "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Letter_Number": "Nl",
    "Other_Number": "No",
    "Punctuation": "P",
    "punct": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po",
    "Symbol": "S",
    "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk",
    "Other_Symbol": "So",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp",
    "Other": "C",
    "Control": "Cc",
    "cntrl": "Cc",
    "Format": "Cf",
    "Surrogate": "Cs",
    "Private_Use": "Co",
    "Unassigned": "Cn",
}
_CASED = ("Lu", "Ll", "Lt")


def union(sets: Iterable[Ranges]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for low, high in sorted(each for ranges in sets for each in ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(ranges: Ranges) -> Ranges:
    rest = []
    start = 0
    for low, high in ranges:
        if low > start:
            rest.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        rest.append((start, LAST))
    return tuple(rest)


def of_property(name: str) -> Ranges | None:
    """What `\\p{name}` matches; None for a property that isn't known here: scripts, and most binary ones."""
    name = name.removeprefix("General_Category=").removeprefix("gc=")
    if name == "Any":
        return EVERYTHING
    if name == "ASCII":
        return ((0, 0x7F),)
    if name == "Assigned":
        return complement(_by_category()["Cn"])
    return _of_category(_LONG_NAMES.get(name, name))


@lru_cache
def _of_category(name: str) -> Ranges | None:
    found = _by_category()
    if name == "LC":
        return union(found[each] for each in _CASED)
    if len(name) == 1:
        return union(ranges for each, ranges in found.items() if each[0] == name) or None
    return found.get(name)


@lru_cache(maxsize=1)
def _by_category() -> dict[str, Ranges]:
    """Takes about 0.2 s, once."""
    found: dict[str, list[tuple[int, int]]] = {}
    start, current = 0, unicodedata.category("\0")
    for code in range(1, LAST + 2):
        category = unicodedata.category(chr(code)) if code <= LAST else ""
        if category != current:
            found.setdefault(current, []).append((start, code - 1))
            start, current = code, category
    return {category: tuple(ranges) for category, ranges in found.items()}


def written(ranges: Ranges) -> str:
    """The set in the notation of Python's `re`; matches one character."""
    if not ranges:
        return "(?!)"
    return f"[{''.join(_written(low, high) for low, high in ranges)}]"


def _written(low: int, high: int) -> str:
    return f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}"
