"""The group `dhp` and what all of its commands share: where the daemon is, JSON or text, exit codes.

Owns the way from an exception to one sentence on standard error. Does not own any command.
"""

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

import dhp_client
from dhp_client.addresses import DirectoryAddress, parse_addresses

from .printing import json_line

OK, FAILED, USAGE, UNREACHABLE, NOT_YET, INTERRUPTED = 0, 1, 2, 3, 4, 130
REACHED_WITHIN_MS = 2_000
STARTED_WITHIN_MS = 20_000
"""Where the daemon is a directory's, and may have to be started."""


class Unreachable(click.ClickException):
    """There is no daemon to ask."""

    exit_code = UNREACHABLE


class Settings(msgspec.Struct):
    """What was said before or after the command's name; `connect` None is $DHP_CONNECT, else ./.dhp."""

    connect: str | None = None
    as_json: bool = False
    token_file: str | None = None

    def token(self) -> str | None:
        """What the token file holds; None where none was named: then $DHP_TOKEN counts."""
        if self.token_file is None:
            return None
        try:
            return Path(self.token_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it isn't UTF-8"
            raise click.UsageError(f"{self.token_file} can't be read: {why}.") from None

    def show(self, value: Any, lines: Iterable[str] = ()) -> None:
        """Writes `value` as one line of JSON, or else the lines, on standard output."""
        for line in [json_line(value)] if self.as_json else lines:
            click.echo(line)


def warn(sentence: str) -> None:
    """Writes one sentence on standard error."""
    click.echo(f"dhp: {sentence}", err=True)


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(Settings)
    if value:
        setattr(settings, str(param.name), value)


with_json = click.option("--json", "as_json", is_flag=True, expose_value=False, callback=_note, help="Write JSON.")
with_connect = click.option(
    "--connect",
    metavar="ADDRESS",
    expose_value=False,
    callback=_note,
    help="tcp://HOST:PORT, unix:/PATH, or a directory.  [default: $DHP_CONNECT, else ./.dhp]",
)


with_token = click.option(
    "--token-file",
    metavar="FILE",
    expose_value=False,
    callback=_note,
    help="Holds the token that the daemon asks for.  [default: $DHP_TOKEN]",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@with_connect
@with_token
@with_json
def dhp() -> None:
    """Hand work off so that it outlives whoever is doing it.

    --connect, --token-file and --json may stand before as well as after a command's name. Exit codes: 0 done; 1 answered with an
    error; 2 wrong usage; 3 no daemon reached; 4 not there yet.
    """


Body = Callable[..., Awaitable[int | None]]


def command(name: str, *, creates: bool = False) -> Callable[[Body], click.Command]:
    """Makes `async def body(client, settings, **arguments)` the command `name`; what it returns is the exit code.

    Only a command that `creates` something makes the directory that was to be connected to, when there is none.
    """

    def decorate(body: Body) -> click.Command:
        def run(**arguments: Any) -> int | None:
            settings = click.get_current_context().ensure_object(Settings)
            return asyncio.run(_connected(settings, body, arguments, creates=creates))

        made: click.Command = dhp.command(name)(
            with_connect(with_token(with_json(functools.update_wrapper(run, body))))
        )
        return made

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
    connecting = dhp_client.connect(
        settings.connect, name="dhp", token=settings.token(), connect_timeout_ms=patience_ms
    )
    async with connecting as client:
        return await body(client, settings, **arguments)


async def full_id(client: dhp_client.Client, handoff: str) -> str:
    """The id that begins with `handoff`; raises `ClickException` unless there is exactly one."""
    if len(handoff) == 64:
        return handoff
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        page = await client.list(after=after, limit=1000)
        found += [status.handoff for status in page.handoffs if status.handoff.startswith(handoff)]
        after = page.next
    if len(found) == 1:
        return found[0]
    if not found:
        raise click.ClickException(f"No handoff's id begins with {handoff}: `dhp list` shows those there are.")
    raise click.ClickException(f"{len(found)} handoffs' ids begin with {handoff}: give more digits.")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs `dhp` and exits with its code."""
    code = exit_code(arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = code or FAILED
        _give_up_writing(error)
    sys.exit(code)


def exit_code(arguments: Sequence[str] | None) -> int:
    """Runs one command; every failure is one sentence on standard error, and a code."""
    from . import commands, demo, overseeing  # noqa: F401  Registers them.

    try:
        return dhp.main(arguments, prog_name="dhp", standalone_mode=False) or OK
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        warn(error.message)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:
        _give_up_writing(error)
        return FAILED
    except Exception as error:
        code = _code_of(error)
        if code is None:
            raise
        warn(str(error))
        return code


def _give_up_writing(error: OSError) -> None:
    """Nothing but the output raises OSError up to here. What is still unwritten isn't tried again at the program's end."""
    warn(f"the output couldn't be written: {error.strerror or error}.")
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


def _code_of(error: Exception) -> int | None:
    """The exit code of what the client raises; None for a mistake of our own."""
    if isinstance(error, dhp_client.BadAddress):
        return USAGE
    if isinstance(error, dhp_client.NotConnected | dhp_client.ConnectionLost):
        return UNREACHABLE
    return FAILED if isinstance(error, dhp_client.DHPError | dhp_client.ClientError) else None
