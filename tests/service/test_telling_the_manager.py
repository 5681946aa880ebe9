"""What a daemon tells whoever started it as a service: a real process, and a socket in the manager's place."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from dhpd.config import Config
from dhpd.server import daemon as daemon_module
from dhpd.server.directory import DataDirectory
from dhpd.server.running import CannotRun, serve
from dhpd.systemd.long_start import given_time
from dhpd.systemd.manager import Manager
from dhpd.systemd.watchdog import feed
from dhpd.token_file import add_token
from tests.support.daemon_process import DaemonProcess
from tests.support.manager_socket import ManagerSocket
from tests.support.wire_client import WireClient


def test_it_tells_that_it_is_ready_alive_reloading_and_stopping(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    add_token(tokens, "first", ["worker"])
    listen = (f"unix:{tmp_path}/s",)
    with ManagerSocket(tmp_path / "manager", watchdog_ms=400) as manager:
        env = {**manager.env, "DHPD_DRAIN_GRACE_MS": "60000"}
        with DaemonProcess(tmp_path / "data", listen=listen, arguments=("--tokens", str(tokens)), env=env) as daemon:
            assert manager.next() == {"STATUS": "Opening the store."}
            assert manager.next() == {"STATUS": "Loading what is live."}
            ready = manager.next()
            assert ready["READY"] == "1"
            assert ready["STATUS"] == f"ok: 0 running, 0 pending, 0 dead; 0 connections; {daemon.unix}"
            for _ in range(2):  # Although nothing happens.
                manager.until("WATCHDOG")

            before_us = time.monotonic_ns() // 1000
            os.kill(daemon.pid, signal.SIGHUP)
            reloading = manager.until("RELOADING")
            assert before_us <= int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
            assert manager.until("READY")["STATUS"].startswith("ok: ")

            good = tokens.read_text()
            tokens.write_text("nonsense")
            os.kill(daemon.pid, signal.SIGHUP)
            manager.until("RELOADING")
            assert "isn't TOML" in (refused := manager.until("READY")["STATUS"])
            assert "The tokens from before stay in force. ok: " in refused
            tokens.write_text(good)
            os.kill(daemon.pid, signal.SIGHUP)
            manager.until("RELOADING")
            assert manager.until("READY")["STATUS"].startswith("ok: ")

            with WireClient(daemon.unix) as client:
                client.dispatch()
                fence = client.claim()
                while "1 running, 0 pending, 0 dead; 1 connections" not in manager.until("STATUS")["STATUS"]:
                    pass
                os.kill(daemon.pid, signal.SIGTERM)
                stopping = manager.until("STOPPING")
                assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 60_000_000, "as long as the grace, and more"
                manager.until("WATCHDOG")  # While the grace lasts.
                client.call("complete", handoff=fence["handoff"], fence=fence["fence"], result=1)
            manager.until("STOPPING")
            assert daemon.wait() == 0
            assert "Traceback" not in daemon.stderr


def test_the_managers_variables_are_taken_out_of_the_environment() -> None:
    environment = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid()), "A": "b"}
    manager = Manager.taken_from(environment)
    assert (manager.listens, manager.watchdog_s, environment) == (True, 3.0, {"A": "b"})
    manager.alive()  # That nobody is there is no concern of the daemon's.
    manager.ready("")


@pytest.mark.parametrize(
    ("environment", "listens", "watchdog_s"),
    [
        ({}, False, None),
        ({"WATCHDOG_USEC": "3000000"}, False, None),
        ({"NOTIFY_SOCKET": "vsock:2:1"}, False, None),
        ({"NOTIFY_SOCKET": "@abstract"}, True, None),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, True, None),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "soon"}, True, None),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "0"}, True, None),
    ],
)
def test_what_no_manager_has_asked_for_isnt_done(
    environment: dict[str, str], listens: bool, watchdog_s: float | None
) -> None:
    manager = Manager.taken_from(environment)
    assert (manager.listens, manager.watchdog_s) == (listens, watchdog_s)


class Worker:
    def __init__(self) -> None:
        self.steps = 0
        self.owes = False


class FedWatchdog:
    """Runs `feed` on workers that a test moves."""

    def __init__(self, manager: ManagerSocket) -> None:
        self.manager = manager
        self.workers = (Worker(), Worker())
        self.probe_comes_back = asyncio.Event()
        self.probe_comes_back.set()
        self.fed = 0
        told = Manager(manager.env["NOTIFY_SOCKET"], watchdog_s=0.04)
        self.task = asyncio.create_task(feed(told, self.workers, self.probe_comes_back.wait, lambda: "so"))

    async def is_fed(self) -> bool:
        """Whether it is, in ten of its periods."""
        self.manager.waiting()
        await asyncio.sleep(0.4)
        return {"WATCHDOG": "1"} in self.manager.waiting()


async def test_the_watchdog_starves_when_any_of_those_who_work_is_stuck(tmp_path: Path) -> None:
    with ManagerSocket(tmp_path / "manager", watchdog_ms=40) as manager:
        watchdog = FedWatchdog(manager)
        assert await watchdog.is_fed()
        for worker in watchdog.workers:
            worker.owes = True
            assert not await watchdog.is_fed(), "it owes something, and does nothing"
            worker.steps += 1
            worker.owes = False
            assert await watchdog.is_fed()
        watchdog.probe_comes_back.clear()
        assert not await watchdog.is_fed(), "a read doesn't come back"
        watchdog.probe_comes_back.set()
        assert await watchdog.is_fed()
        watchdog.task.cancel()


def test_a_start_that_gets_on_has_time_and_one_that_hangs_has_none(tmp_path: Path) -> None:
    with ManagerSocket(tmp_path / "manager", watchdog_ms=40) as socket:
        manager = Manager(socket.env["NOTIFY_SOCKET"])
        with given_time(manager, look_every_s=0.1):
            while not socket.waiting():
                sum(range(10_000))
        socket.waiting()
        with given_time(manager, look_every_s=0.1):
            time.sleep(0.35)
        assert socket.waiting() == []


async def test_a_daemon_that_cant_feed_its_watchdog_any_more_says_why_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("no figures")

    monkeypatch.setattr(daemon_module, "feed", broken)
    directory = DataDirectory(tmp_path)
    directory.hold()
    try:
        with pytest.raises(CannotRun, match="no figures"):
            await serve(Config(listen=[f"unix:{tmp_path}/s"]), directory, None, None, Manager("/nowhere"))
    finally:
        directory.give_up()
