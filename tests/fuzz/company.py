"""A real daemon, strangers who send it random bytes, and an honest client beside them.

Owns what strangers say and what the honest client must be answered. Raises AssertionError where one of them isn't served as
it should be.
"""

import contextlib
import random
import socket
import threading
import time
from hashlib import sha256
from pathlib import Path

from tests.daemon.conftest import assert_no_mistake
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient, open_socket

from . import inputs
from .targets import of_vectors

STRANGERS = 6
ROOM_BYTES = 96 * 1024 * 1024
"""So much may all the strangers' connections and their unfinished frames hold at once, and what they make in a few seconds."""
TOKENS = {"honest": ["admin"], "stranger": ["worker", "dispatcher", "approver"]}
"""A stranger who may do everything would drain the daemon before long."""


class Stranger(threading.Thread):
    """Opens connections, and says on each a few streams of bytes that nobody would; reads what comes, or doesn't."""

    def __init__(self, address: str, seed: str) -> None:
        super().__init__(daemon=True)
        self.said_bytes = 0
        self.heard_bytes = 0
        self.over = threading.Event()
        self._address = address
        self._rng = random.Random(seed)
        self._frames = of_vectors("frames", inputs.frames)
        self._requests = of_vectors("requests", inputs.request)
        self._dialogues = of_vectors("dialogues", inputs.request)

    def run(self) -> None:
        while not self.over.is_set():
            with contextlib.suppress(OSError), open_socket(self._address) as connected:
                connected.settimeout(0.02)
                if self._rng.random() < 0.9:
                    connected.sendall(b'{"op":"hello","token":"stranger"}\n')
                for _ in range(self._rng.randrange(1, 12)):
                    self._say(connected)
                    if self._rng.random() < 0.8:
                        self._hear(connected)
                if self._rng.random() < 0.3:
                    connected.shutdown(socket.SHUT_WR)
                    self._hear(connected)

    def _say(self, connected: socket.socket) -> None:
        data = self._stream()
        for start in range(0, len(data), step := self._rng.choice((1_000_000, 1_000_000, 97, 7))):
            connected.sendall(data[start : start + step])
        self.said_bytes += len(data)

    def _stream(self) -> bytes:
        rng = self._rng
        if rng.random() < 0.3:
            return self._frames(rng)
        body = (self._requests if rng.random() < 0.5 else self._dialogues)(rng)
        return body + b"\n" if rng.random() < 0.5 else b"%d %b\n" % (len(body), body)

    def _hear(self, connected: socket.socket) -> None:
        with contextlib.suppress(TimeoutError):
            while data := connected.recv(65_536):
                self.heard_bytes += len(data)


def lives(client: WireClient, number: int) -> None:
    """One handoff from its dispatch to its end, every answer of which is known beforehand."""
    kind = f"honest-{number}"
    handoff = client.dispatch(kind, inputs={"n": number})
    claimed = client.claim(kind, ttl_ms=60_000)
    assert claimed["handoff"] == handoff
    fence = claimed["fence"]
    for seq in range(1, 6):
        stored = client.call("checkpoint", handoff=handoff, fence=fence, seq=seq, state={"at": seq})
        assert (stored["seq"], stored["duplicate"]) == (seq, False)
    assert client.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["renewed"] == [handoff]
    assert client.refused("checkpoint", handoff=handoff, fence=fence + 1, state=0).code == "lease_lost"
    client.call("complete", handoff=handoff, fence=fence, result={"n": number})
    assert client.call("result", handoff=handoff)["result"] == {"n": number}
    types = [record["type"] for record in client.history(handoff)]
    assert types == ["dispatched", "claimed", *["checkpointed"] * 5, "completed"]


def keep_company(folder: Path, seed: str, seconds: float) -> int:
    """Has strangers talk to a daemon for so long, and an honest client beside them; how many handoffs that one had."""
    with DaemonProcess(folder / "data", arguments=("--tokens", str(_token_file(folder)))) as daemon:
        strangers = [Stranger(daemon.tcp, f"{seed}:{number}") for number in range(STRANGERS)]
        before_bytes, pid = daemon.rss_bytes, daemon.pid
        for one in strangers:
            one.start()
        number = 0
        try:
            with WireClient(daemon.tcp) as client:
                client.call("hello", token="honest")
                until_s = time.monotonic() + seconds
                while time.monotonic() < until_s or number < 5:
                    lives(client, number)
                    number += 1
                assert client.stray == [], "what is meant for others comes to nobody else"
        finally:
            for one in strangers:
                one.over.set()
            for one in strangers:
                one.join(20)
        with WireClient(daemon.tcp) as client:
            client.call("hello", token="honest")
            lives(client, number)
        assert (daemon.alive, daemon.pid) == (True, pid)
        assert daemon.rss_bytes - before_bytes < ROOM_BYTES
        assert all(one.said_bytes > 1_000 and one.heard_bytes > 1_000 for one in strangers), "somebody said nothing"
    assert_no_mistake(daemon)
    return number


def _token_file(folder: Path) -> Path:
    entries = (
        f'[[token]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\nroles = {roles}\n'
        for name, roles in TOKENS.items()
    )
    file = folder / "tokens.toml"
    file.write_text("\n".join(entries))
    return file
