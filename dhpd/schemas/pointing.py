"""Keywords that point at a subschema elsewhere: `$ref`, `$dynamicRef` and `$recursiveRef`.

Owns which subschema is asked in the end. Does not own what a reference means as text (`references`). Pure.
"""

from typing import Any

from .faults import Fault, Run
from .nodes import Node
from .sites import Site
from .values import KINDS


def build_reference(site: Site) -> None:
    """`$ref`."""
    _refer(site, "$ref", site.pointed(site.target("$ref"), "$ref"))


def build_dynamic_reference(site: Site) -> None:
    """`$dynamicRef` and `$recursiveRef`: a reference that comes out at the outermost schema marked for it on the way here.

    Only if what it points at by itself is marked too; else it is a plain reference.
    """
    keyword = "$dynamicRef" if site.draft.dynamic_anchor == "$dynamicAnchor" else "$recursiveRef"
    if keyword == "$recursiveRef" and site.get(keyword) != "#":
        site.refuse(keyword, 'is not "#"')
    plain = site.target(keyword)
    name = site.get(keyword).partition("#")[2] if keyword == "$dynamicRef" else ""
    node = site.pointed(plain, keyword)
    marked = plain.resource.dynamic.get(name)
    if marked is None or marked.schema is not plain.schema:
        _refer(site, keyword, node)
        return
    others = {
        resource: site.pointed(target, keyword)
        for resource, target in site.marked(name)
        if resource is not plain.resource
    }
    if not others:
        _refer(site, keyword, node)
        return
    others[plain.resource] = node

    def outermost(run: Run) -> Node:
        return next((others[resource] for resource in run.scope if resource in others), node)

    def check(value: Any, run: Run) -> Fault | None:
        fault = outermost(run).judge(value, run)
        return None if fault is None else fault.named(keyword)

    site.add(check, *KINDS)
    site.mark(lambda value, run, evaluated: outermost(run).mark(value, run, evaluated))


def _refer(site: Site, keyword: str, node: Node) -> None:
    def check(value: Any, run: Run) -> Fault | None:
        fault = node.judge(value, run)
        return None if fault is None else fault.named(keyword)

    site.add(check, *KINDS)
    site.mark(node.mark)
