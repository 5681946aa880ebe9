"""Whether an event loop still runs, as seen from another thread, and where it stands when it doesn't.

Owns the rule, with time as an argument, and naming the place. Asking the loop, and saying it, is `keepalive`'s.
"""

import functools
import sys
import sysconfig
from types import FrameType

LOOKS_WITHIN_LIMIT = 4


class LoopWatch:
    """Tells once of each time that a loop doesn't answer for `limit_ms`.

    The watcher sleeps between two looks, for `every_ms` at most. What is longer than that was its own pause, of the whole process or of
    the machine perhaps, and isn't counted: nobody knows what the loop would have done meanwhile.
    """

    def __init__(self, limit_ms: float) -> None:
        self.every_ms = limit_ms / LOOKS_WITHIN_LIMIT
        self._limit_ms = limit_ms
        self._looked_ms: float | None = None
        self._silent_ms = 0.0
        self._told = False
        self._asked = False
        self._answered = False

    def answer(self) -> None:
        """The loop runs. Any thread."""
        self._answered = True

    def rest(self) -> None:
        """Nobody looks for a while."""
        self._looked_ms = None

    def look(self, now_ms: float) -> tuple[bool, float | None]:
        """Whether the loop is to be asked now, and for how long it hasn't answered, if that is to be told."""
        seen_ms = 0.0 if self._looked_ms is None else min(now_ms - self._looked_ms, 2 * self.every_ms)
        first, self._looked_ms = self._looked_ms is None, now_ms
        if self._answered or first or not self._asked:
            asks = self._answered or not self._asked
            self._asked, self._answered, self._told, self._silent_ms = True, False, False, 0.0
            return asks, None
        self._silent_ms += seen_ms
        if self._told or self._silent_ms < self._limit_ms:
            return False, None
        self._told = True
        return False, self._silent_ms


def place_of(thread: int) -> str:
    """Where the thread with that identifier stands: the innermost line that isn't the library's own, as `function (file:line)`."""
    innermost = frame = sys._current_frames().get(thread)
    while frame is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    found = frame or innermost
    return "an unknown place" if found is None else _told(found)


def _is_library(path: str) -> bool:
    paths = _paths()
    packages = (paths["purelib"], paths["platlib"])
    return path.startswith((paths["stdlib"], "<frozen")) and not path.startswith(packages)


@functools.cache
def _paths() -> dict[str, str]:
    return sysconfig.get_paths()


def _told(frame: FrameType) -> str:
    return f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"
