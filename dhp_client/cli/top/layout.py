"""A picture as lines that fit a screen.

Owns what stands where, and what gives way where there is little room: each section shows some of its rows and says how many it
has. Everything that others wrote is made harmless here. Pure; which colour a style is, is the drawer's.
"""

from collections.abc import Sequence

from msgspec import Struct

from ..printing import SHORT_ID_CHARS, duration, json_line
from .picture import Lease, Picture, Question, Stuck
from .table import Column, Line, Span, Style, fitted, said, table, wrapped

NARROW = 80
"""Screens narrower than this leave out that there are none of a status."""

STALE_S = 60
"""A holder of whom nothing new was heard for so long stands out."""

_STATUSES = ("pending", "running", "orphaned", "suspended", "completed", "cancelled", "dead")
_ID = Column("HANDOFF", SHORT_ID_CHARS, 100)
_LEASES = (
    _ID,
    Column("KIND", 6, 80),
    Column("WORKER", 6, 70),
    Column("FENCE", 5, 20),
    Column("ATTEMPT", 7, 30),
    Column("HELD", 6, 60),
    Column("LEFT", 6, 85),
    Column("CHECKPOINT", 10, 90),
    Column("ACTIVITY", 8, 50),
)
_STUCK = (_ID, Column("KIND", 6, 80), Column("FOR", 6, 90), Column("FAILED", 6, 40), Column("REASON", 12, 95))


class Section(Struct, frozen=True, kw_only=True):
    """Rows under a title, of which some may be left out. `row_lines` is how many lines each takes."""

    title: str
    hint: str
    style: Style
    count: int
    more: bool
    row_lines: int = 1
    head_lines: int = 1
    picture: Picture
    name: str


def lines(picture: Picture, width: int | None = None, height: int | None = None) -> list[Line]:
    """The picture in at most so many cells and lines; None: in as many as it takes."""
    found = [*_head(picture, width), *_warnings(picture)]
    sections = [section for section in _sections(picture) if section.count]
    rows = _rows_that_fit(sections, None if height is None else height - len(found))
    for section in sections:
        found += _section_lines(section, rows[section.name], width)
    if picture.handoffs and not sections:
        found.append((Span("Nothing is held, nothing is stuck, and nobody is asked anything.", "dim"),))
    found = [line if width is None else fitted(line, width) for line in found]
    return found if height is None else found[:height]


def _head(picture: Picture, width: int | None) -> list[Line]:
    health = picture.health
    of_kind = f"  kind {picture.kind}" if picture.kind is not None else ""
    version = "" if health is None else f"  dhpd {health.version}, up {duration(health.uptime_ms)}"
    time = "" if picture.time is None else f"  {_clock(picture.time)}"
    counts: list[Span] = []
    for status in _STATUSES:
        count = picture.handoffs.get(status, 0)
        if not count and width is not None and width < NARROW:
            continue
        style: Style = (
            "dim" if not count else "bad" if status == "dead" else "warn" if status == "orphaned" else "plain"
        )
        counts.append(Span(f"{status} {count:,}", style))
    daemon = (
        f"workers waiting {picture.waiting_claims:,}",
        f"sessions {picture.sessions:,}",
        f"connections {picture.connections:,}",
        f"loop late {picture.loop_late_ms:.1f} ms",
    )
    return [
        (Span("dhp top", "title"), said(f"  {picture.address}{of_kind}{version}{time}", "dim")),
        *wrapped(counts, width),
        *wrapped([*_rates(picture), *(Span(text, "dim") for text in daemon)], width),
    ]


def _rates(picture: Picture) -> list[Span]:
    if not picture.rates_per_s:
        return []
    always = ("dispatched", "claimed", "checkpointed", "completed")
    told = [f"{name} {rate:.1f}" for name, rate in picture.rates_per_s.items() if rate or name in always]
    return [Span("per second:"), *map(Span, told)]


def _warnings(picture: Picture) -> list[Line]:
    found: list[Line] = []
    if picture.silent_ms is not None and picture.silent_since is not None:
        since = _clock(picture.silent_since)
        found.append(
            (
                Span(f"NOBODY ANSWERS since {since}, for {duration(picture.silent_ms)}. ", "bad"),
                Span("Below: as it was."),
            )
        )
    health = picture.health
    if health is not None and health.store != "ok":
        found.append((Span("STORE UNAVAILABLE: nothing can be read or written; dhpd's log says why.", "bad"),))
    if health is not None and health.disk == "full":
        found.append((Span("DISK FULL: only what ends work is taken, until there is room.", "bad"),))
    if health is not None and health.status == "draining":
        found.append((Span("DRAINING: nothing new is dispatched or claimed.", "warn"),))
    if health is not None and health.durability != "power loss":
        found.append((said(f"Answers survive a {health.durability} only (synchronous is off).", "warn"),))
    if picture.refusal is not None:
        as_of = "" if picture.facts_at is None else f" Below: as it was at {_clock(picture.facts_at)}."
        found.append((said(f"{picture.refusal}{as_of}", "bad"),))
    if picture.limits_hit:
        told = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in picture.limits_hit.items())
        found.append((Span(f"Bounds met since the daemon's start: {told}", "warn"),))
    return found


def _sections(picture: Picture) -> list[Section]:
    def section(name: str, title: str, hint: str, style: Style, *, head_lines: int = 2, row_lines: int = 1) -> Section:
        return Section(
            name=name,
            title=title,
            hint=hint,
            style=style,
            count=len(getattr(picture, name)),
            more=name in picture.more,
            head_lines=head_lines,
            row_lines=row_lines,
            picture=picture,
        )

    nobody = "" if picture.waiting_claims else "no worker waits for work"
    return [
        section("approvals", "WAITS FOR A PERSON", "or deny", "warn", head_lines=1, row_lines=2),
        section("dead", "DEAD", "dhp redrive ID brings it back, dhp ack ID takes note", "bad"),
        section("orphaned", "ORPHANED", nobody or "waits for a worker of its kind", "warn"),
        section("leases", "LEASES", "the longest without anything new first", "title"),
        section("suspended", "SUSPENDED", "dhp resume ID brings it back at once", "title"),
        section("pending", "PENDING", f"the oldest first{'; ' if nobody else ''}{nobody}", "title"),
    ]


def _rows_that_fit(sections: Sequence[Section], height: int | None) -> dict[str, int]:
    """How many rows each section may show: one each, and again, as long as there is room."""
    if height is None:
        return {section.name: section.count for section in sections}
    rows = dict.fromkeys((section.name for section in sections), 0)
    room = height
    for section in sections:  # The first ones are what a person looks for.
        least = section.head_lines + section.row_lines
        if room >= least:
            room -= least
            rows[section.name] = 1
    wanting = [section for section in sections if rows[section.name]]
    while wanting := [one for one in wanting if rows[one.name] < one.count and room >= one.row_lines]:
        for section in wanting:
            if room >= section.row_lines:
                room -= section.row_lines
                rows[section.name] += 1
    return rows


def _section_lines(section: Section, rows: int, width: int | None) -> list[Line]:
    if not rows:
        return []
    number = f"{section.count:,}" if rows == section.count and not section.more else f"{rows} of {_there_are(section)}"
    title: Line = (Span(f"{section.title} {number}", section.style), Span(f"  {section.hint}", "dim"))
    shown = getattr(section.picture, section.name)[:rows]
    match section.name:
        case "approvals":
            body = [line for question in shown for line in _question_lines(question)]
        case "leases":
            body = table(_LEASES, [_lease_row(lease) for lease in shown], width)
        case _:
            body = table(_STUCK, [_stuck_row(stuck) for stuck in shown], width)
    return [title, *body]


def _there_are(section: Section) -> str:
    """How many: exactly, where all are read or the daemon's counts are of just these."""
    counted = {"leases": "running", "orphaned": "orphaned", "pending": "pending"}.get(section.name)
    if section.more and counted is not None and section.picture.kind is None:
        return f"{section.picture.handoffs.get(counted, 0):,}"
    return f"{section.count:,}{' or more' if section.more else ''}"


def _question_lines(question: Question) -> list[Line]:
    details = "" if question.details is None else f" {json_line(question.details)}"
    return [
        (said(question.command, "command"), Span(f"  another {duration(question.left_ms)}", "dim")),
        (said(f"  {question.action}{details}"), said(f"  kind {question.kind}", "dim")),
    ]


def _lease_row(lease: Lease) -> Sequence[Span]:
    stale: Style = "warn" if lease.quiet_ms >= STALE_S * 1000 else "plain"
    checkpoint = "none" if lease.checkpoint_ago_ms is None else f"{lease.seq}, {duration(lease.checkpoint_ago_ms)} ago"
    return (
        said(lease.handoff[:SHORT_ID_CHARS]),
        said(lease.kind),
        said(lease.worker),
        Span(str(lease.fence)),
        Span(f"{lease.attempt}{_failed(lease.failures, lease.max_attempts, ', failed ')}"),
        Span("-" if lease.held_ms is None else duration(lease.held_ms)),
        Span("-" if lease.left_ms is None else _left(lease.left_ms)),
        Span(checkpoint, stale),
        _activity(lease),
    )


def _activity(lease: Lease) -> Span:
    if lease.repeats is None or lease.activity_ago_ms is None:
        return Span("-", "dim")
    of = "" if lease.max_repeats is None else f" of {lease.max_repeats}"
    ago = f"{duration(lease.activity_ago_ms)} ago"
    return Span(f"repeats {lease.repeats}{of}, {ago}", "warn") if lease.repeats else Span(f"new, {ago}")


def _stuck_row(stuck: Stuck) -> Sequence[Span]:
    wakes = "" if stuck.wakes_in_ms is None else f"wakes in {duration(stuck.wakes_in_ms)}"
    reason = ": ".join(text for text in (wakes, stuck.reason) if text)
    return (
        said(stuck.handoff[:SHORT_ID_CHARS]),
        said(stuck.kind),
        Span(duration(stuck.for_ms)),
        Span(_failed(stuck.failures, stuck.max_attempts) or "-"),
        said(reason or "-"),
    )


def _failed(failures: int, most: int | None, before: str = "") -> str:
    """Failures, of those that make it dead; empty where there is none."""
    of = "" if most is None else f"/{most}"
    return f"{before}{failures}{of}" if failures else ""


def _left(ms: int) -> str:
    return f"{ms / 1000:.1f} s" if ms < 10_000 else duration(ms)


def _clock(time: str) -> str:
    """Of a time in UTC, what a person looks at on the same day."""
    return f"{time[11:19]}Z" if len(time) >= 19 else time
