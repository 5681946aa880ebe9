"""Whoever says much stands behind whoever says little, and isn't read from while it stands there; without a daemon."""

import asyncio
import socket
from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import pytest

from dhpd.config import Config
from dhpd.server.commons import Commons
from dhpd.server.connection import LONG_READ_BYTES, SHORT_READ_BYTES, Connection

LOOK_S = 0.00005
"""Each look at the clock takes so long, and so does all else together."""
UNFINISHED = b'8388000 {"op":"dispatch","kind":"bad","inputs":{"x":"'
TOO_LONG = b"9999999999 {"


class Wire:
    """A transport that tells whether it is read from."""

    def __init__(self) -> None:
        self.reads = True
        self.socket = socket.socket(socket.AF_UNIX)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.socket if name == "socket" else default

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None: ...


class Desk:
    """Asks for nothing, and has room."""

    max_prepared = 32

    def __getattr__(self, name: str) -> Any:
        return lambda *_: name in ("opened",)


class Peers:
    """Connections, and the passes that they wait for."""

    def __init__(self) -> None:
        self.due: list[Any] = []
        moments = count()
        self.commons = Commons(Config(), lambda: next(moments) * LOOK_S, self.due.append)
        self.wires: list[Wire] = []

    def come(self, count: int, first: bytes) -> list[Connection]:
        """So many, who have begun to say something."""
        came = []
        for _ in range(count):
            self.wires.append(Wire())
            came.append(Connection(len(self.wires), cast(Any, Desk()), self.commons))
            came[-1].connection_made(cast(asyncio.Transport, self.wires[-1]))
            came[-1].data_received(first)
        while self.due:
            self.a_pass()
        return came

    def a_pass(self) -> None:
        due, self.due[:] = list(self.due), []
        for call in due:
            call()


@pytest.fixture
def peers() -> Iterator[Peers]:
    peers = Peers()
    yield peers
    for wire in peers.wires:
        wire.socket.close()


@pytest.mark.parametrize("first", [UNFINISHED, TOO_LONG])
def test_of_many_who_say_much_few_are_read_from_before_the_next_poll(peers: Peers, first: bytes) -> None:
    many = peers.come(100, first)
    for each in many:
        each.data_received(b"x" * LONG_READ_BYTES)
    assert not any(wire.reads for wire in peers.wires), "each stands in line"
    read_from = 0
    while not all(wire.reads for wire in peers.wires):
        peers.a_pass()
        before, read_from = read_from, sum(wire.reads for wire in peers.wires)
        assert 0 < read_from - before < 20


def test_who_says_little_comes_before_those_who_say_much(peers: Peers) -> None:
    [*many, honest] = peers.come(101, UNFINISHED[:1])
    for each in many:
        each.data_received(UNFINISHED[1:] + b"x" * SHORT_READ_BYTES)
    honest.data_received(b' {"op":1}\n')
    peers.a_pass()
    assert honest.frames == 1
