"""The commands that ask a daemon one thing: each translates in, calls the client, translates out."""

from typing import Any, get_args

import click

from dhp_client import Client
from dhp_protocol.limits import MAX_ATTEMPTS, MAX_DELAY_MS, MAX_PRIORITY
from dhp_protocol.messages import Status
from dhp_protocol.replies import StatusReply

from . import arguments
from .main import FAILED, NOT_YET, OK, Settings, command, full_id, warn
from .printing import SHORT_ID_CHARS, fact_lines, json_line, record_line, table_lines

FINAL = ("completed", "cancelled", "dead")
_STATUSES = get_args(Status)
_WAIT_MS = 600_000

id_argument = click.argument("handoff", metavar="ID", callback=arguments.handoff_id)


@command("dispatch", creates=True)
@click.argument("kind")
@click.option("--inputs", metavar="JSON|@FILE|-", default="{}", callback=arguments.json_text, help="A JSON object.")
@click.option("--schema", metavar="FILE", callback=arguments.json_file, help="JSON Schema that the result must meet.")
@click.option("--key", default="", help="Tells two otherwise equal intents apart.")
@click.option("--priority", type=click.IntRange(0, MAX_PRIORITY), default=5, show_default=True, help="9 goes first.")
@click.option("--delay-ms", type=click.IntRange(0, MAX_DELAY_MS), default=0, help="Not to be claimed before.")
@click.option("--label", "labels", metavar="NAME=VALUE", multiple=True, callback=arguments.labels)
@click.option("--budget", metavar="JSON|@FILE", callback=arguments.json_object, help="Caps, as a JSON object.")
@click.option("--capabilities", metavar="JSON|@FILE", callback=arguments.json_object, help="What may be touched.")
@click.option("--max-attempts", type=click.IntRange(1, MAX_ATTEMPTS), help="So many failures end it.  [default: 3]")
@click.option("--wait", is_flag=True, help="Wait for the end, and write the result.")
async def dispatch(
    client: Client,
    settings: Settings,
    kind: str,
    inputs: Any,
    schema: Any,
    key: str,
    priority: int,
    delay_ms: int,
    labels: dict[str, str],
    budget: Any,
    capabilities: Any,
    max_attempts: int | None,
    wait: bool,
) -> int:
    """Ask for work; the same intent twice is one handoff. Writes its id."""
    if max_attempts is not None:
        budget = {**(budget or {}), "max_attempts": max_attempts}
    answer = await client.dispatch(
        kind,
        inputs,
        output_schema=schema,
        budget=budget,
        capabilities=capabilities,
        key=key,
        priority=priority,
        delay_ms=delay_ms,
        labels=labels or None,
    )
    if not wait:
        settings.show(answer, [answer.handoff])
        if answer.status in ("dead", "cancelled"):
            reason = (await client.status(answer.handoff)).reason
            why = f" ({reason})" if reason else ""
            warn(f"it is {answer.status} already{why}: another --key makes new work of it.")
        return OK
    warn(f"waiting for {answer.handoff}")
    return await _show_result(client, settings, answer.handoff, wait_ms=None)


@command("status")
@id_argument
async def status(client: Client, settings: Settings, handoff: str) -> int:
    """Show how a handoff stands."""
    answer = await client.status(await full_id(client, handoff))
    settings.show(answer, fact_lines(answer))
    return OK


@command("list")
@click.option("--status", type=click.Choice(_STATUSES))
@click.option("--kind")
@click.option("--worker", help="Only what it holds.")
@click.option("--label", metavar="NAME=VALUE", callback=arguments.label)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
async def list_handoffs(client: Client, settings: Settings, limit: int, **filters: str | None) -> int:
    """List handoffs in the order of their dispatch."""
    found: list[StatusReply] = []
    after: int | None = 0
    while after is not None and len(found) < limit:
        page = await client.list(after=after, limit=min(limit - len(found), 1000), **filters)
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


@command("result")
@id_argument
@click.option("--wait-ms", type=click.IntRange(min=0), default=0, help="Wait so long for the end.")
async def result(client: Client, settings: Settings, handoff: str, wait_ms: int) -> int:
    """Write a handoff's result as JSON."""
    return await _show_result(client, settings, await full_id(client, handoff), wait_ms=wait_ms)


@command("watch")
@click.argument("handoff", metavar="[ID]", required=False, callback=arguments.handoff_id)
@click.option("--kind", "kinds", multiple=True, help="Only handoffs of this kind; may be given again.")
@click.option("--after", type=click.IntRange(min=0), help="Begin with the record after this position.")
async def watch(
    client: Client, settings: Settings, handoff: str | None, kinds: tuple[str, ...], after: int | None
) -> int:
    """Write each record as it happens; with an ID, up to its handoff's end."""
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


@command("cancel")
@id_argument
@click.option("--reason", help="Kept in its history, and told to whoever holds it.")
async def cancel(client: Client, settings: Settings, handoff: str, reason: str | None) -> int:
    """End a handoff from outside; one that has ended stays as it is."""
    answer = await client.cancel(await full_id(client, handoff), reason=reason)
    settings.show(answer, [answer.status])
    return OK


@command("ack")
@id_argument
async def ack(client: Client, settings: Settings, handoff: str) -> int:
    """Take note of a handoff's end, so that it may be forgotten some day."""
    handoff = await full_id(client, handoff)
    await client.ack(handoff)
    settings.show({"handoff": handoff, "acked": True}, ["acknowledged"])
    return OK


@command("stats")
async def stats(client: Client, settings: Settings) -> int:
    """Show counts of what the daemon holds."""
    answer = await client.stats()
    settings.show(answer, fact_lines(answer))
    return OK


@command("health")
async def health(client: Client, settings: Settings) -> int:
    """Say whether the daemon and its store are well; exit code 1 if not."""
    answer = await client.health()
    settings.show(answer, fact_lines(answer))
    return OK if answer.status == "ok" else FAILED


async def _show_result(client: Client, settings: Settings, handoff: str, *, wait_ms: int | None) -> int:
    """Writes the result when there is one, waiting for it up to `wait_ms` (None: as long as it takes)."""
    answer = await client.result(handoff, wait_ms=_WAIT_MS if wait_ms is None else wait_ms)
    while wait_ms is None and answer.status not in FINAL:
        answer = await client.result(handoff, wait_ms=_WAIT_MS)
    facts = {"handoff": handoff, "status": answer.status}
    if answer.status == "completed":
        settings.show({**facts, "result": answer.result}, [json_line(answer.result)])
        return OK
    settings.show(facts)
    if answer.status not in FINAL:
        warn(f"it is {answer.status}, there is no result yet: wait with --wait-ms, or ask again.")
        return NOT_YET
    reason = (await client.status(handoff)).reason
    why = f" ({reason})" if reason else ""
    warn(f"it is {answer.status}{why}, there will be no result: `dhp history {handoff[:SHORT_ID_CHARS]}` shows why.")
    return FAILED
