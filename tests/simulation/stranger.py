"""A simulated stranger: connects, sends what is no good, and goes.

Owns bad input of every kind, through the real framing: bytes that are no frame, bodies that are no JSON, requests with wrong
members, of wrong operations, about handoffs that there are not. It must hear of each what is wrong, and nobody else may fare
otherwise for it; so it takes none of the chances that others have (`Pipe`).
"""

import msgspec

from dhp_protocol.framing import Fault, Frame, Framer
from dhp_protocol.replies import error_reply_body

from .checks import Checks
from .daemon import SimulatedDaemon
from .world import Pipe, World

MAX_FRAME_BYTES = 2_000
NOBODYS = "0" * 64
GARBAGE = (
    b"\x00\xff\xfe garbage\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"{\n",
    b"{}\n",
    b'{"op":"status"\n',
    b'{"op":"status","op":"ping"}\n',
    b'{"op":"take over"}\n',
    b'{"op":"claim","worker":7,"kinds":[]}\n',
    b'{"op":"dispatch","kind":"","inputs":[]}\n',
    b'{"op":"dispatch","kind":"alpha","inputs":{"n":9007199254740993}}\n',
    b'{"op":"heartbeat","leases":[{"handoff":"x","fence":-1}]}\n',
    b'{"op":"spend","handoff":"%s","fence":1,"usd":-1}\n' % NOBODYS.encode(),
    b'{"op":"checkpoint","handoff":"%s","fence":1,"state":{"unknown":1}}\n' % NOBODYS.encode(),
    b'{"op":"status","handoff":"%s"}\n' % NOBODYS.encode(),
    b'{"op":"complete","handoff":"%s","fence":9007199254740991,"result":1,"more":1}\n' % NOBODYS.encode(),
    b"99999999999 {}\n",
    b"0 \n",
    b"5000 " + b"x" * 5_000 + b"\n",
    b"7 {}\n" + b"x" * 40 + b"\n",
    b"[" * 300 + b"\n",
    b'{"op":' + b"[" * 500 + b"}\n",
    b'{"op":"ping","id":"\xc3("}\n',
    b"{" + b" " * 3_000 + b"}\n",
)


class Stranger:
    """Comes again and again until `until_ms`."""

    def __init__(self, world: World, daemon: SimulatedDaemon, checks: Checks, until_ms: int) -> None:
        self._world = world
        self._daemon = daemon
        self._checks = checks
        self._until_ms = until_ms
        self._dice = world.dice("stranger")
        self._pipe: Pipe | None = None
        self._framer = Framer(MAX_FRAME_BYTES)
        self._later(self._come)

    def _later(self, what: "object") -> None:
        self._world.at(self._dice.between(50, 800), what, self._dice.random())  # type: ignore[arg-type]

    def _come(self) -> None:
        self._pipe = self._daemon.connect(self._dice, lambda body: None, lambda: None, strange=True)
        self._framer = Framer(MAX_FRAME_BYTES)
        self._later(self._say)

    def _say(self) -> None:
        pipe = self._pipe
        if self._world.now_ms > self._until_ms:
            if pipe is not None:
                self._daemon.hang_up(pipe)
            return
        if pipe is None or not pipe.open or self._dice.chance(10):
            if pipe is not None:
                self._daemon.hang_up(pipe)
            self._later(self._come)
            return
        data = self._dice.choice(GARBAGE)
        if self._dice.chance(20):
            data = bytes(self._dice.choice(data) for _ in range(20)) + b"\n"
        pipe.deliver("up", lambda: self._arrives(pipe, data))
        self._later(self._say)

    def _arrives(self, pipe: Pipe, data: bytes) -> None:
        """As a connection does it: each frame is a request, and what is none is answered, and ends the connection where it must."""
        for item in self._framer.feed(data):
            if isinstance(item, Frame):
                self._daemon.receive(pipe, item.body)
                continue
            assert isinstance(item, Fault)
            self._checks.answers_stranger(error_reply_body(msgspec.UNSET, item.error))
            if item.close:
                self._daemon.hang_up(pipe)
                return
