"""`dhp demo`: its options, its ending, and what keeps it from leaving anything behind."""

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from .settings import FAILED, Settings, warn, with_json
from .staging import ENDED, shown, staged

DEFAULT_PAGES = 60
DEFAULT_KILL_AT = 20


@click.command("demo")
@click.pass_obj
@with_json
@click.option("--pages", type=click.IntRange(min=1), metavar="N", help=f"So many pages.  [default: {DEFAULT_PAGES}]")
@click.option("--kill-at", type=click.IntRange(min=1), metavar="N", help=f"At this page.  [default: {DEFAULT_KILL_AT}]")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Each run has a folder of its own in it.",
)
@click.option("--urls", metavar="FILE", type=click.File(), help="Fetch these instead, one URL on each line.")
@click.option("--graceful", is_flag=True, help="SIGTERM instead of kill -9: the worker hands its work back.")
@click.option("--keep", is_flag=True, help="Leave the daemon up, and say how to look.")
def demo(
    settings: Settings,
    pages: int | None,
    kill_at: int | None,
    folder: Path,
    urls: Iterable[str] | None,
    graceful: bool,
    keep: bool,
) -> int:
    """Kill a worker at its work, and see another one finish it.

    Starts a daemon of its own, two workers, and a small server of pages; worker A fetches them one by one and is killed
    by kill -9 in the middle of a request; the standby goes on at that very page. Every claim is checked, and the exit
    code is 1 if one of them isn't so.
    """
    from ..demo.progress import Progress
    from ..demo.run import DemoFailed, Options, run

    given = None if urls is None else tuple(dict.fromkeys(line.strip() for line in urls if line.strip()))
    wanted = _pages(given, pages)
    options = Options(
        folder=folder,
        urls=None if given is None else given[:wanted],
        pages=wanted,
        kill_at=_kill_at(wanted, kill_at),
        graceful=graceful,
        keep=keep,
    )

    progress = Progress(options.pages, sys.stderr if settings.as_json else sys.stdout)
    try:
        outcome = staged(run(options, progress))
    except DemoFailed as error:
        warn(str(error))
        return FAILED
    except asyncio.CancelledError:
        return ENDED
    return shown(settings, outcome)


def _pages(given: tuple[str, ...] | None, pages: int | None) -> int:
    from ..demo.pages import MODULES

    there_are = len(MODULES) if given is None else len(given)
    wanted = (min(DEFAULT_PAGES, there_are) if given is None else there_are) if pages is None else pages
    if not 0 < wanted <= there_are:
        raise click.UsageError(f"There are {there_are} pages: give --pages a number from 1 to {max(there_are, 1)}.")
    return wanted


def _kill_at(pages: int, kill_at: int | None) -> int:
    if kill_at is None:
        return min(DEFAULT_KILL_AT, (pages + 1) // 2)
    if kill_at > pages:
        raise click.UsageError(f"Page {kill_at} is none of the {pages} pages: give --kill-at a smaller number.")
    return kill_at
