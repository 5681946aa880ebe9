"""What `dhp top` shows, as facts: the picture is a function of the answers and of the time.

Owns what counts as stuck, what is told of a lease, rates, and since when nobody answers. What programs read (`--json`) is a `Picture`;
how it looks to a person is `layout`'s. Pure: time is an argument.
"""

from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dhp_client.results import Approval
from dhp_protocol.replies import HealthReply, StatusReply

from ..printing import SHORT_ID_CHARS, short_approval
from .gathering import Facts

RATES_OVER_MS = 10_000
RATES = ("dispatched", "claimed", "checkpointed", "completed", "failed", "orphaned", "dead")


class Sample(Struct, frozen=True):
    """How many records of each type there were, so long after the daemon's start."""

    uptime_ms: int
    records_by_type: dict[str, int]


class Known(Struct, frozen=True, kw_only=True):
    """What has been answered so far. `at` are wall-clock times (RFC 3339) of this machine, `at_ms` readings of its monotonic clock.

    `facts` are older than `health` where the store could not be read last (`refusal` says why), and both are where nobody answers
    (`silent`).
    """

    health: HealthReply | None = None
    facts: Facts | None = None
    samples: tuple[Sample, ...] = ()
    answered_at: str | None = None
    answered_at_ms: float = 0.0
    facts_at: str | None = None
    refusal: str | None = None
    silent: bool = False


def answered(
    known: Known, health: HealthReply, facts: Facts | None, refusal: str | None, *, at: str, at_ms: float
) -> Known:
    """What is known now that the daemon has answered; without `facts`, `refusal` says why there are none."""
    known = replace(known, health=health, refusal=refusal, answered_at=at, answered_at_ms=at_ms, silent=False)
    if facts is None:
        return known
    sample = Sample(facts.stats.uptime_ms, facts.stats.records_by_type)
    earlier = [one for one in known.samples if _goes_on(one, sample)]
    recent = [one for one in earlier if one.uptime_ms >= sample.uptime_ms - RATES_OVER_MS]
    return replace(known, facts=facts, facts_at=at, samples=(*(recent or earlier[-1:]), sample))


def _goes_on(earlier: Sample, later: Sample) -> bool:
    """Whether the daemon hasn't been restarted in between: neither its time nor any of its counts began anew."""
    counts = later.records_by_type
    return earlier.uptime_ms < later.uptime_ms and all(
        counts.get(name, 0) >= count for name, count in earlier.records_by_type.items()
    )


def silent(known: Known, *, at: str, at_ms: float) -> Known:
    """What is known now that nobody has answered; `at` counts where nobody ever did."""
    if known.answered_at is None:
        known = replace(known, answered_at=at, answered_at_ms=at_ms)
    return replace(known, silent=True)


class Lease(Struct, frozen=True, kw_only=True):
    """Work that is held. `quiet_ms`: since the holder last did anything new that the daemon heard of, heartbeats aside."""

    handoff: str
    kind: str
    worker: str
    fence: int
    attempt: int
    failures: int
    max_attempts: int | None
    held_ms: int | None
    left_ms: int | None
    seq: int
    checkpoint_ago_ms: int | None
    repeats: int | None
    max_repeats: int | None
    activity_ago_ms: int | None
    quiet_ms: int


class Stuck(Struct, frozen=True, kw_only=True):
    """Work that nobody does: in this status for so long, for this reason; `command` goes on with it, or None: a worker's claim does."""

    handoff: str
    kind: str
    status: str
    for_ms: int
    attempt: int
    failures: int
    max_attempts: int | None
    reason: str | None
    wakes_in_ms: int | None
    command: str | None


class Question(Struct, frozen=True, kw_only=True):
    """What a person is asked, how long it stays open, and what says yes (`deny` in the place of `approve` says no)."""

    approval: str
    handoff: str
    kind: str
    action: str
    details: Any
    left_ms: int
    command: str


class Picture(Struct, frozen=True, kw_only=True):
    """All that one refresh shows. `more` names the lists of which there is more than is here.

    `silent_since` (RFC 3339): the last time that anybody answered, where nobody does now; everything else is of that time.
    `facts_at`: when the rest was read, where it couldn't be this time. `rates_per_s` is empty until there are two readings.
    """

    address: str
    kind: str | None
    time: str | None
    silent_since: str | None
    silent_ms: int | None
    facts_at: str | None
    refusal: str | None
    health: HealthReply | None
    handoffs: dict[str, int]
    rates_per_s: dict[str, float]
    rates_over_ms: int
    waiting_claims: int
    sessions: int
    connections: int
    loop_late_ms: float
    limits_hit: dict[str, int]
    approvals: list[Question]
    dead: list[Stuck]
    orphaned: list[Stuck]
    suspended: list[Stuck]
    leases: list[Lease]
    pending: list[Stuck]
    more: list[str]


def picture_of(known: Known, *, now_ms: float, address: str, kind: str | None = None, dhp: str = "dhp") -> Picture:
    """What there is to show. `dhp` is how the command is to be called so that it reaches the same daemon."""
    facts = known.facts
    rates, over_ms = _rates(known.samples)
    stats = None if facts is None else facts.stats
    at = "" if stats is None else stats.time
    questions = [] if facts is None else [_question(one.approval, one.kind, at, dhp) for one in facts.asked]
    asked = {one.handoff for one in questions}

    def stuck(handoffs: list[StatusReply]) -> list[Stuck]:
        return [_stuck(one, at, dhp) for one in handoffs]

    return Picture(
        address=address,
        kind=kind,
        time=at or None,
        silent_since=known.answered_at if known.silent else None,
        silent_ms=int(now_ms - known.answered_at_ms) if known.silent else None,
        facts_at=known.facts_at if known.refusal is not None else None,
        refusal=known.refusal,
        health=known.health,
        handoffs={} if stats is None else stats.handoffs,
        rates_per_s=rates,
        rates_over_ms=over_ms,
        waiting_claims=0 if stats is None else stats.waiting_claims,
        sessions=0 if stats is None else stats.sessions,
        connections=0 if stats is None else stats.connections,
        loop_late_ms=0.0 if stats is None else stats.loop_late_ms,
        limits_hit={} if stats is None else _nonzero(stats.limits_hit),
        approvals=sorted(questions, key=lambda one: one.left_ms),
        dead=[] if facts is None else stuck(facts.dead.handoffs),
        orphaned=[] if facts is None else stuck(facts.orphaned.handoffs),
        suspended=[] if facts is None else stuck([one for one in facts.suspended.handoffs if one.handoff not in asked]),
        leases=[] if facts is None else _leases(facts.running.handoffs, at),
        pending=[] if facts is None else stuck(facts.pending.handoffs),
        more=[] if facts is None else _more(facts),
    )


def _rates(samples: tuple[Sample, ...]) -> tuple[dict[str, float], int]:
    if len(samples) < 2:
        return {}, 0
    first, last = samples[0], samples[-1]
    over_ms = last.uptime_ms - first.uptime_ms
    counts = {name: last.records_by_type.get(name, 0) - first.records_by_type.get(name, 0) for name in RATES}
    return {name: round(count * 1000 / over_ms, 2) for name, count in counts.items()}, over_ms


def _nonzero(limits_hit: Struct) -> dict[str, int]:
    return {name: count for name in limits_hit.__struct_fields__ if (count := getattr(limits_hit, name))}


def _more(facts: Facts) -> list[str]:
    lists = {
        "leases": facts.running.more,
        "dead": facts.dead.more,
        "orphaned": facts.orphaned.more,
        "suspended": facts.suspended.more,
        "pending": facts.pending.more,
        "approvals": facts.more_asked,
    }
    return [name for name, more in lists.items() if more]


def _leases(running: list[StatusReply], at: str) -> list[Lease]:
    """The longest without anything new first: that is where something hangs."""
    return sorted((_lease(one, at) for one in running), key=lambda lease: -lease.quiet_ms)


def _lease(one: StatusReply, at: str) -> Lease:
    activity_ago_ms = None if one.activity is None else one.activity.ago_ms
    held_ms, checkpoint_ago_ms = _ago_ms(one.claimed_at, at), _ago_ms(one.checkpoint_at, at)
    new_activity = None if one.activity is None or one.activity.repeats else activity_ago_ms
    news = [ms for ms in (held_ms, checkpoint_ago_ms, new_activity) if ms is not None]
    return Lease(
        handoff=one.handoff,
        kind=one.kind,
        worker=one.holder or "",
        fence=one.fence,
        attempt=one.attempt,
        failures=one.failures,
        max_attempts=_cap(one, "max_attempts"),
        held_ms=held_ms,
        left_ms=one.lease_left_ms,
        seq=one.seq,
        checkpoint_ago_ms=checkpoint_ago_ms,
        repeats=None if one.activity is None else one.activity.repeats,
        max_repeats=_cap(one, "max_repeats"),
        activity_ago_ms=activity_ago_ms,
        quiet_ms=min(news, default=0),
    )


def _stuck(one: StatusReply, at: str, dhp: str) -> Stuck:
    wakes_in_ms = None if (ago_ms := _difference_ms(one.wake_at, at)) is None else max(0, -ago_ms)
    short = one.handoff[:SHORT_ID_CHARS]
    going_on = {"dead": f"{dhp} redrive {short}", "suspended": f"{dhp} resume {short}"}
    return Stuck(
        handoff=one.handoff,
        kind=one.kind,
        status=one.status,
        for_ms=_ago_ms(one.updated_at, at) or 0,
        attempt=one.attempt,
        failures=one.failures,
        max_attempts=_cap(one, "max_attempts"),
        reason=one.reason,
        wakes_in_ms=wakes_in_ms,
        command=going_on.get(one.status),
    )


def _question(one: Approval, kind: str, at: str, dhp: str) -> Question:
    return Question(
        approval=one.approval,
        handoff=one.handoff,
        kind=kind,
        action=one.action,
        details=one.details,
        left_ms=max(0, -(_difference_ms(one.expires_at, at) or 0)),
        command=f"{dhp} approve {short_approval(one.approval)}",
    )


def _cap(one: StatusReply, name: str) -> int | None:
    limit = one.budget.get(name)
    return None if limit is None else int(limit)


def _ago_ms(then: str | None, now: str) -> int | None:
    ms = _difference_ms(then, now)
    return None if ms is None else max(0, ms)


def _difference_ms(then: str | None, now: str) -> int | None:
    """How long before `now` it was, by the daemon's own clock; None where one of them isn't known."""
    if not then or not now:
        return None
    return round((datetime.fromisoformat(now) - datetime.fromisoformat(then)).total_seconds() * 1000)
