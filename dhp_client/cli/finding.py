"""From what a person types to the one handoff, or the one question, that is meant.

Owns what a beginning of an id is good for: exactly one, or nothing. Does not own how ids are written (`arguments`).
"""

import click

from dhp_client import Client
from dhp_client.results import Approval
from dhp_protocol.replies import EffectView

from ..questions import all_approvals
from . import arguments, completing
from .printing import HANDOFF_ID_CHARS
from .settings import warn

id_argument = click.argument(
    "handoff", metavar="ID", callback=arguments.handoff_id, shell_complete=completing.handoff_ids
)


async def full_id(client: Client, handoff: str) -> str:
    """The id that begins with `handoff`; raises `ClickException` unless there is exactly one."""
    if len(handoff) == HANDOFF_ID_CHARS:
        return handoff
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        page = await client.list(prefix=handoff, after=after, limit=1000)
        found += [status.handoff for status in page.handoffs]
        after = page.next
    if len(found) == 1:
        return found[0]
    if not found:
        raise click.ClickException(f"No handoff's id begins with {handoff}: `dhp list` shows those there are.")
    raise click.ClickException(f"{len(found)} handoffs' ids begin with {handoff}: give more digits.")


async def the_approval(client: Client, given: str) -> Approval:
    """The one approval that `given` means, among all of its handoff's; raises `ClickException` unless there is exactly one.

    The decided ones count: a beginning that was one question's must not come to mean another, which nobody has seen.
    """
    beginning, _, own = given.partition("-")
    handoff = await full_id(client, beginning)
    everything = await all_approvals(client, handoff=handoff)
    found = [one for one in everything if one.approval.startswith(f"{handoff}-{own}")]
    if len(found) == 1:
        return found[0]
    if not found:
        raise click.ClickException(
            f"No approval's id begins with {given}: `dhp approvals {beginning[:12]}` shows them."
        )
    for approval in found:
        warn(approval.approval)
    raise click.ClickException(f"{len(found)} approvals' ids begin with {given}: give more of one.")


async def all_effects(client: Client, handoff: str) -> list[EffectView]:
    """Every page of them."""
    found: list[EffectView] = []
    after: int | None = 0
    while after is not None:
        page = await client.effects(handoff, after=after)
        found += page.effects
        after = page.next
    return found
