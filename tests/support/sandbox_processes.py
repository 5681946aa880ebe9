"""The sandbox processes of a daemon, or of the test itself, as the kernel shows them."""

import os
from contextlib import suppress
from pathlib import Path


def workers(parent: int) -> list[int]:
    """The running workers that the process `parent` has started."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            command = (directory / "cmdline").read_bytes()
            if int(fields[1]) == parent and fields[0] != "Z" and b"dhpd.sandbox.worker" in command:
                found.append(int(directory.name))
    return found


def alive(process: int) -> bool:
    """Whether it runs; one that has ended and that nobody has waited for doesn't."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def has_worked(worker: int) -> bool:
    """Whether it has used more processor time than it takes to start: it is at a job."""
    with suppress(OSError):
        ticks = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[11])
        return ticks / os.sysconf("SC_CLK_TCK") > 0.6
    return False
