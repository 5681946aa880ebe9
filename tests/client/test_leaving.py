"""A program that leaves in good order gives back its work, whichever way it leaves; a crash costs an attempt."""

import signal
import subprocess
import sys
import textwrap

import pytest

from dhp_client import sync
from tests.client.waiting import until_blocking
from tests.support.daemon_process import DaemonProcess

PROLOGUE = """
import asyncio, sys, time
import dhp_client, dhp_client.sync
address, kind = sys.argv[1:3]

def tell():
    print("at work", flush=True)
"""

SYNC_BLOCK = """
dhp_client.exit_on_sigterm()
with dhp_client.sync.connect(address) as client:
    with client.claim(kinds=kind) as task:
        tell()
        time.sleep(30)
"""

ASYNC_BLOCK = """
dhp_client.exit_on_sigterm()

async def main():
    async with dhp_client.connect(address) as client:
        async with client.claim(kinds=kind) as task:
            tell()
            await {waiting}

{run}(main())
"""

TASK_GROUP = """
dhp_client.exit_on_sigterm()

async def work(client):
    async with client.claim(kinds=kind) as task:
        tell()
        await asyncio.sleep(30)

async def main():
    async with dhp_client.connect(address) as client, asyncio.TaskGroup() as group:
        group.create_task(work(client))

asyncio.run(main())
"""


def start(daemon: DaemonProcess, kind: str, program: str) -> "subprocess.Popen[str]":
    code = textwrap.dedent(PROLOGUE) + textwrap.dedent(program)
    command = [sys.executable, "-c", code, daemon.address, kind]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    line = worker.stdout.readline()
    assert line == "at work\n", worker.communicate()
    return worker


@pytest.mark.parametrize("signals", [1, 3], ids=["once", "several times"])
@pytest.mark.parametrize(
    "program",
    [
        SYNC_BLOCK,
        ASYNC_BLOCK.format(waiting="asyncio.sleep(30)", run="asyncio.run"),
        ASYNC_BLOCK.format(waiting="client.result(task.handoff, wait_ms=30_000)", run="asyncio.run"),
        ASYNC_BLOCK.format(waiting="asyncio.sleep(30)", run="import uvloop; uvloop.run"),
        TASK_GROUP,
    ],
    ids=["sync", "async", "async in a call", "uvloop", "task group"],
)
def test_sigterm_costs_no_attempt(shared_daemon: DaemonProcess, kind: str, program: str, signals: int) -> None:
    with sync.connect(shared_daemon.address) as client:
        made = client.dispatch(kind, {})
        worker = start(shared_daemon, kind, program)
        for _ in range(signals):
            worker.send_signal(signal.SIGTERM)
        _, errors = worker.communicate(timeout=20)
        assert (worker.returncode, errors) == (143, "")
        status = client.status(made.handoff)
        assert (status.status, status.failures) == ("pending", 0)


SYNC_WITHOUT_BLOCK = """
client = dhp_client.sync.connect(address)
task = client.claim(kinds=kind, detached={detached})
tell()
{rest}
"""

IN_A_FUNCTION = """
def work():
    client = dhp_client.sync.connect(address)
    task = client.claim(kinds=kind)
    tell()

work()
"""

ASYNC_WITHOUT_BLOCK = """
async def main():
    client = await dhp_client.connect(address)
    task = await client.claim(kinds=kind)
    {keep}
    tell()
    {rest}

asyncio.run(main())
"""

KEEP = "globals().update(kept=(client, task))"


@pytest.mark.parametrize(
    "program",
    [
        SYNC_WITHOUT_BLOCK.format(rest="", detached=False),
        SYNC_WITHOUT_BLOCK.format(rest="sys.exit(3)", detached=False),
        IN_A_FUNCTION,
        ASYNC_WITHOUT_BLOCK.format(keep="", rest=""),
        ASYNC_WITHOUT_BLOCK.format(keep=KEEP, rest=""),
        ASYNC_WITHOUT_BLOCK.format(keep=KEEP, rest="sys.exit(3)"),
    ],
    ids=["sync", "sync exit", "sync forgotten", "async forgotten", "async", "async exit"],
)
def test_the_programs_end_gives_back_what_no_block_has(shared_daemon: DaemonProcess, kind: str, program: str) -> None:
    with sync.connect(shared_daemon.address) as client:
        made = client.dispatch(kind, {})
        start(shared_daemon, kind, program).communicate(timeout=20)
        status = client.status(made.handoff)
        assert (status.status, status.failures) == ("pending", 0)


@pytest.mark.parametrize(
    "program",
    [
        SYNC_WITHOUT_BLOCK.format(rest="raise ValueError", detached=False),
        ASYNC_WITHOUT_BLOCK.format(keep="", rest="raise ValueError"),
    ],
    ids=["sync", "async"],
)
def test_a_crash_without_a_block_costs_an_attempt(shared_daemon: DaemonProcess, kind: str, program: str) -> None:
    with sync.connect(shared_daemon.address) as client:
        made = client.dispatch(kind, {})
        start(shared_daemon, kind, program).communicate(timeout=20)
        until_blocking(lambda: client.status(made.handoff).status == "orphaned")
        assert client.status(made.handoff).failures == 1


def test_a_detached_claim_outlives_the_program(shared_daemon: DaemonProcess, kind: str) -> None:
    with sync.connect(shared_daemon.address) as client:
        made = client.dispatch(kind, {})
        start(shared_daemon, kind, SYNC_WITHOUT_BLOCK.format(rest="", detached=True)).communicate(timeout=20)
        assert client.status(made.handoff).status == "running"
        client.cancel(made.handoff)
