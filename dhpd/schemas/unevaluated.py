"""Keywords that look at what the others have left: `unevaluatedProperties` and `unevaluatedItems`.

Owns how that is found: by asking the others, once they have passed, for what they have evaluated; so schemas without these
two pay nothing. Pure.
"""

from typing import Any

from .faults import Fault, Run
from .nodes import Mark
from .sites import Site
from .values import Kind


def build_unevaluated(site: Site) -> None:
    """Comes last: all other keywords have passed, and have their marks in."""
    site.node.guarded = True
    marks = site.marks
    kinds: tuple[tuple[str, Kind], ...] = (("unevaluatedProperties", dict), ("unevaluatedItems", list))
    for keyword, kind in kinds:
        if keyword in site.schema:
            _add(site, keyword, kind, marks)


def _add(site: Site, keyword: str, kind: Kind, marks: tuple[Mark, ...]) -> None:
    node = site.below(keyword)

    def check(value: Any, run: Run) -> Fault | None:
        evaluated: set[Any] = set()
        for mark in marks:
            mark(value, run, evaluated)
        run.spend(len(value))
        for step, member in value.items() if isinstance(value, dict) else enumerate(value):
            if step not in evaluated:
                fault = node.judge(member, run)
                if fault is not None:
                    return fault.within(step, keyword)
        return None

    def mark(value: Any, run: Run, evaluated: set[Any]) -> None:
        if isinstance(value, kind):
            members: Any = value
            run.spend(len(members))
            evaluated.update(members if kind is dict else range(len(members)))

    site.add(check, kind)
    site.mark(mark)
