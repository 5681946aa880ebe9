"""However many connections flood at once: each keeps its order, is answered whole, and is held back where it doesn't read."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dhpd.server import turns as turns_module
from dhpd.server.connection import LONG_READ_BYTES
from dhpd.server.lanes import MAX_TAKEN
from dhpd.server.long_frames import LONG_BODY_BYTES
from tests.support.in_process_daemon import InProcessDaemon
from tests.support.wire_client import ANSWER_WITHIN_S, WireClient, frame

PEERS = 24
ROUNDS = 30
MOST_READ_AT_ONCE_BYTES = 256 * 1024
LONG = "x" * (2 * LONG_BODY_BYTES)
DEAR = {"numbers": [1e300] * 1_000}

Peers = Callable[[int], list[WireClient]]


@pytest.fixture(params=["as it is", "a frame a pass"])
def daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[InProcessDaemon]:
    """The second one has time for a single frame between two polls, so that everybody has to line up."""
    if request.param == "a frame a pass":
        for name in ("PASS_S", "TURN_S", "SHORTEST_TURN_S"):
            monkeypatch.setattr(turns_module, name, 1e-9)
    with InProcessDaemon(tmp_path) as running:
        yield running


@pytest.fixture
def peers(daemon: InProcessDaemon) -> Iterator[Peers]:
    opened: list[WireClient] = []

    def open_some(count: int) -> list[WireClient]:
        opened.extend(WireClient(daemon.address) for _ in range(count))
        return opened[-count:]

    yield open_some
    for peer in opened:
        peer.close()


def test_each_is_answered_whole_and_in_order_when_its_input_ends(peers: Peers) -> None:
    flooding = peers(PEERS)
    asked: list[list[int]] = []
    for number, peer in enumerate(flooding):
        handoff = peer.dispatch(key=str(number))
        write = {"handoff": handoff, "fence": peer.claim(handoff=handoff, ttl_ms=600_000)["fence"]}
        frames = []
        for seq in range(1, ROUNDS + 1):
            state = LONG if seq % 10 == number % 10 else seq
            frames.append(peer.framed("checkpoint", **write, state=state, seq=seq))
            frames.append(peer.framed("ping"))
            frames.append(peer.framed("dispatch", kind="other", inputs=DEAR if seq % 15 == 0 else {}, key=str(seq)))
        frames.append(peer.framed("complete", **write, result=None))
        asked.append([request for request, _ in frames])
        peer.send_bytes(b"".join(data for _, data in frames))
        peer.half_close()
    for peer, requests in zip(flooding, asked, strict=True):
        answers = peer.messages_until_closed()
        assert sorted(answer["id"] for answer in answers) == requests
        assert all(answer["ok"] for answer in answers), "a checkpoint out of its order would be refused"


def test_a_fault_that_closes_comes_after_what_was_before_it(peers: Peers) -> None:
    flooding = peers(PEERS)
    for peer in flooding:
        peer.send_bytes(frame({"op": "ping", "id": 1}) * 100 + b"01 {}\n" + frame({"op": "ping", "id": 2}) * 100)
    for peer in flooding:
        answers = peer.messages_until_closed()
        assert [answer["id"] for answer in answers if answer["ok"]] == [1] * 100
        assert [answer["error"]["code"] for answer in answers if not answer["ok"]] == ["bad_frame"]


def test_those_who_do_not_read_are_held_back_and_answered_when_they_do(daemon: InProcessDaemon, peers: Peers) -> None:
    flooding, honest = peers(3), peers(1)[0]
    handoff = honest.dispatch()
    fence = honest.claim(handoff=handoff, ttl_ms=600_000)["fence"]
    honest.call("checkpoint", handoff=handoff, fence=fence, state="x" * 20_000)
    body = b'{"op":"last_checkpoint","id":1,"handoff":"%b"%b}' % (handoff.encode(), b" " * 16_000)
    asked = [fill(peer, b"%d %b\n" % (len(body), body)) for peer in flooding]
    honest.pump()
    for connection in list(daemon.desk.connections.values()):
        assert connection._intake.framer.held_bytes <= LONG_READ_BYTES + MOST_READ_AT_ONCE_BYTES
    for peer, (requests, rest) in zip(flooding, asked, strict=True):
        for _ in range(requests):
            assert peer.receive()["checkpoint"]["seq"] == 1
        peer.send_bytes(rest)
        assert peer.receive()["checkpoint"]["seq"] == 1


def fill(peer: WireClient, line: bytes) -> tuple[int, bytes]:
    """Sends until the daemon takes no more; gives how many lines went out, and what is missing of the next one."""
    sent = 0
    peer.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += peer.socket.send(line[sent % len(line) :])
    peer.socket.settimeout(ANSWER_WITHIN_S)
    return sent // len(line), line[sent % len(line) :]


def test_what_has_to_be_looked_up_is_so_a_bounded_number_at_a_time(daemon: InProcessDaemon, peers: Peers) -> None:
    asking, honest = peers(4), peers(1)[0]
    asked = []
    for peer in asking:
        frames = [peer.framed("status", handoff=os.urandom(32).hex()) for _ in range(500)]
        asked.append([request for request, _ in frames])
        peer.send_bytes(b"".join(data for _, data in frames))
        peer.half_close()
    most = 0
    while daemon.connections > 1:  # They go when all of theirs is answered.
        most = max(most, 0, *list(daemon.desk.lanes._taken_by.values()))
        honest.pump()
    assert 1 <= most <= MAX_TAKEN
    for peer, requests in zip(asking, asked, strict=True):
        answers = peer.messages_until_closed()
        assert sorted(answer["id"] for answer in answers) == requests
        assert {answer["error"]["code"] for answer in answers} == {"not_found"}
