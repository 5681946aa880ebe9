"""The commands that change work from outside: each translates in, calls the client, translates out."""

from collections.abc import Sequence
from typing import Any

import click

from dhp_client import Client
from dhp_client.results import Approval
from dhp_protocol.limits import MAX_DELAY_MS

from . import arguments
from .commands import id_argument
from .main import OK, Settings, command, full_id, warn
from .printing import fact_lines, json_line

_APPROVAL_STATUSES = ("open", "approved", "denied", "expired", "cancelled")

approval_argument = click.argument("approval", callback=arguments.approval_id)


@command("suspend")
@id_argument
@click.option("--wake-ms", type=click.IntRange(0, MAX_DELAY_MS), help="Comes back by itself after so long.")
@click.option("--reason", help="Kept in its history.")
async def suspend(client: Client, settings: Settings, handoff: str, wake_ms: int | None, reason: str | None) -> int:
    """Put a handoff aside; whoever holds it loses it."""
    answer = await client.suspend(await full_id(client, handoff), wake_ms=wake_ms, reason=reason)
    settings.show(answer, [answer.status])
    return OK


@command("resume")
@id_argument
@click.option("--force", is_flag=True, help="Even if it was moved to or from another daemon.")
async def resume(client: Client, settings: Settings, handoff: str, force: bool) -> int:
    """Take a suspended handoff up again."""
    answer = await client.resume(await full_id(client, handoff), force=force)
    settings.show(answer, [answer.status])
    return OK


@command("redrive")
@id_argument
@click.option("--add", "add", metavar="CAP=AMOUNT", multiple=True, callback=arguments.amounts, help="More of a cap.")
async def redrive(client: Client, settings: Settings, handoff: str, add: dict[str, Any]) -> int:
    """Bring a dead handoff back, with all that it has."""
    answer = await client.redrive(await full_id(client, handoff), add or None)
    settings.show(answer, [answer.status])
    return OK


@command("budget-add")
@id_argument
@click.argument("add", metavar="CAP=AMOUNT...", nargs=-1, required=True, callback=arguments.amounts)
async def budget_add(client: Client, settings: Settings, handoff: str, add: dict[str, Any]) -> int:
    """Give a handoff more of what is capped, such as max_usd=0.50."""
    answer = await client.budget_add(await full_id(client, handoff), add)
    settings.show(answer, fact_lines(answer.budget))
    return OK


@command("forget")
@id_argument
async def forget(client: Client, settings: Settings, handoff: str) -> int:
    """Remove a handoff that has ended, and all it holds, now."""
    handoff = await full_id(client, handoff)
    await client.forget(handoff)
    settings.show({"handoff": handoff, "forgotten": True}, ["forgotten"])
    return OK


@command("approvals")
@click.argument("handoff", metavar="[ID]", required=False, callback=arguments.handoff_id)
@click.option("--status", type=click.Choice(_APPROVAL_STATUSES), help="[default: open, or all of the handoff named]")
async def approvals(client: Client, settings: Settings, handoff: str | None, status: str | None) -> int:
    """Show what people are asked, about all live work or about one handoff."""
    if handoff is not None:
        handoff = await full_id(client, handoff)
    elif status is None:
        status = "open"
    for approval in await _all_approvals(client, handoff=handoff, status=status):
        settings.show(approval, _approval_lines(approval))
    return OK


@command("approve")
@approval_argument
@click.option("--note", help="Told to whoever asked.")
async def approve(client: Client, settings: Settings, approval: str, note: str | None) -> int:
    """Say yes to what was asked."""
    answer = await client.approve(await _full_approval(client, approval), note)
    settings.show(answer, [str(answer.decision)])
    return OK


@command("deny")
@approval_argument
@click.option("--note", help="Told to whoever asked.")
async def deny(client: Client, settings: Settings, approval: str, note: str | None) -> int:
    """Say no to what was asked."""
    answer = await client.deny(await _full_approval(client, approval), note)
    settings.show(answer, [str(answer.decision)])
    return OK


async def _all_approvals(client: Client, *, handoff: str | None = None, status: str | None = None) -> list[Approval]:
    found: list[Approval] = []
    after: int | None = 0
    while after is not None:
        page = await client.approvals(handoff=handoff, status=status, after=after, limit=1000)
        found += page.approvals
        after = page.next
    return found


async def _full_approval(client: Client, beginning: str) -> str:
    """The id that begins so: any if it is whole, else that of the one open approval; raises `ClickException`."""
    if len(beginning) == arguments.APPROVAL_ID_CHARS:
        return beginning
    found = [one.approval for one in await _all_approvals(client, status="open") if one.approval.startswith(beginning)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise click.ClickException(f"No open approval's id begins with {beginning}: `dhp approvals` shows them.")
    for approval in found:
        warn(approval)
    raise click.ClickException(f"{len(found)} open approvals' ids begin with {beginning}: give more of one.")


def _approval_lines(approval: Approval) -> Sequence[str]:
    stands = approval.decision or f"open until {approval.expires_at}"
    by = f" by {approval.by}" if approval.by else ""
    note = f": {approval.note}" if approval.note else ""
    return (
        approval.approval,
        f"  {approval.action} {json_line(approval.details)}",
        f"  {stands}{by}{note}",
    )
