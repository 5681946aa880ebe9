"""`dhp a2a`: its options, and putting the server together of them."""

import logging
from typing import Any

import click

from dhp_client import Client
from dhp_client.persons import Approver, approver_beside

from . import arguments
from .command import command
from .http_serving import HttpListener, http_place, with_http_options
from .settings import OK, Settings

DEFAULT_LISTEN = "127.0.0.1:8472"


@command("a2a", creates=True, extra="a2a")
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    help="Serve work of this kind. May be given again; each is a skill.",
)
@click.option("--card", "card_file", metavar="FILE", help="An agent card, as JSON; its skills' ids are kinds, too.")
@click.option(
    "--budget",
    metavar="JSON",
    callback=arguments.budget,
    help='Caps each task that is sent, as in {"max_usd": 1}.',
)
@click.option("--hide-states", is_flag=True, help="Don't show callers the states that workers save.")
@click.option(
    "--approver-token-file",
    metavar="FILE",
    help="Callers' answers decide what a person is asked, by this approver's token.",
)
@click.option(
    "--callers-decide",
    is_flag=True,
    help="Callers' answers decide what a person is asked, at a daemon that asks for no tokens.",
)
@with_http_options(DEFAULT_LISTEN)
async def a2a(
    client: Client,
    settings: Settings,
    kinds: tuple[str, ...],
    card_file: str | None,
    budget: dict[str, Any] | None,
    hide_states: bool,
    approver_token_file: str | None,
    callers_decide: bool,
    listen: str,
    http_token_file: str | None,
    insecure: bool,
    public_url: str | None,
) -> int:
    """Serve work over A2A: its tasks are handoffs.

    A message is dispatched as work of its kind, a task is its handoff, and whoever claims that kind does it. This server holds nothing: it may
    be stopped and started at any time, and streams are taken up again. Callers see all work of these kinds.
    """
    from a2a.types import AgentCard

    from ..a2a.application import OPEN_PATHS, application
    from ..a2a.bridge import Bridge
    from ..a2a.cards import BadCard, card_in, kinds_of, served_card

    logging.getLogger("a2a").setLevel(logging.CRITICAL)  # What it logs of bad requests are their senders' words.
    try:
        card = card_in(card_file) if card_file is not None else AgentCard()
        served = kinds_of(card, kinds)
    except BadCard as error:
        raise click.UsageError(str(error)) from error
    approver = await _approver(settings, approver_token_file, callers_decide)
    listener = HttpListener(http_place(listen, http_token_file, insecure, public_url))
    bridge = Bridge(client=client, kinds=served, approver=approver, budget=budget, shows_states=not hide_states)
    shown = served_card(card, served, listener.url, wants_token=http_token_file is not None)
    listener.announce(settings, f"A2A agent for {', '.join(served)}")
    await listener.serve(application(bridge, shown), open_paths=OPEN_PATHS)
    return OK


async def _approver(settings: Settings, token_file: str | None, callers_decide: bool) -> Approver | None:
    """What takes in callers' answers; None where they don't decide. Raises what is wrong with the token."""
    if token_file is None and not callers_decide:
        return None
    approver = approver_beside(
        settings.connect, approver_token_file=token_file, name="a2a caller", **settings.credentials()
    )
    if approver is None:
        raise click.UsageError("The daemon asks for tokens: give persons one of their own with --approver-token-file.")
    await approver.check()
    return approver
