"""Keywords that go down into a value's members: those of an object, those of an array.

Owns `properties` and its kin, `propertyNames`, `items` and its kin, and `contains`. Each builder reads its keywords from a
site and adds checks and marks to it. Pure.
"""

from typing import Any

from .faults import Fault, Run
from .nodes import Check, Node
from .sites import Search, Site
from .values import shown


def build_tags(site: Site) -> None:
    """Members that must have one value, such as "kind", come first: so of several choices, the wrong ones fail by them."""
    members = site.object("properties").items()
    tags = {name: site.below("properties", name) for name, schema in members if _is_tag(schema)}

    def check(value: dict[str, Any], run: Run) -> Fault | None:
        for name, node in tags.items():
            fault = node.judge(value[name], run) if name in value else None
            if fault is not None:
                return fault.within(name, "properties")
        return None

    if tags:
        site.add(check, dict)


def _is_tag(schema: Any) -> bool:
    return isinstance(schema, dict) and "const" in schema


def build_members(site: Site) -> None:
    """`properties`, `patternProperties` and `additionalProperties`."""
    named = site.named_below("properties")
    patterned = [
        (site.pattern("patternProperties", source), node)
        for source, node in site.named_below("patternProperties").items()
    ]
    rest = site.below("additionalProperties") if "additionalProperties" in site.schema else None

    def check(value: dict[str, Any], run: Run) -> Fault | None:
        run.steps -= len(value)
        for name, member in value.items():
            node = named.get(name)
            if node is not None:
                fault = node.judge(member, run)
                if fault is not None:
                    return fault.within(name, "properties")
            known = node is not None
            for search, pattern_node in patterned:
                run.spend(1 + (len(name) >> 6))
                if search(name):
                    known = True
                    fault = pattern_node.judge(member, run)
                    if fault is not None:
                        return fault.within(name, "patternProperties")
            if rest is not None and not known:
                fault = rest.judge(member, run)
                if fault is not None:
                    return fault.within(name, "additionalProperties")
        return None

    def mark(value: Any, run: Run, evaluated: set[Any]) -> None:
        if isinstance(value, dict):
            run.spend(len(value))
            if rest is not None:
                evaluated.update(value)
            else:
                evaluated.update(name for name in value if name in named or _matches(name, patterned, run))

    site.add(check if patterned or rest is not None else _only_named(named), dict)
    site.mark(mark)


def _only_named(named: dict[str, Node]) -> Check:
    """The common case, made short."""

    def check(value: dict[str, Any], run: Run) -> Fault | None:
        run.steps -= len(value)
        for name, member in value.items():
            node = named.get(name)
            if node is not None:
                fault = node.judge(member, run)
                if fault is not None:
                    return fault.within(name, "properties")
        return None

    return check


def _matches(name: str, patterned: list[tuple[Search, Node]], run: Run) -> bool:
    for search, _ in patterned:
        run.spend(1 + (len(name) >> 6))
        if search(name):
            return True
    return False


def build_names(site: Site) -> None:
    """`propertyNames`."""
    node = site.below("propertyNames")

    def check(value: dict[str, Any], run: Run) -> Fault | None:
        for name in value:
            fault = node.judge(name, run)
            if fault is not None:
                return _of_name(name, fault)
        return None

    site.add(check, dict)


def _of_name(name: str, fault: Fault) -> Fault:
    return Fault(fault.rule or "propertyNames", lambda: f"has the member name {shown(name)}, which {fault.say()}")


def build_elements(site: Site) -> None:
    """`prefixItems` and `items`; in older drafts `items` and `additionalItems`."""
    old = "additionalItems" in site.draft.words
    first = "items" if old else "prefixItems"
    after = "additionalItems" if old else "items"
    if old and not isinstance(site.schema.get("items"), list):
        first, after = "", "items"  # Without a list, additionalItems says nothing.
        if "additionalItems" in site.schema:
            site.below("additionalItems")
    elif not old and isinstance(site.schema.get("items"), list):
        site.refuse("items", f"is a list, which {site.draft.name} writes as prefixItems")
    if first and site.schema.get(first) == [] and old:
        prefix: list[Node] = []
    else:
        prefix = site.listed(first) if first in site.schema else []
    rest = site.below(after) if after in site.schema else None

    def check(value: list[Any], run: Run) -> Fault | None:
        for index, item in enumerate(value):
            if index < len(prefix):
                fault = prefix[index].judge(item, run)
            elif rest is not None:
                fault = rest.judge(item, run)
            else:
                break
            if fault is not None:
                return fault.within(index, first if index < len(prefix) else after)
        return None

    def mark(value: Any, run: Run, evaluated: set[Any]) -> None:
        if isinstance(value, list):
            end = len(value) if rest is not None else min(len(prefix), len(value))
            run.spend(end)
            evaluated.update(range(end))

    site.add(check, list)
    site.mark(mark)


def build_contains(site: Site) -> None:
    """`contains`, `minContains` and `maxContains`."""
    bounded = "minContains" in site.draft.words
    bounded_below = bounded and "minContains" in site.schema
    least, rule = (site.count("minContains"), "minContains") if bounded_below else (1, "contains")
    most = site.count("maxContains") if bounded and "maxContains" in site.schema else None
    if "contains" not in site.schema:
        return
    node, source = site.below("contains"), site.pointer("contains")

    def check(value: list[Any], run: Run) -> Fault | None:
        found = sum([node.judge(item, run) is None for item in value])
        if found < least:
            return Fault(rule, lambda: f"holds {found} items that fit {source}, and needs {least} at least")
        if most is not None and found > most:
            return Fault("maxContains", lambda: f"holds {found} items that fit {source}, and may hold {most}")
        return None

    def mark(value: Any, run: Run, evaluated: set[Any]) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                if node.judge(item, run) is None:
                    evaluated.add(index)

    site.add(check, list)
    if site.draft.contains_evaluates:
        site.mark(mark)
