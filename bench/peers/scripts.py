"""Runs a peer's worker script in the benchmark's own environment, and makes figures of the line it prints.

Owns the process, its time limit, and the names of these figures. Does not own what a script does.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import msgspec
from msgspec import Struct

from bench import environment
from bench.figures import Figure
from bench.setting import Setting, Unavailable

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90.0


class ScriptFault(Exception):
    """A worker script failed or didn't end; holds what it said last."""


class Told(Struct, frozen=True):
    """What a worker script prints. `journal_mode` and `synchronous` are what SQLite says of the peer's own database."""

    journal_mode: str
    synchronous: int
    per_second: float = 0
    p50_us: float = 0
    p99_us: float = 0
    kills: int = 0
    p50_ms: float = 0
    max_ms: float = 0


def version(setting: Setting, package: str) -> str:
    """Which one is installed; raises `Unavailable` when none is."""
    found = environment.version(setting.python, package)
    if found is None:
        raise Unavailable(f"{package} isn't installed in the benchmark's environment ({environment.LOG} says why)")
    return found


def told(setting: Setting, module: str, mode: str, **options: object) -> Told:
    """Runs `python -m MODULE MODE FOLDER --NAME VALUE…` with an empty folder. Nothing that it started outlives it."""
    folder = mkdtemp(dir=setting.folder)
    words = [str(setting.python), "-m", module, mode, folder]
    words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    process = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise ScriptFault(f"{module} {mode} didn't end within {PATIENCE_S:.0f} s") from None
    finally:
        _end(process)
    if process.returncode:
        raise ScriptFault(f"{module} {mode} failed:\n{errors.strip()[-2000:]}")
    return msgspec.json.decode(output, type=Told)


def rate(setting: Setting, module: str, mode: str, name: str, note: str, **options: object) -> Iterator[Figure]:
    """`NAME/{rate,p50,p99}` of a mode that does so many operations in a window of time."""
    found = told(setting, module, mode, seconds=setting.seconds, warmup=setting.warmup_seconds, **options)
    note = f"{note}; {pragmas(found)}"
    yield Figure(f"{name}/rate", found.per_second, "1/s", note)
    yield Figure(f"{name}/p50", found.p50_us / 1000, "ms", note)
    yield Figure(f"{name}/p99", found.p99_us / 1000, "ms", note)


def resumed(setting: Setting, module: str, name: str, note: str, **options: object) -> Iterator[Figure]:
    """`NAME/{p50,max}` of a mode that kills."""
    found = told(setting, module, "resume", **options)
    note = f"{note}; {found.kills} kills; {pragmas(found)}"
    yield Figure(f"{name}/p50", found.p50_ms, "ms", note)
    yield Figure(f"{name}/max", found.max_ms, "ms", note)


def pragmas(found: Told) -> str:
    return f"journal_mode={found.journal_mode}, synchronous={found.synchronous}"


def _end(process: subprocess.Popen[str]) -> None:
    """The script's whole process group, which is its own: also what it forked, should it have ended before them."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
