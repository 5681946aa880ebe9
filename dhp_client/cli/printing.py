"""Handoffs and their records as text for people.

Pure. What programs read (`--json`) is the replies' own members, not this.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from dhp_protocol.replies import StatusReply

SHORT_ID_CHARS = 12

_COLUMNS = ("HANDOFF", "KIND", "STATUS", "HOLDER", "SEQ", "FAILURES", "UPDATED")
_COMMON = ("n", "position", "type", "at", "fence")


def json_line(value: Any) -> str:
    """One line of JSON."""
    return msgspec.json.encode(value).decode()


def fact_lines(facts: Any) -> list[str]:
    """The members of a reply, one on each line; what is empty is left out."""
    members = msgspec.to_builtins(facts)
    shown = {name: value for name, value in members.items() if value is not None and value != {}}
    width = max(map(len, shown))
    return [f"{name:<{width}}  {_text(value)}" for name, value in shown.items()]


def table_lines(handoffs: Sequence[StatusReply]) -> list[str]:
    """A table of handoffs, with a line of names first."""
    rows = [_COLUMNS, *(_row(handoff) for handoff in handoffs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def record_line(record: dict[str, Any]) -> str:
    """A record on one line."""
    return _record_line(str(record["n"]), record, _details(record))


def history_lines(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The records, one on each line, a row of checkpoints under one fence drawn together."""
    run: list[dict[str, Any]] = []
    for record in records:
        if run and (record["type"] != "checkpointed" or record["fence"] != run[0]["fence"]):
            yield _run_line(run)
            run = []
        if record["type"] == "checkpointed":
            run.append(record)
        else:
            yield record_line(record)
    if run:
        yield _run_line(run)


def _run_line(run: Sequence[dict[str, Any]]) -> str:
    if len(run) == 1:
        return record_line(run[0])
    first, last = run[0], run[-1]
    return _record_line(f"{first['n']}-{last['n']}", last, f"seq {first['seq']} to {last['seq']}")


def _record_line(number: str, record: dict[str, Any], details: str) -> str:
    return f"{number:>7}  {record['at']}  {record['type']:<12}  fence {record['fence']:<3}  {details}".rstrip()


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
