"""`connect("./dir")`: a private daemon, started when none runs."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import dhp_client
from dhp_client import embedded, sync
from dhp_client.addresses import UnixAddress
from tests.client.fake_daemon import FakeDaemon
from tests.client.waiting import until, until_async, until_blocking
from tests.support.daemon_process import DaemonProcess


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory whose daemon is gone after the test."""
    directory = tmp_path / "work"
    yield directory
    stop(directory)


def stop(directory: Path) -> None:
    if (directory / "dhpd.json").exists():
        pid = daemon_pid(directory)
        os.kill(pid, signal.SIGKILL)
        until_blocking(lambda: gone(pid))


def daemon_pid(directory: Path) -> int:
    return int(json.loads((directory / "dhpd.json").read_bytes())["pid"])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


def leave_daemon_file(directory: Path, pid: int) -> None:
    directory.mkdir()
    told = {"pid": pid, "addresses": [f"unix:{directory}/dhpd.sock"]}
    (directory / "dhpd.json").write_text(json.dumps(told))


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """As a daemon holds it that isn't ready yet."""
    directory.mkdir(mode=0o700)
    with (directory / "dhpd.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def gone(pid: int) -> bool:
    embedded._reap()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_daemon_is_started_and_used_and_outlives_the_client(directory: Path) -> None:
    async with dhp_client.connect(directory) as client:
        made = await client.dispatch("k", {})
    pid = daemon_pid(directory)
    async with dhp_client.connect(str(directory)) as client:
        assert (await client.status(made.handoff)).status == "pending"
    assert daemon_pid(directory) == pid
    assert mode(directory) == 0o700


async def test_it_is_in_a_session_of_its_own_so_that_ctrl_c_does_not_take_it_along(directory: Path) -> None:
    async with dhp_client.connect(directory):
        pid = daemon_pid(directory)
        assert os.getsid(pid) == pid != os.getsid(0)
        command = command_of(pid)
        assert command[command.index("--idle-exit-ms") + 1] == "600000"


async def test_many_that_come_at_the_same_time_get_one_daemon(directory: Path) -> None:
    program = "import sys\nfrom dhp_client import sync\nprint(sync.connect(sys.argv[1]).health().uptime_ms >= 0)"
    starters = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(directory), stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    outputs = await asyncio.gather(*(starter.communicate() for starter in starters))
    assert [output for output, _ in outputs] == [b"True\n"] * 4
    assert (directory / "dhpd.log").read_text().count("dhpd ready") == 1


async def test_after_a_kill_stale_files_are_recognised_and_work_goes_on(directory: Path) -> None:
    async with dhp_client.connect(directory) as client:
        made = await client.dispatch("k", {})
        async with client.claim(kinds="k", ttl_ms=5_000) as task:
            await task.checkpoint(1)
            killed = daemon_pid(directory)
            os.kill(killed, signal.SIGKILL)
            assert (directory / "dhpd.json").exists()
            await task.checkpoint(2)
            assert daemon_pid(directory) != killed
            await task.complete("done")
        assert (await client.result(made.handoff)).result == "done"


async def test_a_file_that_names_a_living_stranger_is_stale_all_the_same(directory: Path) -> None:
    leave_daemon_file(directory, os.getpid())
    async with dhp_client.connect(directory) as client:
        await client.ping()
        assert daemon_pid(directory) != os.getpid()


async def test_a_daemon_that_was_started_by_hand_is_used(daemon: DaemonProcess) -> None:
    async with dhp_client.connect(daemon.data) as client:
        await client.ping()
    assert not (daemon.data / "dhpd.log").exists()


def test_the_place_of_a_killed_daemon_with_settings_of_its_own_is_kept_for_it(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", listen=["127.0.0.1:0", f"unix:{tmp_path}/data/dhpd.sock"]) as served:
        with sync.connect(served.data) as client:
            served.kill()
            with pytest.raises(dhp_client.DaemonNotStarted, match=f"{served.tcp} is gone.*start dhpd again"):
                sync.connect(served.data)
            served.start()
            client.ping()
        served.kill()
        (served.data / "dhpd.json").unlink()  # As it says.
        with sync.connect(served.data) as client:
            client.ping()
        stop(served.data)


@pytest.fixture
def short_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where sockets go that have no room in their own directory."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


async def test_a_directory_with_a_very_long_name_works(short_folder: Path, tmp_path: Path) -> None:
    directory = tmp_path / ("long-" * 30)
    async with dhp_client.connect(directory) as client:
        await client.ping()
        address = embedded.locate(directory)
        assert isinstance(address, UnixAddress)
        assert Path(address.path).parent == short_folder / f"dhp-{os.getuid()}"
        assert mode(Path(address.path).parent) == 0o700
    stop(directory)


def test_a_folder_for_sockets_that_others_can_write_to_is_refused(short_folder: Path, tmp_path: Path) -> None:
    private = short_folder / f"dhp-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)
    with pytest.raises(dhp_client.BadAddress, match="yours alone"):
        sync.connect(tmp_path / ("long-" * 30))


async def test_a_relative_directory_stays_the_same_after_a_chdir(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with dhp_client.connect("./work") as client:
        await client.ping()
        monkeypatch.chdir("/")
        os.kill(daemon_pid(directory), signal.SIGKILL)
        await client.ping()
        assert embedded.locate(directory)


def test_the_default_is_the_directory_dhp_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DHP_CONNECT", raising=False)
    with sync.connect() as client:
        client.ping()
    stop(tmp_path / ".dhp")


async def test_a_daemon_that_does_not_start_is_told_with_the_end_of_its_log(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "IDLE_EXIT_MS", "not-a-number")
    with pytest.raises(dhp_client.DaemonNotStarted, match=r"(?s)exit code 2.*idle-exit-ms"):
        await dhp_client.connect(directory)


async def test_a_lease_is_lost_soon_when_its_process_is_gone(directory: Path) -> None:
    program = """
import sys, os
from dhp_client import sync
client = sync.connect(sys.argv[1])
task = client.claim(kinds="k", ttl_ms=60_000)
os.kill(os.getpid(), 9)
"""
    async with dhp_client.connect(directory) as client:
        made = await client.dispatch("k", {})
        worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(directory))
        assert await worker.wait() == -signal.SIGKILL

        async def orphaned() -> bool:
            return (await client.status(made.handoff)).status == "orphaned"

        await until_async(orphaned)


async def test_a_daemon_that_takes_long_to_start_is_left_to_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as impatient:
        impatient.setattr(embedded, "START_TIMEOUT_MS", 0)
        with pytest.raises(dhp_client.DaemonNotStarted, match="still starting"):
            await dhp_client.connect(directory)
    await until((directory / "dhpd.json").exists)
    async with dhp_client.connect(directory) as client:
        await client.ping()
    assert (directory / "dhpd.log").read_text().count("dhpd ready") == 1


async def test_a_daemon_that_holds_the_directory_and_is_not_ready_yet_is_waited_for(
    directory: Path, fake: FakeDaemon
) -> None:
    with held(directory):
        connecting = asyncio.ensure_future(dhp_client.connect(directory).__aenter__())
        log = directory / "dhpd.log"
        await until(lambda: log.exists() and "Another dhpd" in log.read_text())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(connecting), 0.5)
        (directory / "dhpd.json").write_text(json.dumps({"pid": os.getpid(), "addresses": [fake.address]}))
        client = await connecting
        await client.ping()
        await client.close()
    (directory / "dhpd.json").unlink()  # It names this process, which isn't to be stopped with the directory.
