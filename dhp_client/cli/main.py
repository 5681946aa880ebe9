"""The group `dhp`, and its end.

Owns the table of commands, and the way from an exception to one sentence on standard error and an exit code. Does not own
any command: a new one is a function in a module of its own or of its like, and a line in `COMMANDS`.
"""

import contextlib
import gc
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

import dhp_client
from dhp_protocol.printable import harmless

from .lazy_commands import LazyCommands
from .printing import error_json, error_line
from .settings import FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE, Settings, warn, with_settings

COMMANDS = {
    "dispatch": "dhp_client.cli.dispatching:dispatch",
    "result": "dhp_client.cli.dispatching:result",
    "run": "dhp_client.cli.running:run",
    "status": "dhp_client.cli.looking:status",
    "state": "dhp_client.cli.looking:state",
    "list": "dhp_client.cli.looking:list_handoffs",
    "watch": "dhp_client.cli.looking:watch",
    "history": "dhp_client.cli.looking:history",
    "stats": "dhp_client.cli.looking:stats",
    "health": "dhp_client.cli.looking:health",
    "top": "dhp_client.cli.top.command:top",
    "cancel": "dhp_client.cli.overseeing:cancel",
    "ack": "dhp_client.cli.overseeing:ack",
    "suspend": "dhp_client.cli.overseeing:suspend",
    "resume": "dhp_client.cli.overseeing:resume",
    "redrive": "dhp_client.cli.overseeing:redrive",
    "budget-add": "dhp_client.cli.overseeing:budget_add",
    "forget": "dhp_client.cli.overseeing:forget",
    "drain": "dhp_client.cli.overseeing:drain",
    "approvals": "dhp_client.cli.deciding:approvals",
    "approve": "dhp_client.cli.deciding:approve",
    "deny": "dhp_client.cli.deciding:deny",
    "effects": "dhp_client.cli.effects:effects",
    "effect-done": "dhp_client.cli.effects:effect_done",
    "export": "dhp_client.cli.moving:export",
    "import": "dhp_client.cli.moving:import_bundle",
    "a2a": "dhp_client.cli.a2a:a2a",
    "spool": "dhp_client.cli.spools:spool",
    "demo": "dhp_client.cli.demo:demo",
    "chaos": "dhp_client.cli.chaos:chaos",
    "conform": "dhp_client.cli.conforming:conform",
    "mcp": "dhp_client.cli.mcp:mcp",
    "completion": "dhp_client.cli.completing:completion",
}
"""Each command's name, and where it is."""


@click.group(commands=LazyCommands(COMMANDS), context_settings={"help_option_names": ["-h", "--help"]})
@with_settings
@click.version_option(package_name="dhpd", prog_name="dhp")
def dhp() -> None:
    """Hand work off so that it outlives whoever is doing it.

    --connect, --name, --json, and what proves who you are (--token-file, --cert-file …) may stand before as well as after a command's name. Exit codes: 0 done; 1 answered with an
    error; 2 wrong usage; 3 no daemon reached; 4 not there yet; 129, 130, 143 ended by a signal.
    """
    gc.enable()  # The command is imported by now.


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs `dhp` and exits with its code."""
    gc.disable()  # Importing makes much that stays, and no garbage.
    log = logging.StreamHandler()
    log.setFormatter(_Harmless())
    logging.basicConfig(level=logging.WARNING, handlers=[log])
    if "_DHP_COMPLETE" in os.environ:  # A shell asks what fits; click finds its ways to answer by their shell's name.
        from . import completing  # noqa: F401
    code = exit_code(arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = code or FAILED
        _give_up_writing(error)
    gc.freeze()  # The end of the interpreter would look through all of it once more.
    sys.exit(code)


class _Harmless(logging.Formatter):
    """What the client notes down may hold a daemon's words, or a file's."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return harmless(super().formatMessage(record))


def exit_code(arguments: Sequence[str] | None) -> int:
    """Runs one command; every failure is one sentence on standard error, and a code. With --json, what the daemon refuses is JSON there."""
    settings = Settings()
    try:
        return dhp.main(arguments, prog_name="dhp", standalone_mode=False, obj=settings) or OK
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
        if settings.as_json and isinstance(error, dhp_client.DHPError):
            click.echo(harmless(error_json(error)), err=True)
        else:
            warn(error_line(error))
        return code


def _give_up_writing(error: OSError) -> None:
    """Nothing but the output raises OSError up to here. What is still unwritten isn't tried again at the program's end."""
    warn(f"the output couldn't be written: {error.strerror or error}.")
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


def _code_of(error: Exception) -> int | None:
    """The exit code of what the client raises; None for a mistake of our own."""
    if isinstance(error, dhp_client.BadAddress | dhp_client.TokenUnreadable):
        return USAGE
    if isinstance(error, dhp_client.NotConnected | dhp_client.ConnectionLost):
        return UNREACHABLE
    return FAILED if isinstance(error, dhp_client.DHPError | dhp_client.ClientError) else None
