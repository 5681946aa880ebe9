"""Programs out of Debian packages, unpacked into a folder of the benchmark's own.

Owns finding a program: on PATH, else in a package that is fetched with what it depends on, and unpacked without being
installed. Nothing of the system is changed: apt's caches, and where need be its lists, are kept in that folder too.
Does not own running the program (`peers/servers`).
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

from msgspec import Struct

from bench.setting import Unavailable

FETCH_TIMEOUT_S = 180
START_TIMEOUT_S = 20


class Program(Struct, frozen=True):
    """A program that starts here. `libraries` are folders of shared libraries that it needs beside the system's."""

    path: Path
    libraries: list[Path] = []

    def environment(self) -> dict[str, str]:
        """The environment to run it in."""
        if not self.libraries:
            return dict(os.environ)
        paths = [str(folder) for folder in self.libraries]
        return os.environ | {"LD_LIBRARY_PATH": os.pathsep.join([*paths, *_set_paths()])}


def program(name: str, package: str, version_option: str, folder: Path) -> tuple[Program, str]:
    """The program and what it says to `version_option`; from PATH, else out of `package`, unpacked under `folder` once.

    Raises `Unavailable` with the reason where it can't be had, or doesn't start.
    """
    if found := shutil.which(name):
        return _started(Program(Path(found)), version_option)
    root = folder.absolute() / package
    if not root.is_dir():
        _unpack(name, package, root)
    path = next((path for part in ("bin", "sbin") if (path := root / "usr" / part / name).exists()), None)
    if path is None:
        raise Unavailable(f"the package {package} has no {name}")
    libraries = sorted({file.parent for file in root.rglob("*.so*") if re.search(r"\.so(\.\d+)*$", file.name)})
    return _started(Program(path, libraries), version_option)


def _started(found: Program, version_option: str) -> tuple[Program, str]:
    try:
        done = subprocess.run(
            [found.path, version_option],
            env=found.environment(),
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{found.path.name} doesn't start: {error}") from error
    if done.returncode:
        raise Unavailable(f"{found.path.name} doesn't start: {_last_line(done.stderr)}")
    return found, done.stdout.strip()


def _unpack(name: str, package: str, root: Path) -> None:
    """`root` is there only once it is whole."""
    if missing := [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]:
        raise Unavailable(f"no {name} on PATH, and no {missing[0]} here to fetch the package {package} with")
    root.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{package}-", dir=root.parent) as work:
        fetched, unpacked = Path(work, "fetched"), Path(work, "unpacked")
        fetched.mkdir()
        _fetch_with_any_lists(package, fetched, root.parent)
        for archive in sorted(fetched.glob("*.deb")):
            _run(["dpkg", "-x", archive.name, str(unpacked)], fetched, f"{archive.name} can't be unpacked")
        unpacked.rename(root)


def _fetch_with_any_lists(package: str, target: Path, folder: Path) -> None:
    options = _apt_options(folder)
    try:
        _fetch(package, target, options)
    except Unavailable:
        # The system has no lists, or old ones. New ones go beside, so that the system's stay as they are.
        options += _own_lists(folder)
        _run(["apt-get", "update", "-q", *options], target, "there are no lists of Debian packages")
        _fetch(package, target, options)


def _fetch(package: str, target: Path, options: list[str]) -> None:
    """The package, and of what it depends on all that the system hasn't."""
    what = f"the Debian package {package} can't be had"
    plan = ["apt-get", "install", "--print-uris", "--yes", "-qq", "--no-install-recommends", *options, package]
    needed = re.findall(r"^'[^']+' (\S+?)_(\S+?)_\S+\.deb ", _run(plan, target, what), flags=re.MULTILINE)
    # Nothing is needed where the package is installed and its program isn't on PATH.
    named = [f"{name}={unquote(version)}" for name, version in needed] or [package]
    _run(["apt-get", "download", "-q", *options, *named], target, what)


def _apt_options(folder: Path) -> list[str]:
    """Caches of our own: the system's may hold the archives, and then apt doesn't name them."""
    cache = folder / "apt-cache"
    (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    return ["-o", f"Dir::Cache={cache}", "-o", "Debug::NoLocking=true"]


def _own_lists(folder: Path) -> list[str]:
    lists = folder / "apt-lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    return ["-o", f"Dir::State::lists={lists}", "-o", "APT::Update::Error-Mode=any"]


def _run(command: list[str], folder: Path, failed: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{failed}: {command[0]} took longer than {FETCH_TIMEOUT_S} s") from error
    if done.returncode:
        raise Unavailable(f"{failed}: {_last_line(done.stderr)}")
    return done.stdout


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it gave no reason"])[-1]


def _set_paths() -> list[str]:
    return [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
