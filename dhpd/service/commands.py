"""`dhpd service install`, `uninstall` and `status`: options in, lines and an exit code out.

Owns the options. Does not own any step (`installing`, `status`).
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from dhp_protocol.printable import harmless

F = TypeVar("F", bound=Callable[..., Any])

_for_user = click.option("--user", "for_user", is_flag=True, help="For your own systemd, without root.")
_force = click.option("--force", is_flag=True, help="Also files that somebody has changed.")


@click.group(subcommand_metavar="install | uninstall | status")
def service() -> None:
    """Run dhpd as a service of systemd.

    Settings and store outlive uninstall. docs/service.md shows all of it, and what to do without systemd.
    """
    os.umask(0o022)  # What is written here is for systemd and everybody to read, unless it says otherwise.


@service.command()
@_for_user
@click.option(
    "--listen",
    multiple=True,
    metavar="ADDRESS",
    help="unix:PATH or NUMBER:PORT; may be given several times (as it is installed, or unix:/run/dhpd/dhpd.sock).",
)
@click.option("--no-socket", is_flag=True, help="Without a socket unit: dhpd opens the addresses itself.")
@click.option("--exec", "command", metavar="COMMAND", help="What starts dhpd (the program that runs this).")
@click.option("--no-start", is_flag=True, help="Only write the files.")
@click.option("--print", "only_print", is_flag=True, help="Only show the files.")
@click.option(
    "--root", metavar="DIR", type=click.Path(path_type=Path), help="Only write them below DIR, for a package."
)
@_force
def install(
    for_user: bool,
    listen: tuple[str, ...],
    no_socket: bool,
    command: str | None,
    no_start: bool,
    only_print: bool,
    root: Path | None,
    force: bool,
) -> None:
    """Write the unit files, and start the service.

    It starts with the machine, too, and has a user of its own, dhpd. What is there already and unchanged is brought up to date, and the service started anew.
    """
    from dhpd.config import ConfigError

    from . import files, installing, units
    from .placing import plan_for
    from .systemctl import Systemctl, SystemdError

    if for_user and root is not None:
        _end("--user and --root don't go together: a package is for the machine.", 2)
    plan = plan_for(
        for_user=for_user, listen=listen, command=command, with_socket=not no_socket, packaged=root is not None
    )
    if not listen:
        plan = installing.with_addresses_kept(plan, root or Path("/"))
    if only_print:
        texts = {path: files.marked(text, plan.version) for path, text in units.files_of(plan).items()}
        for path, text in {**texts, plan.config: units.settings_of(plan)}.items():
            click.echo(f"# {path}\n{text}")
        return
    systemctl = Systemctl(for_user=for_user)
    try:
        installing.check_addresses(plan, root or Path("/"), listen)
        if root is None and not no_start:
            installing.check_possible(plan, systemctl)
        if no_socket and root is None and not no_start:  # One from before would hold the addresses.
            files.refuse_changed(map(Path, units.files_of(plan)), force=force, todo=files.REPLACE)
            for line in installing.stop_and_remove([plan.units / units.SOCKET], systemctl, force=force):
                click.echo(line)
        for line in installing.write(plan, root or Path("/"), force=force):
            click.echo(line)
        if root is not None or no_start:
            return
        installing.start(plan, systemctl)
    except ConfigError as error:
        _end(str(error), 2)
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}.", 1)
    except SystemdError as error:
        _end(str(error), 1)
    except files.Changed as error:
        _end(str(error), 1)
    mode = " --user" if for_user else ""
    click.echo(
        f"dhpd runs, and starts with {'your next login' if for_user else 'the machine'}. How it is: `dhpd service status{mode}`."
    )
    if for_user:
        click.echo("`loginctl enable-linger` lets it run while you aren't logged in.")
    elif no_socket:
        click.echo("Its unix socket is for root and the user dhpd: a socket unit would let in the group.")
    else:
        click.echo("Who is in the group dhpd may use it, as admin: `usermod --append --groups dhpd NAME`.")


@service.command()
@_for_user
@_force
def uninstall(for_user: bool, force: bool) -> None:
    """Stop the service, and remove its files.

    The settings and the store are kept.
    """
    from . import files, installing, units
    from .placing import plan_for
    from .systemctl import Systemctl, SystemdError

    plan = plan_for(for_user=for_user)
    try:
        there = False
        for line in installing.stop_and_remove(units.files_of(plan), Systemctl(for_user=for_user), force=force):
            click.echo(line)
            there = True
    except (SystemdError, files.Changed) as error:
        _end(str(error), 1)
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}.", 1)
    if not there:
        click.echo("It isn't installed.")
    click.echo(installing.what_is_kept(plan))


@service.command()
@_for_user
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def status(for_user: bool, as_json: bool) -> None:
    """Tell how it stands, and what to do next.

    Whether it is installed, whether it runs, where, and how the daemon says it is.

    Exit codes: 0 it runs and is well; 1 it runs and isn't, or there is no systemd; 3 it doesn't run; 4 it isn't installed.
    """
    import msgspec

    from .placing import plan_for
    from .status import look
    from .systemctl import Systemctl, SystemdError

    try:
        found = look(plan_for(for_user=for_user), Systemctl(for_user=for_user))
    except SystemdError as error:
        _end(str(error), 1)
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        for line in found.lines():
            click.echo(harmless(line))
    sys.exit(found.code)


def _end(message: str, code: int) -> NoReturn:
    print(f"dhpd: {harmless(message)}", file=sys.stderr)
    sys.exit(code)
