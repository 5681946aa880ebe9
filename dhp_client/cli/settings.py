"""What all commands of `dhp` share: where the daemon is, who asks, JSON or text, exit codes.

Owns the options that may stand before as well as after a command's name, and the two ways out: a line, or a warning. Does not
own any command.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from dhp_protocol.limits import MAX_NAME_CHARS

from .printing import harmless, json_line

OK, FAILED, USAGE, UNREACHABLE, NOT_YET, INTERRUPTED = 0, 1, 2, 3, 4, 130

F = TypeVar("F", bound=Callable[..., Any])


class Settings(msgspec.Struct):
    """What was said before or after the command's name; `connect` None is $DHP_CONNECT, else ./.dhp."""

    connect: str | None = None
    as_json: bool = False
    token_file: str | None = None
    name: str | None = None

    def token(self) -> str | None:
        """What the token file holds; None where none was named: then $DHP_TOKEN counts."""
        return None if self.token_file is None else token_in(self.token_file)

    def client_name(self) -> str:
        """Who asks, as a decision's `by` tells it where there are no tokens."""
        name = self.name or os.environ.get("USER") or "dhp"
        return name.encode(errors="replace").decode()[:MAX_NAME_CHARS]

    def show(self, value: Any, lines: Iterable[str] = ()) -> None:
        """Writes `value` as one line of JSON, or else the lines, on standard output."""
        for line in [json_line(value)] if self.as_json else lines:
            click.echo(harmless(line))


def token_in(file: str) -> str:
    """The token that a file holds."""
    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it isn't UTF-8"
        raise click.UsageError(f"{file} can't be read: {why}.") from None


def warn(sentence: str) -> None:
    """Writes one sentence on standard error."""
    click.echo(f"dhp: {harmless(sentence)}", err=True)


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(Settings)
    if value:
        setattr(settings, str(param.name), value)


with_json = click.option("--json", "as_json", is_flag=True, expose_value=False, callback=_note, help="Write JSON.")
_with_connect = click.option(
    "--connect",
    metavar="ADDRESS",
    expose_value=False,
    callback=_note,
    help="tcp://HOST:PORT, unix:/PATH, or a directory.  [default: $DHP_CONNECT, else ./.dhp]",
)
_with_token = click.option(
    "--token-file",
    metavar="FILE",
    expose_value=False,
    callback=_note,
    help="Holds the token that the daemon asks for.  [default: $DHP_TOKEN]",
)
_with_name = click.option(
    "--name",
    metavar="NAME",
    expose_value=False,
    callback=_note,
    help="Who you are: told as `by` where there are no tokens.  [default: $USER]",
)


def with_settings(body: F) -> F:
    """Has a command take the options that all of them take."""
    return _with_connect(_with_token(_with_name(with_json(body))))
