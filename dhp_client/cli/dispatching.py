"""The commands that ask for work and for what came of it: dispatch, result."""

from typing import Any

import click

from dhp_client import Client
from dhp_client.budgets import CAPS
from dhp_protocol.limits import MAX_ATTEMPTS, MAX_DELAY_MS, MAX_PRIORITY
from dhp_protocol.messages import FINAL

from . import arguments, completing
from .command import command
from .finding import full_id, id_argument
from .printing import SHORT_ID_CHARS, json_line
from .settings import FAILED, NOT_YET, OK, Settings, warn

_WAIT_MS = 600_000


def _no_more(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    if value:
        inputs = "JSON" if len(value[0]) > 60 else f"'{value[0]}'"
        raise click.UsageError(f"What the work is given is an option: write --inputs {inputs}.")


@command("dispatch", creates=True)
@click.argument("kind", shell_complete=completing.kinds)
@click.argument("more", nargs=-1, metavar="", expose_value=False, callback=_no_more)
@click.option("--inputs", metavar="JSON|@FILE|-", default="{}", callback=arguments.json_text, help="A JSON object.")
@click.option("--schema", metavar="FILE", callback=arguments.json_file, help="JSON Schema that the result must meet.")
@click.option("--key", default="", help="Tells two otherwise equal intents apart.")
@click.option("--priority", type=click.IntRange(0, MAX_PRIORITY), default=5, show_default=True, help="9 goes first.")
@click.option("--delay-ms", type=click.IntRange(0, MAX_DELAY_MS), default=0, help="Not to be claimed before.")
@click.option(
    "--label",
    "labels",
    metavar="NAME=VALUE",
    multiple=True,
    callback=arguments.labels,
    help="For `dhp list --label`. May be given again.",
)
@click.option(
    "--budget",
    metavar="JSON|@FILE",
    callback=arguments.budget,
    help=f"Caps, as a JSON object: {', '.join(CAPS)}.",
)
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


@command("result")
@id_argument
@click.option("--wait-ms", type=click.IntRange(min=0), default=0, help="Wait so long for the end.")
async def result(client: Client, settings: Settings, handoff: str, wait_ms: int) -> int:
    """Write a handoff's result as JSON."""
    return await _show_result(client, settings, await full_id(client, handoff), wait_ms=wait_ms)


async def _show_result(client: Client, settings: Settings, handoff: str, *, wait_ms: int | None) -> int:
    """Writes the result when there is one, waiting for it up to `wait_ms` (None: as long as it takes)."""
    answer = await client.result(handoff, wait_ms=_WAIT_MS if wait_ms is None else wait_ms)
    while wait_ms is None and answer.status not in FINAL:
        answer = await client.result(handoff, wait_ms=_WAIT_MS)
    facts = {"handoff": handoff, "status": answer.status}
    if answer.status == "completed":
        settings.show({**facts, "result": answer.result}, [json_line(answer.result)])
        return OK
    settings.show({**facts, "refused": answer.refused} if answer.was_refused else facts)
    reason = (await client.status(handoff)).reason
    why = f" ({reason})" if reason else ""
    if answer.status not in FINAL:
        warn(f"it is {answer.status}{why}, there is no result yet: wait with --wait-ms, or ask again.")
        return NOT_YET
    warn(f"it is {answer.status}{why}, there will be no result: `dhp history {handoff[:SHORT_ID_CHARS]}` shows why.")
    if answer.was_refused:
        warn(f"its last answer, which was refused: {json_line(answer.refused)}")
    return FAILED
