"""The ballast: room that is really held back, given up when it is needed, and taken back only where there is plenty."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dhpd.store import ballast
from dhpd.store.ballast import NAME, PROBE_BYTES, Ballast

SIZE = 1024 * 1024


def occupied(directory: Path) -> int:
    """How many bytes of the disk it has."""
    return (directory / NAME).stat().st_blocks * 512


def free(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free_bytes // 512, f_frsize=512))


def test_it_occupies_the_room_and_lets_it_go(tmp_path: Path) -> None:
    held = Ballast(tmp_path, SIZE)
    assert held.take_back()
    assert occupied(tmp_path) >= SIZE
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    inode = (tmp_path / NAME).stat().st_ino
    assert Ballast(tmp_path, SIZE).take_back()
    assert (tmp_path / NAME).stat().st_ino == inode, "what is there isn't made anew"
    held.give_up()
    assert list(tmp_path.iterdir()) == []
    held.give_up()


@pytest.mark.parametrize("found", [b"", b"x" * (SIZE // 2), b"x" * (SIZE * 2)])
def test_a_file_of_another_size_is_made_anew(tmp_path: Path, found: bytes) -> None:
    (tmp_path / NAME).write_bytes(found)
    assert Ballast(tmp_path, SIZE).take_back()
    assert (tmp_path / NAME).stat().st_size == SIZE


def test_a_hole_of_the_right_size_is_no_ballast(tmp_path: Path) -> None:
    with (tmp_path / NAME).open("wb") as file:
        file.truncate(SIZE)
    assert Ballast(tmp_path, SIZE).take_back()
    assert occupied(tmp_path) >= SIZE


def test_it_is_taken_back_only_where_as_much_again_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 2 * SIZE - 512)
    assert not Ballast(tmp_path, SIZE).take_back()
    assert list(tmp_path.iterdir()) == []
    free(monkeypatch, 2 * SIZE)
    assert Ballast(tmp_path, SIZE).take_back()


@pytest.mark.parametrize(
    ("number", "needed"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False), (errno.EROFS, False)]
)
def test_a_disk_is_full_if_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, needed: bool
) -> None:
    assert not Ballast(tmp_path, SIZE).is_needed()

    def fails(file: int, at: int, length: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", fails)
    assert Ballast(tmp_path, SIZE).is_needed() is needed
    assert not Ballast(tmp_path, SIZE).take_back()
    assert list(tmp_path.iterdir()) == []


def test_where_a_file_system_cannot_reserve_the_room_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(file: int, at: int, length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", fails)
    assert Ballast(tmp_path, SIZE).take_back()
    assert (tmp_path / NAME).stat().st_size == SIZE
    assert not Ballast(tmp_path, SIZE).is_needed()
    assert PROBE_BYTES < SIZE
    assert not (tmp_path / NAME).with_suffix(".probe").exists()
    assert ballast.free_bytes(tmp_path) > 0
