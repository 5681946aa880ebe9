"""The work that is measured of `dbos`, in its own words: `python -m bench.peers.dbos_worker MODE FOLDER …`.

Owns what each mode does with the library, through its public decorators, on its SQLite system database. Prints one line
of JSON. Runs in the benchmark's own environment. Does not own figures.

A step's returned value is what it records durably, as a checkpoint is for us; a workflow is what a whole life is. Modes:
`checkpoints` (steps of long workflows), `life` (whole workflows), `resume` (kill -9 of a process in the middle of a
workflow, until the process that is started in its place runs the next step).
"""

import argparse
import json
import sqlite3
import time
from collections.abc import Iterator
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path

from dbos import DBOS

from bench.peers.crew import FORK, Turns, arguments, crew, described

STEPS_PER_WORKFLOW = 100
RESUMES = 3
BETWEEN_STEPS_S = 0.02
STEPS_BEFORE_KILL = 5
PATIENCE_S = 30.0


class Here:
    """What this process does in its steps. A workflow's arguments are recorded, so these can't be among them."""

    state: str = ""
    turns: Iterator[None] = iter(())
    told: Connection | None = None


@DBOS.step()
def step(number: int) -> str:
    if Here.told is not None:
        Here.told.send((number, time.monotonic()))
    return Here.state


@DBOS.workflow()
def steps_by_turn() -> int:
    done = 0
    for done, _ in enumerate(islice(Here.turns, STEPS_PER_WORKFLOW), start=1):
        step(done)
    return done


@DBOS.workflow()
def steps(count: int) -> None:
    for number in range(count):
        step(number)


@DBOS.workflow()
def slow_steps() -> None:
    """Goes on until it is killed."""
    number = 0
    while True:
        step(number)
        number += 1
        time.sleep(BETWEEN_STEPS_S)


def database(folder: Path) -> Path:
    return folder / "dbos.sqlite"


def launched(folder: Path, executor: str) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{database(folder)}",
            "executor_id": executor,
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()


def checkpoints(options: argparse.Namespace) -> dict[str, object]:
    Here.state = "x" * options.bytes

    def work(number: int, turns: Turns) -> None:
        launched(options.folder, f"w{number}")
        Here.turns = turns()
        while steps_by_turn() == STEPS_PER_WORKFLOW:
            pass

    return described(crew(options.processes, work, options.seconds, options.warmup))


def life(options: argparse.Namespace) -> dict[str, object]:
    Here.state = "x" * options.bytes

    def work(number: int, turns: Turns) -> None:
        launched(options.folder, f"w{number}")
        for _ in turns():
            steps(options.checkpoints)

    return described(crew(options.processes, work, options.seconds, options.warmup))


def resume(options: argparse.Namespace) -> dict[str, object]:
    """The process in its place is forked at the moment of the kill, with the library imported, as if whoever looks after
    it had noticed at once; it goes on with the workflow because it has the same executor id."""
    took = []
    for number in range(RESUMES):
        executor = f"w{number}"
        first, told = _started(options.folder, executor, True)
        try:
            while _told(told)[0] < STEPS_BEFORE_KILL:
                pass
        finally:
            first.kill()
        killed = time.monotonic()
        second, told = _started(options.folder, executor, False)
        try:
            took.append(_told(told)[1] - killed)
        finally:
            second.kill()
            first.join()
            second.join()
    ordered = sorted(took)
    return {
        "kills": RESUMES,
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 1),
        "max_ms": round(ordered[-1] * 1000, 1),
    }


def _started(folder: Path, executor: str, begins: bool):
    here, there = FORK.Pipe(duplex=False)

    def work() -> None:
        Here.told, Here.state = there, "x"
        launched(folder, executor)
        if begins:
            slow_steps()
        time.sleep(PATIENCE_S)

    process = FORK.Process(target=work, daemon=True)
    process.start()
    there.close()
    return process, here


def _told(pipe: Connection) -> tuple[int, float]:
    if not pipe.poll(PATIENCE_S):
        raise TimeoutError(f"no step ran for {PATIENCE_S:.0f} s")
    return pipe.recv()


def prepare(folder: Path, journal: str) -> dict[str, object]:
    """The database, made by the library; the journal's mode is kept in the file. Returns what every connection gets."""

    made, making = FORK.Pipe(duplex=False)

    def make() -> None:
        launched(folder, "maker")
        making.send("")
        time.sleep(PATIENCE_S)

    maker = FORK.Process(target=make, daemon=True)
    maker.start()
    ready = made.poll(PATIENCE_S)
    maker.kill()
    maker.join()
    if not ready:
        raise TimeoutError("the database wasn't made in time")
    connection = sqlite3.connect(database(folder), isolation_level=None)
    connection.execute(f"PRAGMA journal_mode={journal}")
    told = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    connection.close()
    return told


MODES = {mode.__name__: mode for mode in (checkpoints, life, resume)}


def main() -> None:
    parser = arguments(MODES)
    parser.add_argument("--journal", choices=("wal", "delete"), default="wal")
    options = parser.parse_args()
    settings = prepare(options.folder, options.journal)
    print(json.dumps({"mode": options.mode, **MODES[options.mode](options), **settings}))


if __name__ == "__main__":
    main()
