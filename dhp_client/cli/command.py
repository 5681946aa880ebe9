"""How a command comes to its daemon: from `async def body(client, settings, …)` to a command that connects first.

Owns connecting, and when a directory is made for it. What is asked there is the commands' own.
"""

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable
from typing import Any

import click

from dhp_client import BadAddress, connect
from dhp_client.addresses import DEFAULT_PORT, DirectoryAddress, parse_address, parse_addresses

from .extras import check_extra
from .settings import UNREACHABLE, Settings, SettingsCommand, with_settings

REACHED_WITHIN_MS = 2_000
LOOK_WITHIN_MS = 200
SERVICE_SOCKET = "unix:/run/dhpd/dhpd.sock"
"""Of the daemon that `dhpd service install` makes."""
STARTED_WITHIN_MS = 20_000
"""Where the daemon is a directory's, and may have to be started."""

Body = Callable[..., Awaitable[int | None]]


class Unreachable(click.ClickException):
    """There is no daemon to ask."""

    exit_code = UNREACHABLE


def command(
    name: str,
    *,
    creates: bool = False,
    takes_command: bool = False,
    epilog: str | None = None,
    extra: str | None = None,
) -> Callable[[Body], click.Command]:
    """Makes `async def body(client, settings, **arguments)` the command `name`; what it returns is the exit code.

    `epilog` stands below its help; `extra` is the one that has to be installed. Only a command that `creates` something makes the
    directory that was to be connected to, when there is none. Its argument `spool` is the client's. One that `takes_command` leaves everything from its first argument on to
    that other command, options too.
    """

    def decorate(body: Body) -> click.Command:
        def run(**arguments: Any) -> int | None:
            settings = click.get_current_context().ensure_object(Settings)
            if extra is not None:
                check_extra(extra)
            return asyncio.run(_connected(settings, body, arguments, creates=creates))

        parsing = {"allow_interspersed_args": not takes_command}
        made = click.command(name, cls=SettingsCommand, epilog=epilog, context_settings=parsing)
        return made(with_settings(functools.update_wrapper(run, body)))

    return decorate


async def _connected(settings: Settings, body: Body, arguments: dict[str, Any], *, creates: bool) -> int | None:
    patience_ms = REACHED_WITHIN_MS
    for address in parse_addresses(settings.connect):
        if isinstance(address, DirectoryAddress):
            patience_ms = STARTED_WITHIN_MS
            if not creates and not address.directory.exists():  # Looking for something shouldn't leave a daemon behind.
                other = await asyncio.to_thread(_another_daemon)
                answers = f" One answers at {other}." if other else ""
                raise Unreachable(
                    f"There is no {address.directory}: say where the daemon is with --connect or $DHP_CONNECT, "
                    f"or dispatch something here first.{answers}"
                )
    connecting = connect(
        settings.connect,
        name=settings.client_name(),
        connect_timeout_ms=patience_ms,
        spool=arguments.pop("spool", None),
        **settings.credentials(),
    )
    async with connecting as client:
        return await body(client, settings, **arguments)


def _another_daemon() -> str | None:
    """Where somebody listens whom this person may have had in mind; it is never asked without being named."""
    from dhp_client.blocking import reach  # With TLS behind it, which most commands don't load.

    user_sockets = os.environ.get("XDG_RUNTIME_DIR")
    places = [f"unix:{user_sockets}/dhpd/dhpd.sock"] if user_sockets else []
    for place in (*places, SERVICE_SOCKET, f"tcp://127.0.0.1:{DEFAULT_PORT}"):
        try:
            address = parse_address(place)
            assert not isinstance(address, DirectoryAddress)
            with reach(address, LOOK_WITHIN_MS):
                return place
        except (OSError, BadAddress):
            continue
    return None
