"""`dhp conform` comes to its end whatever the daemon says: without an end, too slowly, or nothing that can be read."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat

import pytest

from dhp_client.addresses import SocketAddress, TcpAddress
from dhp_client.conform.bench import Target, learn_terms
from dhp_client.conform.judging import Unlike

Said = Callable[[], Iterator[bytes]]


def events() -> Iterator[bytes]:
    """Nothing but events."""
    return repeat(b'{"event":"draining","after_ms":0,"more":"%b"}\n' % (b"x" * 16_384))


def one_line() -> Iterator[bytes]:
    """A line without an end."""
    return repeat(b"x" * 65_536)


def single_bytes() -> Iterator[bytes]:
    """Something all the time, and never a whole line."""
    while True:
        time.sleep(0.02)
        yield b" "


def deep() -> Iterator[bytes]:
    """Deeper than anybody reads."""
    yield b'{"id":1,"ok":true,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"


def no_error() -> Iterator[bytes]:
    """A refusal that is none, and terms that are none."""
    yield b'{"id":1,"ok":false,"error":5}\n'
    yield b'{"id":1,"ok":true,"protocol":"dhp/1","roles":5,"limits":5,"lease":5}\n'
    yield b'{"id":2,"ok":true,"durability":5}\n'


@contextlib.contextmanager
def daemon_that_says(said: Said) -> Iterator[SocketAddress]:
    listener = socket.create_server(("127.0.0.1", 0))

    def talk() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as peer:
            peer.recv(1)
            for piece in said():
                peer.sendall(piece)
            while peer.recv(65_536):
                pass

    talking = threading.Thread(target=talk)
    talking.start()
    try:
        yield TcpAddress(*listener.getsockname())
    finally:
        listener.close()
        talking.join()


@pytest.mark.parametrize("said", [events, one_line, single_bytes, deep, no_error], ids=lambda said: said.__name__)
def test_a_daemon_that_says_what_nobody_can_use_is_told_so(said: Said) -> None:
    with daemon_that_says(said) as address, pytest.raises(Unlike):
        learn_terms(Target(address=address, answer_within_ms=2_000))
