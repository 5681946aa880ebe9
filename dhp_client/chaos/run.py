"""The course of a run: daemon, work, workers, faults, the end of all work, and the verdict.

Owns the order of things. What is done and when is the `plan`'s, to whom the `stage`'s, and what is so the `judge`'s.
"""

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import dhp_client

from ..checks import Check, check_lines
from ..histories import whole_history
from ..processes import ChildFailed, Children
from .books import DAEMON, DISPATCHED, Dispatched, Record, Told, Writer, read_books, write_all, write_options
from .figures import Figures, figure_lines, figures
from .judge import judge
from .plan import Act, Options, acts
from .stage import Stage
from .telling import Telling
from .work import KIND, Inputs

MAX_ATTEMPTS = 100
KEEP_FEW = 4
"""Every other handoff keeps so many checkpoints, so that pruning goes on as well; the rest keep all, so that all can be compared."""
LOOK_EVERY_S = 0.2
STUCK_AFTER_S = 30.0
"""Without a new record once the faults are over, the work goes no further: what is there is judged."""
PAGE = 1_000


class ChaosFailed(Exception):
    """The run couldn't be carried out; says why."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of a run. `folder` holds the books (None: nobody kept them); the same `options` make the same plan again."""

    all_so: bool
    options: Options
    folder: str | None
    checks: list[Check]
    figures: Figures


async def run(options: Options, folder: Path, telling: Telling) -> Outcome:
    """Carries out a run in an empty folder, and tells what happens on the way. Raises `ChaosFailed`."""
    # A socket's path must be short, and a folder's may be long.
    with tempfile.TemporaryDirectory(prefix="dhp-chaos-") as sockets:
        async with Children(folder) as children:
            stage = Stage(children, folder, Path(sockets) / "s", options.workers, telling)
            try:
                await _run(options, folder, stage, telling)
            except (ChildFailed, dhp_client.NotConnected) as error:
                raise ChaosFailed(str(error)) from error
    return judged(folder, telling)


def judged(folder: Path, telling: Telling) -> Outcome:
    """The verdict over the books in `folder`, told and returned. Raises `ChaosFailed` where they can't be read."""
    try:
        books = read_books(folder)
    except (OSError, msgspec.DecodeError) as error:
        raise ChaosFailed(f"The books in {folder} can't be read: {error}.") from error
    checks = judge(books)
    outcome = Outcome(
        all_so=all(check.ok for check in checks),
        options=books.options,
        folder=str(folder),
        checks=checks,
        figures=figures(books),
    )
    for line in ["", *check_lines(checks), "", *figure_lines(outcome.figures), ""]:
        telling.say(line)
    broken = sum(not check.ok for check in checks)
    telling.say("Nothing was lost." if not broken else f"{broken} of {len(checks)} promises were broken.")
    return outcome


async def _run(options: Options, folder: Path, stage: Stage, telling: Telling) -> None:
    write_options(folder, options)
    pid = await stage.start_daemon()
    telling.say(
        f"Seed {options.seed}; the books are in {folder}; a daemon of its own at {stage.address}, process {pid}."
    )
    try:
        async with dhp_client.connect(stage.address, retry_ms=60_000) as client:
            telling.say(
                f"{options.handoffs} handoffs of {options.steps} steps, {options.step_ms} ms each, half of them dispatched "
                f"at once and half as it goes on; {options.workers} workers begin."
            )
            await stage.start_workers()
            await _all(_dispatch(options, client, folder), *(_later(act, stage) for act in acts(options)))
            telling.at_moment(f"no more faults; {await _progress(client)}")
            await _until_over(client, stage, telling)
            await stage.dismiss_workers()
            await stage.restart_daemon()
            telling.at_moment(f"{await _progress(client)}; what the daemon says after that last kill is judged")
            write_all(folder / DAEMON, await _told(client))
    finally:
        await stage.close()


async def _dispatch(options: Options, client: dhp_client.Client, folder: Path) -> None:
    """Half of the handoffs at once, and the rest over the first half of the time, while the daemon is being hurt."""
    at_once = (options.handoffs + 1) // 2
    pause_s = options.seconds / 2 / max(1, options.handoffs - at_once)
    with Writer(folder / DISPATCHED) as book:
        for number in range(options.handoffs):
            if number >= at_once:
                await asyncio.sleep(pause_s)
            keep = KEEP_FEW if number % 2 else options.steps
            inputs = Inputs(number=number, steps=options.steps, step_ms=options.step_ms)
            work = await client.dispatch(KIND, inputs, budget={"max_attempts": MAX_ATTEMPTS}, keep_checkpoints=keep)
            book.write(Dispatched(number=number, handoff=work.handoff, steps=options.steps, keep_checkpoints=keep))


async def _later(act: Act, stage: Stage) -> None:
    await asyncio.sleep(act.at_ms / 1000)
    await stage.do(act)


async def _all(*doing: Coroutine[Any, Any, None]) -> None:
    """Beside each other; over once all are, or with the first error."""
    going_on = [asyncio.create_task(one) for one in doing]
    try:
        await asyncio.gather(*going_on)
    finally:
        for task in going_on:
            task.cancel()


async def _progress(client: dhp_client.Client) -> str:
    counts = (await client.stats()).handoffs
    return ", ".join(f"{number} {status}" for status, number in counts.items() if number)


async def _until_over(client: dhp_client.Client, stage: Stage, telling: Telling) -> None:
    position, moved_at = -1, telling.seconds
    while True:
        stage.check_workers()
        stats = await client.stats()
        if not any(stats.handoffs.get(status) for status in ("pending", "running", "orphaned", "suspended")):
            return
        if stats.position != position:
            position, moved_at = stats.position, telling.seconds
        elif telling.seconds - moved_at > STUCK_AFTER_S:
            telling.at_moment(f"nothing has moved for {STUCK_AFTER_S:.0f} s")
            return
        await asyncio.sleep(LOOK_EVERY_S)


async def _told(client: dhp_client.Client) -> list[Told]:
    """All that the daemon has."""
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        page = await client.list(after=after, limit=PAGE)
        found += [status.handoff for status in page.handoffs]
        after = page.next
    told = []
    for handoff in found:
        result = await client.result(handoff)
        records = msgspec.convert(await whole_history(client, handoff), list[Record])
        told.append(Told(handoff=handoff, status=result.status, result=result.result, records=records))
    return told
