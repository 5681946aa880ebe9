"""Work that goes on in steps, where all of it at once would hold up everybody else.

Owns the works under way, whose step comes next, and that nobody waits for an answer whose work was given up. A step is like
a command of its own: others come in between, and what a work meets may have changed since its last step. Does not own what
is done in one, nor when (`serving`). Pure.
"""

from collections import deque
from collections.abc import Generator
from typing import Any

from .moments import Now
from .waiting import Address

Steps = Generator[Any, Now, None]
"""A work: begins with `now = yield`, and again at the end of each step; the time of a step is that of the present moment.

It yields True where there was nothing to do but to wait for the disk, else None.
"""


class Backlog:
    def __init__(self, at_once: int) -> None:
        """`at_once`: so many steps of a work are taken when it begins, and most have no more."""
        self._at_once = at_once
        self._works: deque[tuple[Steps, Address | None]] = deque()

    def __len__(self) -> int:
        return len(self._works)

    def begin(self, work: Steps, now: Now, to: Address | None = None) -> None:
        """Takes the first steps; what is left goes on by `step`. `to` is who is answered when all is done."""
        next(work)
        for _ in range(self._at_once):
            try:
                if work.send(now):
                    break
            except StopIteration:
                return
        self._works.append((work, to))

    def put_off(self, work: Steps) -> None:
        """As `begin`, but even the first steps are left to `step`."""
        next(work)
        self._works.append((work, None))

    def step(self, now: Now) -> bool:
        """One step of one work; the others have their turn before it has another. Tells whether anything was done."""
        work, to = self._works.popleft()
        try:
            waits = work.send(now)
        except StopIteration:
            return True
        self._works.append((work, to))
        return not waits

    def give_up(self) -> list[Address]:
        """Ends the works that somebody is to be answered for: what they have done may be undone. Gives who hasn't been."""
        given_up = [(work, to) for work, to in self._works if to is not None]
        self._works = deque((work, to) for work, to in self._works if to is None)
        for work, _ in given_up:
            work.close()
        return [to for _, to in given_up if to is not None]
