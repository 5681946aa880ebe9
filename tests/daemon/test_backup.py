"""`dhpd backup`: a copy taken beside a writing daemon holds all that was acknowledged before, and another daemon goes on from it."""

import resource
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dhpd.store import backing_up
from dhpd.store.backend import StoreError
from tests.daemon.conftest import Connect, assert_no_mistake
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient


def dhpd(*arguments: str | Path, most_bytes: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    """The command; no file that it writes may become larger than `most_bytes`."""
    return subprocess.run(
        [sys.executable, "-m", "dhpd", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY)),
    )


def backed_up(daemon: DaemonProcess, target: Path) -> Path:
    done = dhpd("--data", daemon.data, "backup", target)
    assert (done.returncode, done.stderr) == (0, "")
    return target


def restored(backup: Path, data: Path) -> DaemonProcess:
    data.mkdir()
    shutil.copyfile(backup, data / "dhpd.sqlite")
    return DaemonProcess(data)


def test_what_was_acknowledged_before_a_backup_is_in_it_whatever_is_written_meanwhile(
    daemon: DaemonProcess, connect: Connect, tmp_path: Path
) -> None:
    client = connect()
    handoff = client.dispatch()
    fence = client.claim()["fence"]
    acknowledged, enough, over = 0, threading.Event(), threading.Event()

    def write() -> None:
        nonlocal acknowledged
        while not over.is_set():
            acknowledged = client.call("checkpoint", handoff=handoff, fence=fence, state="x" * 1_000)["seq"]
            if acknowledged >= 50:
                enough.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert enough.wait(60)
    before = acknowledged
    backup = backed_up(daemon, tmp_path / "backup")
    over.set()
    writer.join()
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert dhpd("check", backup).returncode == 0
    with restored(backup, tmp_path / "restored") as other:
        with WireClient(other.tcp) as there:
            assert before <= there.call("last_checkpoint", handoff=handoff)["checkpoint"]["seq"] <= acknowledged
        assert_no_mistake(other)


def test_a_backup_tells_of_all_handoffs_that_it_holds(daemon: DaemonProcess, connect: Connect, tmp_path: Path) -> None:
    client = connect()
    for number in range(3):
        client.dispatch(key=str(number))
    daemon.kill()  # Before the table of facts has them.
    told = dhpd("--data", daemon.data, "backup", tmp_path / "backup").stdout
    assert f"{tmp_path / 'backup'}: 3 handoffs, up to position 3, " in told


def test_a_fence_given_out_after_the_backup_is_void_where_it_is_restored(
    daemon: DaemonProcess, connect: Connect, tmp_path: Path
) -> None:
    client = connect()
    held, waiting = client.dispatch(key="held"), client.dispatch(key="waiting")
    first = client.claim(handoff=held, detached=True, ttl_ms=500)["fence"]
    backup = backed_up(daemon, tmp_path / "backup")
    client.reply(client.send("release", handoff=held, fence=first))  # Unless its time is over by now.
    later = [client.claim(handoff=handoff)["fence"] for handoff in (held, waiting)]
    late_one = client.dispatch(key="late")
    later.append(client.claim(handoff=late_one)["fence"])
    with restored(backup, tmp_path / "restored") as other, WireClient(other.tcp) as there:
        assert there.dispatch(key="late") == late_one
        for handoff, fence in zip((held, waiting, late_one), later, strict=True):
            now = there.claim(handoff=handoff, worker="new", wait_ms=60_000)["fence"]
            assert now > fence
            assert there.refused("checkpoint", handoff=handoff, fence=fence, state=1).code == "lease_lost"
            assert there.call("complete", handoff=handoff, fence=now, result=1)["ok"]
    assert dhpd("check", tmp_path / "restored" / "dhpd.sqlite").returncode == 0


def test_a_backup_that_is_restored_twice_gives_out_no_fence_twice(
    daemon: DaemonProcess, connect: Connect, tmp_path: Path
) -> None:
    handoff = connect().dispatch()
    backup = backed_up(daemon, tmp_path / "backup")
    with restored(backup, tmp_path / "once") as once, WireClient(once.tcp) as there:
        first = there.claim()["fence"]
    with restored(backup, tmp_path / "twice") as twice, WireClient(twice.tcp) as there:
        second = there.claim()["fence"]
        assert second > first
        assert there.refused("checkpoint", handoff=handoff, fence=first, state=1).code == "lease_lost"
        fence = there.claim(handoff=there.dispatch(key="another"))["fence"]
        again = backed_up(twice, tmp_path / "of the restored one")
    with restored(again, tmp_path / "thrice") as thrice, WireClient(thrice.tcp) as there:
        assert there.claim(handoff=there.dispatch(key="a third"))["fence"] > max(second, fence)


def test_a_bundle_from_a_restored_store_can_be_imported_elsewhere(
    daemon: DaemonProcess, connect: Connect, tmp_path: Path
) -> None:
    handoff = connect().dispatch()
    backup = backed_up(daemon, tmp_path / "backup")
    with restored(backup, tmp_path / "restored") as other, WireClient(other.tcp) as there:
        fence = there.claim()["fence"]
        there.call("complete", handoff=handoff, fence=fence, result="done")
        bundle = there.call("export", handoff=handoff)["records"]
        history = there.history(handoff)
    with DaemonProcess(tmp_path / "third") as third, WireClient(third.tcp) as elsewhere:
        assert elsewhere.call("import", records=bundle)["created"]
        here = elsewhere.history(handoff)
        assert [record["fence"] for record in here[: len(history)]][:3] == [record["fence"] for record in history][:3]


def test_a_backup_overwrites_nothing_and_leaves_nothing_when_it_fails(
    daemon: DaemonProcess, connect: Connect, tmp_path: Path
) -> None:
    client = connect()
    for request in [
        client.send("dispatch", kind="large", inputs={"text": f"{number} {'x' * 500_000}"}) for number in range(10)
    ]:
        client.result(request)
    target = tmp_path / "backup"
    target.write_text("mine")
    refused = dhpd("backup", target, "--data", daemon.data)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "is there already" in refused.stderr
    assert target.read_text() == "mine"
    missing = dhpd("backup", tmp_path / "other", "--data", tmp_path / "nowhere")
    assert missing.returncode == 1
    assert "isn't there" in missing.stderr
    elsewhere = dhpd("backup", tmp_path / "no" / "such" / "place", "--data", daemon.data)
    assert elsewhere.returncode == 1
    unfinished = dhpd("--data", daemon.data, "backup", tmp_path / "large", most_bytes=1_000_000)
    assert unfinished.returncode == 1
    assert unfinished.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(("other", "large"))) == []


def test_a_backup_that_the_disk_has_no_room_for_is_not_begun(
    daemon: DaemonProcess, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect().dispatch()
    monkeypatch.setattr(backing_up, "free_bytes", lambda directory: 10_000)
    with pytest.raises(StoreError, match=r"takes .* bytes, and there is room for 10,000"):
        backing_up.back_up(daemon.data / "dhpd.sqlite", tmp_path / "backup", wall_ms=0)
    assert not list(tmp_path.glob("backup*"))


def test_a_store_that_is_not_whole_is_not_copied(daemon: DaemonProcess, connect: Connect, tmp_path: Path) -> None:
    import sqlite3

    connect().dispatch()
    daemon.terminate()
    with sqlite3.connect(daemon.data / "dhpd.sqlite") as db:
        db.execute("update journal set payload = cast('{}' as blob)")
    db.close()
    refused = dhpd("backup", tmp_path / "backup", "--data", daemon.data)
    assert refused.returncode == 1
    assert "isn't whole" in refused.stderr
    assert not (tmp_path / "backup").exists()
