"""The figures of a run as text: what was measured, ours against the peers, and what was to be reached.

Owns the form. Does not own what is compared with what, nor the bounds (`targets`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from textwrap import wrap

from bench.figures import Measured
from bench.targets import Figures, Verdict, compared, verdicts, with_limits

WIDTH = 110
TITLES = {"ours": "Ours", "limits": "Limits of this machine"}
UNITS = {"1/s": "/s", "ms": " ms", "us": " us", "s": " s", "bytes": " B", "count": "", "": ""}


def print_report(figures: Figures, durability: Mapping[str, str], left_out: Mapping[str, str]) -> None:
    """`durability` says by peer what its answers promise, `left_out` by part why it wasn't measured."""
    print("\n".join(report(figures, durability, left_out)))


def report(figures: Figures, durability: Mapping[str, str], left_out: Mapping[str, str]) -> Iterator[str]:
    """Line by line."""
    figures = with_limits(figures)
    for section, found in _grouped(figures.values(), _section).items():
        yield from _heading(TITLES.get(section) or f"Peer: {_peer(section)}")
        if promised := durability.get(_peer(section)):
            yield from _paragraph(f"Durability: {promised}", indent=2)
        for family, members in _grouped(found, _family_of).items():
            yield ""
            yield from _family(family, members)
    if left_out:
        yield from _heading("Not measured")
        for part, reason in left_out.items():
            yield from _paragraph(f"{part}: {_brief(reason)}", indent=2)
    yield from _heading("Ours, how many times the peer's")
    yield from _aligned([[f"  {comparison.name}", f"{ratio:,.3g}"] for comparison, ratio in compared(figures)])
    yield from _heading("To reach")
    told = verdicts(figures)
    rows = [["", "reached", "bound"], *map(_verdict_cells, told)]
    yield from map(str.rstrip, map("  ".join, zip(_aligned(rows), ["", *map(_verdict_text, told)], strict=True)))


def shown(value: float, unit: str) -> str:
    """With three digits that count, or all those before the point."""
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return number + UNITS.get(unit, f" {unit}")


def _verdict_cells(verdict: Verdict) -> list[str]:
    target = verdict.target
    reached = "" if verdict.value is None else shown(verdict.value, target.unit)
    return [f"  {target.name}", reached, f"{'≤' if target.at_most else '≥'} {shown(target.bound, target.unit)}"]


def _verdict_text(verdict: Verdict) -> str:
    return f"{verdict.state}: needs {verdict.reason}" if verdict.reason else verdict.state


def _family(family: str, members: list[Measured]) -> Iterator[str]:
    """One row for each condition, one column for each property, and below them the notes."""
    rows: dict[str, dict[str, Measured]] = {}
    for figure in members:
        _, _, condition, what = _parts(figure)
        rows.setdefault(condition, {})[what] = figure
    columns = list(dict.fromkeys(what for row in rows.values() for what in row))
    cells = [[f"  {family}", *columns]]
    for condition, row in rows.items():
        values = [shown(row[what].value, row[what].unit) if what in row else "" for what in columns]
        cells.append([f"    {condition}", *values])
    yield from _aligned(cells)
    for note, noted in _grouped(members, _note).items():
        if note:
            where = ", ".join(" ".join(_parts(figure)[2:]).strip() for figure in noted)
            yield from _paragraph(note if len(noted) == len(members) else f"{where}: {note}", indent=4)


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells])


def _heading(title: str) -> Iterator[str]:
    yield from ("", title, "=" * len(title))


def _paragraph(text: str, indent: int) -> list[str]:
    return wrap(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2))


def _brief(reason: str) -> str:
    """Its first and its last line, which of a traceback are those that tell."""
    first, *others = reason.strip().splitlines() or [""]
    return f"{first} … {others[-1].strip()}" if others else first


def _parts(figure: Measured) -> tuple[str, str, str, str]:
    """Section, family, condition and property: `peers/redis-streams`, `xadd`, `1KB/64x1`, `p99`."""
    parts = figure.name.split("/")
    begin = 2 if parts[0] == "peers" else 1
    return "/".join(parts[:begin]), parts[begin], "/".join(parts[begin + 1 : -1]), parts[-1]


def _section(figure: Measured) -> str:
    return _parts(figure)[0]


def _family_of(figure: Measured) -> str:
    return _parts(figure)[1]


def _note(figure: Measured) -> str:
    return figure.note


def _peer(section: str) -> str:
    return section.removeprefix("peers/")


def _grouped(figures: Iterable[Measured], key: Callable[[Measured], str]) -> dict[str, list[Measured]]:
    """In the order of their first appearance."""
    groups: dict[str, list[Measured]] = {}
    for figure in figures:
        groups.setdefault(key(figure), []).append(figure)
    return groups
