"""`dhp chaos`: its options, its ending, and where its books are kept."""

import asyncio
import contextlib
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from ..run_folders import fresh_folder
from .settings import FAILED, Settings, warn, with_json
from .staging import ENDED, shown, staged


@click.command("chaos")
@click.pass_obj
@with_json
@click.option(
    "--handoffs", type=click.IntRange(1, 10_000), default=40, show_default=True, help="So many, each a chain of steps."
)
@click.option("--workers", type=click.IntRange(1, 64), default=4, show_default=True, help="So many processes at work.")
@click.option("--steps", type=click.IntRange(1, 10_000), default=40, show_default=True, help="Of each handoff.")
@click.option(
    "--seconds", type=click.FloatRange(1, 86_400), default=30, show_default=True, help="So long faults go on."
)
@click.option(
    "--kill-every-ms",
    type=click.IntRange(min=0),
    default=1_000,
    show_default=True,
    help="kill -9 of a random worker, so often; 0: never.",
)
@click.option("--daemon-kills", type=click.IntRange(min=0), default=2, show_default=True, help="kill -9 of the daemon.")
@click.option("--seed", type=click.IntRange(min=0), help="The same faults as in the run that told it.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the books in a folder of this run's own in it.  [default: kept only if something is wrong]",
)
@click.option(
    "--judge",
    "judged_folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Run nothing: judge the books that a run kept in this folder.",
)
def chaos(
    settings: Settings,
    handoffs: int,
    workers: int,
    steps: int,
    seconds: float,
    kill_every_ms: int,
    daemon_kills: int,
    seed: int | None,
    directory: Path | None,
    judged_folder: Path | None,
) -> int:
    """Hurt a daemon and its workers, and see that nothing is lost.

    Starts a daemon of its own and worker processes, and for a while kills, stops and cuts off whoever is at work, the daemon
    too; the network between them is cut, silent one way, slow, or passes one byte at a time. Then three books are compared:
    what was acknowledged to the workers, what the daemon has, and what was dispatched. The exit code is 1 if they don't agree.
    """
    from ..chaos.plan import Options
    from ..chaos.run import ChaosFailed, judged, run
    from ..chaos.telling import Telling

    telling = Telling(sys.stderr if settings.as_json else sys.stdout)
    options = Options(
        handoffs=handoffs,
        workers=workers,
        steps=steps,
        seconds=seconds,
        kill_every_ms=kill_every_ms,
        daemon_kills=daemon_kills,
        seed=random.SystemRandom().randrange(2**32) if seed is None else seed,
    )

    try:
        if judged_folder is not None:
            outcome = judged(judged_folder, telling)
        else:
            with _books(directory) as folder:
                outcome = staged(run(options, folder, telling))
            if directory is None and outcome.all_so:
                shutil.rmtree(folder)
                outcome = msgspec.structs.replace(outcome, folder=None)
    except ChaosFailed as error:
        warn(str(error))
        return FAILED
    except asyncio.CancelledError:
        return ENDED
    return shown(settings, outcome)


@contextlib.contextmanager
def _books(directory: Path | None) -> Iterator[Path]:
    """A folder for the books of one run: in `directory`, or a temporary one, of which nothing is left where the run is given up."""
    if directory is not None:
        try:
            folder = fresh_folder(directory)
        except OSError as error:
            raise click.ClickException(f"{directory} can't be used ({error.strerror}): give another --dir.") from error
        yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix="dhp-chaos-"))
    try:
        yield folder
    except (KeyboardInterrupt, asyncio.CancelledError):
        shutil.rmtree(folder)
        raise
