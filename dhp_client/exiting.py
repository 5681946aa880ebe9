"""The program's end gives back what it still holds.

Owns that moment: after whatever the program itself registered to run at its end, and once for all of its clients. How it is given
back is `keepalive`'s.
"""

import atexit
import sys
from typing import TYPE_CHECKING

from .clock import monotonic_ms

if TYPE_CHECKING:
    from .keepalive import KeepAlive

EXIT_TIMEOUT_MS = 5_000
"""How long the program's end may be held up by it."""

running: "set[KeepAlive]" = set()
"""Those whose thread runs, also where their client is gone already."""


def _release_at_exit() -> None:
    """A crash releases nothing: it costs an attempt, however it comes about."""
    crashed = isinstance(getattr(sys, "last_value", None), Exception)
    ending = list(running)
    for keepalive in ending:
        keepalive.stop(release=not crashed)
    until_ms = monotonic_ms() + EXIT_TIMEOUT_MS
    for keepalive in ending:
        keepalive.join(max(0.0, until_ms - monotonic_ms()))


atexit.register(_release_at_exit)
