"""A program that is told to end in the middle of what it does."""

import signal
import subprocess
from collections.abc import Mapping, Sequence


def ended_half_way(command: Sequence[str], cue: str, env: Mapping[str, str] | None = None) -> str:
    """Runs it until it has said `cue`, ends it by SIGTERM, and gives what it had said by then."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as ending:
        assert ending.stdout is not None
        seen = ""
        while cue not in seen:
            line = ending.stdout.readline()
            assert line, f"it ended by itself: {seen}"
            seen += line
        ending.send_signal(signal.SIGTERM)
        ending.communicate(timeout=60)
    assert ending.returncode == 128 + signal.SIGTERM
    return seen
