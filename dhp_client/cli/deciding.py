"""The commands by which a person sees what is asked, and decides it: approvals, approve, deny.

Owns that nobody decides what they weren't shown: the answer tells what was decided. Who may decide is the daemon's.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from dhp_client import Approval, Client

from ..questions import all_approvals
from . import arguments, completing
from .command import command
from .finding import full_id, the_approval
from .printing import SHORT_ID_CHARS, duration, json_line
from .settings import OK, Settings, warn

_STATUSES = ("open", "approved", "denied", "expired", "cancelled")

approval_argument = click.argument("approval", callback=arguments.approval_id, shell_complete=completing.approval_ids)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Who asked first: the worker's name, its token's (None without tokens), and when, as RFC 3339."""

    worker: str | None
    token: str | None
    at: str


@command("approvals")
@click.argument(
    "handoff", metavar="[ID]", required=False, callback=arguments.handoff_id, shell_complete=completing.handoff_ids
)
@click.option("--status", type=click.Choice(_STATUSES), help="[default: open, or all of the handoff named]")
async def approvals(client: Client, settings: Settings, handoff: str | None, status: str | None) -> int:
    """Show what people are asked, in all or about one handoff."""
    if handoff is not None:
        handoff = await full_id(client, handoff)
    elif status is None:
        status = "open"
    found = await all_approvals(client, handoff=handoff, status=status)
    kinds = {one: (await client.status(one)).kind for one in {approval.handoff for approval in found}}
    askers = {one: await _askers(client, one) for one in kinds}
    for approval in found:
        kind, asked = kinds[approval.handoff], askers[approval.handoff].get(approval.approval)
        members = {name: getattr(approval, name) for name in approval.__struct_fields__}
        settings.show({**members, "kind": kind, "asked": asked}, _approval_lines(approval, kind, asked))
    return OK


@command("approve")
@approval_argument
@click.option("--note", help="Told to whoever asked.")
async def approve(client: Client, settings: Settings, approval: str, note: str | None) -> int:
    """Say yes to what was asked, and write what that was."""
    return await _decide(client, settings, approval, "approved", note)


@command("deny")
@approval_argument
@click.option("--note", help="Told to whoever asked.")
async def deny(client: Client, settings: Settings, approval: str, note: str | None) -> int:
    """Say no to what was asked, and write what that was."""
    return await _decide(client, settings, approval, "denied", note)


async def _decide(client: Client, settings: Settings, given: str, decision: str, note: str | None) -> int:
    asked = await the_approval(client, given)
    kind = (await client.status(asked.handoff)).kind
    say = client.approve if decision == "approved" else client.deny
    answer = await say(asked.approval, note)
    before = asked.decision is not None or answer.note != note
    told = {
        "approval": asked.approval,
        "handoff": asked.handoff,
        "kind": kind,
        "action": asked.action,
        "details": asked.details,
        "decision": answer.decision,
        "by": answer.by,
        "note": answer.note,
        "at": answer.at,
        "before": before,
    }
    lines = [
        f"{answer.decision}: {asked.action} {json_line(asked.details)}",
        f"  handoff {asked.handoff[:SHORT_ID_CHARS]}, kind {kind}",
    ]
    settings.show(told, lines)
    if before:
        kept = "; the note isn't kept" if note else ""
        warn(f"it was {answer.decision} before by {answer.by or 'somebody'}, at {answer.at}{kept}.")
    return OK


async def _askers(client: Client, handoff: str) -> dict[str, Asked]:
    """Who asked each of the handoff's questions first, as its history has it."""
    found: dict[str, Asked] = {}
    worker: str | None = None
    after: int | None = 0
    while after is not None:
        page = await client.history(handoff, after=after, limit=1000)
        for record in page.records:
            if record["type"] == "claimed":
                worker = record.get("worker")
            elif record["type"] == "approval_requested":
                asked = Asked(worker=worker, token=record.get("token"), at=record["at"])
                found.setdefault(record["approval"], asked)
        after = page.next
    return found


def _approval_lines(approval: Approval, kind: str, asked: Asked | None) -> Sequence[str]:
    now = datetime.now(UTC)
    stands: Any = approval.decision
    if stands is None:
        left_ms = (datetime.fromisoformat(approval.expires_at) - now).total_seconds() * 1000
        stands = f"open for another {duration(left_ms)}, until {approval.expires_at}"
    by = f" by {approval.by}" if approval.by else ""
    note = f": {approval.note}" if approval.note else ""
    who = ""
    if asked is not None:
        token = f" (token {asked.token})" if asked.token else ""
        age_ms = (now - datetime.fromisoformat(asked.at)).total_seconds() * 1000
        who = f", asked by {asked.worker or 'a worker'}{token} {duration(age_ms)} ago"
    return (
        approval.approval,
        f"  {approval.action} {json_line(approval.details)}",
        f"  handoff {approval.handoff[:SHORT_ID_CHARS]}, kind {kind}{who}",
        f"  {stands}{by}{note}",
    )
