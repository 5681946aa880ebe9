"""The command `dhpd`: settings in, one daemon, an exit code out; `dhpd token`, which makes a token; `dhpd check` and `dhpd backup`;
`dhpd service`.

Exit codes: 0, 1 (the directory is in use, the store is broken, an address is taken), 2 (settings); each with one plain
line on standard error.
"""

import gc
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from dhp_protocol.printable import harmless

from . import __version__
from .config import Config, ConfigError, environment, load_config
from .service.commands import service


class _OneLineGroup(click.Group):
    """Says in one line what is wrong with the flags, as with every other setting."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **{**extra, "standalone_mode": False})
        except click.ClickException as error:
            _end(error.format_message(), 2)


_file_option = click.option(
    "--config", "file", metavar="FILE", type=click.Path(path_type=Path), help="Settings in TOML."
)
_data_option = click.option("--data", metavar="DIR", help="Where the store lies (./dhpd-data).")
_tokens_option = click.option("--tokens", metavar="FILE", help="The tokens of which whoever comes over TCP needs one.")


@click.group(
    cls=_OneLineGroup,
    invoke_without_command=True,
    subcommand_metavar="[token NAME --roles ROLES | check | backup FILE | service …]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@_data_option
@click.option("--listen", multiple=True, metavar="ADDRESS", help="HOST:PORT or unix:PATH; may be given several times.")
@_file_option
@_tokens_option
@click.option("--tls-cert", metavar="FILE", help="Speak TLS over TCP, with this certificate.")
@click.option("--tls-key", metavar="FILE", help="The certificate's key.")
@click.option("--tls-client-ca", metavar="FILE", help="Ask for clients' certificates, signed by one of these.")
@click.option(
    "--insecure", is_flag=True, default=None, help="Allow other addresses than loopback without tokens and TLS."
)
@click.option("--idle-exit-ms", type=int, metavar="N", help="End when unused, with nothing live, for so long.")
@click.version_option(__version__, prog_name="dhpd")
@click.pass_context
def main(
    ctx: click.Context,
    data: str | None,
    listen: tuple[str, ...],
    file: Path | None,
    tokens: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_client_ca: str | None,
    insecure: bool | None,
    idle_exit_ms: int | None,
) -> None:
    """The daemon of the Durable Handoff Protocol.

    Listens on 127.0.0.1:8471 and on DIR/dhpd.sock unless --listen says otherwise, and prints `dhpd ready ADDRESS...`
    when it does. Settings: defaults < FILE < DHPD_* in the environment < flags.
    """
    os.umask(0o077)  # Whatever is written is its owner's alone.
    if ctx.invoked_subcommand is not None:
        ctx.obj = (file, tokens, data)
        return
    flags = {"data": data, "listen": list(listen) or None, "insecure": insecure, "idle_exit_ms": idle_exit_ms}
    secrecy = {"tokens": tokens, "tls_cert": tls_cert, "tls_key": tls_key, "tls_client_ca": tls_client_ca}
    config = _settings(file, {**flags, **secrecy})
    gc.disable()  # What is imported stays; the daemon begins to collect once its store is loaded.
    from .server.running import CannotRun, run

    try:
        run(config)
    except ConfigError as error:
        _end(str(error), 2)
    except CannotRun as error:
        _end(str(error), 1)


@main.command()
@click.argument("name")
@click.option("--roles", required=True, metavar="ROLES", help="Of dispatcher,worker,approver,reader,admin.")
@_tokens_option
@_file_option
@click.pass_context
def token(ctx: click.Context, name: str, roles: str, tokens: str | None, file: Path | None) -> None:
    """Make a token, add it to the token file, and show it this once.

    Only its hash is kept. A daemon that uses the file takes the token up by itself.
    """
    outer_file, outer_tokens, _ = ctx.obj
    config = _settings(file or outer_file, {"tokens": tokens or outer_tokens})
    if config.tokens is None:
        _end("Say which token file: --tokens FILE, DHPD_TOKENS, or tokens in the settings file.", 2)
    from .token_file import add_token, parse_roles

    try:
        made = add_token(Path(config.tokens), name, parse_roles(roles))
    except ConfigError as error:
        _end(str(error), 2)
    print(made, flush=True)


@main.command()
@click.argument("store", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@_data_option
@_file_option
@click.pass_context
def check(ctx: click.Context, store: Path | None, data: str | None, file: Path | None) -> None:
    """Check that the store in DIR, or in FILE, a backup, is whole.

    Beside its daemon, or without it. Looks at every page, record and hash, so it takes a while for a large one. Says what to do where something is broken, and changes nothing.
    """
    from .store.backend import StoreError
    from .upkeep import check

    try:
        sys.exit(check(store or _store(ctx, file, data)))
    except StoreError as error:
        _end(str(error), 1)


@main.command()
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@_data_option
@_file_option
@click.pass_context
def backup(ctx: click.Context, target: Path, data: str | None, file: Path | None) -> None:
    """Copy the store in DIR to a new FILE, and check the copy.

    As of one moment, beside its daemon or without it. To restore it, put FILE into an empty directory as dhpd.sqlite, and start dhpd there.
    """
    from .store.backend import StoreError
    from .upkeep import backup

    try:
        sys.exit(backup(_store(ctx, file, data), target))
    except StoreError as error:
        _end(str(error), 1)


main.add_command(service)


def _store(ctx: click.Context, file: Path | None, data: str | None) -> Path:
    """The store's file, by the settings in force."""
    from .server.directory import STORE_NAME

    outer_file, _, outer_data = ctx.obj
    return Path(_settings(file or outer_file, {"data": data or outer_data}).data) / STORE_NAME


def _settings(file: Path | None, flags: dict[str, Any]) -> Config:
    try:
        return load_config(file, environment(), flags)
    except ConfigError as error:
        _end(str(error), 2)


def _end(message: str, code: int) -> NoReturn:
    print(f"dhpd: {harmless(message)}", file=sys.stderr)
    sys.exit(code)
