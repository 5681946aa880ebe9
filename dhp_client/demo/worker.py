"""A worker of the demo, as a process: claims the work, fetches page after page, and checkpoints after each.

What it holds in memory isn't needed by anybody: the last checkpoint is where the next worker goes on. Says what it does
as one JSON line each on standard output. SIGTERM makes it hand the work back at once.
"""

import json
import signal
import sys
import time
from types import FrameType
from typing import Any, NoReturn

import dhp_client
import dhp_client.sync

from .dataset import Row, result_of, row_of, row_without_answer
from .fetching import FetchError, fetch

KIND = "demo.fetch-pages"
WAIT_FOR_WORK_MS = 120_000


class Stopped(SystemExit):
    """SIGTERM has come."""


def main(address: str, name: str, hold_page: str = "0") -> None:
    """Claims one handoff and ends when it is done.

    At page number `hold_page` (from 1) it goes no further than sending the request: whoever wants to kill it in the
    middle of one can take their time.
    """
    signal.signal(signal.SIGTERM, _stop)
    with dhp_client.sync.connect(address, name=name) as client:
        tell("waiting")
        with client.claim(kinds=KIND, worker=name, wait_ms=WAIT_FOR_WORK_MS) as task:
            tell("claimed", fence=task.fence, attempt=task.attempt, was=task.was)
            try:
                work(task, name, int(hold_page))
            except Stopped:
                task.release("told to stop")
                tell("released")
                raise


def work(task: dhp_client.sync.Task, name: str, hold_page: int = 0) -> None:
    """Fetches what is still to be fetched, and completes the task."""
    rows: list[Row] = [] if task.state is None else list(task.state["rows"])
    urls: list[str] = task.inputs["urls"]
    for number, url in enumerate(urls[len(rows) :], start=len(rows) + 1):
        rows.append(_fetch_row(url, name, hold=number == hold_page))
        task.checkpoint({"rows": rows})
    task.complete(result_of(rows))
    tell("completed")


def _fetch_row(url: str, name: str, *, hold: bool) -> Row:
    def on_sent() -> None:
        tell("begun", page=url, worker=name)
        if hold:
            tell("held", page=url, worker=name)
            signal.pause()

    try:
        row = row_of(url, *fetch(url, name, on_sent))
    except FetchError as error:
        row = row_without_answer(url, str(error))
    tell("finished", page=url, worker=name, bytes=row["bytes"], sha256=row["sha256"])
    return row


def tell(event: str, **facts: Any) -> None:
    """Writes one line for whoever started this process."""
    print(json.dumps({"at_ms": int(time.time() * 1000), "event": event, **facts}), flush=True)


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    raise Stopped(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
