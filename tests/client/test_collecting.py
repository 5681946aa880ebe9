"""The garbage collector runs finalizers in the middle of anything, in any thread: the client stands it."""

import subprocess
import sys

import pytest

from tests.support.daemon_process import DaemonProcess

COLLECTED_UNDER_THE_LOCK = """
import asyncio, gc, sys, dhp_client

async def main():
    gc.disable()
    client = await dhp_client.connect(sys.argv[1])
    await client.dispatch(sys.argv[2], {})
    task = await client.claim(kinds=sys.argv[2])
    task.itself = task
    del task
    leases = client._session.leases

    def collect(low, high):
        gc.collect()
        return low

    leases._uniform = collect
    leases.beat(0.0)
    print("beaten", flush=True)
    await client.close()

asyncio.run(main())
"""

FINALIZERS_AT_EVERY_STEP = """
import asyncio, os, sys, threading
from dhp_client.addresses import parse_addresses
from dhp_client.clock import monotonic_ms
from dhp_client.keepalive import KeepAlive
from dhp_client.leases import Lease, LeaseTable
from dhp_protocol.messages import Hello

def lease(digit):
    deadline_ms = monotonic_ms() + 60_000
    return Lease(handoff=digit * 64, fence=1, ttl_ms=60, heartbeat_ms=20, in_doubt_ms=1, deadline_ms=deadline_ms)

table, dropped, enough, steps = LeaseTable(), lease("0"), threading.Event(), 0
table.add(lease("1"))
hello = Hello(client="", session=sys.argv[2])
keepalive = KeepAlive(parse_addresses(sys.argv[1]), table, hello=hello, loop=asyncio.new_event_loop())

def finalize(frame, event, argument):
    global steps
    keepalive.poke()
    table.forget(dropped)
    steps += 1
    if steps == 20_000:
        enough.set()

threading.setprofile(finalize)
keepalive.start()
print("went on" if enough.wait(20) else "hung", flush=True)
os._exit(0)
"""


def output(program: str, *arguments: str) -> str:
    ended = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_task_that_is_collected_while_a_heartbeat_is_made_up_hangs_nothing(
    shared_daemon: DaemonProcess, kind: str
) -> None:
    assert output(COLLECTED_UNDER_THE_LOCK, shared_daemon.address, kind) == "beaten\n"


@pytest.mark.parametrize("reachable", [True, False])
def test_no_finalizer_hangs_the_keep_alive_thread_wherever_it_is(
    shared_daemon: DaemonProcess, kind: str, reachable: bool
) -> None:
    address = shared_daemon.address if reachable else "tcp://127.0.0.1:1"
    assert output(FINALIZERS_AT_EVERY_STEP, address, kind) == "went on\n"
