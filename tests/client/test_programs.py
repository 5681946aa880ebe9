"""Whole programs: Ctrl-C, worker pools that fork or spawn, many event loops, one after the other and side by side."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from msgspec import Raw

from dhp_client import sync
from dhp_client.spool import Spool
from dhp_client.spool_lines import Head, KeptSpend
from tests.client.test_leaving import PROLOGUE, start
from tests.client.waiting import until_blocking
from tests.support.daemon_process import DaemonProcess

SYNC_BODY = """
with dhp_client.sync.connect(address) as client:
    with client.claim(kinds=kind) as task:
        tell()
        {work}
"""

ASYNC_BODY = """
async def main():
    async with dhp_client.connect(address) as client:
        async with client.claim(kinds=kind) as task:
            tell()
            await {work}

{run}(main())
"""

WAITS_FOR_A_CLAIM = """
client = dhp_client.sync.connect(address)
client.ping()
tell()
with client.claim(kinds=kind, wait_ms=60_000):
    time.sleep(60)
"""


@pytest.mark.parametrize(
    "program",
    [
        SYNC_BODY.format(work="time.sleep(60)"),
        SYNC_BODY.format(work="client.result(task.handoff, wait_ms=60_000)"),
        ASYNC_BODY.format(work="asyncio.sleep(60)", run="asyncio.run"),
        ASYNC_BODY.format(work="client.result(task.handoff, wait_ms=60_000)", run="import uvloop; uvloop.run"),
    ],
    ids=["sync", "sync in a call", "async", "uvloop in a call"],
)
def test_ctrl_c_gives_the_work_back(shared_daemon: DaemonProcess, kind: str, program: str) -> None:
    with sync.connect(shared_daemon.address) as client:
        made = client.dispatch(kind, {})
        worker = start(shared_daemon, kind, program)
        worker.send_signal(signal.SIGINT)
        _, errors = worker.communicate(timeout=20)
        assert "KeyboardInterrupt" in errors
        status = client.status(made.handoff)
        assert (status.status, status.failures) == ("pending", 0)


def test_ctrl_c_while_a_claim_waits_leaves_nothing_claimed(shared_daemon: DaemonProcess, kind: str) -> None:
    with sync.connect(shared_daemon.address) as client:
        worker = start(shared_daemon, kind, WAITS_FOR_A_CLAIM)
        time.sleep(0.2)  # So that it waits, most likely; either way nothing may be left claimed.
        worker.send_signal(signal.SIGINT)
        made = client.dispatch(kind, {})  # At the same moment.
        worker.communicate(timeout=20)
        until_blocking(lambda: client.status(made.handoff).status != "running")
        assert client.status(made.handoff).status in ("pending", "orphaned")


def run(daemon: DaemonProcess, kind: str, program: str, folder: Path) -> str:
    """What the program, as a file of its own, prints; `spawn` imports it again."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(PROLOGUE) + textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), daemon.address, kind], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


POOL = """
import concurrent.futures, multiprocessing

def work(n):
    with dhp_client.sync.connect(address) as own, own.claim(kinds=kind, wait_ms=20_000) as task:
        task.complete(os.getpid())
    return n

def main():
    with dhp_client.sync.connect(address) as client:
        made = [client.dispatch(kind, {{"n": n}}) for n in range(4)]
        mine = client.dispatch(kind + "-mine", {{}})
        with client.claim(mine.handoff, ttl_ms=1_500) as task:
            context = multiprocessing.get_context("{method}")
            with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
                done = list(pool.map(work, range(4)))
            task.complete("mine")
        pids = {{client.result(one.handoff).result for one in made}}
        print(done, os.getpid() in pids, client.status(mine.handoff).attempt)

if __name__ == "__main__":
    import os
    main()
else:
    import os
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes_works_beside_a_lease_of_its_parent(
    shared_daemon: DaemonProcess, kind: str, tmp_path: Path, method: str
) -> None:
    assert run(shared_daemon, kind, POOL.format(method=method), tmp_path) == "[0, 1, 2, 3] False 1\n"


MANY_LOOPS = """
import gc, threading

async def round(n):
    async with dhp_client.connect(address) as client:
        made = await client.dispatch(kind, {"n": n})
        async with client.claim(made.handoff) as task:
            await task.checkpoint(n)
            await task.complete(n)
        return (await client.result(made.handoff)).result

def rounds(numbers, results):
    for n in numbers:
        results.append(asyncio.run(round(n)))

def side_by_side(first):
    results = []
    threads = [threading.Thread(target=rounds, args=(range(k, first + 12, 4), results)) for k in range(first, first + 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results) == list(range(first, first + 12))

def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

import os
one_after_the_other = [asyncio.run(round(n)) for n in (100, 101)]
before = descriptors()
print(one_after_the_other, side_by_side(0), side_by_side(12))
print(descriptors() - before, [thread.name for thread in threading.enumerate()])
"""


def test_event_loops_one_after_the_other_and_side_by_side_share_nothing_and_leave_nothing(
    shared_daemon: DaemonProcess, kind: str, tmp_path: Path
) -> None:
    printed = run(shared_daemon, kind, MANY_LOOPS, tmp_path)
    assert printed == "[100, 101] True True\n0 ['MainThread']\n"


FORKED_IN_A_CALL = """
import os, threading

def main():
    with dhp_client.sync.connect(address) as client:
        made = client.dispatch(kind, {})
        results = []
        waiting = threading.Thread(target=lambda: results.append(client.result(made.handoff, wait_ms=30_000).result))
        waiting.start()
        with client.claim(made.handoff, ttl_ms=1_500) as task:
            pids = []
            for n in range(5):  # While the loop's thread is in the middle of whatever it does.
                saving = threading.Thread(target=task.checkpoint, args=(n,))
                saving.start()
                pid = os.fork()
                if pid == 0:
                    with dhp_client.sync.connect(address) as own:
                        own.ping()
                    os._exit(0)
                pids.append(pid)
                saving.join()
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            task.complete("done")
        waiting.join()
        print(results, codes, client.status(made.handoff).seq)

main()
"""


def test_a_fork_in_the_middle_of_calls_hurts_neither_side(
    shared_daemon: DaemonProcess, kind: str, tmp_path: Path
) -> None:
    assert run(shared_daemon, kind, FORKED_IN_A_CALL, tmp_path) == "['done'] [0, 0, 0, 0, 0] 5\n"


def test_a_forked_child_does_not_keep_its_parents_spool_file(tmp_path: Path) -> None:
    spool, nobody = Spool(tmp_path / "spool"), os.getpid()
    head = Head(handoff="a" * 64, kind="k", worker="", fence=1, seq=0, sha256=None, unanswered=[], at="", pid=nobody)
    file = spool.keep(None, head, KeptSpend(usd=Raw(b"1"), steps=1, nonce="n"))
    assert spool.left_of("a" * 64) == [], "its process lives"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        file.close()
        [left] = spool.left_of("a" * 64)
        left.close()
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the child lives still"
    finally:
        os.close(writing)
        os.waitpid(child, 0)
        os.close(reading)
