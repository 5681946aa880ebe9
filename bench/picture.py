"""Draws the figures of a run: `.bench/venv/bin/python bench/picture.py TARGET.png < FIGURES.json`.

Owns how it looks. Needs matplotlib, which is in the benchmark's own environment, and nothing of the project. What wasn't
measured isn't drawn.
"""

import json
import math
import sys
from statistics import median
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

Figures = dict[str, dict[str, Any]]

INK, FAINT, GRID = "#1f2430", "#6b7280", "#e5e7eb"
OURS = ("#a9c8f5", "#4a86e0", "#1c4fa0")
THEIRS = ("#d5d8dd", "#a3a9b3", "#6f7682")
BAR = 0.26
DPI = 160


class System(NamedTuple):
    """`bars` are names of figures and what they say: one at a time, many at once, many and pipelined."""

    name: str
    durability: str
    bars: tuple[tuple[str, str], ...]


def _shapes(prefix: str) -> tuple[tuple[str, str], ...]:
    said = {"1x1": "1 connection", "64x1": "64 connections", "64x16": "64 connections, 16 in flight on each"}
    return tuple((f"{prefix}/{shape}/rate", words) for shape, words in said.items())


def _processes(prefix: str) -> tuple[tuple[str, str], ...]:
    return (f"{prefix}/1w/rate", "1 process"), (f"{prefix}/8w/rate", "8 processes")


SYSTEMS = (
    System("dhpd (checkpoint)", "SQLite, WAL, synchronous=FULL", _shapes("ours/checkpoints/1KB")),
    System("Redis streams (XADD)", "appendfsync always", _shapes("peers/redis-streams/xadd/1KB")),
    System("beanstalkd (put)", "-f 0: fsync for each put", _shapes("peers/beanstalkd/put/1KB")),
    System("dhp-protocol (checkpoint)", "SQLite, WAL, synchronous=FULL", _processes("peers/dhp-protocol/checkpoints")),
    System("dbos (step)", "SQLite, WAL, synchronous=FULL", _processes("peers/dbos/checkpoints")),
)
LIMIT = (
    ("1x1", "1 connection"),
    ("64x1", "64 connections"),
    ("64x16", "64 connections,\n16 in flight on each"),
)


def draw(report: dict[str, Any], target: str) -> None:
    figures: Figures = report["figures"]
    pyplot.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9, "text.color": INK, "axes.labelcolor": INK})
    systems = [system for system in SYSTEMS if any(name in figures for name, _ in system.bars)]
    picture, (left, right) = pyplot.subplots(
        1, 2, figsize=(11, 1.6 + 0.85 * max(3, len(systems))), width_ratios=(2.1, 1), layout="constrained"
    )
    _draw_rates(left, figures, systems)
    _draw_reach(right, figures)
    machine = report["machine"]
    rounds = f"medians of {report['rounds']} rounds" if report["rounds"] > 1 else "one round"
    if report["quick"]:
        rounds += " of --quick, whose figures say little"
    picture.text(
        0.5,
        -0.02,
        f"One run of `make bench`, {rounds}, on {machine['cores']} cores ({machine['processor']}), "
        f"{machine['filesystem']}, {machine['at'][:10]}",
        ha="center",
        va="top",
        fontsize=7.5,
        color=FAINT,
    )
    picture.savefig(target, dpi=DPI, bbox_inches="tight", pad_inches=0.15, facecolor="white")


def _draw_rates(axes: Axes, figures: Figures, systems: list[System]) -> None:
    _clear(axes, "Durable writes of 1 KB per second", "synced to the disk before the answer; logarithmic scale")
    axes.set_xscale("log")
    rates = [figures[name]["value"] for system in systems for name, _ in system.bars if name in figures]
    highest = max(rates, default=100_000)
    lowest = 10 ** math.floor(math.log10(min(rates, default=100) / 2))
    for place, system in enumerate(systems):
        shades = OURS if system is SYSTEMS[0] else THEIRS
        bars = [
            (name, words, shade) for (name, words), shade in zip(system.bars, shades, strict=False) if name in figures
        ]
        for number, (name, words, shade) in enumerate(bars):
            value = figures[name]["value"]
            at = place + (number - (len(bars) - 1) / 2) * BAR
            axes.barh(at, value, BAR * 0.9, color=shade)
            number_drawn = axes.annotate(
                f"{value:,.0f}",
                (value, at),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                fontweight="bold",
            )
            axes.annotate(
                words,
                (1, 0.5),
                (5, 0),
                xycoords=number_drawn,
                textcoords="offset points",
                va="center",
                fontsize=7.5,
                color=FAINT,
            )
    axes.set_xlim(lowest, highest * 9)
    axes.set_xticks([10**power for power in range(int(math.log10(lowest)), math.floor(math.log10(highest)) + 1)])
    axes.set_ylim(len(systems) - 0.45, -0.55)
    axes.set_yticks(range(len(systems)), [""] * len(systems))
    for place, system in enumerate(systems):
        axes.annotate(system.name, (0, place), (-8, 5), **_beside(axes), fontsize=10, fontweight="bold")
        axes.annotate(system.durability, (0, place), (-8, -8), **_beside(axes), fontsize=7.5, color=FAINT)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(axis="x", color=GRID, linewidth=0.8)


def _draw_reach(axes: Axes, figures: Figures) -> None:
    _clear(axes, "How close dhpd is to the limit", "1.0: a bare echo, and after it SQLite alone")
    shares = []
    for shape, words in LIMIT:
        limit = figures.get(f"limits/echo-then-sqlite/{shape}/rate")
        ours = figures.get(f"ours/checkpoints/1KB/{shape}/rate")
        if limit and ours:
            shares.append((words, _ratio(ours, limit)))
    for place, (_, share) in enumerate(shares):
        axes.barh(place, share, 0.5, color=OURS[place % len(OURS)])
        fits = share > 0.3
        axes.annotate(
            f"{share:.2f}",
            (share, place),
            (-5 if fits else 5, 0),
            textcoords="offset points",
            va="center",
            ha="right" if fits else "left",
            fontsize=10,
            fontweight="bold",
            color="white" if fits and place else INK,
        )
    axes.axvline(1.0, color=INK, linewidth=1.2)
    axes.set_xlim(0, max([1.05, *(share + 0.05 for _, share in shares)]))
    axes.set_ylim(max(1, len(shares)) - 0.45, -0.55)
    axes.set_yticks(range(len(shares)), [words for words, _ in shares])


def _ratio(over: dict[str, Any], under: dict[str, Any]) -> float:
    """As in the table: the median of the rounds' ratios."""
    if len(over["values"]) != len(under["values"]):
        return float(over["value"] / under["value"])
    return median(a / b for a, b in zip(over["values"], under["values"], strict=True))


def _clear(axes: Axes, title: str, subtitle: str) -> None:
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=24)
    axes.annotate(
        subtitle, (0, 1), (0, 9), xycoords="axes fraction", textcoords="offset points", fontsize=8.5, color=FAINT
    )
    axes.tick_params(length=0, colors=INK, labelsize=8)
    axes.tick_params(which="minor", length=0)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _beside(axes: Axes) -> dict[str, Any]:
    """Left of the axis, at the height of a bar."""
    return {
        "xycoords": axes.get_yaxis_transform(),
        "textcoords": "offset points",
        "ha": "right",
        "va": "center",
        "annotation_clip": False,
    }


if __name__ == "__main__":
    draw(json.load(sys.stdin), sys.argv[1])
