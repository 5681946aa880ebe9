"""Every point there is, in the order in which they are told."""

from fnmatch import fnmatchcase

from dhp_protocol.errors import ERROR_BY_CODE

from . import played
from .bench import Bench
from .judging import same
from .points import Point, Rules
from .rules import (
    approvals,
    budgets,
    checkpoints,
    claims,
    draining,
    effects,
    ends,
    fences,
    frames,
    hello,
    identity,
    leases,
    looking,
    moving,
    parents,
    requests,
    sessions,
    stalls,
    suspension,
    unseen,
    values,
)

errors = Rules("errors", "12 Errors")

NOT_PROVOKED = frozenset(("overloaded", "store_unavailable", "internal", "not_primary", "draining"))
"""Only a daemon that is full, hurt, wrong, or drained answers these."""


@errors.in_section("12 Errors", turn="after")
def every_code_that_can_be_provoked_was_answered(bench: Bench) -> None:
    """In all the checks together every error code came that can be provoked without doing harm."""
    if bench.answered is None:
        bench.skip("only some of the points were looked at")
    if "admin" not in bench.terms.roles:
        bench.skip("the token isn't admin")
    bench.approver_token()
    wanted = ERROR_BY_CODE.keys() - NOT_PROVOKED - (set() if bench.terms.wants_token else {"unauthenticated"})
    same("the codes that didn't come", sorted(wanted - bench.answered), [])


GROUPS = (
    frames.rules,
    requests.rules,
    values.rules,
    hello.rules,
    identity.rules,
    claims.rules,
    fences.rules,
    leases.rules,
    sessions.rules,
    checkpoints.rules,
    ends.rules,
    budgets.rules,
    parents.rules,
    stalls.rules,
    effects.rules,
    approvals.rules,
    effects.capabilities,
    suspension.rules,
    looking.rules,
    looking.watching,
    moving.rules,
    played.frames,
    played.requests,
    played.intents,
    played.bundles,
    played.dialogues,
    errors,
    draining.rules,
    unseen.rules,
)

POINTS: tuple[Point, ...] = tuple(point for group in GROUPS for point in group.points)


def chosen(patterns: tuple[str, ...]) -> list[Point]:
    """The points whose names fit one of the patterns (`leases/*`; without a wildcard, what begins so); all where there is none."""
    return [point for point in POINTS if not patterns or any(_fits(point.name, pattern) for pattern in patterns)]


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if set(pattern) & set("*?[") else name.startswith(pattern)
