"""Handoffs, their records, and refusals as text for people.

Pure. What programs read (`--json`) is the replies' own members, not this.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dhp_client.money import shown_usd, unspent_usd
from dhp_protocol.errors import DHPError
from dhp_protocol.replies import EffectView, StatusReply

if TYPE_CHECKING:
    from dhp_client.spool import Spooled

HANDOFF_ID_CHARS = 64
SHORT_ID_CHARS = 12
_SHORT_OWN_CHARS = 8
"""Of an approval's own part, which follows its handoff's id."""

_COLUMNS = ("HANDOFF", "KIND", "STATUS", "HOLDER", "SEQ", "FAILURES", "UPDATED")
_COMMON = ("n", "position", "type", "at", "fence")


def short_approval(approval: str) -> str:
    """An approval's id as short as a person needs to give it."""
    return approval[:SHORT_ID_CHARS] + approval[HANDOFF_ID_CHARS : HANDOFF_ID_CHARS + 1 + _SHORT_OWN_CHARS]


def json_line(value: Any) -> str:
    """One line of JSON."""
    return msgspec.json.encode(value).decode()


def error_line(error: Exception) -> str:
    """What was refused, and those of the daemon's details that its sentence doesn't tell."""
    if not isinstance(error, DHPError):
        return str(error)
    details = {name: _text(value) for name, value in error.details.items() if value not in (None, "", [], {})}
    further = [
        f"{name} {text[:200]}" for name, text in details.items() if text not in error.message and name != "member"
    ]
    return f"{error.message} ({', '.join(further)})" if further else error.message


def error_json(error: DHPError) -> str:
    """A refusal as the wire has it."""
    told = {"code": error.code, "message": error.message, "retry": error.retry, "details": error.details}
    return json_line({"error": told})


def fact_lines(facts: Any) -> list[str]:
    """The members of a reply, one on each line; what is empty is left out."""
    return _aligned(msgspec.to_builtins(facts))


def status_lines(status: StatusReply) -> list[str]:
    """How a handoff stands; each cap on a line of its own, with what is used and left of it."""
    facts: dict[str, Any] = {}
    for name, value in msgspec.to_builtins(status).items():
        if name == "budget":
            facts.update({cap: _cap_text(cap, limit, status) for cap, limit in status.budget.items()})
        elif name == "kept" and isinstance(value, dict):
            facts[name] = ", ".join(f"{each} {_text(amount)}" for each, amount in value.items() if amount is not None)
        else:
            facts[name] = value
    return _aligned(facts)


def _cap_text(cap: str, limit: float, status: StatusReply) -> str:
    if cap == "max_usd":
        used, most, left = shown_usd(status.usd), shown_usd(limit), unspent_usd(limit, status.usd)
        return f"{most:f} ({used:f} used, {left:f} left)"
    counts = {"max_steps": status.steps, "max_attempts": status.failures, "max_stalls": status.stalls}
    if cap not in counts:
        return _text(limit)
    return f"{limit} ({counts[cap]} used, {max(0, int(limit) - counts[cap])} left)"


def _aligned(facts: dict[str, Any]) -> list[str]:
    shown = {name: value for name, value in facts.items() if value is not None and value != {}}
    width = max(map(len, shown))
    return [f"{name:<{width}}  {_text(value)}" for name, value in shown.items()]


def table_lines(handoffs: Sequence[StatusReply]) -> list[str]:
    """A table of handoffs, with a line of names first."""
    return _table([_COLUMNS, *(_row(handoff) for handoff in handoffs)])


def effect_lines(effects: Sequence[EffectView]) -> list[str]:
    """A table of effects, with a line of names first."""
    return _table([("STATE", "FENCE", "STEP"), *((one.state, str(one.fence), one.step) for one in effects)])


def spool_lines(files: "Sequence[Spooled]") -> list[str]:
    """A table of spool files, with a line of names first."""
    return _table([("HANDOFF", "KIND", "WRITES", "CHECKPOINTS", "RESULT", "STANDS", "FILE"), *map(_spool_row, files)])


def _spool_row(file: "Spooled") -> tuple[str, ...]:
    stands = f"void: {file.void}" if file.void is not None else "in use" if file.in_use else "waits"
    return (
        file.handoff[:SHORT_ID_CHARS],
        file.kind,
        str(file.writes),
        str(file.checkpoints),
        "yes" if file.has_result else "no",
        "damaged" if file.damaged else stands,
        file.path,
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def duration(ms: float) -> str:
    """So long, roughly."""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= 2 * unit_ms:
            return f"{ms / unit_ms:.0f} {unit}"
    return f"{max(0, ms) / 1000:.0f} s"


def record_line(record: dict[str, Any]) -> str:
    """A record on one line."""
    return _record_line(_told(record, "n"), record, _details(record))


def history_lines(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The records, one on each line, a row of checkpoints under one fence drawn together."""
    run: list[dict[str, Any]] = []
    for record in records:
        if run and (record.get("type") != "checkpointed" or record.get("fence") != run[0].get("fence")):
            yield _run_line(run)
            run = []
        if record.get("type") == "checkpointed":
            run.append(record)
        else:
            yield record_line(record)
    if run:
        yield _run_line(run)


def _run_line(run: Sequence[dict[str, Any]]) -> str:
    if len(run) == 1:
        return record_line(run[0])
    first, last = run[0], run[-1]
    numbers = f"{_told(first, 'n')}-{_told(last, 'n')}"
    return _record_line(numbers, last, f"seq {_told(first, 'seq')} to {_told(last, 'seq')}")


def _record_line(number: str, record: dict[str, Any], details: str) -> str:
    at, kind, fence = (_told(record, name) for name in ("at", "type", "fence"))
    return f"{number:>7}  {at}  {kind:<12}  fence {fence:<3}  {details}".rstrip()


def _told(record: dict[str, Any], name: str) -> str:
    """What every record tells; `?` where a daemon doesn't."""
    return _text(record.get(name, "?"))


def _details(record: dict[str, Any]) -> str:
    members = {name: value for name, value in record.items() if name not in _COMMON and value not in (None, {}, "")}
    return ", ".join(f"{name} {_text(value)}" for name, value in members.items())


def _row(handoff: StatusReply) -> tuple[str, ...]:
    return (
        handoff.handoff[:SHORT_ID_CHARS],
        handoff.kind,
        handoff.status,
        handoff.holder or "-",
        str(handoff.seq),
        str(handoff.failures),
        handoff.updated_at,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_line(value)
