"""A point: one rule of SPEC.md, and the check that looks whether it is kept.

Owns what a point is, and how a module of rules makes points of its functions. Does not own the rules, nor carrying checks out.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from .bench import Bench

Check = Callable[["Bench"], None]
Turn = Literal["together", "after", "drained"]


class Point(Struct, frozen=True, kw_only=True):
    """`name` is `group/what-it-is`; `rule` one sentence; `section` where SPEC.md says so. `check` None: it can't be looked at.

    Points of one `lane` aren't checked at the same time. `turn`: together with others, "after" all of these, or last of all, where
    the daemon may be "drained".
    """

    name: str
    section: str
    rule: str
    check: Check | None
    lane: str | None = None
    turn: Turn = "together"


class Rules:
    """The points of one group. `@rules.point` makes one of a function, whose name is its name and whose docstring is the rule."""

    def __init__(self, group: str, section: str) -> None:
        self.points: list[Point] = []
        self._group = group
        self._section = section

    def point(self, check: Check) -> Check:
        """Makes a point of `check`."""
        self.add(getattr(check, "__name__", ""), (check.__doc__ or "").strip().partition("\n")[0], check)
        return check

    def in_section(self, section: str, *, lane: str | None = None, turn: Turn = "together") -> Callable[[Check], Check]:
        """As `point`, of another section than the group's."""

        def decorate(check: Check) -> Check:
            name, rule = getattr(check, "__name__", ""), (check.__doc__ or "").strip().partition("\n")[0]
            self.add(name, rule, check, section=section, lane=lane, turn=turn)
            return check

        return decorate

    def add(
        self,
        name: str,
        rule: str,
        check: Check | None,
        *,
        section: str | None = None,
        lane: str | None = None,
        turn: Turn = "together",
    ) -> None:
        """Adds a point that isn't made of a function of its own."""
        slug = name.replace("_", "-").replace(" ", "-")
        section = section or self._section
        self.points.append(
            Point(name=f"{self._group}/{slug}", section=section, rule=rule, check=check, lane=lane, turn=turn)
        )
