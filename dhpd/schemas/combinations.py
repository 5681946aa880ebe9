"""Keywords that ask other subschemas about the same value.

Owns `allOf`, `anyOf`, `oneOf`, `not`, `if`, the dependencies, and which fault is told where none of several choices fits.
Each builder reads its keywords from a site and adds checks and marks to it. Pure.
"""

from typing import Any

from .assertions import add_dependent_names
from .faults import Fault, Run
from .nodes import Mark, Node
from .sites import Site
from .values import KINDS, shown


def build_all(site: Site) -> None:
    nodes = site.listed("allOf", beside=True)

    def check(value: Any, run: Run) -> Fault | None:
        for node in nodes:
            fault = node.judge(value, run)
            if fault is not None:
                return fault.named("allOf")
        return None

    site.add(check, *KINDS)
    for node in nodes:
        site.mark(node.mark)


def build_any(site: Site) -> None:
    nodes = site.listed("anyOf", beside=True)

    def check(value: Any, run: Run) -> Fault | None:
        faults = []
        for node in nodes:
            fault = node.judge(value, run)
            if fault is None:
                return None
            faults.append(fault)
        return _nearest(faults) or Fault(
            "anyOf", lambda: f"is {shown(value)}, and fits none of the {len(nodes)} choices"
        )

    site.add(check, *KINDS)
    site.mark(_marks_of_fitting(nodes))


def build_one(site: Site) -> None:
    nodes = site.listed("oneOf", beside=True)

    def check(value: Any, run: Run) -> Fault | None:
        faults = []
        fitting = []
        for index, node in enumerate(nodes):
            fault = node.judge(value, run)
            if fault is not None:
                faults.append(fault)
                continue
            fitting.append(index)
            if len(fitting) == 2:
                return _fits_two(*fitting)
        if fitting:
            return None
        return _nearest(faults) or Fault(
            "oneOf", lambda: f"is {shown(value)}, and fits none of the {len(nodes)} choices"
        )

    site.add(check, *KINDS)
    site.mark(_marks_of_fitting(nodes))


def _fits_two(first: int, second: int) -> Fault:
    return Fault("oneOf", lambda: f"fits two of the choices (numbers {first} and {second}), and must fit one")


def _nearest(faults: list[Fault]) -> Fault | None:
    """The one choice that was meant, if that is plain: told by its fault, not by "fits none"."""
    near = [fault for fault in faults if fault.steps or fault.rule not in ("type", "const", "enum")]
    if len(near) > 1:  # Of those that differ by a tag, such as "kind", the right one has a fault elsewhere.
        near = [fault for fault in near if fault.rule not in ("const", "enum")]
    return near[0] if len(near) == 1 and near[0].rule else None


def _marks_of_fitting(nodes: list[Node]) -> Mark:
    def mark(value: Any, run: Run, evaluated: set[Any]) -> None:
        for node in nodes:
            if node.judge(value, run) is None:
                node.mark(value, run, evaluated)

    return mark


def build_not(site: Site) -> None:
    node, source = site.beside("not"), site.pointer("not")

    def check(value: Any, run: Run) -> Fault | None:
        if node.judge(value, run) is not None:
            return None
        return Fault("not", lambda: f"is {shown(value)}, and fits {source}, which it must not")

    site.add(check, *KINDS)


def build_condition(site: Site) -> None:
    """`if`, `then` and `else`."""
    then, other = (site.beside(word) if word in site.schema else None for word in ("then", "else"))
    if "if" not in site.schema:
        return
    condition = site.beside("if")

    def check(value: Any, run: Run) -> Fault | None:
        if then is None and other is None:
            return None
        fits = condition.judge(value, run) is None
        branch = then if fits else other
        fault = None if branch is None else branch.judge(value, run)
        return None if fault is None else fault.named("then" if fits else "else")

    def mark(value: Any, run: Run, evaluated: set[Any]) -> None:
        fits = condition.judge(value, run) is None
        if fits:
            condition.mark(value, run, evaluated)
        branch = then if fits else other
        if branch is not None:
            branch.mark(value, run, evaluated)

    site.add(check, *KINDS)
    site.mark(mark)


def build_dependent_schemas(site: Site) -> None:
    for name, schema in site.object("dependentSchemas").items():
        _add_dependent_schema(site, "dependentSchemas", name, schema)


def build_dependencies(site: Site) -> None:
    """Draft 7's, whose members are lists of names or schemas."""
    for name, needed in site.object("dependencies").items():
        if isinstance(needed, list):
            add_dependent_names(site, "dependencies", name, needed)
        else:
            _add_dependent_schema(site, "dependencies", name, needed)


def _add_dependent_schema(site: Site, keyword: str, name: str, schema: Any) -> None:
    node = site.beside(keyword, name)

    def check(value: dict[str, Any], run: Run) -> Fault | None:
        fault = node.judge(value, run) if name in value else None
        return None if fault is None else fault.named(keyword)

    def mark(value: Any, run: Run, evaluated: set[Any]) -> None:
        if isinstance(value, dict) and name in value:
            node.mark(value, run, evaluated)

    site.add(check, dict)
    site.mark(mark)
