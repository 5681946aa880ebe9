"""The commands that only look: each translates in, calls the client, translates out."""

from typing import get_args

import click
import msgspec

from dhp_client import Client
from dhp_protocol.messages import FINAL, Status
from dhp_protocol.replies import StatusReply

from . import arguments, completing
from .command import command
from .finding import full_id, id_argument
from .printing import SHORT_ID_CHARS, fact_lines, json_line, record_line, status_lines, table_lines
from .settings import FAILED, NOT_YET, OK, Settings, warn

_STATUSES = get_args(Status)


@command("status")
@id_argument
async def status(client: Client, settings: Settings, handoff: str) -> int:
    """Show how a handoff stands."""
    answer = await client.status(await full_id(client, handoff))
    settings.show(answer, status_lines(answer))
    return OK


@command("state")
@id_argument
async def state(client: Client, settings: Settings, handoff: str) -> int:
    """Write the state of a handoff's last checkpoint as JSON."""
    handoff = await full_id(client, handoff)
    last = await client.last_checkpoint(handoff)
    if last is None:
        settings.show({"handoff": handoff, "seq": 0})
        warn("it has no checkpoint yet.")
        return NOT_YET
    told = {"handoff": handoff, "seq": last.seq, "at": last.at, "state": last.state}
    settings.show(told, [json_line(last.state)])
    return OK


@command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only those that stand so.")
@click.option("--kind", metavar="KIND", shell_complete=completing.kinds, help="Only work of this kind.")
@click.option("--worker", metavar="NAME", help="Only what it holds.")
@click.option(
    "--label", metavar="NAME=VALUE", callback=arguments.label, help="Only what was dispatched with this label."
)
@click.option("--newest", "newest_first", is_flag=True, help="Those dispatched last come first.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="So many at most.")
async def list_handoffs(
    client: Client, settings: Settings, limit: int, newest_first: bool, **filters: str | None
) -> int:
    """List handoffs in the order of their dispatch."""
    found: list[StatusReply] = []
    after: int | None = 0
    while after is not None and len(found) < limit:
        page = await client.list(after=after, limit=min(limit - len(found), 1000), newest_first=newest_first, **filters)
        found += page.handoffs
        after = page.next
    if settings.as_json:
        for handoff in found:
            settings.show(handoff)
    else:
        settings.show(None, table_lines(found))
    if after is not None:
        warn(f"there are more than these {len(found)}: raise --limit.")
    return OK


@command("watch")
@click.argument(
    "handoff", metavar="[ID]", required=False, callback=arguments.handoff_id, shell_complete=completing.handoff_ids
)
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    shell_complete=completing.kinds,
    help="Only handoffs of this kind; may be given again.",
)
@click.option("--after", type=click.IntRange(min=0), help="Begin with the record after this position.")
async def watch(
    client: Client, settings: Settings, handoff: str | None, kinds: tuple[str, ...], after: int | None
) -> int:
    """Write each record as it happens; with an ID, to its end."""
    if handoff is not None:
        handoff = await full_id(client, handoff)
        now = await client.status(handoff)
        if after is None:
            if now.status in FINAL:
                warn(f"it is {now.status} already: `dhp history {handoff[:SHORT_ID_CHARS]}` shows how it went.")
                return OK
            after = now.position
    async with client.watch(handoff=handoff, kinds=list(kinds) or None, after=after) as events:
        async for event in events:
            if event.type == "lagged":
                sentence = f"lagged: records up to position {event.position} are gone that weren't shown."
                settings.show({"lagged": event.position}, [sentence])
                continue
            line = f"{event.handoff[:SHORT_ID_CHARS]}  {record_line(event.record)}"
            settings.show({"handoff": event.handoff, "record": event.record}, [line])
            if handoff is not None and event.type in FINAL:
                break
    return OK


@command("history")
@id_argument
async def history(client: Client, settings: Settings, handoff: str) -> int:
    """Show all that has happened to a handoff."""
    handoff = await full_id(client, handoff)
    after: int | None = 0
    while after is not None:
        page = await client.history(handoff, after=after, limit=1000)
        for record in page.records:
            settings.show(record, [record_line(record)])
        after = page.next
    return OK


@command("stats")
async def stats(client: Client, settings: Settings) -> int:
    """Show what the daemon holds, and which bounds were met."""
    answer = await client.stats()
    facts = msgspec.to_builtins(answer)
    facts["limits_hit"] = {name: count for name, count in facts["limits_hit"].items() if count}
    settings.show(answer, fact_lines(facts))
    return OK


@command("health")
async def health(client: Client, settings: Settings) -> int:
    """Say how the daemon is; exit code 1 unless all is well."""
    answer = await client.health()
    settings.show(answer, fact_lines(answer))
    return OK if answer.status == "ok" else FAILED
