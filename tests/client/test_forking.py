"""A forked child holds nothing of its parent's client, and the parent doesn't notice it."""

import os
import subprocess
import sys
import textwrap

import dhp_client
from tests.client.waiting import until_blocking
from tests.support.daemon_process import DaemonProcess

PROLOGUE = """
import asyncio, os, socket, sys, time
import dhp_client, dhp_client.sync
address, kind = sys.argv[1:3]

def sockets_to_the_daemon():
    port = int(address.rpartition(":")[2])
    return sum(peer_port(int(name)) == port for name in os.listdir("/proc/self/fd"))

def peer_port(descriptor):
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            return copy.getpeername()[1]
    except (OSError, IndexError):
        return None
"""


def run(daemon: DaemonProcess, kind: str, program: str) -> str:
    code = textwrap.dedent(PROLOGUE) + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", code, daemon.address, kind], capture_output=True, text=True, timeout=40, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_child_gets_client_closed_and_the_parent_goes_on(shared_daemon: DaemonProcess, kind: str) -> None:
    output = run(
        shared_daemon,
        kind,
        """
        async def main():
            async with dhp_client.connect(address) as client:
                await client.dispatch(kind, {})
                async with client.claim(kinds=kind, ttl_ms=800) as task:
                    await task.checkpoint(1)
                    while sockets_to_the_daemon() < 2:
                        await asyncio.sleep(0.01)
                    pid = os.fork()
                    if pid == 0:
                        in_child(client, task)
                        print("held:", sockets_to_the_daemon(), flush=True)
                        os._exit(0)
                    os.waitpid(pid, 0)
                    await asyncio.sleep(1.7)
                    await task.checkpoint(2)
                    await task.complete("done")
                print((await client.result(task.handoff)).result, task.attempt, task.fence)

        def in_child(client, task):
            for make in (client.ping, lambda: task.checkpoint(3)):
                coroutine = make()
                try:
                    coroutine.send(None)
                except dhp_client.ClientClosed as error:
                    print("ClientClosed:", error, flush=True)

        asyncio.run(main())
        """,
    )
    lines = output.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["ClientClosed", "ClientClosed"]
    assert "forked" in lines[0]
    assert lines[2:] == ["held: 0", "done 1 1"]


def test_a_connection_that_its_thread_has_only_just_opened_is_let_go_of_too(
    shared_daemon: DaemonProcess, kind: str
) -> None:
    output = run(
        shared_daemon,
        kind,
        """
        from dhp_client.addresses import parse_addresses
        from dhp_client.blocking import connect_blocking

        opened = connect_blocking(parse_addresses(address)[0], 5_000)  # No client knows of it yet.
        pid = os.fork()
        if pid == 0:
            print("held:", sockets_to_the_daemon(), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        print("still held:", sockets_to_the_daemon())
        """,
    )
    assert output.splitlines() == ["held: 0", "still held: 1"]


def test_the_sync_client_of_the_parent_is_closed_in_the_child_which_can_connect_anew(
    shared_daemon: DaemonProcess, kind: str
) -> None:
    output = run(
        shared_daemon,
        kind,
        """
        with dhp_client.sync.connect(address) as client:
            client.dispatch(kind, {})
            with client.claim(kinds=kind, ttl_ms=500) as task:
                pid = os.fork()
                if pid == 0:
                    try:
                        client.ping()
                    except dhp_client.ClientClosed:
                        print("closed", flush=True)
                    with dhp_client.sync.connect(address) as own:
                        print(own.status(task.handoff).status, flush=True)
                    sys.exit(7)  # Leaves both blocks, and changes nothing by it.
                print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                time.sleep(1.0)
                task.checkpoint(1)
                task.complete("done")
            print(client.result(task.handoff).result)
        """,
    )
    assert output.splitlines() == ["closed", "running", "7", "done"]


def test_a_child_that_lives_on_does_not_keep_its_dead_parents_lease(shared_daemon: DaemonProcess, kind: str) -> None:
    output = run(
        shared_daemon,
        kind,
        """
        async def main():
            client = await dhp_client.connect(address)
            made = await client.dispatch(kind, {})
            task = await client.claim(kinds=kind, ttl_ms=60_000)
            pid = os.fork()
            if pid == 0:
                for standard in (0, 1, 2):
                    os.close(standard)
                time.sleep(30)
                os._exit(0)
            print(made.handoff, pid, flush=True)
            os._exit(0)

        asyncio.run(main())
        """,
    )
    handoff, child = output.split()
    try:
        with dhp_client.sync.connect(shared_daemon.address) as client:
            until_blocking(lambda: client.status(handoff).status == "orphaned")
        os.kill(int(child), 0)  # It lives still, or this raises.
    finally:
        os.kill(int(child), 9)
