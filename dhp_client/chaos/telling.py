"""What a person reads while it goes on: one plain line for each thing, with the seconds since the beginning.

Owns the clock of a run, and where its lines go.
"""

from typing import TextIO

from ..clock import monotonic_ms


class Telling:
    """Lines on `out`; time counts from when it was made."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began_ms = monotonic_ms()

    @property
    def seconds(self) -> float:
        return (monotonic_ms() - self._began_ms) / 1000

    def say(self, line: str) -> None:
        print(line, file=self._out, flush=True)

    def at_moment(self, line: str) -> None:
        self.say(f"{self.seconds:7.1f} s  {line}")
