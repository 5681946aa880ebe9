"""The load generator: built from `load/*.c` where that is needed, and run as a process of its own.

Owns how it is built and called, and what it says. What it does stands in `load/`. A run in which anything was answered
otherwise than expected is no measurement: it raises.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.setting import Setting

SOURCES = Path(__file__).parent / "load"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra")
BUILD_LIMIT_S = 300
LIMIT_S = 600
"""Beside the time that is measured: for what comes before the clock."""


class GeneratorFault(Exception):
    """It can't be built, or anything was answered otherwise than expected; says what."""


class Load(Struct, frozen=True):
    """What one run came to.

    `ops` were answered as expected within the `seconds` that count, and `answered` since the clock began, the warm-up and what
    was outstanding at the end included. Latencies are of those that began within the time that counts. Where a rate is set,
    `unbegun` operations didn't begin at all, since too many were outstanding. `cpu_s` is what the generator itself used.
    """

    mode: str
    connections: int
    depth: int
    bytes: int
    ops: int
    seconds: float
    per_second: float
    p50_us: float
    p99_us: float
    max_us: float
    answered: int
    unbegun: int
    errors: int
    first_error: str
    cpu_s: float

    @property
    def busy(self) -> float:
        """The share of the time in which the generator's one thread was on a processor; near 1 it is what is measured."""
        return self.cpu_s / self.seconds if self.seconds else 0.0


class Running:
    """A run in the background; its clock has begun."""

    def __init__(self, process: "subprocess.Popen[bytes]", limit_s: float) -> None:
        self._process = process
        self._limit_s = limit_s

    def result(self) -> Load:
        """Ends it, if it hasn't ended by itself, once all that is outstanding is answered; raises as `run` does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return _result(self._process, b"", self._limit_s)


def build(target: Path) -> Path:
    """Compiles it to `target` unless that is newer than its sources; raises `GeneratorFault`."""
    sources = sorted(SOURCES.glob("*.c"))
    newest = max(source.stat().st_mtime for source in SOURCES.iterdir())
    if target.exists() and target.stat().st_mtime > newest:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    command = [*compiler(target.parent), *FLAGS, "-o", str(unfinished), *map(str, sources)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    if built.returncode:
        raise GeneratorFault(f"`{' '.join(command)}` failed:\n{built.stderr.strip()}")
    unfinished.replace(target)
    return target


def compiler(folder: Path) -> list[str]:
    """The command of a C compiler: the machine's, else that of the package `ziglang` in `folder`'s environment."""
    for name in COMPILERS:
        if found := shutil.which(name):
            return [found]
    for python in (folder / "venv" / "bin" / "python", Path(sys.executable)):
        command = [str(python), "-m", "ziglang", "cc"]
        if (
            python.exists()
            and subprocess.run([*command, "--version"], capture_output=True, check=False).returncode == 0
        ):
            return command
    raise GeneratorFault(
        "There is no C compiler for the load generator: install one (Debian: apt install gcc libc6-dev)."
    )


def run(setting: Setting, mode: str, address: str, **options: object) -> Load:
    """One run; `options` are the generator's own, `life_checkpoints=10` is `--life-checkpoints 10`, `detached=True` is `--detached`.

    `seconds` and `warmup` are the setting's unless given. Raises `GeneratorFault` where anything went wrong.
    """
    options = {"seconds": setting.seconds, "warmup": setting.warmup_seconds, **options}
    process = _started(setting, mode, address, options)
    return _result(process, b"", LIMIT_S + float(str(options["seconds"])))


def start(setting: Setting, mode: str, address: str, **options: object) -> Running:
    """As `run`, but goes on in the background until its `result` is asked for, unless `seconds` or `count` end it before.

    Returns when its clock begins: whatever it takes before (handoffs, tubes) is there.
    """
    options = {"seconds": LIMIT_S, "warmup": setting.warmup_seconds, **options}
    process = _started(setting, mode, address, options)
    assert process.stderr is not None
    said = process.stderr.readline()
    if b"clock begins" not in said:
        _result(process, said, LIMIT_S)
    return Running(process, LIMIT_S)


def _started(setting: Setting, mode: str, address: str, options: dict[str, object]) -> "subprocess.Popen[bytes]":
    command = [str(setting.generator), mode, address, *_words(options)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _words(options: dict[str, object]) -> Iterable[str]:
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            yield flag
        elif value is not None and value is not False:
            yield from (flag, str(value))


def _result(process: "subprocess.Popen[bytes]", said: bytes, limit_s: float) -> Load:
    try:
        out, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise GeneratorFault(f"The load generator didn't end within {limit_s:.0f} s.") from None
    if not out:
        raise GeneratorFault(f"The load generator ended with {process.returncode}: {(said + errors).decode().strip()}")
    load = msgspec.json.decode(out, type=Load)
    if load.errors or process.returncode:
        raise GeneratorFault(f"{load.mode}: {load.errors} times not what was expected, first {load.first_error}")
    return load
