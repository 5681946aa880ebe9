"""What it costs to put JSON text into its canonical form, estimated from its bytes.

Owns the line between what is named on the event loop and what is named in the sandbox: about a millisecond. Pure.
"""

from collections.abc import Iterable

HERE_AT_MOST_US = 1_000

_PART_US = 4.0
"""A number, a name, an item: each has a comma or a colon beside it. Doubles cost as much, most others half of it or less."""
_NESTING_US = 1.0
_ESCAPE_US = 0.3
_BYTE_US = 0.02


def is_cheap(texts: Iterable[bytes]) -> bool:
    """Whether all these together are put into canonical form within about a millisecond."""
    return sum(map(cost_us, texts)) <= HERE_AT_MOST_US


def cost_us(text: bytes) -> float:
    """An estimate, rather too high than too low. Making it takes four passes in C over what isn't dear by its length alone."""
    cost = _BYTE_US * len(text)
    if cost > HERE_AT_MOST_US:
        return cost
    parts = text.count(b",") + text.count(b":")
    nestings = text.count(b"[") + text.count(b"{")
    return cost + _PART_US * parts + _NESTING_US * nestings + _ESCAPE_US * text.count(b"\\")
