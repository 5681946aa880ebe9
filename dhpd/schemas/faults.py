"""What a schema says against a value, and how far judging may go.

Owns the shape of a fault and of one run over a value: its budget of steps, the verdicts already had in it, and which
resources of the schema it is in. Pure.
"""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from .values import pointer

if TYPE_CHECKING:
    from .references import Resource

MAX_VERDICTS = 50_000
"""Beyond so many they are forgotten: the budget of steps bounds what that can cost."""


class Fault:
    """Where a value doesn't fit, by which keyword, and why; never changed once made.

    `say` makes a sentence that goes on from "the value at PATH", as in "is 3, and must be at least 5"; most faults are
    found in choices that didn't apply, and are never told.
    """

    __slots__ = ("rule", "say", "steps")

    def __init__(self, rule: str, say: Callable[[], str], steps: tuple[str | int, ...] = ()) -> None:
        self.rule = rule
        self.say = say
        self.steps = steps

    def within(self, step: str | int, keyword: str) -> "Fault":
        """The same, seen from the value one level up, which `keyword` came down from."""
        return Fault(self.rule or keyword, self.say, (step, *self.steps))

    def named(self, keyword: str) -> "Fault":
        """The same, with `keyword` to blame where the subschema was just `false`."""
        return self if self.rule else Fault(keyword, self.say, self.steps)

    @property
    def path(self) -> str:
        """A JSON Pointer."""
        return pointer(self.steps)


class Exhausted(Exception):
    """The budget of steps is used up: there is no verdict."""


class Run:
    """One judging of one value. `steps` is what it may still cost; about a microsecond each."""

    __slots__ = ("scope", "steps", "verdicts")

    def __init__(self, steps: int, scope: "tuple[Resource, ...]" = ()) -> None:
        self.steps = steps
        self.scope = scope
        self.verdicts: dict[Hashable, Any] = {}

    def spend(self, steps: int) -> None:
        """For work that grows with a value or a schema and isn't a step into a subschema; raises `Exhausted`."""
        self.steps -= steps
        if self.steps < 0:
            raise Exhausted

    def remember(self, key: Hashable, verdict: Fault | None) -> None:
        if len(self.verdicts) >= MAX_VERDICTS:
            self.verdicts.clear()
        self.verdicts[key] = verdict
