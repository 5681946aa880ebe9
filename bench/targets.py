"""What is to be reached, and whether it was: each target holds one figure against a bound, or its ratio to another figure.

Owns the targets, the comparisons with peers, and the limit that is put together from two others. Pure. Does not own how
a figure is measured, nor how any of this is printed (`table`).
"""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Literal

from msgspec import Struct

from bench.figures import Measured

Figures = Mapping[str, Measured]

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
SHAPES = ("1x1", "64x1", "64x16")
CHECKPOINTS = "ours/checkpoints/1KB"
ONE_AFTER_THE_OTHER = "limits/echo-then-sqlite"
SQLITE = "limits/sqlite/batch"
DHP_PROTOCOL = "peers/dhp-protocol"


class Missing(Exception):
    """A figure that is needed wasn't measured, or is 0 where it divides; the text names it."""


class Comparison(Struct, frozen=True):
    """How many times `per` is `figure`? Both are names of figures in the same unit."""

    name: str
    figure: str
    per: str


class Target(Struct, frozen=True):
    """`figure`, divided by the figure `per` if there is one, is at least (or `at_most`) the bound.

    `unit` is the bound's: one of a figure's, or `""` for a ratio. `over_rounds` makes one value of those of the rounds.
    """

    name: str
    figure: str
    bound: float
    per: str = ""
    at_most: bool = False
    unit: str = ""
    over_rounds: Callable[[list[float]], float] = median


class Verdict(Struct, frozen=True):
    """`value` is what was reached, in the target's unit. Where the state is `left out`, it is None and `reason` says why."""

    target: Target
    state: Literal["met", "missed", "left out"]
    value: float | None = None
    reason: str = ""


def _of_both(shape: str, name: str, bound: float) -> Target:
    return Target(name, f"{CHECKPOINTS}/{shape}/rate", bound, per=f"{ONE_AFTER_THE_OTHER}/{shape}/rate")


TARGETS = (
    _of_both("64x1", "1 KB checkpoints, 64 connections, of echo then SQLite alone", 0.60),
    Target("  p99 of these", f"{CHECKPOINTS}/64x1/p99", 6, at_most=True, unit="ms"),
    _of_both("64x16", "the same, 16 in flight on each", 0.60),
    _of_both("1x1", "the same, one connection", 0.85),
    Target(
        "64 connections, times dhp-protocol's 8 processes",
        f"{CHECKPOINTS}/64x1/rate",
        15,
        per=f"{DHP_PROTOCOL}/checkpoints/8w/rate",
    ),
    Target(
        "8 writers each, times dhp-protocol", f"{CHECKPOINTS}/8x1/rate", 5, per=f"{DHP_PROTOCOL}/checkpoints/8w/rate"
    ),
    Target(
        "1 writer each, dhp-protocol's on 10,000 checkpoints, ours on 100,000: times faster",
        f"{DHP_PROTOCOL}/history/10000/p50",
        40,
        per="ours/history/100k-all-kept/p50",
    ),
    Target("heartbeats, 64 connections, beside checkpoints", "ours/heartbeats/64x16/rate", 60_000, unit="1/s"),
    Target("  p99 of these", "ours/heartbeats/64x16/p99", 5, at_most=True, unit="ms"),
    Target("  checkpoints beside them", "ours/heartbeats/64x16/checkpoints_beside", 4_950, unit="1/s"),
    Target(
        "whole lives with 10 checkpoints, 64 workers, times dhp-protocol's 8 processes",
        "ours/life/64x1/rate",
        10,
        per=f"{DHP_PROTOCOL}/life/8p/rate",
    ),
    Target(
        "a checkpoint after 100,000, to a fresh handoff's",
        "ours/history/100k/p50",
        1.1,
        per="ours/history/fresh/p50",
        at_most=True,
    ),
    Target(
        "  with all 100,000 kept",
        "ours/history/100k-all-kept/p50",
        1.1,
        per="ours/history/fresh-all-kept/p50",
        at_most=True,
    ),
    Target(
        "memory per live handoff, of 100,000", "ours/memory/100k/bytes_per_handoff", 1024, at_most=True, unit="bytes"
    ),
    Target(
        "memory per live handoff, of 1,000,000", "ours/memory/1M/bytes_per_handoff", 1024, at_most=True, unit="bytes"
    ),
    Target("start with 1,000,000 live handoffs", "ours/start/1M/s", 10, at_most=True, unit="s"),
    Target("worst pause with these", "ours/pause/beside-1M/max", 50, at_most=True, unit="ms", over_rounds=max),
    Target("async client, one task, of the bare generator", "ours/client/async/rate", 0.5, per="ours/client/bare/rate"),
    Target("worst pause of the loop in the whole run", "ours/pause/max", 50, at_most=True, unit="ms", over_rounds=max),
)


def _checkpoints_to(shape: str, peer: str, figure: str) -> Comparison:
    connections, depth = shape.split("x")
    many = "1 connection" if connections == "1" else f"{connections} connections"
    in_flight = "" if depth == "1" else f", {depth} in flight"
    return Comparison(f"1 KB, {many}{in_flight}: {peer}", f"{CHECKPOINTS}/{shape}/rate", f"peers/{figure}/rate")


def _lives_to(peer: str, figure: str) -> Comparison:
    return Comparison(f"lives, ours with 10 checkpoints: {peer}", "ours/life/64x1/rate", f"peers/{figure}/rate")


COMPARISONS = (
    _checkpoints_to("1x1", "dhp-protocol, 1 process", "dhp-protocol/checkpoints/1w"),
    *(_checkpoints_to(shape, "beanstalkd put", f"beanstalkd/put/1KB/{shape}") for shape in SHAPES),
    *(_checkpoints_to(shape, "Redis XADD", f"redis-streams/xadd/1KB/{shape}") for shape in SHAPES),
    _checkpoints_to("64x1", "dhp-protocol, 1 process", "dhp-protocol/checkpoints/1w"),
    _checkpoints_to("64x1", "dhp-protocol, 8 processes", "dhp-protocol/checkpoints/8w"),
    _checkpoints_to("64x1", "dbos, 1 process", "dbos/checkpoints/1w"),
    _checkpoints_to("64x1", "dbos, 8 processes", "dbos/checkpoints/8w"),
    _lives_to("dhp-protocol, 8 processes, as many checkpoints", "dhp-protocol/life/8p"),
    _lives_to("dbos, 8 processes, as many steps", "dbos/life/8p"),
    _lives_to("beanstalkd, no checkpoints", "beanstalkd/life/64x1"),
    _lives_to("Redis streams, no checkpoints", "redis-streams/life/64x1"),
    Comparison(
        "from kill -9 to resumed, quicker: dhp-protocol, its default lease",
        f"{DHP_PROTOCOL}/resume/p50",
        "ours/resume/p50",
    ),
    Comparison(
        "from kill -9 to resumed, quicker: dhp-protocol, its shortest lease",
        f"{DHP_PROTOCOL}/resume-short-lease/p50",
        "ours/resume/p50",
    ),
)


def verdicts(figures: Figures) -> list[Verdict]:
    """Of each target, in their order."""
    return [_verdict(target, figures) for target in TARGETS]


def compared(figures: Figures) -> list[tuple[Comparison, float]]:
    """How many times the peers' figures ours are; what wasn't measured is left out."""
    found = []
    for comparison in COMPARISONS:
        try:
            found.append((comparison, median(ratios(figures, comparison.figure, comparison.per))))
        except Missing:
            continue
    return found


def ratios(figures: Figures, name: str, per: str) -> list[float]:
    """Of each round. One of the medians where the two weren't measured equally often, since no rounds belong together then."""
    if 0 in _values(figures, per):
        raise Missing(f"{per} is 0")
    return _by_round(figures, lambda over, under: over / under, name, per)


def with_limits(figures: Figures) -> dict[str, Measured]:
    """The same, and after them what is possible one after the other: the echo, then SQLite with as many rows in each commit
    as we had, `limits/echo-then-sqlite/WxD/rate`, of each shape for which both were measured."""
    batches = sorted(int(name.removeprefix(SQLITE).split("/")[0]) for name in figures if name.startswith(SQLITE))
    both = dict(figures)
    for shape in SHAPES:
        needed = [f"{CHECKPOINTS}/{shape}/rows_per_commit", f"limits/echo/{shape}/rate"]
        needed += [f"{SQLITE}{rows}/rate" for rows in batches]
        if not batches or not all(name in figures for name in needed):
            continue

        def one_after_the_other(rows: float, echo: float, *sqlite: float) -> float:
            return 1 / (1 / echo + 1 / _rate_at(rows, dict(zip(batches, sqlite, strict=True))))

        values = _by_round(figures, one_after_the_other, *needed)
        note = f"SQLite with {median(_values(figures, needed[0])):.3g} rows in each commit"
        name = f"{ONE_AFTER_THE_OTHER}/{shape}/rate"
        both[name] = Measured(name, median(values), "1/s", values, note)
    return both


def _rate_at(rows: float, rates: Mapping[int, float]) -> float:
    """Rows per second with so many in each commit, when the time of a commit grows evenly from one measured number to the
    next. Below the smallest and above the largest, what was measured there."""
    if rows in rates or rows <= min(rates) or rows >= max(rates):
        return rates[min(rates, key=lambda measured: abs(measured - rows))]
    below = max(measured for measured in rates if measured < rows)
    above = min(measured for measured in rates if measured > rows)
    share = (rows - below) / (above - below)
    return rows / ((1 - share) * below / rates[below] + share * above / rates[above])


def _verdict(target: Target, figures: Figures) -> Verdict:
    try:
        if target.per:
            values = ratios(figures, target.figure, target.per)
        else:
            values = [value / SECONDS.get(target.unit, 1) for value in _values(figures, target.figure)]
    except Missing as missing:
        return Verdict(target, "left out", reason=str(missing))
    value = target.over_rounds(values)
    met = value <= target.bound if target.at_most else value >= target.bound
    return Verdict(target, "met" if met else "missed", value)


def _by_round(figures: Figures, formula: Callable[..., float], *names: str) -> list[float]:
    columns = [_values(figures, name) for name in names]
    if len({len(column) for column in columns}) == 1:
        return [formula(*row) for row in zip(*columns, strict=True)]
    return [formula(*map(median, columns))]


def _values(figures: Figures, name: str) -> list[float]:
    """Of each round; times in seconds, whatever unit they were measured in."""
    if name not in figures:
        raise Missing(name)
    figure = figures[name]
    return [value * SECONDS.get(figure.unit, 1) for value in figure.values]
