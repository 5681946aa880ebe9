"""What all commands of `dhp` share: where the daemon is, who asks, JSON or text, exit codes.

Owns the options that may stand before as well as after a command's name, and the two ways out: a line, or a warning. Does not
own any command.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
import msgspec

from dhp_protocol.limits import MAX_NAME_CHARS
from dhp_protocol.printable import harmless

from ..trust import Trust, trust_from
from .printing import json_line

OK, FAILED, USAGE, UNREACHABLE, NOT_YET, INTERRUPTED = 0, 1, 2, 3, 4, 130

_DAEMON_AND_CALLER = ("connect", "token_file", "ca_file", "cert_file", "key_file", "server_name", "name")

F = TypeVar("F", bound=Callable[..., Any])


class Settings(msgspec.Struct):
    """What was said before or after the command's name; `connect` None is $DHP_CONNECT, else ./.dhp."""

    connect: str | None = None
    as_json: bool = False
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    name: str | None = None

    def credentials(self) -> dict[str, Any]:
        """What proves who asks, and who answers, as `dhp_client.connect` takes it; there is no option for a token itself, which
        everybody on the machine would see.
        """
        names = ("token_file", "ca_file", "cert_file", "key_file", "server_name")
        return {name: getattr(self, name) for name in names}

    def trust(self) -> Trust:
        """What of it TLS goes by."""
        return trust_from(self.ca_file, self.cert_file, self.key_file, self.server_name)

    def client_name(self) -> str:
        """Who asks, as a decision's `by` tells it where there are no tokens."""
        name = self.name or os.environ.get("USER") or "dhp"
        return name.encode(errors="replace").decode()[:MAX_NAME_CHARS]

    def show(self, value: Any, lines: Iterable[str] = ()) -> None:
        """Writes `value` as one line of JSON, or else the lines, on standard output."""
        for line in [json_line(value)] if self.as_json else lines:
            click.echo(harmless(line))


def warn(sentence: str) -> None:
    """Writes one sentence on standard error."""
    click.echo(f"dhp: {harmless(sentence)}", err=True)


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(Settings)
    if (
        value is not None and value is not False
    ):  # An empty one was given, by a variable that isn't set, say: it is no default.
        setattr(settings, str(param.name), value)


def _file_option(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, metavar="FILE", expose_value=False, callback=_note, help=text)


with_json = click.option("--json", "as_json", is_flag=True, expose_value=False, callback=_note, help="Write JSON.")
_with_connect = click.option(
    "--connect",
    metavar="ADDRESS",
    expose_value=False,
    callback=_note,
    help="tcp://HOST:PORT, tls://HOST:PORT, unix:/PATH, or a directory.  [default: $DHP_CONNECT, else ./.dhp]",
)
_with_token = click.option(
    "--token-file",
    metavar="FILE",
    expose_value=False,
    callback=_note,
    help="Holds the token that the daemon asks for.  [default: $DHP_TOKEN, $DHP_TOKEN_FILE]",
)
_with_ca = _file_option(
    "--ca-file", "Whose signature the daemon's certificate needs.  [default: $DHP_TLS_CA, the system's]"
)
_with_certificate = _file_option(
    "--cert-file", "Your certificate, where the daemon asks for one.  [default: $DHP_TLS_CERT]"
)
_with_key = _file_option("--key-file", "The certificate's key.  [default: $DHP_TLS_KEY]")
_with_server_name = click.option(
    "--server-name",
    metavar="NAME",
    expose_value=False,
    callback=_note,
    help="The name in the daemon's certificate.  [default: the address's host]",
)
_with_name = click.option(
    "--name",
    metavar="NAME",
    expose_value=False,
    callback=_note,
    help="Who you are: told as `by` where there are no tokens.  [default: $USER]",
)


class SettingsCommand(click.Command):
    """Its help shows what is its own first, and what all commands take behind that."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (shown := param.get_help_record(ctx)) is not None:
                (shared if param.name in _DAEMON_AND_CALLER else own).append(shown)
        for title, rows in (("Options", own), ("Where the daemon is, and who asks", shared)):
            with formatter.section(title):
                formatter.write_dl(rows)


def with_settings(body: F) -> F:
    """Has a command take the options that all of them take."""
    for option in (
        with_json,
        _with_name,
        _with_server_name,
        _with_key,
        _with_certificate,
        _with_ca,
        _with_token,
        _with_connect,
    ):
        body = option(body)
    return body
