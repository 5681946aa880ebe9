"""Daemons that programs have started for directories of a test's own, and left running as they are meant to be."""

import contextlib
import os
import signal
from pathlib import Path

import msgspec

from ..client.waiting import until_blocking


def end_embedded(folder: Path) -> None:
    """Ends the daemons of all directories in `folder`; returns when they have ended."""
    for described in folder.glob("**/dhpd.json"):
        with contextlib.suppress(
            OSError
        ):  # One that is just ending takes its file along, one that was killed has left it.
            pid = msgspec.json.decode(described.read_bytes())["pid"]
            if b"dhpd" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGTERM)
                until_blocking(lambda file=described: not file.exists(), "the daemon has ended")
