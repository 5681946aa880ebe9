"""dbos: durable workflows as a Python library, on its SQLite system database.

Owns the conditions under which it is measured: its processes are started and launched before the clock runs, and its
database is given a write-ahead log, which is the quicker mode. What the work is: `dbos_worker`.
"""

from collections.abc import Iterator

from bench.figures import Figure
from bench.peers import scripts
from bench.setting import Setting

NAME = "dbos"
DURABILITY = (
    "its SQLite system database, with SQLite's compiled default for `synchronous`, which it doesn't change, here FULL: an "
    "fsync at each commit. A step is recorded in a commit of its own before it returns. As it comes, the database has a "
    "rollback journal; the figures are with a write-ahead log, set once in the file, which is as safe and quicker "
    "(`as-it-comes` is without). Its makers recommend Postgres for production."
)

MODULE = "bench.peers.dbos_worker"
FIGURES = f"peers/{NAME}"
PROCESSES = (1, 8)


def measure(setting: Setting) -> Iterator[Figure]:
    """Steps of 1 KB per second and whole workflows of 10 such steps per second, by 1 and 8 processes. Raises
    `Unavailable` without the library."""
    version = scripts.version(setting, NAME)
    for processes in PROCESSES:
        note = f"{version}; {processes} processes" if processes > 1 else f"{version}; 1 process"
        yield from scripts.rate(
            setting,
            MODULE,
            "checkpoints",
            f"{FIGURES}/checkpoints/{processes}w",
            f"{note}, steps in workflows of 100",
            processes=processes,
        )
        yield from scripts.rate(
            setting, MODULE, "life", f"{FIGURES}/life/{processes}p", f"{note}, 10 steps", processes=processes
        )


def measure_resume(setting: Setting) -> Iterator[Figure]:
    """Steps per second with its own journal's mode; and kill -9 of a process in the middle of a workflow until the process
    in its place runs the next step. Raises `Unavailable` without the library."""
    version = scripts.version(setting, NAME)
    yield from scripts.rate(
        setting,
        MODULE,
        "checkpoints",
        f"{FIGURES}/as-it-comes/checkpoints/1w",
        f"{version}; 1 process, steps in workflows of 100",
        journal="delete",
    )
    yield from scripts.resumed(
        setting,
        MODULE,
        f"{FIGURES}/resume",
        f"{version}; without its hosted service nobody notices a death: from the kill, with the process in its place begun at once",
    )
