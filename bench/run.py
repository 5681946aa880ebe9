"""The benchmark: ours, the limits of the machine and the peers, in one run.

`python bench/run.py [--quick] [--only PART…] [--rounds N] [--seconds S] [--json FILE] [--picture FILE]`

Owns the order of the parts and what becomes of their figures. What varies from minute to minute is measured in several
rounds, in each of which limits, ours and peers take turns, so that a slow minute hits all alike; the figure is the median.
What is dear, or compares ours with ours, is measured once. Progress goes to standard error, the table to standard output.
A part that needs something that can't be had here is named and left out. Exit code 1 where a part of ours failed.
"""

import argparse
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import environment, generator, limits, machine, table, targets
from bench.figures import Figure, Measured, gathered
from bench.ours import clients, heartbeats, history, pauses, rates, resume, sizes
from bench.peers import beanstalkd, dbos, dhp_protocol, redis_streams
from bench.setting import Setting, Unavailable

ROOT = Path(__file__).parents[1]
WORK = ROOT / ".bench"
PICTURE = ROOT / "bench" / "picture.py"
ROUNDS = 3
SECONDS = 1.0
WARMUP_SECONDS = 0.3
QUICK_SECONDS = 0.3

PEERS = {peer.NAME: peer for peer in (dhp_protocol, beanstalkd, redis_streams, dbos)}
IN_ROUNDS: dict[str, Callable[[Setting], Iterator[Figure]]] = {
    "rates": rates.measure,
    "limits": limits.measure,
    "heartbeats": heartbeats.measure,
    **{name: peer.measure for name, peer in PEERS.items()},
}
ONCE: dict[str, Callable[[Setting], Iterator[Figure]]] = {
    "large": rates.measure_large,
    "clients": clients.measure,
    "history": history.measure,
    "resume": resume.measure,
    **{f"{peer.NAME}-resume": peer.measure_resume for peer in (dhp_protocol, dbos)},
    "sizes": sizes.measure,
}


class Goal(Struct, frozen=True):
    """One that was to be reached; `reached` is None where it couldn't be measured."""

    name: str
    reached: float | None
    bound: float
    at_most: bool
    unit: str
    state: str


class Peer(Struct, frozen=True):
    version: str
    durability: str
    """With which settings it ran, and what they promise."""


class Report(Struct, frozen=True):
    """What `--json` keeps."""

    machine: machine.Machine
    rounds: int
    seconds: float
    quick: bool
    figures: dict[str, Measured]
    goals: list[Goal]
    peers: dict[str, Peer]
    left_out: dict[str, str]
    """By part: why it couldn't be measured here."""
    failed: dict[str, str]


class Run:
    """Parts one after the other, their figures, and what went wrong."""

    def __init__(self, setting: Setting) -> None:
        self.figures: list[Figure] = []
        self.left_out: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self._setting = setting

    def part(self, name: str, measure: Callable[[Setting], Iterator[Figure]], where: str) -> None:
        """Measures it in an empty folder; not again what was left out or failed before."""
        if name in self.left_out or name in self.failed:
            return
        folder = self._setting.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        begun = time.monotonic()
        try:
            self.figures += measure(msgspec.structs.replace(self._setting, folder=folder))
        except Unavailable as reason:
            self.left_out[name] = str(reason)
            say(f"{where}  {name}: left out, {reason}")
        except Exception as error:
            self.failed[name] = f"{type(error).__name__}: {error}"
            say(f"{where}  {name}: failed\n{traceback.format_exc()}")
        else:
            say(f"{where}  {name}: {time.monotonic() - begun:.0f} s")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    arguments = read_arguments(words)
    begun = time.monotonic()
    report = measured(arguments)
    say(f"{time.monotonic() - begun:.0f} s in all")
    promises = {name: f"{peer.durability} ({peer.version})" for name, peer in report.peers.items()}
    table.print_report(report.figures, promises, {**report.left_out, **report.failed})
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    if arguments.picture:
        draw(report, arguments.picture)
    return 1 if report.failed else 0


def measured(arguments: argparse.Namespace) -> Report:
    """Makes what is needed, and measures the parts that were asked for."""
    made = environment.prepared(WORK, say)
    setting = Setting(
        folder=WORK / "data",
        generator=generator.build(WORK / "load"),
        python=made.python,
        debian=WORK / "debian",
        seconds=arguments.seconds,
        warmup_seconds=min(WARMUP_SECONDS, arguments.seconds),
        quick=arguments.quick,
    )
    described = machine.described(WORK)
    say(str(described))
    run = Run(setting)
    for number in range(1, arguments.rounds + 1):
        for name, measure in IN_ROUNDS.items():
            if name in arguments.only:
                run.part(name, measure, f"round {number} of {arguments.rounds}")
    for name, measure in ONCE.items():
        if name in arguments.only:
            run.part(name, measure, "once")
    figures = targets.with_limits(gathered([*run.figures, *pauses.worst(run.figures)]))
    return Report(
        machine=described,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        quick=arguments.quick,
        figures=figures,
        goals=[_goal(verdict) for verdict in targets.verdicts(figures)],
        peers=_peers(run.figures),
        left_out=run.left_out,
        failed=run.failed,
    )


def _goal(verdict: targets.Verdict) -> Goal:
    target = verdict.target
    return Goal(target.name.strip(), verdict.value, target.bound, target.at_most, target.unit, verdict.state)


def _peers(figures: list[Figure]) -> dict[str, Peer]:
    """Those that told a figure. A note of theirs begins with the version."""
    versions = {
        each.name.split("/")[1]: each.note.partition(";")[0] for each in figures if each.name.startswith("peers/")
    }
    return {name: Peer(version, PEERS[name].DURABILITY) for name, version in versions.items()}


def draw(report: Report, target: Path) -> None:
    """matplotlib is in the benchmark's own environment, so a process of its own draws."""
    python = WORK / "venv" / "bin" / "python"
    if environment.version(python, "matplotlib") is None:
        say(
            f"no picture: matplotlib isn't installed in the benchmark's environment ({WORK / environment.LOG} says why)"
        )
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([python, PICTURE, target], input=msgspec.json.encode(report), check=False)
    say(f"{target} drawn" if done.returncode == 0 else f"no picture: {python} {PICTURE.name} failed")


def read_arguments(words: list[str]) -> argparse.Namespace:
    """The options in force. SystemExit, with a sentence on standard error, where they can't be used."""
    parts = [*IN_ROUNDS, *ONCE]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round and small sizes, to see that all works")
    parser.add_argument("--only", nargs="+", metavar="PART", choices=parts, default=parts, help=f"of {' '.join(parts)}")
    parser.add_argument("--rounds", type=_rounds, metavar="N", help=f"default {ROUNDS}")
    parser.add_argument("--seconds", type=_seconds, metavar="S", help=f"of each rate; default {SECONDS}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps the figures")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draws them (PNG)")
    arguments = parser.parse_args(words)
    arguments.rounds = arguments.rounds or (1 if arguments.quick else ROUNDS)
    arguments.seconds = arguments.seconds or (QUICK_SECONDS if arguments.quick else SECONDS)
    return arguments


def _rounds(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is no number of rounds: it must be 1 or more")
    return int(word)


def _seconds(word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = math.nan
    if not 0.01 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{word!r} is no time: it must lie between 0.01 and 3600 seconds")
    return seconds


def _stopped(number: int, frame: object) -> None:
    """As Ctrl-C: everything that was started is ended on the way out."""
    raise KeyboardInterrupt


def run_as_program(words: list[str]) -> int:
    """`main`, and one sentence where it can't be carried out or is stopped."""
    signal.signal(signal.SIGTERM, _stopped)
    # Settings of whoever runs this, DHPD_POWER_SAFE=false among them, aren't those of the daemon that is measured.
    for name in [name for name in os.environ if name.startswith("DHPD_")]:
        say(f"{name} isn't heeded: the daemon runs as it comes")
        del os.environ[name]
    try:
        return main(words)
    except KeyboardInterrupt:
        say("stopped: nothing was kept")
        return 130
    except (environment.EnvironmentFault, generator.GeneratorFault) as fault:
        say(f"The benchmark can't be run: {fault}")
    except OSError as error:
        say(
            f"The benchmark can't be run: {error.filename or 'a file'}: {error.strerror}. It writes to {WORK}, and to the files that are named."
        )
    return 1


if __name__ == "__main__":
    sys.exit(run_as_program(sys.argv[1:]))
