"""Nothing that a peer sends, or doesn't, ends the daemon, fills it, or costs another connection anything."""

import contextlib
import random
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.conftest import assert_no_mistake
from tests.support.daemon_process import DaemonProcess
from tests.support.flooder import Flooder
from tests.support.heartbeats import Heartbeats
from tests.support.wire_client import WireClient, frame

MIB = 1024 * 1024
MAX_RSS_BYTES = 300 * MIB
LONG_MS = 600_000


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One for all tests here: each of them leaves it well, or the next one fails."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    with DaemonProcess(folder / "data", listen=("127.0.0.1:0", f"unix:{folder}/dhpd.sock")) as running:
        yield running
    assert_no_mistake(running)


@pytest.fixture
def witness(shared_daemon: DaemonProcess) -> Iterator[WireClient]:
    """Somebody else, with work and a short lease: none of it is anybody's business. And the daemon stays small."""
    with WireClient(shared_daemon.tcp) as client:
        before = client.call("stats")["connections"]
        handoff = client.dispatch("witness", key=str(random.random()))
        fence = client.claim(handoff=handoff, ttl_ms=2_000)["fence"]
        with Heartbeats(shared_daemon.unix, [(handoff, fence)], every_ms=50) as heartbeats:
            heartbeats.await_renewal()
            yield client
            assert shared_daemon.rss_bytes < MAX_RSS_BYTES
            heartbeats.await_renewal()
            assert not heartbeats.lost
        client.call("complete", handoff=handoff, fence=fence, result="undisturbed")
        while client.call("stats")["connections"] > before:
            pass  # What was left behind goes.


def send_what_it_takes(sock: socket.socket, data: bytes, *, at_most: int, patience_s: float = 0.3) -> int:
    """Sends `data` again and again, until the daemon takes no more for a while or closes; how many bytes went."""
    sock.settimeout(patience_s)
    sent = 0
    with contextlib.suppress(OSError):
        while sent < at_most:
            sent += sock.send(data)
    return sent


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes(shared_daemon: DaemonProcess, witness: WireClient, seed: int) -> None:
    rng = random.Random(seed)
    alphabet = [
        b'{"op":"ping"}\n',
        b"13 ",
        b"\n",
        b"\r\n",
        b"{",
        b"}",
        b'"',
        b"0",
        b"999999999 ",
        b"\xff",
        b"\x00",
        b"[",
    ]
    for _ in range(20):
        with contextlib.suppress(OSError), WireClient(shared_daemon.tcp) as peer:
            pieces = [
                rng.choice(alphabet) if rng.random() < 0.7 else rng.randbytes(rng.randrange(200)) for _ in range(300)
            ]
            peer.send_bytes(b"".join(pieces))
            peer.half_close()
            peer.receive_until_closed()
    witness.pump()


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"", b"x" * MIB),
        (b"", b"{" + b"x" * MIB),
        (b"", b"7" * MIB),
        (b"209715200 ", b"x" * MIB),
        (b"999999999 ", b"7" * MIB),
    ],
)
def test_two_hundred_megabytes_without_a_line_feed(
    shared_daemon: DaemonProcess, witness: WireClient, head: bytes, body: bytes
) -> None:
    with WireClient(shared_daemon.tcp) as peer:
        peer.send_bytes(head)
        send_what_it_takes(peer.socket, body, at_most=200 * MIB, patience_s=5)
        assert shared_daemon.rss_bytes < MAX_RSS_BYTES
        witness.pump()


@pytest.mark.parametrize(
    "data",
    [b"x\n", b"{}\n", b'{"op":"ping"}\n', b"\n", b"\r\n", b'{"op":"status","handoff":"%b"}\n' % (b"a" * 64), b"2 {}\n"],
)
def test_a_peer_that_sends_without_end_and_does_not_read(
    shared_daemon: DaemonProcess, witness: WireClient, data: bytes
) -> None:
    with WireClient(shared_daemon.tcp) as peer:
        send_what_it_takes(peer.socket, data * (MIB // len(data)), at_most=30 * MIB)
        assert shared_daemon.rss_bytes < MAX_RSS_BYTES
        witness.pump()


def test_peers_that_send_without_end_and_read_everything(shared_daemon: DaemonProcess, witness: WireClient) -> None:
    with contextlib.ExitStack() as stack:
        for line in ("x", "", '{"op":"ping"}', '{"op":"watch","after":0}'):
            stack.enter_context(Flooder(shared_daemon.tcp, line))
        for number in range(10):
            witness.call("cancel", handoff=witness.dispatch("meanwhile", key=str(number)))


def test_a_peer_that_asks_for_many_pages_and_does_not_read_them(
    shared_daemon: DaemonProcess, witness: WireClient
) -> None:
    handoff = witness.dispatch("pages")
    fence = witness.claim(handoff=handoff, ttl_ms=LONG_MS)["fence"]
    for number in range(60):
        witness.call("checkpoint", handoff=handoff, fence=fence, state=str(number) + "x" * 200_000)
    with WireClient(shared_daemon.tcp) as peer:
        asked = [peer.send("checkpoints", handoff=handoff) for _ in range(300)]
        asked.append(peer.send("ping"))
        for _ in range(50):
            witness.call("last_checkpoint", handoff=handoff)
        assert shared_daemon.rss_bytes < MAX_RSS_BYTES
        # It reads after all, some of it: each page is whole, cut to fit a frame.
        for request in asked[:3]:
            page = peer.result(request)
            assert 1 < len(page["checkpoints"]) < 6
            assert page["next"] == page["checkpoints"][-1]["seq"]
    witness.call("release", handoff=handoff, fence=fence)


def test_many_long_requests_at_once_on_one_connection(shared_daemon: DaemonProcess, witness: WireClient) -> None:
    with WireClient(shared_daemon.tcp) as peer:
        numbers = ",".join(["0.1"] * 230_000)
        sent = 0
        for number in range(400):
            body = f'{{"op":"dispatch","id":{number},"kind":"long","inputs":{{"n":{number},"numbers":[{numbers}]}}}}\n'
            if (sent := send_what_it_takes(peer.socket, body.encode(), at_most=1)) < len(body):
                break
        assert shared_daemon.rss_bytes < MAX_RSS_BYTES
        assert sent < len(body)  # The daemon didn't take all of it at once.
        witness.pump()


def test_fifteen_hundred_pipelined_waiting_claims(shared_daemon: DaemonProcess, witness: WireClient) -> None:
    with WireClient(shared_daemon.tcp) as peer:
        claim = {"op": "claim", "worker": "w", "kinds": ["none"], "wait_ms": LONG_MS}
        peer.send_bytes(b"".join(frame({**claim, "id": number}) for number in range(1_500)))
        peer.pump()
        assert witness.call("stats")["waiting_claims"] == 1_024


def test_eight_hundred_idle_connections(shared_daemon: DaemonProcess, witness: WireClient) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(WireClient(shared_daemon.tcp)) for _ in range(800)]
        peers[-1].pump()
        assert witness.call("stats")["connections"] >= 800
        assert shared_daemon.rss_bytes < MAX_RSS_BYTES
        witness.call("cancel", handoff=witness.dispatch("meanwhile"))
        for peer in peers[::100]:
            peer.pump()


def test_connections_that_come_and_go(shared_daemon: DaemonProcess, witness: WireClient) -> None:
    for number in range(2_000):
        peer = WireClient(shared_daemon.tcp)
        if number % 2:
            peer.send_bytes(b'{"op":"ping"}\n{"op":')
            peer.reset()
        else:
            peer.send_bytes(b'{"op":"dispatch","kind":"gone","inputs":{}}\n{"op":"watch"}\n')
            peer.close()
    witness.pump()
    while witness.call("stats")["connections"] > 10:
        pass


def test_more_connections_than_the_daemon_may_have_files(shared_daemon: DaemonProcess, witness: WireClient) -> None:
    before = resource.prlimit(shared_daemon.pid, resource.RLIMIT_NOFILE)
    open_files = len(list(Path(f"/proc/{shared_daemon.pid}/fd").iterdir()))
    resource.prlimit(shared_daemon.pid, resource.RLIMIT_NOFILE, (open_files + 20, before[1]))
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    stack.enter_context(WireClient(shared_daemon.tcp))
            # Those who were there go on, and so does the store.
            for number in range(20):
                witness.call("cancel", handoff=witness.dispatch("meanwhile", key=f"files-{number}"))
    finally:
        resource.prlimit(shared_daemon.pid, resource.RLIMIT_NOFILE, before)
    with WireClient(shared_daemon.tcp) as peer:
        peer.pump()


def test_a_connection_more_than_the_most_is_told_so(tmp_path: Path) -> None:
    env = {"DHPD_MAX_CONNECTIONS": "3"}
    with DaemonProcess(tmp_path / "data", env=env) as daemon, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(WireClient(daemon.tcp)) for _ in range(3)]
        for peer in peers:
            peer.call("watch")  # It has something open, so it isn't closed to make room.
        with WireClient(daemon.tcp) as refused:
            error = refused.receive()["error"]
            assert (error["code"], error["retry"]) == ("overloaded", "later")
            assert refused.receive_until_closed() == b""
        peers[0].close()
        while peers[1].call("stats")["connections"] > 2:
            pass
        with WireClient(daemon.tcp) as taken:
            taken.pump()
