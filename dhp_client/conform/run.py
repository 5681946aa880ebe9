"""Carries the checks out: many at a time, each over connections of its own, told in the order of the catalogue.

Owns the threads, what a check's ending means, and that every check is cleaned up behind. Does not own points.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from .bench import Bench, Target, Terms
from .judging import NotChecked, Unlike
from .points import Point

AT_ONCE = 8
"""Most checks wait most of the time; and a daemon that is asked by others too should hardly notice."""

MOST_UNANSWERED = 2 * AT_ONCE
"""After so many checks that waited for an answer in vain, nobody is there to answer the others."""


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one point came out. `expected` and `came` where it failed, `reason` where it was skipped."""

    name: str
    section: str
    rule: str
    outcome: Literal["ok", "failed", "skipped"]
    expected: str | UnsetType = UNSET
    came: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    left: list[str] = []
    """Ids of handoffs that the check made and that couldn't be removed."""


def outcomes(
    points: Sequence[Point], target: Target, terms: Terms, *, drains: bool, all_points: bool
) -> Iterator[Outcome]:
    """Checks the points, and tells each in its order as soon as it is known."""
    lanes: dict[str, threading.Lock] = {point.lane: threading.Lock() for point in points if point.lane is not None}
    answered: set[str] = set()
    unanswered: list[str] = []

    def checked(point: Point) -> Outcome:
        if len(unanswered) >= MOST_UNANSWERED:
            return _outcome(point, "skipped", reason="the daemon doesn't answer any more")
        known = frozenset(answered) if all_points else None
        bench = Bench(target, terms, drains=drains, answered=known)
        if point.lane is None:
            outcome = _checked(point, bench)
        else:
            with lanes[point.lane]:
                outcome = _checked(point, bench)
        answered.update(bench.notes.codes)
        if bench.notes.unanswered:
            unanswered.append(point.name)
        return outcome

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="conform") as pool:
        together: dict[str, Future[Outcome]] = {
            point.name: pool.submit(checked, point) for point in points if point.turn == "together"
        }
        try:
            for point in points:
                if point.turn == "drained" and not drains:
                    yield _outcome(point, "skipped", reason="it drains the daemon: ask for it with --drain")
                elif point.name in together:
                    yield together[point.name].result()
                else:
                    for other in together.values():
                        other.exception()
                    yield checked(point)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _checked(point: Point, bench: Bench) -> Outcome:
    if point.check is None:
        return _outcome(point, "skipped", reason="not checkable from outside")
    outcome = _judged(point, bench)
    left = bench.clean_up()
    return Outcome(**{name: getattr(outcome, name) for name in outcome.__struct_fields__ if name != "left"}, left=left)


def _judged(point: Point, bench: Bench) -> Outcome:
    assert point.check is not None
    try:
        point.check(bench)
    except Unlike as error:
        if (role := bench.roles_lacking()) is not None:
            return _outcome(point, "skipped", reason=f"the token isn't {role}")
        return _outcome(point, "failed", expected=error.expected, came=error.came)
    except NotChecked as error:
        return _outcome(point, "skipped", reason=str(error))
    except OSError as error:
        return _outcome(point, "failed", expected="a connection that goes on", came=f"it ended: {error}")
    except Exception as error:  # Whatever a daemon says, the other points are to be told as well.
        came = f"what this check couldn't read: {type(error).__name__}: {error}"
        return _outcome(point, "failed", expected="answers of the types that SPEC.md says", came=came)
    return _outcome(point, "ok")


def _outcome(
    point: Point,
    outcome: Literal["ok", "failed", "skipped"],
    *,
    expected: str | UnsetType = UNSET,
    came: str | UnsetType = UNSET,
    reason: str | UnsetType = UNSET,
) -> Outcome:
    return Outcome(
        name=point.name,
        section=point.section,
        rule=point.rule,
        outcome=outcome,
        expected=expected,
        came=came,
        reason=reason,
    )
