"""A device that hangs: what was given to it doesn't come back, and the service manager's watchdog hears of that by hearing nothing."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess
from tests.support.fault_shim import Calls, FaultShim
from tests.support.manager_socket import ManagerSocket
from tests.support.wire_client import WireClient

WAL = "dhpd.sqlite-wal"
PERIOD_MS = 200
PINGS = 10


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ManagerSocket]:
    with ManagerSocket(tmp_path / "manager", watchdog_ms=PERIOD_MS) as listening:
        yield listening


def test_a_store_that_is_stuck_starves_the_watchdog_and_one_that_fails_doesnt(
    manager: ManagerSocket, shim: FaultShim, tmp_path: Path
) -> None:
    env = {**shim.env, **manager.env}
    no_core = ("sh", "-c", 'ulimit -c 0; exec "$@"', "sh")
    listen = (f"unix:{tmp_path}/s",)
    with (
        DaemonProcess(tmp_path / "data", listen=listen, env=env, wrapper=no_core) as daemon,
        WireClient(daemon.unix) as client,
    ):
        with shim.fails(Calls.SYNC, WAL) as failing:
            client.send("dispatch", kind="a", inputs={})
            while not failing.met:
                time.sleep(0.01)
            manager.waiting()
            for _ in range(3):  # The daemon mends that by itself: a new start would be no help.
                manager.until("WATCHDOG")
        while client.call("health")["status"] != "ok":
            time.sleep(0.01)
        with shim.holds(Calls.SYNC, WAL) as held:
            request = client.send("dispatch", kind="b", inputs={})
            while not held.met:
                time.sleep(0.01)
            manager.waiting()
            for _ in range(PINGS):
                time.sleep(PERIOD_MS / 1000 / 4)
                client.call("ping")  # The loop is well.
            assert [told for told in manager.waiting() if "WATCHDOG" in told][1:] == []
        assert client.reply(request)["ok"], "nothing was lost"
        manager.until("WATCHDOG")
        with shim.holds(Calls.SYNC, WAL) as held:
            client.send("dispatch", kind="c", inputs={})
            while not held.met:
                time.sleep(0.01)
            os.kill(daemon.pid, signal.SIGABRT)  # As the manager does then.
            assert daemon.wait() == -signal.SIGABRT
        assert "Fatal Python error: Aborted" in daemon.stderr
        assert "in append" in daemon.stderr, "the log tells where it hung"
