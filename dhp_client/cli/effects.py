"""The commands on effects: effects, effect-done.

Owns a person's way to settle a doubt that no program can: claim the work as a worker would, say what came of the effect, and
hand the work back. That it is done once is the daemon's.
"""

from typing import Any, NoReturn

import click

from dhp_client import Client, NothingToClaim

from . import arguments
from .command import command
from .finding import all_effects, full_id, id_argument
from .printing import SHORT_ID_CHARS, effect_lines
from .settings import FAILED, OK, Settings, warn


@command("effects")
@id_argument
async def effects(client: Client, settings: Settings, handoff: str) -> int:
    """Show what a handoff has done to the outside world.

    What was begun and isn't done may have happened.
    """
    found = await all_effects(client, await full_id(client, handoff))
    if settings.as_json:
        for effect in found:
            settings.show(effect)
    else:
        settings.show(None, effect_lines(found))
    return OK


@command("effect-done")
@id_argument
@click.argument("step")
@click.option(
    "--result",
    metavar="JSON|@FILE|-",
    default="null",
    callback=arguments.json_text,
    help="What the step gives to every later attempt.  [default: null]",
)
@click.option(
    "--wait-ms", type=click.IntRange(min=0), default=10_000, show_default=True, help="Wait so long for the work."
)
async def effect_done(client: Client, settings: Settings, handoff: str, step: str, result: Any, wait_ms: int) -> int:
    """Say that an effect in doubt did happen, once you know so.

    The work is claimed for that, and handed back, which costs no attempt. A dead one is redriven first, by you.
    """
    handoff = await full_id(client, handoff)
    state = {one.step: one.state for one in await all_effects(client, handoff)}.get(step)
    if state != "begun":
        why = "is done already, and its result stands" if state == "done" else "was never begun"
        raise click.ClickException(f"{step!r} {why}: `dhp effects {handoff[:SHORT_ID_CHARS]}` shows those there are.")
    try:
        async with client.claim(handoff, worker=settings.client_name(), wait_ms=wait_ms) as task:
            settled = await task.effect(step, _never, in_doubt=lambda key: result)
            await task.release(f"{step} was settled by a person")
    except NothingToClaim:
        warn(f"somebody else has the work, and didn't let go of it within {wait_ms} ms: raise --wait-ms.")
        return FAILED
    settings.show({"handoff": handoff, "step": step, "result": settled}, ["done"])
    return OK


def _never(key: str) -> NoReturn:
    raise AssertionError("an effect that was begun is never begun anew")
