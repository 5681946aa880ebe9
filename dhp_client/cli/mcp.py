"""`dhp mcp`: the contract as tools for agents, over the Model Context Protocol.

Owns the options, and how serving begins and ends. What is served is `dhp_client.mcp`'s; the SDK is imported only once it is to be served.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from functools import partial

import click

import dhp_client

from ..addresses import ENVIRONMENT_VARIABLE, DirectoryAddress, parse_addresses
from ..connecting import Connecting
from ..persons import Approver, approver_beside
from .command import REACHED_WITHIN_MS, STARTED_WITHIN_MS
from .extras import check_extra
from .http_serving import HttpListener, http_place, told_to_stop, with_http_options
from .lazy_commands import LazyCommands
from .settings import OK, Settings, warn, with_settings

log = logging.getLogger("dhp_client")

HTTP_IDLE_MS = 600_000
"""No connection tells that an agent has died, so its silence does."""

COMMANDS: dict[str, str] = {
    "register": "dhp_client.cli.registering:register",
    "skill": "dhp_client.cli.registering:skill",
}
"""Each command of the group: its name, and where it is."""


@click.group("mcp", commands=LazyCommands(COMMANDS), invoke_without_command=True)
@click.pass_context
@with_settings
@with_http_options(
    None, flag="--http", help="Serve many agents over streamable HTTP there, instead of one over stdin and stdout."
)
@click.option(
    "--approver-token-file",
    metavar="FILE",
    help="What a person answers through the agent's host decides what they are asked, by this approver's token.",
)
@click.option(
    "--callers-decide",
    is_flag=True,
    help="It does so over HTTP too, at a daemon that asks for no tokens: whoever may call may answer.",
)
@click.option(
    "--idle-ms",
    type=click.IntRange(min=1),
    help=f"Let work go when its agent hasn't called for so long.  [default: {HTTP_IDLE_MS} over HTTP, else never]",
)
def mcp(
    ctx: click.Context,
    listen: str | None,
    http_token_file: str | None,
    insecure: bool,
    public_url: str | None,
    approver_token_file: str | None,
    callers_decide: bool,
    idle_ms: int | None,
) -> int:
    """Serve the contract to agents as MCP tools.

    An agent's host starts it and speaks to it over standard input and output; the leases of what the agent claims are kept until that ends. The
    daemon is connected to when something is asked of it first.
    """
    if ctx.invoked_subcommand is not None:
        return OK
    settings = ctx.ensure_object(Settings)
    check_extra("mcp")
    parse_addresses(settings.connect, trust=settings.trust())
    listener = None if listen is None else HttpListener(http_place(listen, http_token_file, insecure, public_url))
    # Behind a pipe there is a host, and a person before it. Over HTTP there may be an agent that speaks for itself.
    decides = listener is None or callers_decide or approver_token_file is not None
    approver = None if not decides else _approver(settings, approver_token_file)
    if listener is not None and idle_ms is None:
        idle_ms = HTTP_IDLE_MS
    if listener is None and sys.stdin.isatty():
        warn(
            "an agent's host is expected on standard input, not a person: `dhp mcp --help` tells more. Ctrl-C ends this."
        )
    asyncio.run(_serve(settings, approver, listener, idle_ms, checked=approver_token_file is not None))
    return OK


def _approver(settings: Settings, token_file: str | None) -> Approver | None:
    return approver_beside(
        settings.connect, approver_token_file=token_file, name=settings.client_name(), **settings.credentials()
    )


async def _serve(
    settings: Settings, approver: Approver | None, listener: HttpListener | None, idle_ms: int | None, *, checked: bool
) -> None:
    from ..mcp.bridge import Bridge
    from ..mcp.http import PATH, application
    from ..mcp.record import Record
    from ..mcp.secret import kept_secret
    from ..mcp.server import Server
    from ..mcp.stdio import serve_stdio

    if approver is not None and checked:
        await _check_approver(approver)

    def bridge() -> Bridge:
        record = Record(idle_ms=idle_ms, guessable=listener is None)
        return Bridge(_connecting(settings), record, approver=approver, decide_at=_decide_at(settings))

    server = Server(bridge, secret=kept_secret())
    if listener is not None:
        listener.announce(settings, "agents are served", path=PATH)
        await listener.serve(application(server, hosts=listener.hosts))
    else:
        with told_to_stop() as told:
            await serve_stdio(server, until=told)


def _connecting(settings: Settings) -> Callable[[], Connecting]:
    embedded = any(isinstance(address, DirectoryAddress) for address in parse_addresses(settings.connect))
    return partial(
        dhp_client.connect,
        settings.connect,
        name=settings.client_name(),
        connect_timeout_ms=STARTED_WITHIN_MS if embedded else REACHED_WITHIN_MS,
        **settings.credentials(),
    )


def _decide_at(settings: Settings) -> str:
    """What a person on another terminal, in whatever directory, gives as --connect."""
    addresses = parse_addresses(settings.connect)
    return str(addresses[0]) if len(addresses) == 1 else settings.connect or os.environ[ENVIRONMENT_VARIABLE]


async def _check_approver(approver: Approver) -> None:
    """Raises what is wrong with its token; a daemon that isn't there yet is waited for by nobody."""
    try:
        await approver.check()
    except dhp_client.NotConnected as error:
        log.warning("whether the approver's token is good isn't known yet: %s", error)
