"""How the daemon starts, tells that it has, refuses to, and ends."""

import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.flooder import Flooder
from tests.support.wire_client import WireClient

ENDS_WITHIN_S = 20


def dhpd(*arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a daemon that is expected to end by itself."""
    command = [sys.executable, "-m", "dhpd", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, env={**os.environ, **(env or {})}, check=False
    )


def assert_refuses(ended: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """It ended with `code`, said one plain line on standard error with these words in it, and nothing else."""
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.startswith("dhpd: ")
    assert ended.stderr.endswith("\n")
    assert ended.stderr.count("\n") == 1, ended.stderr
    for word in words:
        assert word in ended.stderr


# --- start -----------------------------------------------------------------------------------------------------------


def test_a_ready_daemon_says_where_it_is(tmp_path: Path) -> None:
    listen = ("127.0.0.1:0", "[::1]:0", f"unix:{tmp_path}/s")
    with DaemonProcess(tmp_path / "data", listen=listen) as daemon:
        tcp4, tcp6, unix = daemon.addresses
        assert tcp4.startswith("tcp://127.0.0.1:")
        assert tcp6.startswith("tcp://[::1]:")
        assert unix == f"unix:{tmp_path}/s"
        for address in daemon.addresses:
            with WireClient(address) as client:
                client.pump()
        file = tmp_path / "data" / "dhpd.json"
        published = json.loads(file.read_text())
        assert set(published) == {"pid", "addresses", "protocol", "started"}
        assert published["pid"] == daemon.pid
        assert published["addresses"] == daemon.addresses
        assert published["protocol"] == "dhp/1"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert not list(file.parent.glob("*.new"))
        assert daemon.terminate() == 0
        assert not file.exists()
        assert not (tmp_path / "s").exists()


def test_the_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o777)
    data.chmod(0o777)
    with DaemonProcess(data, listen=(f"unix:{data}/dhpd.sock",)):
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        for file in data.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_stale_socket_file_and_a_stale_dhpd_json_are_replaced(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", listen=(f"unix:{tmp_path}/s",)) as daemon:
        daemon.kill()
        assert (tmp_path / "s").exists()
        old = json.loads((tmp_path / "data" / "dhpd.json").read_text())
        daemon.start()
        assert json.loads((tmp_path / "data" / "dhpd.json").read_text())["pid"] == daemon.pid != old["pid"]
        with WireClient(daemon.unix) as client:
            client.pump()


def test_settings_come_from_the_file_then_the_environment_then_flags(tmp_path: Path) -> None:
    file = tmp_path / "dhpd.toml"
    file.write_text("ttl_ms = 1000\nmax_ttl_ms = 2000\nmin_ttl_ms = 600\n")
    env = {"DHPD_TTL_MS": "1500", "DHPD_DATA": str(tmp_path / "unused")}
    with (
        DaemonProcess(tmp_path / "data", arguments=("--config", str(file)), env=env) as daemon,
        WireClient(daemon.tcp) as client,
    ):
        lease = client.call("hello")["lease"]
        assert (lease["ttl_ms"], lease["min_ttl_ms"], lease["max_ttl_ms"]) == (1500, 600, 2000)
        client.dispatch()
        assert client.claim(ttl_ms=1)["lease"]["ttl_ms"] == 600
    assert not (tmp_path / "unused").exists()


# --- refusing to start -----------------------------------------------------------------------------------------------


def test_a_second_daemon_on_a_directory_ends_and_harms_nothing(daemon: DaemonProcess, client: WireClient) -> None:
    handoff = client.dispatch()
    fence = client.claim(ttl_ms=600_000)["fence"]
    before = (daemon.data / "dhpd.json").read_text()
    for listen in ("127.0.0.1:0", daemon.unix):
        assert_refuses(dhpd("--data", daemon.data, "--listen", listen), 1, "Another dhpd", str(daemon.data))
    assert (daemon.data / "dhpd.json").read_text() == before
    assert client.call("checkpoint", handoff=handoff, fence=fence, state=1)["seq"] == 1
    with WireClient(daemon.unix) as other:
        other.pump()


def test_a_daemon_whose_lock_was_taken_from_under_it_stops_rather_than_write_beside_another(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with DaemonProcess(data) as first, WireClient(first.tcp) as client:
        kept = client.dispatch("kept")
        (data / "dhpd.lock").unlink()
        with DaemonProcess(data) as second, WireClient(second.tcp) as other:
            taken = other.dispatch("taken")
            client.send("dispatch", kind="lost", inputs={})
            assert first.wait() == 1
            with pytest.raises((EOFError, ConnectionResetError)):
                client.receive()
            last = first.stderr.splitlines()[-1]
            assert last.startswith("dhpd: ")
            assert "Another dhpd has written" in last or "removed or replaced" in last, "whichever it finds first"
            assert [one["handoff"] for one in other.call("list")["handoffs"]] == [kept, taken]
            assert other.claim("taken")["handoff"] == taken


@pytest.mark.parametrize("listen", ["tcp", "unix"])
def test_a_taken_address_is_told(daemon: DaemonProcess, tmp_path: Path, listen: str) -> None:
    address = getattr(daemon, listen).removeprefix("tcp://")
    hint = "--listen HOST:PORT (port 0 takes a free one)" if listen == "tcp" else "another process does"
    assert_refuses(dhpd("--data", tmp_path / "other", "--listen", address), 1, address, hint)
    assert not (tmp_path / "other" / "dhpd.json").exists()
    with WireClient(getattr(daemon, listen)) as client:
        client.pump()


def test_a_name_that_is_none_is_told(tmp_path: Path) -> None:
    assert_refuses(dhpd("--data", tmp_path / "data", "--insecure", "--listen", "a..b:0"), 1, "a..b:0")


def test_a_file_in_the_place_of_a_socket_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("data")
    assert_refuses(dhpd("--data", tmp_path / "data", "--listen", f"unix:{file}"), 1, str(file))
    assert file.read_text() == "data"


def test_a_store_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        daemon.terminate()
    store = tmp_path / "data" / "dhpd.sqlite"
    with sqlite3.connect(store) as db:
        (version,) = db.execute("pragma user_version").fetchone()
        db.execute(f"pragma user_version = {version + 1}")
    db.close()
    before = store.read_bytes()
    assert_refuses(dhpd("--data", tmp_path / "data", "--listen", "127.0.0.1:0"), 1, "newer dhpd")
    assert store.read_bytes() == before


@pytest.mark.parametrize("content", [b"this is no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 8_000])
def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "dhpd.sqlite").write_bytes(content)
    hint = f"`dhpd check {tmp_path / 'dhpd.sqlite'}` tells more."
    assert_refuses(dhpd("--data", tmp_path, "--listen", "127.0.0.1:0"), 1, "dhpd.sqlite", hint)
    assert (tmp_path / "dhpd.sqlite").read_bytes() == content


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "dhpd.sqlite") as db:
        db.execute("create table mine (x)")
    db.close()
    assert_refuses(dhpd("--data", tmp_path, "--listen", "127.0.0.1:0"), 1, "another program")


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_refuses(dhpd("--data", tmp_path / "file"), 1, "file")
    assert_refuses(dhpd("--data", tmp_path / "file" / "below"), 1, "below")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--no-such-flag"], "--no-such-flag"),
        (["stray"], "stray"),
        (["--idle-exit-ms", "soon"], "soon"),
        (["--idle-exit-ms", "0"], "idle_exit_ms"),
        (["--listen", "127.0.0.1"], "127.0.0.1"),
        (["--listen", "127.0.0.1:http"], "127.0.0.1:http"),
        (["--listen", "127.0.0.1:65536"], "127.0.0.1:65536"),
        (["--listen", "127.0.0.1:²"], "127.0.0.1:²"),
        (["--listen", ":8471"], ":8471"),
        (["--listen", "unix:"], "unix:"),
        (["--listen", "unix:" + "x" * 120], "shorter"),
        (["--listen", "0.0.0.0:0"], "--insecure"),
        (["--data", "x" * 120], "shorter"),
        (["--listen", "[::]:0"], "--insecure"),
        (["--listen", "example.com:0"], "--insecure"),
        (["--config", "no-such-file.toml"], "no-such-file.toml"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told(tmp_path: Path, arguments: list[str], word: str) -> None:
    assert_refuses(dhpd("--data", tmp_path / "data", *arguments), 2, word)


@pytest.mark.parametrize(
    ("text", "word"), [("ttl = 5", "ttl"), ("ttl_ms = 'x'", "ttl_ms"), ("ttl_ms = 1", "ttl_ms"), ("[", "dhpd.toml")]
)
def test_a_setting_in_the_file_that_cannot_be_used_is_told(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "dhpd.toml"
    file.write_text(text)
    assert_refuses(dhpd("--data", tmp_path / "data", "--config", file), 2, word)


def test_a_setting_in_the_environment_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    assert_refuses(dhpd("--data", tmp_path / "data", env={"DHPD_TTL_MS": "long"}), 2, "DHPD_TTL_MS")


def test_an_address_that_is_not_loopback_is_taken_with_insecure(tmp_path: Path) -> None:
    with (
        DaemonProcess(tmp_path / "data", listen=("0.0.0.0:0",), arguments=("--insecure",)) as daemon,
        WireClient(f"tcp://127.0.0.1:{daemon.port}") as client,
    ):
        client.pump()


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_waiting_claims_and_lets_leases_live_on(
    daemon: DaemonProcess, connect: Connect, number: signal.Signals
) -> None:
    client, waiter = connect(session="mine"), connect()
    handoff = client.dispatch()
    fence = client.claim(ttl_ms=60_000)["fence"]
    waiting = waiter.send("claim", worker="w", kinds=["work"], wait_ms=600_000)
    waiter.pump()
    os.kill(daemon.pid, number)
    refusal = waiter.reply(waiting)["error"]
    assert (refusal["code"], refusal["retry"]) == ("draining", "later")
    assert client.event()["event"] == "draining"
    assert daemon.wait() == 0
    for one in (client, waiter):
        with pytest.raises((EOFError, ConnectionResetError)):
            one.receive()
    daemon.start()
    client = connect(session="mine")
    assert client.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["renewed"] == [handoff]
    assert [record["type"] for record in client.history(handoff)] == ["dispatched", "claimed"]


def test_what_was_sent_before_the_signal_is_kept_or_was_not_acknowledged(
    daemon: DaemonProcess, connect: Connect
) -> None:
    client = connect()
    requests = [client.send("dispatch", kind="work", inputs={}, key=str(number)) for number in range(500)]
    first = client.result(requests[0])["handoff"]
    os.kill(daemon.pid, signal.SIGTERM)
    acknowledged = {first}
    try:
        for request in requests[1:]:
            reply = client.reply(request)
            if reply["ok"]:
                acknowledged.add(reply["handoff"])
    except (EOFError, ConnectionResetError):
        pass
    assert daemon.wait() == 0
    daemon.start()
    listed = connect().call("list", limit=1000)["handoffs"]
    assert acknowledged <= {one["handoff"] for one in listed}


def test_a_peer_that_does_not_read_does_not_hold_up_the_end(daemon: DaemonProcess, connect: Connect) -> None:
    client, lazy = connect(), connect()
    handoff = client.dispatch(inputs={"text": "x" * 900_000})
    fence = client.claim()["fence"]
    client.call("checkpoint", handoff=handoff, fence=fence, state="x" * 4_000_000)
    for _ in range(20):
        lazy.send("last_checkpoint", handoff=handoff)
    client.pump()
    assert daemon.terminate() == 0


def test_an_end_in_the_middle_of_work_is_no_error(daemon: DaemonProcess, connect: Connect) -> None:
    client, watcher = connect(), connect()
    with Flooder(daemon.tcp, '{"op":"status","handoff":"%s"}' % ("a" * 64)):
        watcher.call("watch", after=0)
        client.dispatch()
        watcher.await_record("dispatched")
        assert daemon.terminate() == 0
    assert "ERROR" not in daemon.stderr


# --- unused ----------------------------------------------------------------------------------------------------------


def test_an_unused_daemon_ends_by_itself(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", arguments=("--idle-exit-ms", "300")) as daemon:
        with WireClient(daemon.tcp) as client:
            client.call("cancel", handoff=client.dispatch())
        assert daemon.wait() == 0
        assert not (tmp_path / "data" / "dhpd.json").exists()


def test_a_daemon_with_live_work_or_a_connection_does_not_end_by_itself(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", arguments=("--idle-exit-ms", "100")) as daemon:
        with WireClient(daemon.tcp) as client:
            time.sleep(1.3)  # Long enough for a look.
            handoff = client.dispatch()
        time.sleep(1.3)
        with WireClient(daemon.tcp) as client:
            client.call("cancel", handoff=handoff)
        assert daemon.wait() == 0


def test_the_port_that_is_asked_for_is_free_again_at_once(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        port = daemon.port
        with WireClient(daemon.tcp) as client:
            client.pump()
            daemon.kill()
        daemon.start()
        assert daemon.port == port
    with socket.create_server(("127.0.0.1", port)):
        pass
