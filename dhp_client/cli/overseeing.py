"""The commands that change work from outside: each translates in, calls the client, translates out."""

import asyncio
import math
from typing import Any

import click

from dhp_client import Client
from dhp_client.budgets import CAPS
from dhp_client.clock import monotonic_ms
from dhp_protocol.limits import MAX_DELAY_MS

from . import arguments
from .command import command
from .finding import full_id, id_argument
from .printing import fact_lines
from .settings import NOT_YET, OK, Settings

LOOK_EVERY_S = 0.2
"""How often what is still held is asked for."""

_CAPS = f"the caps are {', '.join(CAPS)}; only what is capped can be added to."


@command("cancel")
@id_argument
@click.option("--reason", help="Kept in its history, and told to whoever holds it.")
async def cancel(client: Client, settings: Settings, handoff: str, reason: str | None) -> int:
    """End a handoff from outside, unless it has ended."""
    answer = await client.cancel(await full_id(client, handoff), reason=reason)
    settings.show(answer, [answer.status])
    return OK


@command("ack")
@id_argument
async def ack(client: Client, settings: Settings, handoff: str) -> int:
    """Take note of a handoff's end: it may be forgotten some day."""
    handoff = await full_id(client, handoff)
    await client.ack(handoff)
    settings.show({"handoff": handoff, "acked": True}, ["acknowledged"])
    return OK


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
@click.option("--force", is_flag=True, help="Even if it was exported, and may run at another daemon.")
async def resume(client: Client, settings: Settings, handoff: str, force: bool) -> int:
    """Take a suspended handoff up again."""
    answer = await client.resume(await full_id(client, handoff), force=force)
    settings.show(answer, [answer.status])
    return OK


@command("redrive")
@id_argument
@click.option(
    "--add",
    "add",
    metavar="CAP=AMOUNT",
    multiple=True,
    callback=arguments.amounts,
    help=f"More of a cap, as in max_usd=0.50: {_CAPS} May be given again.",
)
async def redrive(client: Client, settings: Settings, handoff: str, add: dict[str, Any]) -> int:
    """Bring a dead handoff back, with all that it has."""
    answer = await client.redrive(await full_id(client, handoff), add or None)
    settings.show(answer, [answer.status])
    return OK


@command("budget-add", epilog=f"In CAP=AMOUNT {_CAPS}")
@id_argument
@click.argument("add", metavar="CAP=AMOUNT...", nargs=-1, required=True, callback=arguments.amounts)
async def budget_add(client: Client, settings: Settings, handoff: str, add: dict[str, Any]) -> int:
    """Give a handoff more of what is capped, such as max_usd=0.50."""
    answer = await client.budget_add(await full_id(client, handoff), add)
    settings.show(answer, fact_lines(answer.budget))
    return OK


@command("drain")
@click.option(
    "--wait", is_flag=True, help="Wait until nothing is held any more; Ctrl-C ends the waiting, not the draining."
)
@click.option(
    "--timeout-ms", type=click.IntRange(min=0), help="Wait for so long at most; exit code 4 if work is held then."
)
async def drain(client: Client, settings: Settings, wait: bool, timeout_ms: int | None) -> int:
    """Give out no new work; what is held goes on to its end.

    The daemon refuses claims and dispatches from now on, until it is started again.
    """
    answer = await client.drain()
    if wait or timeout_ms is not None:
        until_ms = math.inf if timeout_ms is None else monotonic_ms() + timeout_ms
        while answer.leases and monotonic_ms() < until_ms:
            await asyncio.sleep(LOOK_EVERY_S)
            answer = await client.drain()
        if answer.leases and timeout_ms is not None:
            settings.show(answer, [f"draining, {answer.leases} held still"])
            return NOT_YET
    settings.show(answer, [f"draining, {answer.leases} held"])
    return OK


@command("forget")
@id_argument
async def forget(client: Client, settings: Settings, handoff: str) -> int:
    """Remove a handoff that has ended, and all it holds, now."""
    handoff = await full_id(client, handoff)
    await client.forget(handoff)
    settings.show({"handoff": handoff, "forgotten": True}, ["forgotten"])
    return OK
