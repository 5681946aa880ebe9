"""Rows that fit a width.

Owns how wide a text is on a terminal, and what of a table gives way where there is too little room: first the ends of long cells,
then whole columns, the least important first. Pure.
"""

import unicodedata
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from dhp_protocol.printable import harmless

Style = Literal["plain", "title", "bad", "warn", "dim", "command"]
GAP = 2
ELLIPSIS = "…"


class Span(Struct, frozen=True):
    """Text of one style. It is a terminal's to show: `said` makes it of what others wrote."""

    text: str
    style: Style = "plain"


Line = tuple[Span, ...]


def said(text: str, style: Style = "plain") -> Span:
    """What somebody else wrote, made harmless."""
    return Span(harmless(text), style)


class Column(Struct, frozen=True):
    """`least` is the width down to which it may be cut, `weight` how late it is left out."""

    name: str
    least: int
    weight: int


def width_of(text: str) -> int:
    """How many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, width: int) -> str:
    """The text, or its beginning and an ellipsis, in at most so many cells."""
    if width_of(text) <= width:
        return text
    if width < 1:
        return ""
    kept, room = [], width - 1
    for character in text:
        room -= width_of(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def fitted(line: Line, width: int) -> Line:
    """The line, cut where the room ends."""
    found = []
    for span in line:
        text = cut(span.text, width)
        width -= width_of(text)
        if text:
            found.append(Span(text, span.style))
    return tuple(found)


def wrapped(spans: Sequence[Span], width: int | None) -> list[Line]:
    """The spans beside each other, on as many lines as it takes."""
    found: list[list[Span]] = [[]]
    room = width
    for span in spans:
        taken = width_of(span.text) + GAP
        if room is not None and width is not None and taken - GAP > room and found[-1]:
            found.append([])
            room = width
        found[-1].append(Span(span.text + " " * GAP, span.style))
        room = None if room is None else room - taken
    return [tuple(line) for line in found]


def table(columns: Sequence[Column], rows: Sequence[Sequence[Span]], width: int | None) -> list[Line]:
    """The columns' names, and the rows below them, in at most `width` cells (None: in as many as it takes)."""
    natural = [
        max(width_of(column.name), *(width_of(row[index].text) for row in rows)) if rows else width_of(column.name)
        for index, column in enumerate(columns)
    ]
    shown = _columns_that_fit(columns, natural, width)
    widths = {index: natural[index] for index in shown}
    while width is not None and sum(widths.values()) + GAP * (len(shown) - 1) > width:
        shrinkable = [index for index in shown if widths[index] > columns[index].least]
        if not shrinkable:
            break
        widths[max(shrinkable, key=widths.__getitem__)] -= 1
    head = [Span(column.name, "dim") for column in columns]
    return [_row(row, widths) for row in (head, *rows)]


def _columns_that_fit(columns: Sequence[Column], natural: Sequence[int], width: int | None) -> list[int]:
    shown = list(range(len(columns)))
    if width is None:
        return shown

    def needed() -> int:
        return sum(min(natural[index], columns[index].least) for index in shown) + GAP * (len(shown) - 1)

    while len(shown) > 1 and needed() > width:
        shown.remove(min(shown, key=lambda index: columns[index].weight))
    return shown


def _row(row: Sequence[Span], widths: dict[int, int]) -> Line:
    spans: list[Span] = []
    last = max(widths)
    for index, width in widths.items():
        text = cut(row[index].text, width)
        pad = "" if index == last else " " * (width - width_of(text) + GAP)
        spans.append(Span(text + pad, row[index].style))
    return tuple(spans)
