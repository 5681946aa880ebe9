"""Handshakes that aren't done: each has its time, they take turns with everything else, and too many cost only themselves."""

import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dhpd.server.handshakes import FEWEST, MOST, SAY_AT_MOST, SAY_WITHIN_S, Handshakes
from tests.security.authority import Authority, Identity
from tests.security.conftest import encrypted, plain
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

STEP_S = 0.0004


class Timer:
    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A clock, and what is to be called."""

    def __init__(self, most: int = 100) -> None:
        self.now_s = 0.0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Timer] = []
        self.most = most
        self.handshakes = Handshakes(lambda: self.most, 5_000, lambda: self.now_s, self.soon.append, self.call_later)

    def call_later(self, delay_s: float, action: Callable[[], None]) -> Timer:
        assert delay_s == 5.0
        self.timers.append(Timer(action))
        return self.timers[-1]

    def run_pass(self) -> None:
        due, self.soon[:] = self.soon[:], []
        for action in due:
            action()


class Peer:
    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.steps = 0
        self.given_up = False

    def step(self) -> None:
        self.loop.now_s += STEP_S
        self.steps += 1

    def give_up(self) -> None:
        self.given_up = True


def test_a_pass_of_the_loop_takes_a_few_steps_and_leaves_the_rest_to_the_next() -> None:
    loop = Loop()
    peers = [Peer(loop) for _ in range(7)]
    for peer in peers:
        loop.handshakes.began(peer, "a peer")
        loop.handshakes.line_up(peer)
    done = []
    while loop.soon:
        assert len(loop.soon) == 1
        loop.run_pass()
        done.append(sum(peer.steps for peer in peers))
    assert done == [3, 6, 7]


def test_a_mistake_in_one_step_costs_the_others_nothing() -> None:
    loop = Loop()

    class Broken(Peer):
        def step(self) -> None:
            raise RuntimeError("a mistake")

    broken, sound = Broken(loop), Peer(loop)
    loop.handshakes.line_up(broken)
    loop.handshakes.line_up(sound)
    with pytest.raises(RuntimeError):
        loop.run_pass()
    loop.run_pass()
    assert sound.steps == 1


def test_who_takes_too_long_is_given_up_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    slow, quick = Peer(loop), Peer(loop)
    loop.handshakes.began(slow, "192.0.2.1")
    loop.handshakes.began(quick, "192.0.2.2")
    loop.handshakes.ended(quick)
    assert [timer.cancelled for timer in loop.timers] == [False, True]
    loop.timers[0].action()
    assert slow.given_up
    assert not quick.given_up
    assert "no TLS with 192.0.2.1: it wasn't done within 5000 ms" in caplog.text
    assert len(loop.handshakes) == 0


def test_where_there_are_too_many_the_oldest_goes() -> None:
    loop = Loop(most=FEWEST + 4)
    peers = [Peer(loop) for _ in range(FEWEST + 10)]
    for peer in peers:
        loop.handshakes.began(peer, "a peer")
    assert [peer.given_up for peer in peers] == [True] * 6 + [False] * (FEWEST + 4)
    loop.most = 1_000_000
    more = [Peer(loop) for _ in range(MOST)]
    for peer in more:
        loop.handshakes.began(peer, "a peer")
    assert len(loop.handshakes) == MOST
    assert not any(peer.given_up for peer in more)
    loop.most = -3  # All places are taken: a few may still hear so.
    loop.handshakes.began(Peer(loop), "a peer")
    assert len(loop.handshakes) == FEWEST


def test_the_log_isnt_filled_by_strangers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    loop = Loop()
    for _ in range(1_000):
        loop.handshakes.failed("a peer", "it doesn't speak TLS")
    assert len(caplog.records) == SAY_AT_MOST
    loop.now_s += SAY_WITHIN_S
    loop.handshakes.failed("a peer", "it doesn't speak TLS")
    assert f"and with {1_000 - SAY_AT_MOST} others" in caplog.text


def test_half_done_handshakes_cost_nobody_else_a_place(tmp_path: Path, authority: Authority, server: Identity) -> None:
    env = {"DHPD_MAX_CONNECTIONS": "20", "DHPD_HANDSHAKE_WITHIN_MS": "600000"}
    with DaemonProcess(tmp_path / "data", arguments=server.flags, env=env) as daemon:
        silent = [plain(daemon) for _ in range(60)]
        for sock in silent[: 60 - FEWEST : 2]:
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"\x16\x03\x01\x02\x00\x01")  # A ClientHello's beginning.
        with WireClient(encrypted(daemon, authority)) as honest:
            honest.call("ping")
            assert all(ended(sock) for sock in silent[: 60 - FEWEST])
            honest.call("ping")
        for sock in silent:
            sock.close()


def test_a_handshake_that_takes_too_long_is_ended_and_told_of(tmp_path: Path, server: Identity) -> None:
    env = {"DHPD_HANDSHAKE_WITHIN_MS": "300"}
    with DaemonProcess(tmp_path / "data", arguments=server.flags, env=env) as daemon:
        with plain(daemon) as silent, plain(daemon) as begun:
            begun.sendall(b"\x16\x03\x01\x02\x00\x01")
            assert ended(silent)
            assert ended(begun)
        assert "no TLS with 127.0.0.1: it wasn't done within 300 ms" in daemon.stderr


def ended(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True
