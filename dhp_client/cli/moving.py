"""The commands that move work between daemons: export, import.

Owns files and standard input and output. What a bundle is, and what a move does to the work, is the daemon's.
"""

import contextlib
import sys
from pathlib import Path

import click

from dhp_client import Client

from .command import command
from .finding import full_id, id_argument
from .printing import SHORT_ID_CHARS
from .settings import OK, Settings, warn


@command("export")
@id_argument
@click.argument("file", required=False, default="-")
async def export(client: Client, settings: Settings, handoff: str, file: str) -> int:
    """Write a handoff to FILE, for `dhp import` elsewhere.

    With all that it has; without FILE, or where that is -, to standard output.
    Work that hasn't ended is suspended by that, whoever holds it, so that it can't run at two daemons.
    """
    handoff = await full_id(client, handoff)
    with contextlib.ExitStack() as unless_written:
        if file != "-":  # First, since what is exported is put aside by that.
            _make(Path(file))
            unless_written.callback(Path(file).unlink)
        bundle = await client.export(handoff)
        _write(file, bundle)
        if file != "-":
            told = {"handoff": handoff, "file": file, "lines": bundle.count(b"\n"), "bytes": len(bundle)}
            settings.show(told, [f"{file}: {told['lines']} lines, {told['bytes']} bytes"])
        unless_written.pop_all()
    if (await client.status(handoff)).status == "suspended":
        warn(f"it is suspended here now: `dhp resume --force {handoff[:SHORT_ID_CHARS]}` takes it up here again.")
    return OK


@command("import", creates=True)
@click.argument("file")
async def import_bundle(client: Client, settings: Settings, file: str) -> int:
    """Bring in the handoff that FILE holds, whole or not at all.

    Where FILE is -, the one that standard input holds.
    """
    answer = await client.import_(_content(file))
    settings.show(answer, [answer.handoff])
    if not answer.created:
        warn(f"it was there already: {answer.taken} records are new.")
    if (await client.status(answer.handoff)).status == "suspended":
        warn(f"it is suspended: `dhp resume {answer.handoff[:SHORT_ID_CHARS]}` has it go on here.")
    return OK


def _make(path: Path) -> None:
    try:
        path.open("xb").close()
    except FileExistsError:
        raise click.UsageError(f"{path} is there already: name another file.") from None
    except OSError as error:
        raise click.UsageError(f"{path} can't be written: {error.strerror}.") from None


def _write(file: str, bundle: bytes) -> None:
    if file == "-":
        sys.stdout.buffer.write(bundle)
        sys.stdout.buffer.flush()
    else:
        Path(file).write_bytes(bundle)


def _content(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise click.UsageError(f"{file} can't be read: {error.strerror}.") from None
