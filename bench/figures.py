"""Figures: what was measured, how often, and what the several measurements come to.

Owns the form of a figure and the median over rounds. Does not own what is held against what (`targets`). Pure.
"""

from collections.abc import Iterable
from statistics import median

from msgspec import Struct


class Figure(Struct, frozen=True):
    """One measurement.

    `name` is a path: whose, of what, under which conditions (`ours/checkpoints/1KB/64x16/rate`); the last part says which
    property it is. `unit` is one of `1/s`, `ms`, `us`, `bytes`, `s`, `count`. `note` is what a reader should know of it.
    """

    name: str
    value: float
    unit: str
    note: str = ""


class Measured(Struct, frozen=True):
    """A figure over all rounds: the median, and each value in the order of the rounds."""

    name: str
    value: float
    unit: str
    values: list[float]
    note: str = ""


def gathered(figures: Iterable[Figure]) -> dict[str, Measured]:
    """By name, in the order of their first appearance."""
    values: dict[str, list[Figure]] = {}
    for figure in figures:
        values.setdefault(figure.name, []).append(figure)
    return {
        name: Measured(name, median(f.value for f in found), found[0].unit, [f.value for f in found], found[-1].note)
        for name, found in values.items()
    }
