"""A subschema made ready: what it checks, by the kind of value.

Owns how a node is asked, once per value where it matters, and what it has evaluated. Does not own what the keywords say
(`assertions`, `applicators`, `unevaluated`) nor how nodes come to be (`compiling`). Pure.
"""

from collections.abc import Callable
from typing import Any

from .faults import Exhausted, Fault, Run
from .references import Resource
from .values import KINDS, Kind

Check = Callable[[Any, Run], Fault | None]
Mark = Callable[[Any, Run, set[Any]], None]
"""Adds to the set what the keyword has evaluated: names of an object, indices of an array, of a value that fits."""


class Node:
    """One subschema. `checks` holds, for each kind of value, what is left to check: nothing, mostly."""

    __slots__ = ("checks", "guarded", "marks", "scope")

    def __init__(self) -> None:
        self.checks: dict[Kind, tuple[Check, ...]] = NOTHING
        self.marks: tuple[Mark, ...] = ()
        self.guarded = False
        """Whether it may be asked about one value in more ways than one, so that verdicts are kept."""
        self.scope: Resource | None = None
        """What a dynamic reference below comes out at may depend on the way having led through this one."""

    def judge(self, value: Any, run: Run) -> Fault | None:
        """None where `value` fits; else the first fault found. Raises `Exhausted`."""
        if self.guarded or self.scope is not None:
            return self._judge_guarded(value, run)
        checks = self.checks[type(value)]
        run.steps -= 1 + len(checks)
        if run.steps < 0:
            raise Exhausted
        for check in checks:
            fault = check(value, run)
            if fault is not None:
                return fault
        return None

    def mark(self, value: Any, run: Run, evaluated: set[Any]) -> None:
        """Adds what this node has evaluated of `value`, an object or array that fits it."""
        run.spend(1)
        outer = run.scope
        if self.scope is not None and self.scope not in outer:
            run.scope = (*outer, self.scope)
        for mark in self.marks:
            mark(value, run, evaluated)
        run.scope = outer

    def _judge_guarded(self, value: Any, run: Run) -> Fault | None:
        outer = run.scope
        if self.scope is not None and self.scope not in outer:
            run.scope = (*outer, self.scope)
        # A value of the document lives as long as the run, so its `id` is its own; equal constants may share one.
        key = (id(self), id(value), run.scope)
        fault: Fault | None = None
        if key in run.verdicts:
            fault = run.verdicts[key]
        else:
            checks = self.checks[type(value)]
            run.spend(2 + len(checks))
            for check in checks:
                fault = check(value, run)
                if fault is not None:
                    break
            run.remember(key, fault)
        run.scope = outer
        return fault


NOTHING: dict[Kind, tuple[Check, ...]] = dict.fromkeys(KINDS, ())
