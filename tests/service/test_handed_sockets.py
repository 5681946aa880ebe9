"""Sockets that a service manager opened: which are taken, which are refused, and what the settings' addresses mean beside them."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dhpd.config import Config, ConfigError
from dhpd.server.handed import handed_over, still_to_open
from dhpd.server.listeners import addresses_of
from dhpd.systemd import sockets
from dhpd.systemd.sockets import handed_sockets
from tests.support.wire_client import WireClient


@pytest.fixture
def tcp() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def unix(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        (tmp_path / "s").chmod(0o660)
        yield listening


def test_what_was_handed_over_is_all_unless_the_settings_name_more(
    tcp: socket.socket, unix: socket.socket, tmp_path: Path
) -> None:
    given = [("first", tcp), ("second", unix)]
    port = tcp.getsockname()[1]
    for listen, left in (
        (None, 0),
        ([], 0),
        ([f"127.0.0.1:{port}", f"unix:{tmp_path}/s"], 0),
        ([f"127.0.0.1:{port}", f"unix:{tmp_path}/other"], 1),
        (["127.0.0.1:1", f"unix:{tmp_path}/other"], 2),
    ):
        config = Config(listen=listen)
        handed = handed_over(given, config)
        assert len(handed) == 2
        assert len(still_to_open(addresses_of(config, tmp_path), handed, config)) == left
    config = Config()
    assert len(still_to_open(addresses_of(config, tmp_path), [], config)) == 2, "nobody handed anything over"


def test_a_socket_that_lets_strangers_in_is_refused(unix: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "s").chmod(0o666)  # systemd's own default.
    with pytest.raises(
        ConfigError, match=r"Everybody on this machine may connect to .*/s \(it\), as admin: set SocketMode=0660"
    ):
        handed_over([("it", unix)], Config())
    assert handed_over([("it", unix)], Config(insecure=True))
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        with pytest.raises(ConfigError, match="can be reached from outside: add --tokens"):
            handed_over([("it", everywhere)], Config())
        assert handed_over([("it", everywhere)], Config(tokens="t", tls_cert="c"))
    (tmp_path / "s").unlink()
    with pytest.raises(ConfigError, match=r"bound to .*/s, where nobody finds it: No such file"):
        handed_over([("it", unix)], Config())
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0dhp-{os.getpid()}")
        with pytest.raises(ConfigError, match="has no file that says who may connect"):
            handed_over([("it", abstract)], Config())


def test_only_what_was_handed_to_this_process_and_can_be_connected_to_is_taken(
    tcp: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(descriptor: int, **more: str) -> tuple[str, socket.socket]:
        monkeypatch.setattr(sockets, "FIRST", descriptor)
        environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "it", **more}
        found = handed_sockets(environment)
        assert environment == {}, "no child hears of it"
        (only,) = found or [("", socket.socket())]
        return only

    os.set_inheritable(tcp.fileno(), True)
    name, sock = taken(os.dup(tcp.fileno()))
    with sock:
        assert (name, sock.getsockname(), sock.get_inheritable()) == ("it", tcp.getsockname(), False)
    for more in ({"LISTEN_PID": "1"}, {"LISTEN_PID": ""}, {"LISTEN_FDS": "many"}, {"LISTEN_FDS": "0"}):
        name, sock = taken(tcp.fileno(), **more)
        sock.close()
        assert name == ""
    reading, writing = os.pipe()
    os.close(writing)
    with pytest.raises(ConfigError, match="is no socket"):
        taken(reading)
    os.close(reading)
    with (
        socket.socket(type=socket.SOCK_DGRAM) as datagrams,
        pytest.raises(ConfigError, match="nobody can connect to it"),
    ):
        taken(os.dup(datagrams.fileno()))
    with (
        socket.create_connection(tcp.getsockname()) as connected,
        pytest.raises(ConfigError, match="use ListenStream= and Accept=no"),
    ):
        taken(os.dup(connected.fileno()))


def test_systemds_own_tool_hands_over_several_by_name(tmp_path: Path) -> None:
    tool = shutil.which("systemd-socket-activate")
    if tool is None:
        pytest.skip("there is no systemd-socket-activate")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [tool, "--listen", f"{tmp_path}/s", "--listen", f"127.0.0.1:{port}", "--fdname=local:net"]
    daemon = [sys.executable, "-m", "dhpd", "--data", str(tmp_path / "data")]
    environment = [f"--setenv={name}" for name in os.environ if name.startswith(("DHP", "LD_", "PYTHON"))]
    with subprocess.Popen(
        ["sh", "-c", 'umask 077; exec "$@"', "sh", *command, *environment, *daemon],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stderr is not None
            assert running.stdout is not None
            assert "Listening on" in running.stderr.readline()
            assert "Listening on" in running.stderr.readline()
            with WireClient(f"tcp://127.0.0.1:{port}") as first:  # Waits until it has started, in the backlog.
                handoff = first.dispatch()
            assert running.stdout.readline() == f"dhpd ready unix:{tmp_path}/s tcp://127.0.0.1:{port}\n"
            with WireClient(f"unix:{tmp_path}/s") as second:
                assert second.status(handoff)["status"] == "pending"
        finally:
            running.send_signal(signal.SIGTERM)
    assert running.returncode == 0
    assert (tmp_path / "s").exists(), "the file isn't the daemon's"
