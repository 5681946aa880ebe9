"""The three numbers in one run: `python -m bench.reliability [--quick] [--only PART…] [--minutes N] [--kills N] [--json FILE]`.

`resuming`: kill to resume; `redoing`: the share of the work that is done twice after kills; `orphaning`: how often work is taken from
a worker that is well. Exit code 1 where something wasn't reached that depends on no machine: an orphaning without need, more
than one step redone of one holding, anything lost.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from bench import machine
from bench.figures import Figure

from . import orphaning, redoing, resuming

WORK = Path(__file__).parents[2] / ".bench"
PARTS = ("resuming", "redoing", "orphaning")

AT_MOST = {
    "redone/most redone": 1,
    "redone/checkpoints lost": 0,
    "false orphanings/orphaned": 0,
    "false orphanings/losses told to workers": 0,
}
"""By figure: what must hold on every machine."""


class Report(Struct, frozen=True):
    """What `--json` keeps; `missed` names what wasn't reached, `failed` says by part why it couldn't be measured."""

    machine: machine.Machine
    quick: bool
    figures: list[Figure]
    missed: list[str]
    failed: dict[str, str]


def measured(part: str, options: argparse.Namespace, folder: Path, sockets: Path) -> Iterator[Figure]:
    """One part, in an empty folder."""
    if part == "resuming":
        yield from resuming.measure(folder, sockets, options.kills or (10 if options.quick else 100))
    elif part == "redoing":
        yield from redoing.measure(folder, redoing.QUICK if options.quick else redoing.ORDEAL)
    else:
        yield from orphaning.measure(folder, options.minutes or (0.5 if options.quick else 10))


def missed(figures: list[Figure]) -> list[str]:
    """The figures that pass what must hold."""
    return [figure.name for figure in figures if figure.value > AT_MOST.get(figure.name, float("inf"))]


def run(options: argparse.Namespace, say: Callable[[str], None]) -> Report:
    figures: list[Figure] = []
    failed: dict[str, str] = {}
    WORK.mkdir(exist_ok=True)
    about = machine.described(WORK)
    say(f"On {about}")
    for part in options.only:
        with (
            tempfile.TemporaryDirectory(dir=WORK, prefix=f"{part}-") as folder,
            tempfile.TemporaryDirectory(prefix="dhp-") as sockets,
        ):
            try:
                for figure in measured(part, options, Path(folder), Path(sockets)):
                    if not figures or figure.note != figures[-1].note:
                        say(f"\n{part}: {figure.note}")
                    figures.append(figure)
                    say(_row(figure))
            except AssertionError as error:
                failed[part] = str(error)
                say(f"{part} failed: {error}")
    return Report(about, options.quick, figures, missed(figures), failed)


def _row(figure: Figure) -> str:
    whole = figure.unit == "count"
    value = f"{figure.value:,.0f}" if whole else f"{figure.value:,.2f} {figure.unit}"
    return f"{value:>12}  {figure.name}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shorter runs, to see that all works")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--minutes", type=float, help="of the machine's cores being taken  [default: 10]")
    parser.add_argument("--kills", type=int, help="over each kind of connection  [default: 100]")
    parser.add_argument("--json", type=Path, help="keep the figures here as well")
    options = parser.parse_args(arguments)
    report = run(options, lambda line: print(line, flush=True))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    for name in report.missed:
        print(f"NOT REACHED  {name}: at most {AT_MOST[name]}")
    return 1 if report.missed or report.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
