"""The data directory under a running daemon: removed, replaced, or asked for twice."""

import json
import shutil
from pathlib import Path

import pytest

from dhpd.server.directory import DataDirectory, DirectoryInUse
from tests.daemon.test_start_and_stop import assert_refuses, dhpd
from tests.support.daemon_process import DaemonProcess


def test_a_daemon_whose_directory_is_removed_ends_and_says_so(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        shutil.rmtree(tmp_path / "data")
        assert daemon.wait() == 1, "nobody would find what it writes"
        assert "its directory was removed or replaced" in daemon.stderr


def test_a_daemon_that_ends_leaves_the_files_of_its_successor(tmp_path: Path) -> None:
    data, sock = tmp_path / "data", tmp_path / "dhpd.sock"
    with DaemonProcess(data, listen=[f"unix:{sock}"]) as first:
        first.pause()
        shutil.rmtree(data)
        sock.unlink()
        with DaemonProcess(data, listen=[f"unix:{sock}"]) as second:
            first.resume()
            assert first.wait() == 1
            assert sock.exists()
            assert json.loads((data / "dhpd.json").read_text())["pid"] == second.pid


def test_a_second_daemon_is_told_who_has_the_directory(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        refused = dhpd("--data", tmp_path / "data", "--listen", "127.0.0.1:0")
        assert_refuses(refused, 1, f"process {daemon.pid}")


def test_what_stands_in_the_place_of_dhpd_json_is_told(tmp_path: Path) -> None:
    (tmp_path / "dhpd.json").mkdir()
    directory = DataDirectory(tmp_path)
    with pytest.raises(DirectoryInUse, match=r"dhpd\.json can't be removed"):
        directory.hold()
    (tmp_path / "dhpd.json").rmdir()
    directory.hold()
    directory.give_up()
