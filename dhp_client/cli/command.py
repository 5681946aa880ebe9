"""How a command comes to its daemon: from `async def body(client, settings, …)` to a command that connects first.

Owns connecting, and when a directory is made for it. What is asked there is the commands' own.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import click

from dhp_client import connect
from dhp_client.addresses import DirectoryAddress, parse_addresses

from .settings import UNREACHABLE, Settings, SettingsCommand, with_settings

REACHED_WITHIN_MS = 2_000
STARTED_WITHIN_MS = 20_000
"""Where the daemon is a directory's, and may have to be started."""

Body = Callable[..., Awaitable[int | None]]


class Unreachable(click.ClickException):
    """There is no daemon to ask."""

    exit_code = UNREACHABLE


def command(name: str, *, creates: bool = False, epilog: str | None = None) -> Callable[[Body], click.Command]:
    """Makes `async def body(client, settings, **arguments)` the command `name`; what it returns is the exit code.

    `epilog` stands below its help. Only a command that `creates` something makes the directory that was to be connected to, when there is none.
    """

    def decorate(body: Body) -> click.Command:
        def run(**arguments: Any) -> int | None:
            settings = click.get_current_context().ensure_object(Settings)
            return asyncio.run(_connected(settings, body, arguments, creates=creates))

        made = click.command(name, cls=SettingsCommand, epilog=epilog)
        return made(with_settings(functools.update_wrapper(run, body)))

    return decorate


async def _connected(settings: Settings, body: Body, arguments: dict[str, Any], *, creates: bool) -> int | None:
    patience_ms = REACHED_WITHIN_MS
    for address in parse_addresses(settings.connect):
        if isinstance(address, DirectoryAddress):
            patience_ms = STARTED_WITHIN_MS
            if not creates and not address.directory.exists():  # Looking for something shouldn't leave a daemon behind.
                raise Unreachable(
                    f"There is no {address.directory}: say where the daemon is with --connect or $DHP_CONNECT, "
                    "or dispatch something here first."
                )
    connecting = connect(
        settings.connect, name=settings.client_name(), connect_timeout_ms=patience_ms, **settings.credentials()
    )
    async with connecting as client:
        return await body(client, settings, **arguments)
