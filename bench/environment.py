"""The benchmark's own Python environment, with the packages that the peers and the picture need.

Owns `.bench/venv`: makes it once, installs what is missing, keeps a stamp of what is there. A package that can't be
installed is recorded with the reason, and who needs it is left out. Does not own Debian packages, nor what is built with
a compiler. The project's own environment is never touched.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

MINUTE_S = 60
PACKAGES = ("dhp-protocol==1.3.0", "dbos", "matplotlib")
COMPILER = "ziglang"
STAMP = "environment.json"
LOG = "install.log"

Installer = Callable[[Path, Iterable[str]], str]
"""Installs requirements with an interpreter and says why it couldn't; "" when it could."""


class EnvironmentFault(Exception):
    """The environment itself can't be made; says what stood in the way."""


class Stamp(Struct, frozen=True):
    """What was installed, for which interpreter: made again when any of it differs."""

    python: str
    wanted: list[str]
    missing: dict[str, str]


class Environment(Struct, frozen=True):
    """`python` is the interpreter; `missing` says for each requirement that isn't there why not."""

    python: Path
    missing: dict[str, str]


def wanted() -> list[str]:
    """The requirements on this machine: a C compiler comes along only where there is none."""
    has_compiler = any(shutil.which(name) for name in ("cc", "gcc", "clang"))
    return [*PACKAGES] if has_compiler else [*PACKAGES, COMPILER]


def prepared(folder: Path, say: Callable[[str], None] = lambda line: None) -> Environment:
    """The environment in `folder`, made or completed first where needed. What was missing before is tried again."""
    python = folder / "venv" / "bin" / "python"
    requirements = wanted()
    stamp = _stamp(folder)
    runs = _runs(python)
    if stamp and runs and stamp == Stamp(sys.version, requirements, {}):
        return Environment(python, {})
    if not (stamp and runs and stamp.python == sys.version):
        say("making the benchmark's environment (a minute, once)")
        _create(folder)
    say(f"installing {', '.join(requirements)}")
    log = folder / LOG
    log.write_text("")
    missing = installed(python, requirements, lambda python, some: _pip(python, some, log))
    for requirement, reason in missing.items():
        say(f"{requirement} can't be installed: {reason} (see {log})")
    (folder / STAMP).write_bytes(msgspec.json.encode(Stamp(sys.version, requirements, missing)))
    return Environment(python, missing)


def installed(python: Path, requirements: list[str], install: Installer) -> dict[str, str]:
    """All together, for the sake of one resolution; where that fails, each alone. What can't be had, with the reason."""
    if not install(python, requirements):
        return {}
    reasons = {requirement: install(python, [requirement]) for requirement in requirements}
    return {requirement: reason for requirement, reason in reasons.items() if reason}


def version(python: Path, package: str) -> str | None:
    """The version of a package that this interpreter has; None when it has none."""
    asked = f"from importlib.metadata import version; print(version({package!r}))"
    try:
        told = subprocess.run([python, "-c", asked], capture_output=True, text=True, timeout=MINUTE_S, check=False)
    except OSError:
        return None
    return told.stdout.strip() if told.returncode == 0 else None


def _stamp(folder: Path) -> Stamp | None:
    try:
        return msgspec.json.decode((folder / STAMP).read_bytes(), type=Stamp)
    except (OSError, msgspec.DecodeError):
        return None


def _runs(python: Path) -> bool:
    try:
        return subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _create(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STAMP).unlink(missing_ok=True)
    command = [sys.executable, "-m", "venv", "--clear", str(folder / "venv")]
    made = subprocess.run(command, capture_output=True, text=True, timeout=5 * MINUTE_S, check=False)
    if made.returncode:
        raise EnvironmentFault(f"`{' '.join(command)}` failed: {_last_line(made.stdout + made.stderr)}")


def _pip(python: Path, requirements: Iterable[str], log: Path) -> str:
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["--retries", "2", "--timeout", "20", "--prefer-binary", *requirements]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10 * MINUTE_S, check=False)
    except subprocess.TimeoutExpired:
        return "took over 10 minutes"
    with log.open("a") as file:
        file.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}\n")
    return _last_line(done.stderr) or f"exit code {done.returncode}" if done.returncode else ""


def _last_line(text: str) -> str:
    """The line that says what went wrong: the last that pip calls an error, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "")


if __name__ == "__main__":
    environment = prepared(Path(__file__).parent.parent / ".bench", print)
    print(environment.python)
