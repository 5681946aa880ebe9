"""An event loop that doesn't run is named in a warning, once, with the place where it is; a paused process isn't."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

import dhp_client
from dhp_client.loop_watch import LoopWatch
from tests.client.waiting import until
from tests.support.daemon_process import DaemonProcess


def looks(watch: LoopWatch, *times_ms: float) -> list[float | None]:
    return [watch.look(now_ms)[1] for now_ms in times_ms]


def test_a_loop_that_does_not_answer_is_told_of_once_until_it_does() -> None:
    watch = LoopWatch(2_000)
    assert looks(watch, 0, 500, 1_000, 1_500) == [None] * 4
    assert looks(watch, 2_000, 2_500, 9_000) == [2_000, None, None]
    watch.answer()
    assert watch.look(9_500) == (True, None)
    assert looks(watch, *range(10_000, 11_500, 500)) == [None] * 3
    assert watch.look(11_500) == (False, 2_000)


def test_a_loop_that_answers_is_asked_again_and_never_told_of() -> None:
    watch = LoopWatch(2_000)
    for n in range(50):
        assert watch.look(500 * n) == (True, None)
        watch.answer()


def test_the_time_in_which_the_watcher_did_not_run_either_does_not_count() -> None:
    watch = LoopWatch(2_000)
    assert looks(watch, 0, 500, 3_600_000) == [None] * 3  # Stopped, asleep, or another's turn.
    watch.answer()
    assert looks(watch, 3_600_100, 3_600_600) == [None] * 2


def test_the_time_in_which_nothing_was_held_does_not_count() -> None:
    watch = LoopWatch(2_000)
    assert looks(watch, 0, 500, 1_000, 1_500) == [None] * 4
    watch.rest()
    assert looks(watch, 1_900, 2_400) == [None] * 2


def blocks_the_loop(seconds: float) -> None:
    time.sleep(seconds)


async def test_the_warning_names_the_place_and_comes_once_each_time(
    shared_daemon: DaemonProcess, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if "hasn't run" in record.getMessage()]

    async with dhp_client.connect(shared_daemon.address, blocked_loop_ms=200) as client:
        await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            await until(lambda: client._session.keepalive._watch._asked)  # type: ignore[union-attr]
            for times in (1, 2):
                while len(told()) < times:
                    blocks_the_loop(0.5)
                await asyncio.sleep(0.3)
                assert len(told()) == times
            assert f"blocks_the_loop ({__file__}:" in told()[0]
            assert not task.lost
            await task.complete(None)
    assert all(record.levelno == logging.WARNING for record in caplog.records if "hasn't run" in record.getMessage())


STOPPED = """
import asyncio, logging, sys, dhp_client

async def main():
    async with dhp_client.connect(sys.argv[1], blocked_loop_ms=200) as client:
        await client.dispatch(sys.argv[2], {})
        async with client.claim(kinds=sys.argv[2], ttl_ms=60_000) as task:
            while not client._session.keepalive._watch._asked:
                await asyncio.sleep(0.01)
            print("stop me", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            await asyncio.sleep(0.3)
            await task.complete(None)

logging.basicConfig(level=logging.WARNING)
asyncio.run(main())
"""


def test_a_process_that_was_stopped_is_no_blocked_loop(shared_daemon: DaemonProcess, kind: str) -> None:
    command = [sys.executable, "-c", STOPPED, shared_daemon.address, kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "stop me\n"
        worker.send_signal(signal.SIGSTOP)
        os.waitpid(worker.pid, os.WUNTRACED)
        time.sleep(1.0)
        worker.send_signal(signal.SIGCONT)
        _, errors = worker.communicate("\n", timeout=20)
    assert (worker.returncode, errors) == (0, "")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"blocked_loop_ms": 0}, "blocked_loop_ms must be 1 or more; None: no warning"),
        ({"blocked_loop_ms": "2"}, "blocked_loop_ms must be an int of milliseconds"),
        ({"retry_ms": None}, "retry_ms must be an int of milliseconds"),
        ({"in_doubt_ms": 1.5}, "in_doubt_ms must be an int of milliseconds"),
        ({"max_spool_bytes": "1 GB"}, "max_spool_bytes must be an int"),
    ],
)
def test_times_that_mean_nothing_are_refused_before_anything_is_connected(given: dict[str, Any], said: str) -> None:
    for connect in (dhp_client.connect, dhp_client.sync.connect):
        with pytest.raises((TypeError, ValueError), match=said):
            connect("tcp://127.0.0.1:1", **given)
