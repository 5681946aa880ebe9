"""A person looks after what workers kept while no daemon answered."""

import os
from pathlib import Path

import pytest
from msgspec import Raw

from dhp_client import sync
from dhp_client.payload import sha256_hex
from dhp_client.spool import Spool
from dhp_client.spool_file import SpoolFile
from dhp_client.spool_lines import Head, KeptCheckpoint

from .conftest import Dhp


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def keep(folder: Path, handoff: str, *, fence: int) -> SpoolFile:
    """What a worker leaves that died during a partition, with one checkpoint that no daemon has."""
    head = Head(
        handoff=handoff, kind="k", worker="w", fence=fence, seq=0, sha256=None, unanswered=[], at="", pid=os.getpid()
    )
    entry = KeptCheckpoint(state=Raw(b'{"page":7}'), sha256=sha256_hex(b'{"page":7}'), steps=1)
    return Spool(folder).keep(None, head, entry)


def test_what_is_kept_is_listed_shown_and_dropped(dhp: Dhp, folder: Path) -> None:
    file = keep(folder, "a" * 64, fence=1)
    [_, row] = dhp("spool", "list", str(folder)).out.splitlines()
    assert row.split() == ["a" * 12, "k", "1", "1", "no", "in", "use", str(file.path)]
    assert dhp("spool", "drop", str(file.path)).err == f"dhp: {file.path} belongs to a process that is at work.\n"
    file.close()
    assert dhp("spool", "list", str(folder), "--json").json["state"] == {"page": 7}
    assert '{"page":7}' in dhp("spool", "show", str(file.path)).out
    assert dhp("spool", "show", str(file.path), "--json").json["checkpoints"] == 1
    assert dhp("spool", "drop", str(file.path), "--json").json == {"file": str(file.path), "dropped": True}
    assert len(dhp("spool", "list", str(folder)).out.splitlines()) == 1


def test_what_a_dead_worker_left_is_sent_once_its_lease_is_over(dhp: Dhp, folder: Path) -> None:
    handoff = dhp("dispatch", "cli.spool").out.strip()
    fence = dhp("status", handoff, "--json").json["fence"] + 1

    with sync.connect() as worker:
        task = worker.claim(handoff)
        assert task
        assert task.fence == fence
        keep(folder, handoff, fence=fence).close()
        early = dhp("spool", "replay", str(folder))
        assert (early.code, "once its worker's lease is over" in early.err) == (4, True)
        assert dhp("spool", "list", str(folder), "--json").json["void"] is None, "its own lease lives still"
        task.release()
    sent = dhp("spool", "replay", str(folder), "--json")
    assert (sent.code, sent.out) == (0, "")
    status = dhp("status", handoff, "--json").json
    assert (status["status"], status["seq"]) == ("pending", 1)


def test_what_is_no_plain_file_is_no_spool_file_whatever_its_name(dhp: Dhp, folder: Path) -> None:
    folder.mkdir()
    name = f"{'a' * 64}-1-{{}}.spool".format
    os.mkfifo(folder / name("pipe"))
    (folder / name("endless")).symlink_to("/dev/zero")
    (folder / name("nowhere")).symlink_to(folder / "nothing")
    (folder / name("folder")).mkdir()
    assert len(dhp("spool", "list", str(folder)).out.splitlines()) == 1
    assert dhp("spool", "replay", str(folder)).code == 0
    assert "is no spool file" in dhp("spool", "show", str(folder / name("pipe"))).err


def test_what_another_user_put_into_a_spool_is_not_sent(dhp: Dhp, folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    handoff = dhp("dispatch", "cli.foreign-spool").out.strip()
    with sync.connect() as worker:
        task = worker.claim(handoff)
        assert task
        file = keep(folder, handoff, fence=task.fence)
        file.close()
        task.release()
    os.chown(file.path, 12_345, -1)
    assert dhp("spool", "replay", str(folder)).code == 0
    assert dhp("status", handoff, "--json").json["attempt"] == 1
    os.chown(file.path, 0, -1)
    assert dhp("spool", "replay", str(folder)).code == 0
    assert dhp("status", handoff, "--json").json["seq"] == 1


def test_another_file_is_no_spool_file(dhp: Dhp, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    assert dhp("spool", "show", str(tmp_path / "x")).code == 1
