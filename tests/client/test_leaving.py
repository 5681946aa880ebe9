"""A program that leaves in good order gives back its work, whichever way it leaves; a crash costs an attempt."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import msgspec
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


# SIGTERM with a grace.

SYNC_GRACE = """
dhp_client.exit_on_sigterm(grace_ms={grace_ms})
with dhp_client.sync.connect(address) as client:
    while True:
        with client.claim(kinds=kind, wait_ms=60_000) as task:
            task.checkpoint("begun")
            tell()
            while not task.draining or {goes_on}:
                time.sleep(0.01)
            time.sleep(0.3)
            task.complete("finished")
"""

ASYNC_GRACE = """
dhp_client.exit_on_sigterm(grace_ms={grace_ms})

async def work(client):
    while True:
        task = await client.claim(kinds=kind, wait_ms=60_000)
        if task is None:
            continue
        async with task:
            await task.checkpoint("begun")
            tell()
            await client.until_draining()
            assert task.draining
            while {goes_on}:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            await task.complete("finished")

async def main():
    async with dhp_client.connect(address) as client, asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(work(client))

{run}(main())
"""

THREADS_GRACE = """
import threading
dhp_client.exit_on_sigterm(grace_ms={grace_ms})
client = dhp_client.sync.connect(address)

def work():
    while True:
        task = client.claim(kinds=kind, wait_ms=60_000)
        if not task:
            continue
        with task:
            task.checkpoint("begun")
            tell()
            while not task.draining or {goes_on}:
                time.sleep(0.01)
                if task.lost:
                    return
            time.sleep(0.3)
            task.complete("finished")

threads = [threading.Thread(target=work, daemon={daemon}) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""

GRACES = {
    "sync": SYNC_GRACE,
    "async": ASYNC_GRACE.replace("{run}", "asyncio.run"),
    "uvloop": ASYNC_GRACE.replace("{run}", "import uvloop; uvloop.run"),
    "threads": THREADS_GRACE.replace("{daemon}", "True"),
}


@pytest.mark.parametrize("program", GRACES.values(), ids=GRACES)
def test_what_runs_finishes_within_the_grace_and_nothing_new_is_begun(
    shared_daemon: DaemonProcess, kind: str, program: str
) -> None:
    with sync.connect(shared_daemon.address) as client:
        made = client.dispatch(kind, {})
        worker = start(shared_daemon, kind, program.format(grace_ms=60_000, goes_on=False))
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.15)  # The claims that wait have heard of it by now.
        later = client.dispatch(kind, {"comes": "too late"})
        _, errors = worker.communicate(timeout=20)
        assert worker.returncode == 143, errors
        assert client.result(made.handoff).result == "finished"
        status = client.status(later.handoff)
        assert (status.status, status.attempt) == ("pending", 0)


@pytest.mark.parametrize("twice", [False, True], ids=["the grace is over", "a second signal"])
@pytest.mark.parametrize(
    "program",
    [GRACES["sync"], GRACES["async"], THREADS_GRACE.replace("{daemon}", "False")],
    ids=["sync", "async", "threads that hold up the end"],
)
def test_what_does_not_finish_is_handed_back(
    shared_daemon: DaemonProcess, kind: str, program: str, twice: bool
) -> None:
    with sync.connect(shared_daemon.address) as client:
        made = client.dispatch(kind, {})
        worker = start(shared_daemon, kind, program.format(grace_ms=60_000 if twice else 300, goes_on=True))
        worker.send_signal(signal.SIGTERM)
        if twice:
            time.sleep(0.2)  # Else the two may be taken for one.
            worker.send_signal(signal.SIGTERM)
        _, errors = worker.communicate(timeout=20)
        assert worker.returncode == 143, errors
        status = client.status(made.handoff)
        assert (status.status, status.failures, status.seq) == ("pending", 0, 1)


IDLE = """
dhp_client.exit_on_sigterm(grace_ms=60_000)
client = dhp_client.sync.connect(address)
tell()
client.claim(kinds=kind, wait_ms=60_000)
raise SystemExit("the claim came back, and nothing ended the program")
"""


def test_a_program_without_work_is_left_at_once(shared_daemon: DaemonProcess, kind: str) -> None:
    worker = start(shared_daemon, kind, IDLE)
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=20)
    assert worker.returncode == 143 or "the claim came back" in errors


def test_the_embedded_daemon_outlives_the_grace(tmp_path: Path, kind: str) -> None:
    with sync.connect(tmp_path / "work") as client:
        made = client.dispatch(kind, {})
        code = textwrap.dedent(PROLOGUE) + SYNC_GRACE.format(grace_ms=60_000, goes_on=False)
        command = [sys.executable, "-c", code, str(tmp_path / "work"), kind]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "at work\n"
            os.killpg(worker.pid, signal.SIGTERM)  # As a supervisor does: to the whole group.
            assert worker.wait(20) == 143
        assert client.result(made.handoff).result == "finished"
    os.kill(msgspec.json.decode((tmp_path / "work" / "dhpd.json").read_bytes())["pid"], signal.SIGTERM)


def test_a_daemon_that_drains_is_told_and_one_that_comes_after_it_does_not(daemon: DaemonProcess) -> None:
    with sync.connect(daemon.address) as client:
        client.dispatch("k", {})
        with client.claim(kinds="k") as task:
            assert not client.draining
            assert not client.until_draining(wait_ms=10)
            client.drain()
            assert client.until_draining(wait_ms=20_000)
            assert task.draining
            daemon.restart()
            until_blocking(lambda: not task.draining)
            task.complete(None)
