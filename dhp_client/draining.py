"""That this program is about to end: nothing new is begun, and what runs may finish.

Owns the flag, which is one for the whole process, and who is told of it. What sets it, and what follows, is `leaving`'s.
"""

import weakref
from typing import Protocol


class Winding(Protocol):
    """Something that takes on work for the program."""

    def wind_down(self) -> None:
        """Takes on no more. Any thread."""

    def let_go(self) -> None:
        """Hands back what it has. Any thread."""

    @property
    def busy(self) -> bool:
        """Whether work is under way."""


class Program:
    """This process, as far as it takes on work."""

    def __init__(self) -> None:
        self.draining = False
        self._winding: weakref.WeakSet[Winding] = weakref.WeakSet()

    def add(self, winding: Winding) -> None:
        """Has `winding` told, now or when it comes to that."""
        self._winding.add(winding)
        if self.draining:
            winding.wind_down()

    def drain(self) -> None:
        """From now on nothing new is begun. Not in a signal handler, which may interrupt anything."""
        self.draining = True
        for winding in list(self._winding):
            winding.wind_down()

    def let_go(self) -> None:
        """What is still held is handed back, whoever is at work on it."""
        for winding in list(self._winding):
            winding.let_go()

    @property
    def busy(self) -> bool:
        return any(winding.busy for winding in list(self._winding))


program = Program()
