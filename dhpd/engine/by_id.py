"""Many things by their handoff's id.

Owns that there may be millions and growing never takes long: a dict of so many that grows moves all of its entries at once,
and nothing else happens meanwhile. An id is a hash, so by its first digit they fall into dicts of like size. Pure.
"""

from typing import TypeVar

V = TypeVar("V")

ById = dict[str, dict[str, V]]
"""`index[handoff[0]]` is the dict that has or lacks `handoff`."""


def by_id() -> ById[V]:
    return {digit: {} for digit in "0123456789abcdef"}
