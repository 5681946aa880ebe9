"""The commands on a client's spool: spool list, show, drop, replay.

Owns showing what workers kept on this machine while nobody answered, sending what a dead one left, and deleting it. What may be
sent is the client's.
"""

from pathlib import Path

import click

import dhp_client
from dhp_client.spool import Spool, Spooled

from .command import command
from .printing import fact_lines, spool_lines
from .settings import NOT_YET, OK, Settings, warn, with_json, with_settings

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group("spool")
@with_settings
def spool() -> None:
    """Look after what workers kept while no daemon answered."""


@spool.command("list")
@click.argument("folder", type=_FOLDER)
@with_json
def list_spooled(folder: Path) -> None:
    """List what FOLDER holds that no daemon has."""
    settings = click.get_current_context().ensure_object(Settings)
    found = Spool(folder).all()
    if settings.as_json:
        for one in found:
            settings.show(one)
    else:
        settings.show(None, spool_lines(found))


@spool.command("show")
@click.argument("file", type=_FILE)
@with_json
def show(file: Path) -> None:
    """Show one file of a spool, its last state and its result."""
    settings = click.get_current_context().ensure_object(Settings)
    settings.show(one := _found(file), fact_lines(one))


@spool.command("drop")
@click.argument("file", type=_FILE)
@with_json
def drop(file: Path) -> None:
    """Delete one file of a spool, and what it holds, for good."""
    settings = click.get_current_context().ensure_object(Settings)
    _found(file)
    Spool(file.parent).drop(file)
    settings.show({"file": str(file), "dropped": True})


@command("replay")
@click.argument("folder", type=_FOLDER)
async def replay(client: dhp_client.Client, settings: Settings, folder: Path) -> int:
    """Send what dead workers left in FOLDER, and hand the work back.

    Where somebody has been at work on the handoff since, nothing is sent. Workers that have the same spool do so by themselves when they
    claim. Shows what is still there; exit code 4 if some of it may be sent later.
    """
    left = await client.replay_spool(folder)
    if settings.as_json:
        for one in left:
            settings.show(one)
    else:
        settings.show(None, spool_lines(left))
    if waiting := sum(one.may_be_sent for one in left):
        warn(
            f"{waiting} still to be sent: the work can't be claimed yet. Try again once its worker's lease is over, in some seconds."
        )
        return NOT_YET
    return OK


spool.add_command(replay)


def _found(file: Path) -> Spooled:
    for one in Spool(file.parent).all():
        if Path(one.path) == file.absolute():
            return one
    raise click.ClickException(f"{file} is no spool file of yours.")
