"""The machine and the software that figures were measured on: to be kept with them, since they mean little without."""

import os
import platform
import sqlite3
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from msgspec import Struct

PACKAGES = ("dhpd", "uvloop", "msgspec", "aiosqlite")


class Machine(Struct, frozen=True):
    cores: int
    processor: str
    memory_bytes: int
    kernel: str
    filesystem: str
    """Of the folder in which all stores lay: kind and device."""
    python: str
    sqlite: str
    packages: dict[str, str]
    """Ours, and what it stands on."""
    at: str
    """When the run began, in UTC."""

    def __str__(self) -> str:
        gib = self.memory_bytes / 2**30
        return (
            f"{self.cores} cores ({self.processor}), {gib:.0f} GB, Linux {self.kernel}, {self.filesystem}, "
            f"Python {self.python}, SQLite {self.sqlite}"
        )


def described(folder: Path) -> Machine:
    """`folder` is where stores will lie."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        processor=_processor(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        filesystem=_filesystem(folder.resolve()),
        python=sys.version.split()[0],
        sqlite=sqlite3.sqlite_version,
        packages={name: version(name) for name in PACKAGES},
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _filesystem(folder: Path) -> str:
    """The last mount that holds the folder is the one in force."""
    found = "unknown"
    longest = 0
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, where, kind = line.split()[:3]
        if folder.is_relative_to(where) and len(where) >= longest:
            found, longest = f"{kind} on {device}", len(where)
    return found
