"""A spool file on a disk that fails, and between processes that meet over it."""

import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from dhp_client import NotSpooled
from dhp_client.spool import Spool
from dhp_client.spool_lines import Answered, Contents, Head, KeptCheckpoint, read

HANDOFF = "a" * 64
HEAD = Head(handoff=HANDOFF, kind="k", worker="w", fence=1, seq=0, sha256=None, unanswered=[], at="", pid=1)


def entry(n: int) -> KeptCheckpoint:
    return KeptCheckpoint(state=Raw(b"%d" % n), sha256=f"{n}" * 64, steps=1)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


def contents_of(path: Path) -> Contents:
    found = read(path.read_bytes())
    assert found is not None
    assert not found.damaged
    return found


def test_marks_that_could_not_be_written_are_written_before_what_is_written_next(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the one after them would be taken for the first's, and a checkpoint be sent twice under two numbers."""
    file = spool.keep(None, HEAD, entry(1))
    for n in (2, 3):
        spool.keep(file, HEAD, entry(n))
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", _no_room)
        file.answered(Answered(seq=1, sha256="1" * 64))
    assert len(file.contents.waiting) == 2
    assert len(contents_of(file.path).waiting) == 3
    file.answered(Answered(seq=2, sha256="2" * 64))
    found = contents_of(file.path)
    assert (found.seq, [one.sha256 for one in found.waiting]) == (2, ["3" * 64])
    assert (found.end, found.digest) == (file.contents.end, file.contents.digest)


def test_what_could_not_be_written_is_not_there_and_what_was_is(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    file = spool.keep(None, HEAD, entry(1))
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", _no_room)
        with pytest.raises(NotSpooled):
            spool.keep(file, HEAD, entry(2))
    spool.keep(file, HEAD, entry(3))
    assert [one.sha256 for one in contents_of(file.path).waiting] == ["1" * 64, "3" * 64]


def test_a_file_that_cannot_be_begun_leaves_nothing(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", _no_room)
        with pytest.raises(NotSpooled):
            spool.keep(None, HEAD, entry(1))
    assert list(spool.folder.iterdir()) == []


def test_with_the_last_answer_the_file_is_gone(spool: Spool) -> None:
    file = spool.keep(None, HEAD, entry(1))
    file.answered(Answered(seq=1, sha256="1" * 64))
    assert (file.closed, list(spool.folder.iterdir()), len(file.contents.waiting)) == (True, [], 0)


@pytest.mark.parametrize("length", [0, 10, 400])
def test_a_file_whose_process_died_while_it_made_it_is_cleared_away(spool: Spool, length: int) -> None:
    file = spool.keep(None, HEAD, entry(1))
    file.close()
    with file.path.open("r+b") as opened:
        opened.truncate(min(length, contents_of(file.path).waiting[0].start + 5))
    assert spool.all() == []
    assert spool.left_of(HANDOFF) == []
    assert list(spool.folder.iterdir()) == []


def test_who_makes_a_file_while_another_clears_away_has_one_that_is_there(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    really = fcntl.flock

    def takes_it_first(descriptor: int, how: int) -> None:
        if how == fcntl.LOCK_EX and not taken:
            taken.append("once")
            assert spool.left_of(HANDOFF) == []
        really(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", takes_it_first)
    file = spool.keep(None, HEAD, entry(1))
    assert taken
    assert [one.path for one in spool.all()] == [str(file.path)]


def test_looking_at_a_file_does_not_keep_it_from_whoever_comes_for_it(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.keep(None, HEAD, entry(1)).close()
    looking, found = threading.Event(), threading.Event()

    class Slow:
        @staticmethod
        def read(data: bytes) -> Contents | None:
            looking.set()
            assert found.wait(20)
            return read(data)

    with monkeypatch.context() as slow:
        slow.setattr("dhp_client.spool.read", Slow.read)
        looker = threading.Thread(target=spool.all)
        looker.start()
        assert looking.wait(20)
        left = spool.left_of(HANDOFF)
        found.set()
        looker.join()
    assert len(left) == 1


def test_a_damaged_file_is_told_of_and_stays(spool: Spool, caplog: pytest.LogCaptureFixture) -> None:
    file = spool.keep(None, HEAD, entry(1))
    spool.keep(file, HEAD, entry(2))
    file.close()
    place = contents_of(file.path).waiting[0].start + 50
    data = bytearray(file.path.read_bytes())
    data[place] ^= 1
    file.path.write_bytes(data)
    assert spool.left_of(HANDOFF) == []
    assert "damaged" in caplog.text
    assert spool.all()[0].damaged


def test_an_answer_that_comes_after_it_was_let_go_of_deletes_nothing(spool: Spool) -> None:
    file = spool.keep(None, HEAD, entry(1))
    file.close()
    [taken] = spool.left_of(HANDOFF)
    file.answered(Answered(seq=1, sha256="1" * 64))
    spool.keep(taken, HEAD, entry(2))
    assert len(contents_of(taken.path).waiting) == 2


def test_what_was_let_go_of_takes_nothing_more(spool: Spool) -> None:
    file = spool.keep(None, HEAD, entry(1))
    file.close()
    with pytest.raises(NotSpooled, match="let go"):
        spool.keep(file, HEAD, entry(2))


def _no_room(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
