"""Long and hostile streams over TLS: pieces of bounded work, back-pressure in both directions, and ends in good order."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dhpd.server.memory import CONNECTION_BYTES, TLS_BYTES
from dhpd.token_file import add_token
from tests.security.authority import Authority, Identity
from tests.security.conftest import encrypted, plain
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient, frame

STATE_BYTES = 1_000_000
ANSWERS = 40
MANY = 40

Speak = Callable[..., WireClient]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, server: Identity) -> Iterator[DaemonProcess]:
    """One that no test may hurt."""
    with DaemonProcess(tmp_path_factory.mktemp("streams") / "data", arguments=server.flags) as running:
        yield running
    assert "Traceback" not in running.stderr


def claimed(client: WireClient, key: str) -> dict[str, object]:
    handoff = client.dispatch(key=key)
    return {"handoff": handoff, "fence": client.call("claim", handoff=handoff, worker="w")["fence"]}


def test_a_peer_that_doesnt_read_waits_and_then_gets_every_answer(daemon: DaemonProcess, speak: Speak) -> None:
    slow, honest = speak(daemon), speak(daemon)
    held = claimed(slow, "slow")
    slow.call("checkpoint", **held, state="x" * STATE_BYTES)
    before = daemon.rss_bytes
    asked = [slow.send("last_checkpoint", handoff=held["handoff"]) for _ in range(ANSWERS)]
    for _ in range(50):
        honest.call("ping")
    assert daemon.rss_bytes - before < ANSWERS * STATE_BYTES // 2, "answers that nobody reads aren't gathered"
    assert all(len(slow.reply(number)["checkpoint"]["state"]) == STATE_BYTES for number in asked)


def test_who_has_sent_and_received_much_holds_no_more_than_is_said_of_a_connection(
    tmp_path: Path, server: Identity, speak: Speak
) -> None:
    with DaemonProcess(tmp_path / "data", arguments=server.flags) as daemon:
        first = speak(daemon)
        held = claimed(first, "much")
        write = {**held, "seq": 1, "state": "x" * STATE_BYTES}

        def much(peer: WireClient) -> None:
            peer.call("checkpoint", **write)
            peer.call("last_checkpoint", handoff=held["handoff"])

        much(first)
        before_bytes = daemon.rss_bytes
        for _ in range(MANY):
            much(speak(daemon))
        assert daemon.rss_bytes - before_bytes <= MANY * (CONNECTION_BYTES + TLS_BYTES)


def test_many_records_of_one_byte_are_read_in_pieces(daemon: DaemonProcess, authority: Authority, speak: Speak) -> None:
    honest = speak(daemon)
    with encrypted(daemon, authority) as sock:
        text = frame({"op": "ping", "id": "x" * 200})
        sender = threading.Thread(
            target=lambda: [sock.send(text[i : i + 1]) for _ in range(60) for i in range(len(text))]
        )
        sender.start()
        while sender.is_alive():
            honest.call("ping")
        sender.join()
        received = b""
        while received.count(b"\n") < 60:
            received += sock.recv(65_536)


def test_long_frames_go_both_ways_beside_each_other(daemon: DaemonProcess, speak: Speak) -> None:
    one, two = speak(daemon), speak(daemon)
    first, second = claimed(one, "first"), claimed(two, "second")
    for held, client, letter in ((first, one, "a"), (second, two, "b")):
        client.call("checkpoint", **held, state=letter * 3_900_000)
    asked = [
        (client, client.send("last_checkpoint", handoff=held["handoff"]))
        for held, client in ((first, one), (second, two))
    ]
    for (client, number), letter in zip(asked, "ab", strict=True):
        assert client.reply(number)["checkpoint"]["state"] == letter * 3_900_000


def test_a_long_answer_arrives_whole_though_the_daemon_closes_behind_it(
    daemon: DaemonProcess, authority: Authority, speak: Speak
) -> None:
    client = speak(daemon)
    held = claimed(client, "closed")
    client.call("checkpoint", **held, state="x" * 3_900_000)
    with encrypted(daemon, authority) as sock:
        sock.sendall(frame({"op": "last_checkpoint", "handoff": held["handoff"]}))
        sock.sendall(b"07 nonsense\n")  # It closes after its answer.
        received = b""
        while piece := sock.recv(1_000_000):
            received += piece
    answers = [json.loads(line[line.index(b"{") :]) for line in received.splitlines()]
    assert sorted(answer["ok"] for answer in answers) == [False, True]


def test_the_daemon_ends_in_good_order_with_handshakes_under_way(
    tmp_path: Path, authority: Authority, server: Identity
) -> None:
    daemon = DaemonProcess(tmp_path / "data", arguments=server.flags)
    daemon.start()
    with plain(daemon) as silent, plain(daemon) as begun, encrypted(daemon, authority) as open_one:
        begun.sendall(b"\x16\x03\x01\x02\x00\x01")
        open_one.sendall(frame({"op": "ping"}))
        assert open_one.recv(100)
        assert daemon.terminate() == 0
        assert open_one.recv(100) == b""
        assert silent.recv(100) == b""
        assert "Traceback" not in daemon.stderr


def test_who_says_no_hello_in_time_is_closed_over_tls_too(tmp_path: Path, server: Identity, speak: Speak) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, "t", ["reader"])
    env = {"DHPD_HELLO_WITHIN_MS": "300"}
    with DaemonProcess(tmp_path / "data", arguments=[*server.flags, "--tokens", str(file)], env=env) as daemon:
        assert speak(daemon).receive_until_closed() == b""


FORKING = """
import os, sys, time, dhp_client, dhp_client.sync
from dhp_client.addresses import parse_addresses
from dhp_client.blocking import connect_blocking

def sockets():
    return sum(os.readlink(f"/proc/self/fd/{name}").startswith("socket:") for name in held)

client = dhp_client.sync.connect(sys.argv[1])
client.dispatch("forked", {})
task = client.claim(kinds="forked", ttl_ms=600)
opened = connect_blocking(parse_addresses(sys.argv[1])[0], 5_000)
while (renewing := client._inner._session.keepalive._socket) is None:
    time.sleep(0.01)
held = [str(opened.fileno()), str(renewing.fileno())]
pid = os.fork()
if pid == 0:
    print("held:", sockets(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print("still held:", sockets(), flush=True)
task.complete(1)
"""


def test_a_forked_child_lets_go_of_encrypted_connections(daemon: DaemonProcess, authority: Authority) -> None:
    env = {**os.environ, "DHP_TLS_CA": str(authority.ca_file)}
    command = [sys.executable, "-W", "ignore", "-c", FORKING, daemon.address]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert (ended.returncode, ended.stdout) == (0, "held: 0\nstill held: 2\n"), ended.stderr


def test_what_the_protocol_says_of_frames_and_ends_holds_over_tls(daemon: DaemonProcess, authority: Authority) -> None:
    """All of `dhp conform` does; these are the points that TLS could change."""
    only = [part for name in ("frames", "hello", "vectors/frames", "events") for part in ("--only", name)]
    command = [sys.executable, "-m", "dhp_client.cli", "conform", daemon.address, "--ca-file", str(authority.ca_file)]
    ended = subprocess.run([*command, *only], capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stdout
    assert " 0 failed" in ended.stdout
    assert ended.stdout.count("ok      ") > 60
