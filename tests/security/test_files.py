"""What lies on the disk is its owner's alone, whatever the umask, and whatever was there before."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import dhp_client.sync
from dhpd.server.directory import DataDirectory, DirectoryInUse
from tests.daemon.test_start_and_stop import assert_refuses, dhpd
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

ANOTHER_USER = 54_321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def with_umask(mask: str) -> list[str]:
    return ["bash", "-c", f'umask {mask}; exec "$@"', "--"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def assert_private(directory: Path) -> None:
    assert mode(directory) == 0o700
    modes = {path.name: mode(path) for path in directory.iterdir()}
    assert {"dhpd.sqlite", "dhpd.sqlite-wal", "dhpd.sqlite-shm", "dhpd.lock", "dhpd.json"} <= modes.keys()
    assert set(modes.values()) == {0o600}, modes


def work(daemon: DaemonProcess) -> None:
    with WireClient(daemon.unix) as client:
        client.dispatch()


@pytest.mark.parametrize("mask", ["0000", "0777"])
def test_nobody_else_can_read_what_the_daemon_writes(tmp_path: Path, mask: str) -> None:
    data = tmp_path / "data"
    listen = (f"unix:{data}/dhpd.sock", f"unix:{tmp_path}/elsewhere.sock")
    with DaemonProcess(data, listen=listen, wrapper=with_umask(mask)) as daemon:
        work(daemon)
        assert_private(data)
        assert mode(tmp_path / "elsewhere.sock") == 0o600
        command = [
            *with_umask(mask),
            sys.executable,
            "-m",
            "dhpd",
            "backup",
            str(tmp_path / "copy"),
            "--data",
            str(data),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        assert mode(tmp_path / "copy") == 0o600


def test_nobody_else_can_read_what_the_embedded_daemon_and_its_starter_write(tmp_path: Path) -> None:
    program = 'import dhp_client.sync; dhp_client.sync.connect("data").dispatch("work", {})'
    env = {**os.environ, "DHP_TOKEN": "dhp_for_somebody_else"}
    subprocess.run([*with_umask("0"), sys.executable, "-c", program], cwd=tmp_path, env=env, check=True, timeout=60)
    with dhp_client.sync.connect(tmp_path / "data") as client:
        assert client.list().handoffs
    assert_private(tmp_path / "data")
    pid = int((tmp_path / "data" / "dhpd.lock").read_text())
    told = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
    os.kill(pid, 15)
    assert b"DHP_TOKEN" not in told
    assert b"somebody_else" not in told


def test_a_directory_that_was_open_to_others_is_closed_with_all_in_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with DaemonProcess(data, listen=(f"unix:{data}/dhpd.sock",)) as daemon:
        work(daemon)
        daemon.kill()
        for path in data.iterdir():
            path.chmod(0o666)
        data.chmod(0o777)
        (data / "notes.txt").touch()
        (data / "notes.txt").chmod(0o644)
        daemon.start()
        work(daemon)
        assert mode(data / "notes.txt") == 0o644, "what isn't the daemon's is left as it is"
        (data / "notes.txt").unlink()
        assert_private(data)


def test_a_file_that_a_daemon_takes_along_as_it_ends_is_no_reason_to_refuse_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dhpd.sqlite-wal").touch()

    def gone_since(path: Path) -> list["os.DirEntry[str]"]:
        found = list(scandir(path))
        (tmp_path / "dhpd.sqlite-wal").unlink()
        return found

    scandir = os.scandir
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", gone_since)
        held = DataDirectory(tmp_path)
        held.hold()
    held.give_up()


@needs_root
def test_another_users_directory_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, ANOTHER_USER, ANOTHER_USER)
    with pytest.raises(DirectoryInUse, match=rf"another user's \({ANOTHER_USER}\)"):
        DataDirectory(data).hold()
    assert list(data.iterdir()) == []


@needs_root
@pytest.mark.parametrize("name", ["dhpd.sqlite", "dhpd.sqlite-wal", "dhpd.json"])
def test_what_another_user_has_left_there_is_refused(tmp_path: Path, name: str) -> None:
    data, victim = tmp_path / "data", tmp_path / "victim"
    victim.write_text("precious")
    data.mkdir()
    (data / name).symlink_to(victim)
    os.lchown(data / name, ANOTHER_USER, ANOTHER_USER)
    with pytest.raises(DirectoryInUse, match=f"{name} is another user's .* look at it, and remove it"):
        DataDirectory(data).hold()
    assert victim.read_text() == "precious"


def test_a_link_is_not_followed_to_write_elsewhere(tmp_path: Path) -> None:
    data, victim = tmp_path / "data", tmp_path / "victim"
    victim.write_text("precious")
    data.mkdir()
    (data / "dhpd.json.new").symlink_to(victim)
    with DaemonProcess(data):
        assert not (data / "dhpd.json").is_symlink()
    (data / "dhpd.lock").unlink()
    (data / "dhpd.lock").symlink_to(victim)
    assert_refuses(dhpd("--data", data, "--listen", "127.0.0.1:0"), 1, "can't be used")
    assert victim.read_text() == "precious"
