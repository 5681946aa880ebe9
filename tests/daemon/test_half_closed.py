"""A peer that has ended its input gets its answers, if it reads them; if not, its place is free again after a while."""

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhpd.config import Config
from dhpd.server import connection as connection_module
from dhpd.server.commons import Commons
from tests.support.in_process_daemon import InProcessDaemon
from tests.support.wire_client import WireClient

PAGES = 300
QUIET = {
    "max_prepared": 32,
    "opened": lambda _: True,
    "worked": lambda: None,
    "waiting": lambda _: 0,
    "is_full": lambda _: False,
    "input_ended": lambda _: None,
    "closed": lambda _: None,
}
"""A desk to which nothing comes."""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessDaemon]:
    """It has room for four connections, little patience, and a handoff whose checkpoints are long."""
    monkeypatch.setattr(connection_module, "UNREAD_S", 0.1)
    with InProcessDaemon(tmp_path, max_connections=4) as running:
        yield running


@pytest.fixture
def client(daemon: InProcessDaemon) -> Iterator[WireClient]:
    with WireClient(daemon.address) as opened:
        yield opened


def ask_for_much(peer: WireClient, handoff: str) -> list[int]:
    """Far more than the sockets and the daemon hold for a peer that doesn't read."""
    return [peer.send("last_checkpoint", handoff=handoff) for _ in range(PAGES)]


@pytest.fixture
def handoff(client: WireClient) -> str:
    handoff = client.dispatch()
    fence = client.claim(handoff=handoff, ttl_ms=600_000)["fence"]
    client.call("checkpoint", handoff=handoff, fence=fence, state="x" * 500_000)
    return handoff


def test_one_that_never_reads_loses_its_place(daemon: InProcessDaemon, client: WireClient, handoff: str) -> None:
    with WireClient(daemon.address) as still_there, WireClient(daemon.address) as gone:
        asked = ask_for_much(still_there, handoff)
        ask_for_much(gone, handoff)
        gone.half_close()
        while daemon.connections > 2:
            client.pump()
        # Whoever may still send something reads when it likes.
        assert len(still_there.result(asked[-1])["checkpoint"]["state"]) == 500_000


def test_one_that_ends_its_input_while_its_answers_are_unread_loses_its_place_as_well(
    daemon: InProcessDaemon, client: WireClient, handoff: str
) -> None:
    with WireClient(daemon.address) as gone:
        ask_for_much(gone, handoff)
        stuck = gone_quiet(daemon)
        gone.half_close()
        while daemon.connections > 1:
            client.pump()
        assert stuck


def gone_quiet(daemon: InProcessDaemon) -> bool:
    """Returns once some connection takes no more."""
    while not any(not one.outbox.writable.is_set() for one in list(daemon.desk.connections.values())):
        time.sleep(0.001)
    return True


def test_one_that_reads_gets_every_answer(daemon: InProcessDaemon, handoff: str) -> None:
    with WireClient(daemon.address) as peer:
        asked = ask_for_much(peer, handoff)
        peer.half_close()
        assert [answer["id"] for answer in peer.messages_until_closed()] == asked


class SlowPeer:
    """A transport to somebody who has ended its input, and reads a little at each look until `reads` is used up."""

    def __init__(self, reads: int) -> None:
        self.reads = reads
        self.unsent_bytes = 1_000_000
        self.aborted = asyncio.Event()
        self.closing = False

    def get_extra_info(self, name: str) -> Any:
        return SimpleNamespace(family=socket.AF_UNIX, fileno=lambda: -1) if name == "socket" else None

    def get_write_buffer_size(self) -> int:
        if self.reads:
            self.reads -= 1
            self.unsent_bytes -= 1
        return self.unsent_bytes

    def set_write_buffer_limits(self, high: int) -> None: ...

    def write(self, data: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted.set()


@pytest.mark.parametrize("all_was_said", [True, False])
async def test_one_that_reads_slowly_is_given_up_when_it_reads_no_more(
    monkeypatch: pytest.MonkeyPatch, all_was_said: bool
) -> None:
    monkeypatch.setattr(connection_module, "UNREAD_S", 0.0)
    monkeypatch.setattr(connection_module, "has_ended", lambda _: True)
    loop = asyncio.get_running_loop()
    commons = Commons(Config(), loop.time, loop.call_soon)
    connection = connection_module.Connection(1, cast("Any", SimpleNamespace(**QUIET)), commons)
    peer = SlowPeer(1_000)
    connection.connection_made(cast("Any", peer))
    connection.send_event(b"{}")
    connection.flush()
    if all_was_said:
        connection.eof_received()
        assert peer.closing
    else:
        connection.pause_writing()
    await peer.aborted.wait()
    assert not peer.reads
    connection.connection_lost(None)


def test_those_for_whom_there_is_no_room_leave_nothing_behind(daemon: InProcessDaemon, client: WireClient) -> None:
    taken = [WireClient(daemon.address) for _ in range(3)]
    for one in taken:
        one.pump()
    for _ in range(20):
        with WireClient(daemon.address) as refused:
            assert refused.receive()["error"]["code"] == "overloaded"
            refused.half_close()
            assert refused.receive_until_closed() == b""
    client.pump()
    assert not daemon.desk._ended_inputs
    for one in taken:
        one.half_close()
        one.receive_until_closed()
        one.close()
    while daemon.connections > 1:
        client.pump()
    assert not daemon.desk._ended_inputs
