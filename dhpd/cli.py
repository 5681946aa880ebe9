"""The command `dhpd`: settings in, one daemon, an exit code out.

Exit codes: 0, 1 (the directory is in use, the store is broken, an address is taken), 2 (settings); each with one plain
line on standard error.
"""

import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from . import __version__
from .config import ConfigError, environment, load_config


class _OneLineCommand(click.Command):
    """Says in one line what is wrong with the flags, as with every other setting."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **{**extra, "standalone_mode": False})
        except click.ClickException as error:
            _end(error.format_message(), 2)


@click.command(cls=_OneLineCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--data", metavar="DIR", help="Where the store lies (./dhpd-data).")
@click.option("--listen", multiple=True, metavar="ADDRESS", help="HOST:PORT or unix:PATH; may be given several times.")
@click.option("--config", "file", metavar="FILE", type=click.Path(path_type=Path), help="Settings in TOML.")
@click.option("--insecure", is_flag=True, default=None, help="Allow addresses that are not loopback.")
@click.option("--idle-exit-ms", type=int, metavar="N", help="End when unused, with nothing live, for so long.")
@click.version_option(__version__, prog_name="dhpd")
def main(
    data: str | None, listen: tuple[str, ...], file: Path | None, insecure: bool | None, idle_exit_ms: int | None
) -> None:
    """The daemon of the Durable Handoff Protocol.

    Listens on 127.0.0.1:8471 and on DIR/dhpd.sock unless --listen says otherwise, and prints `dhpd ready ADDRESS...`
    when it does. Settings: defaults < FILE < DHPD_* in the environment < flags.
    """
    flags = {"data": data, "listen": list(listen) or None, "insecure": insecure, "idle_exit_ms": idle_exit_ms}
    try:
        config = load_config(file, environment(), flags)
    except ConfigError as error:
        _end(str(error), 2)
    from .server.daemon import CannotRun, run

    try:
        run(config)
    except ConfigError as error:
        _end(str(error), 2)
    except CannotRun as error:
        _end(str(error), 1)


def _end(message: str, code: int) -> NoReturn:
    print(f"dhpd: {message}", file=sys.stderr)
    sys.exit(code)
