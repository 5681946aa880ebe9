"""Keywords that look at a value and at nothing below it.

Owns what `type`, `enum`, `const` and the bounds on numbers, strings, arrays and objects say, and that their own values are
well-formed. Each builder reads its keywords from a site and adds checks to it. Pure.
"""

from decimal import Decimal
from typing import Any

from .faults import Fault, Run
from .nodes import Check
from .sites import Site
from .values import KINDS, KINDS_BY_TYPE, Kind, identity, is_multiple, is_whole, shown


def build_type(site: Site) -> None:
    names = site.get("type")
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list) or not names or any(not isinstance(name, str) for name in names):
        site.refuse("type", "is neither a type nor a list of types")
    for name in names:
        if name not in KINDS_BY_TYPE:
            site.refuse("type", f"names {shown(name)}, which is no type")
    wanted = _joined(names)

    def wrong(value: Any, run: Run) -> Fault:
        return Fault("type", lambda: f"is {_kind_of(value)}, and must be {wanted}")

    def whole(value: Decimal, run: Run) -> Fault | None:
        return None if is_whole(value) else wrong(value, run)

    allowed = {kind for name in names for kind in KINDS_BY_TYPE[name]}
    for kind in KINDS:
        if kind not in allowed:
            site.only(kind, wrong)
        elif kind is Decimal and "number" not in names:
            site.add(whole, Decimal)


_SHORT: dict[Kind, str] = {type(None): "null", list: "an array", dict: "an object"}
_NAMES: dict[Kind, str] = {bool: "boolean", int: "integer", Decimal: "number", str: "string"}


def _kind_of(value: Any) -> str:
    kind = type(value)
    return _SHORT.get(kind) or f"the {_NAMES[kind]} {shown(value)}"


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def build_values(site: Site) -> None:
    """`enum` and `const`."""
    if "enum" in site.schema:
        members = site.get("enum")
        if not isinstance(members, list):
            site.refuse("enum", "is no list")
        _among(site, "enum", members)
    if "const" in site.schema:
        _among(site, "const", [site.get("const")])


def _among(site: Site, keyword: str, members: list[Any]) -> None:
    def wanted() -> str:
        listed = ", ".join(shown(member) for member in members[:8]) + (", …" if len(members) > 8 else "")
        return f"be {'one of ' if len(members) > 1 else ''}{listed}" if members else "not be there"

    def wrong(value: Any, run: Run) -> Fault:
        return Fault(keyword, lambda: f"is {shown(value)}, and must {wanted()}")

    by_kind: dict[Kind, list[Any]] = {}
    for member in members:
        by_kind.setdefault(type(member), []).append(member)
    for kind, found in by_kind.items():
        site.add(_among_plain(found, wrong) if kind in _PLAIN else _among_identities(found, wrong), kind)
    site.add(wrong, *(kind for kind in KINDS if kind not in by_kind))


_PLAIN = frozenset((str, int, bool, type(None)))
"""Kinds whose values Python itself compares as JSON does, among their own kind."""


def _among_plain(members: list[Any], wrong: Check) -> Check:
    allowed = frozenset(members)
    return lambda value, run: None if value in allowed else wrong(value, run)


def _among_identities(members: list[Any], wrong: Check) -> Check:
    allowed = frozenset(identity(member) for member in members)
    return lambda value, run: None if _identity(value, run) in allowed else wrong(value, run)


def _identity(value: Any, run: Run) -> str:
    """As `identity`, paid for by its length: what it costs grows with the value."""
    text = identity(value)
    run.spend(4 + (len(text) >> 4))
    return text


def build_number(site: Site) -> None:
    for keyword in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"):
        if keyword in site.schema:
            bound = site.get(keyword)
            if type(bound) not in (int, Decimal):
                site.refuse(keyword, "is no number")
            site.add(_NUMBER_CHECKS[keyword](site, bound), int, Decimal)


def _minimum(site: Site, bound: Any) -> Check:
    def check(value: Any, run: Run) -> Fault | None:
        return (
            None
            if value >= bound
            else Fault("minimum", lambda: f"is {shown(value)}, and must be at least {shown(bound)}")
        )

    return check


def _exclusive_minimum(site: Site, bound: Any) -> Check:
    def check(value: Any, run: Run) -> Fault | None:
        return (
            None
            if value > bound
            else Fault("exclusiveMinimum", lambda: f"is {shown(value)}, and must be above {shown(bound)}")
        )

    return check


def _maximum(site: Site, bound: Any) -> Check:
    def check(value: Any, run: Run) -> Fault | None:
        return (
            None
            if value <= bound
            else Fault("maximum", lambda: f"is {shown(value)}, and must be at most {shown(bound)}")
        )

    return check


def _exclusive_maximum(site: Site, bound: Any) -> Check:
    def check(value: Any, run: Run) -> Fault | None:
        return (
            None
            if value < bound
            else Fault("exclusiveMaximum", lambda: f"is {shown(value)}, and must be below {shown(bound)}")
        )

    return check


def _multiple_of(site: Site, divisor: Any) -> Check:
    if divisor <= 0:
        site.refuse("multipleOf", "is not above 0")

    def check(value: Any, run: Run) -> Fault | None:
        if is_multiple(value, divisor):
            return None
        return Fault("multipleOf", lambda: f"is {shown(value)}, and must be a multiple of {shown(divisor)}")

    return check


_NUMBER_CHECKS = {
    "minimum": _minimum,
    "exclusiveMinimum": _exclusive_minimum,
    "maximum": _maximum,
    "exclusiveMaximum": _exclusive_maximum,
    "multipleOf": _multiple_of,
}


def build_text(site: Site) -> None:
    _bounds(site, "Length", str, "character")
    if "pattern" in site.schema:
        source = site.get("pattern")
        search = site.pattern("pattern", source)

        def check(value: str, run: Run) -> Fault | None:
            run.spend(1 + (len(value) >> 6))
            if search(value):
                return None
            return Fault("pattern", lambda: f"is {shown(value)}, and must match the pattern {shown(source)}")

        site.add(check, str)


def build_array_sizes(site: Site) -> None:
    _bounds(site, "Items", list, "item")
    if "uniqueItems" in site.schema:
        wanted = site.get("uniqueItems")
        if not isinstance(wanted, bool):
            site.refuse("uniqueItems", "is neither true nor false")
        if wanted:
            site.add(_unique, list)


def _unique(value: list[Any], run: Run) -> Fault | None:
    strings: dict[str, int] = {}
    others: dict[int | str, int] = {}
    run.spend(len(value))
    for index, item in enumerate(value):
        if type(item) is str:
            first = strings.setdefault(item, index)
        elif type(item) is int and -_HASHED_WELL < item < _HASHED_WELL:
            first = others.setdefault(item, index)
        else:
            first = others.setdefault(_identity(item, run), index)
        if first != index:
            return _equal_items(first, index)
    return None


def _equal_items(first: int, second: int) -> Fault:
    return Fault(
        "uniqueItems", lambda: f"holds equal items at {first} and {second}, and each must differ from the others"
    )


_HASHED_WELL = 2**60
"""From here up, integers that have one hash could be sent on purpose."""


def build_object_sizes(site: Site) -> None:
    _bounds(site, "Properties", dict, "member")
    if "required" in site.schema:
        names = site.names("required", site.get("required"))

        def check(value: dict[str, Any], run: Run) -> Fault | None:
            for name in names:
                if name not in value:
                    return _lacking(name)
            run.steps -= len(names) >> 3
            return None

        site.add(check, dict)


def _lacking(name: str) -> Fault:
    return Fault("required", lambda: f"lacks the member {shown(name)}")


def build_dependent_required(site: Site) -> None:
    for name, needed in site.object("dependentRequired").items():
        add_dependent_names(site, "dependentRequired", name, needed)


def add_dependent_names(site: Site, keyword: str, name: str, needed: Any) -> None:
    """Where the member `name` is, those in `needed` must be."""
    names = site.names(keyword, needed)

    def check(value: dict[str, Any], run: Run) -> Fault | None:
        if name in value:
            run.spend(1 + (len(names) >> 3))
            for other in names:
                if other not in value:
                    return _lacking_too(keyword, name, other)
        return None

    site.add(check, dict)


def _lacking_too(keyword: str, name: str, other: str) -> Fault:
    return Fault(keyword, lambda: f"has {shown(name)} and so must have {shown(other)} too")


def _bounds(site: Site, what: str, kind: Kind, noun: str) -> None:
    least, most = f"min{what}", f"max{what}"
    if least in site.schema:
        low = site.count(least)

        def enough(value: Any, run: Run) -> Fault | None:
            return (
                None
                if len(value) >= low
                else Fault(least, lambda: f"has {_counted(len(value), noun)}, and {low} are needed")
            )

        site.add(enough, kind)
    if most in site.schema:
        high = site.count(most)

        def few(value: Any, run: Run) -> Fault | None:
            if len(value) <= high:
                return None
            return Fault(most, lambda: f"has {_counted(len(value), noun)}, and may have {high}")

        site.add(few, kind)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
