"""Faults in a process of ours, switched on and off while it runs: what its disk refuses, and what its wall clock shows.

Owns the library that is preloaded (`shim/faults.c`, made on the spot) and the file through which it is told. A test that
relies on a fault checks with `met` that it has bitten.
"""

import errno
import mmap
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import IntFlag
from pathlib import Path

SOURCE = Path(__file__).parent / "shim" / "faults.c"
_RULES = 4
_HEAD = struct.Struct("q")
_RULE = struct.Struct("iiqqqqq208s")
"""calls, error, first, most, keep, seen, met, path: as in `faults.c`."""
_HELD = -1
_SEEN = struct.calcsize("iiqqq")


class Calls(IntFlag):
    """What may fail."""

    WRITE = 1
    SYNC = 2
    READ = 4
    OPEN = 8
    ALLOCATE = 16
    TRUNCATE = 32


def compiled(directory: Path) -> Path | None:
    """The library, made in `directory`; None: there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = directory / "faults.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


class FaultShim:
    """The faults of one process, which is started with `env`."""

    def __init__(self, library: Path, directory: Path) -> None:
        self._file = directory / "shim.control"
        self._file.write_bytes(bytes(_HEAD.size + _RULES * _RULE.size))
        with self._file.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.env = {"LD_PRELOAD": str(library), "DHP_SHIM": str(self._file)}

    @contextmanager
    def fails(
        self, calls: Calls, path: str, error: int = errno.EIO, *, first: int = 1, most: int = 0, keep: int = -1
    ) -> Iterator["Fault"]:
        """Calls on files whose path ends with `path` fail with `error`: from the `first` on, and `most` of them (0: all).

        With `keep`, a write puts down so many of its bytes first; with an `error` of 0 as well it says so, and is just short.
        """
        number = next(number for number in range(_RULES) if not self._calls(number))
        at = _HEAD.size + number * _RULE.size
        rule = _RULE.pack(0, error, first, most, keep, 0, 0, path.encode())
        self._map[at : at + _RULE.size] = rule
        struct.pack_into("i", self._map, at, calls)  # Last: from now on it counts.
        try:
            yield Fault(self._map, at)
        finally:
            struct.pack_into("i", self._map, at, 0)

    def holds(self, calls: Calls, path: str) -> AbstractContextManager["Fault"]:
        """Calls on files whose path ends with `path` don't come back while this lasts, as from a device that hangs."""
        return self.fails(calls, path, _HELD)

    def set_clock(self, ahead_s: float) -> None:
        """The wall clock is ahead of the machine's by so much, from now on."""
        _HEAD.pack_into(self._map, 0, round(ahead_s * 1e9))

    def _calls(self, number: int) -> int:
        calls: int = struct.unpack_from("i", self._map, _HEAD.size + number * _RULE.size)[0]
        return calls


class Fault:
    """One fault, while it is on."""

    def __init__(self, control: mmap.mmap, at: int) -> None:
        self._map = control
        self._at = at

    @property
    def seen(self) -> int:
        """How many calls there were that it is about."""
        return self._count(0)

    @property
    def met(self) -> int:
        """How many of them it has made fail."""
        return self._count(1)

    def _count(self, index: int) -> int:
        count: int = struct.unpack_from("q", self._map, self._at + _SEEN + 8 * index)[0]
        return count
