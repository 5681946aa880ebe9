"""The demo's course: daemon, pages, work, a worker that is killed, a standby that finishes, and the evidence.

Owns the order of things and the folder. What is so is said by `report`; what a worker does is in `worker`.
"""

import asyncio
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import dhp_client
from dhp_client.checks import Check, check_lines
from dhp_client.cli.printing import history_lines, json_line
from dhp_client.histories import whole_history
from dhp_client.processes import Child, ChildFailed, Children
from dhp_client.run_folders import fresh_folder

from . import pages
from .dataset import Result, csv_of, result_schema
from .progress import Progress
from .report import Evidence, Request, Takeover, checks, takeover
from .worker import KIND

WORKER = "worker-a"
STANDBY = "worker-b"
_LAST_RECORD_WITHIN_S = 10.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is to be like. `urls`: fetch these instead of the demo's own pages; pages count from 1."""

    folder: Path
    pages: int = 60
    kill_at: int = 20
    graceful: bool = False
    keep: bool = False
    urls: tuple[str, ...] | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run; `address` is the daemon's."""

    all_so: bool
    checks: list[Check]
    takeover: Takeover
    handoff: str
    address: str
    folder: str
    csv: str
    result: dict[str, Any]


class DemoFailed(Exception):
    """The demo couldn't be run to its end; says why."""


async def run(options: Options, progress: Progress) -> Outcome:
    """Runs the demo and tells what happens on the way; the outcome says whether all that it claims is so.

    Raises `DemoFailed` when it can't be carried out.
    """
    try:
        folder = fresh_folder(options.folder)
    except OSError as error:
        raise DemoFailed(f"{options.folder} can't be used ({error.strerror}): give another --folder.") from error
    progress.say(f"Everything of this run is in {folder}")
    async with Children(folder) as children:
        try:
            return await _run(options, progress, children, folder)
        except ChildFailed as error:
            raise DemoFailed(str(error)) from error


async def _run(options: Options, progress: Progress, children: Children, folder: Path) -> Outcome:
    daemon, (address,) = await children.start_daemon(folder / "store", "127.0.0.1:0")
    source = await _start_source(options, children, folder)
    progress.say(f"A daemon of its own at {address}, process {daemon.pid}; {len(source.urls)} pages at {source.where}")
    table = folder / "pages.csv"
    async with dhp_client.connect(address) as client:
        work = await client.dispatch(KIND, {"urls": source.urls}, output_schema=result_schema(len(source.urls)))
        progress.say(f"Dispatched {work.handoff}")
        handed_over = await _hand_over(options, progress, children, address, client, work.handoff, source)
        evidence = await _gather(options, client, work.handoff, source, handed_over, table)
    done = checks(evidence)
    result = (
        {} if evidence.result is None else {name: value for name, value in evidence.result.items() if name != "rows"}
    )
    outcome = Outcome(
        all_so=all(check.ok for check in done),
        checks=done,
        takeover=takeover(evidence),
        handoff=work.handoff,
        address=address,
        folder=str(folder),
        csv=str(table),
        result=result,
    )
    _tell(outcome, evidence, progress)
    if options.keep:
        children.let_go(daemon)
        progress.say(f"\nThe daemon is still up. Look: dhp --connect {address} status {work.handoff}")
        progress.say(f"Stop it: kill {daemon.pid}")
    return outcome


class _HandedOver(msgspec.Struct, frozen=True):
    """Both workers, gone by now; when the first was killed, and when the second had its claim."""

    worker: Child
    standby: Child
    killed_at_ms: int
    claimed_at_ms: int


async def _hand_over(
    options: Options,
    progress: Progress,
    children: Children,
    address: str,
    client: dhp_client.Client,
    handoff: str,
    source: "_Source",
) -> _HandedOver:
    """One worker begins and is killed, the other one finishes."""
    following = asyncio.create_task(_follow(client, handoff, progress))
    try:
        worker = children.start(WORKER, "dhp_client.demo.worker", address, WORKER, source.hold_page)
        await worker.wait_for("claimed")
        standby = children.start(STANDBY, "dhp_client.demo.worker", address, STANDBY)
        await _until_waiting(client, standby)
        await _until_held(source.server or worker, worker)
        killed_at_ms = int(time.time() * 1000)
        worker.send(signal.SIGTERM if options.graceful else signal.SIGKILL)
        how = "SIGTERM" if options.graceful else "kill -9"
        progress.say(f"{how} for {WORKER} in the middle of its request for page {options.kill_at}")
        claimed = await standby.wait_for("claimed")
        await standby.ended()
        await worker.ended()
        await asyncio.wait({following}, timeout=_LAST_RECORD_WITHIN_S)
    finally:
        following.cancel()
        progress.end()
    return _HandedOver(worker, standby, killed_at_ms, claimed["at_ms"])


async def _gather(
    options: Options,
    client: dhp_client.Client,
    handoff: str,
    source: "_Source",
    handed_over: _HandedOver,
    table: Path,
) -> Evidence:
    """All that can be known afterwards; writes the table."""
    status = await client.status(handoff)
    found = (await client.result(handoff)).result
    result = None if found is None else msgspec.convert(found, Result)
    return Evidence(
        urls=source.urls,
        kill_at=options.kill_at,
        graceful=options.graceful,
        worker=WORKER,
        standby=STANDBY,
        worker_exit_code=await handed_over.worker.ended(),
        requests=await source.requests([handed_over.worker, handed_over.standby]),
        records=await whole_history(client, handoff),
        status=status.status,
        seq=status.seq,
        failures=status.failures,
        result=result,
        csv=_written(table, result),
        killed_at_ms=handed_over.killed_at_ms,
        claimed_at_ms=handed_over.claimed_at_ms,
    )


class _Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pages come from: a server of the demo's own, or (`server` None) anywhere."""

    urls: list[str]
    where: str
    server: Child | None
    log: Path
    hold_page: str

    async def requests(self, workers: Sequence[Child]) -> list[Request]:
        """The log of requests: the server's, or else what the workers say."""
        if self.server is not None:
            await self.server.end_by_input()
            lines = [msgspec.json.decode(line) for line in self.log.read_bytes().splitlines()]
        else:
            lines = [said for worker in workers for said in worker.events if said["event"] in ("begun", "finished")]
            self.log.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        return msgspec.convert(lines, list[Request])


async def _start_source(options: Options, children: Children, folder: Path) -> _Source:
    log = folder / "requests.jsonl"
    if options.urls is not None:
        urls = list(options.urls)
        return _Source(urls=urls, where="their own servers", server=None, log=log, hold_page=str(options.kill_at))
    paths = pages.paths(options.pages)
    server = children.start("pages", "dhp_client.demo.pages", str(log), paths[options.kill_at - 1])
    address = (await server.wait_for("ready"))["address"]
    return _Source(urls=[address + path for path in paths], where=address, server=server, log=log, hold_page="0")


async def _follow(client: dhp_client.Client, handoff: str, progress: Progress) -> None:
    """Shows each record as it becomes durable, until the work is over."""
    worker = ""
    async with client.watch(handoff=handoff, after=0) as events:
        async for event in events:
            record = event.record
            match event.type:
                case "claimed":
                    worker = record["worker"]
                    progress.say(f"{worker} has claimed it (fence {record['fence']})")
                case "checkpointed":
                    progress.reached(record["seq"], worker)
                case "orphaned" | "released":
                    progress.say(f"{worker} is gone: {event.type}")
                case "completed" | "cancelled" | "dead":
                    return


async def _until_waiting(client: dhp_client.Client, standby: Child) -> None:
    """Returns once the daemon has the standby's claim in its queue."""
    await standby.wait_for("waiting")
    while not (await client.stats()).waiting_claims:
        await asyncio.sleep(0.02)


async def _until_held(holder: Child, worker: Child) -> None:
    """Returns once the worker's request for the page is on its way and has no answer yet."""
    held, gone = asyncio.create_task(holder.wait_for("held")), asyncio.create_task(worker.ended())
    try:
        await asyncio.wait({held, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not held.done():
            raise DemoFailed(
                f"{worker.name} ended (exit code {gone.result()}) before it was to be killed: see its log."
            )
        await held
    finally:
        held.cancel()
        gone.cancel()


def _written(table: Path, result: Result | None) -> bytes:
    """Writes the data set; what is on disk then."""
    table.write_bytes(csv_of([] if result is None else result["rows"]))
    return table.read_bytes()


def _tell(outcome: Outcome, evidence: Evidence, progress: Progress) -> None:
    progress.say("\nHistory")
    for line in history_lines(evidence.records):
        progress.say("  " + line)
    progress.say(f"\nResult    {json_line(outcome.result)}")
    progress.say(f"Data set  {outcome.csv}")
    ended = "SIGTERM" if evidence.graceful else "kill -9"
    claim_ms, first_page_ms = outcome.takeover.claim_ms, outcome.takeover.first_page_ms
    page = "" if first_page_ms is None else f", {first_page_ms} ms to its first page"
    progress.say(f"Take-over {claim_ms} ms from {ended} to {evidence.standby}'s claim{page}\n")
    for line in check_lines(outcome.checks):
        progress.say(line)
    wrong = sum(not check.ok for check in outcome.checks)
    progress.say("\nAll of it is so." if not wrong else f"\n{wrong} of {len(outcome.checks)} claims are not so.")
