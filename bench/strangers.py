"""Strangers with every right to speak, who say the most tiresome things: `strangers.py ADDRESS KIND`.

Run as a process of its own (`Stranger`). Owns what is sent: well-formed requests that are as dear to take in as a
stranger could make them, without end. Of one kind of stranger (`KINDS`) each has a connection, and sends a few at a time; of
another (`CROWDS`) each has many connections, and sends bursts on all of them at once, as fast as they are taken. A third kind
(`ABUSES`) doesn't mean to be answered: it says nothing, nonsense, too much or too little, at a rate that is stated.
"""

import itertools
import os
import random
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.wire_client import WireClient, frame, open_socket

IN_FLIGHT = 8
LONG_MS = 3_600_000
Requests = Iterator[dict[str, Any]]


class Stranger:
    """`with Stranger(daemon.tcp, "schemas"):` talks until the end of the block."""

    def __init__(self, address: str, kind: str) -> None:
        self._process = subprocess.Popen([sys.executable, __file__, address, kind], stdout=subprocess.PIPE)

    def __enter__(self) -> "Stranger":
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"talking\n", "the stranger could not begin"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def hold(client: WireClient, **members: Any) -> dict[str, Any]:
    """A handoff of its own, held: its id and fence."""
    handoff = client.dispatch("bad", key=str(os.getpid()), **members)
    return {"handoff": handoff, "fence": client.claim(handoff=handoff, ttl_ms=LONG_MS)["fence"]}


def doubles(count: int) -> list[float]:
    """Numbers that take long to write in canonical form."""
    return [random.random() * 10.0 ** random.randint(-300, 300) for _ in range(count)]


def schemas(_: WireClient) -> Requests:
    """Schemas that branch, recurse, and hold patterns that backtrack."""
    hostile: list[Any] = [
        {"type": "string", "pattern": "^(a+)+$"},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 50}}, "$ref": "#/$defs/a"},
        {"enum": doubles(20_000)},
        {"properties": {f"p{n}": {"anyOf": [{"const": n}, {"type": "null"}]} for n in range(5_000)}},
    ]
    nested: Any = {"type": "integer"}
    for _level in range(60):
        nested = {"allOf": [nested, {"not": {"const": 1}}], "anyOf": [True, {"minimum": 3}]}
    hostile.append(nested)
    for number in itertools.count():
        schema = hostile[number % len(hostile)]
        yield {"op": "dispatch", "kind": "bad", "inputs": {}, "key": str(number), "output_schema": schema}


def results(client: WireClient) -> Requests:
    """Long results that don't fit, again and again."""
    schema = {"items": {"anyOf": [{"type": "string", "pattern": "^(a|aa)+$"}, {"minimum": 5}]}}
    held = hold(client, output_schema=schema, budget={"max_invalid_results": 1_000_000})
    result = ["a" * 100 + "b", *range(100_000)]
    yield from itertools.repeat({"op": "complete", **held, "result": result})


def intents(_: WireClient) -> Requests:
    """Inputs and capabilities that take long to name."""
    many = doubles(40_000)
    for number in itertools.count():
        if number % 2:
            yield {"op": "dispatch", "kind": "bad", "key": str(number), "inputs": {"n": many}}
        else:
            granted = {"net": [f"host-{n}" for n in range(40_000)]}
            yield {"op": "dispatch", "kind": "bad", "key": str(number), "inputs": {}, "capabilities": granted}


def states(client: WireClient) -> Requests:
    """Checkpoints of the longest."""
    held = hold(client)
    state = "x" * 4_000_000
    yield from itertools.repeat({"op": "checkpoint", **held, "state": state})


def details(client: WireClient) -> Requests:
    """Approvals with the longest details."""
    held = hold(client)
    for number in itertools.count():
        yield {
            "op": "approval_request",
            **held,
            "action": "act",
            "details": [number, *doubles(2_500)],
            "timeout_ms": 60_000,
        }


def effects(client: WireClient) -> Requests:
    """As many effects as a handoff may have, each begun and done."""
    held = hold(client)
    for number in itertools.count():
        step = f"{number:0250}"
        yield {"op": "effect_begin", **held, "step": step}
        yield {"op": "effect_done", **held, "step": step, "result": number}


def bundles(_: WireClient) -> Requests:
    """Lines that are no bundle, as many as fit."""
    lines = [{"line": number, "chain": "0" * 64} for number in range(100_000)]
    yield from itertools.repeat({"op": "import", "records": lines})


def heartbeats(client: WireClient) -> Requests:
    """Renewals of as many leases as fit that nobody has."""
    handoff = client.dispatch("bad")
    leases = [{"handoff": handoff, "fence": number} for number in range(1_000)]
    yield from itertools.repeat({"op": "heartbeat", "leases": leases})


def numbers(_: WireClient) -> Requests:
    """Deep and broad values where an intent stands, and money with very many digits."""
    deep: Any = 0
    for _level in range(100):
        deep = [deep]
    while True:
        yield {"op": "dispatch", "kind": "bad", "inputs": {"deep": [deep] * 2_000}}
        yield {"op": "dispatch", "kind": "bad", "inputs": {}, "budget": {"max_usd": 10**4_000}}


KINDS: dict[str, Callable[[WireClient], Requests]] = {
    talk.__name__: talk for talk in (schemas, results, intents, states, details, effects, bundles, heartbeats, numbers)
}


# --- crowds ----------------------------------------------------------------------------------------------------------

BURST = 64
PIECE_BYTES = 256 * 1024
Said = dict[str, Any]


def short_doubles(_: WireClient) -> list[Said]:
    """Inputs below every bound that are full of numbers."""
    return [{"op": "dispatch", "kind": "bad", "inputs": {"n": [1e300] * 1_000}, "key": str(n)} for n in range(30)]


def short_integers(_: WireClient) -> list[Said]:
    """As many as fit in a few KB."""
    return [{"op": "dispatch", "kind": "bad", "inputs": {"n": [1] * 1_300}, "key": str(n)} for n in range(BURST)]


def short_schemas(_: WireClient) -> list[Said]:
    """Each a new one, of as many properties as are looked at on the spot."""
    schemas = [{"properties": {f"{os.getpid()}-{n}-{p}": {"type": "string"} for p in range(30)}} for n in range(BURST)]
    return [{"op": "dispatch", "kind": "bad", "inputs": {}, "output_schema": schema} for schema in schemas]


def short_details(client: WireClient) -> list[Said]:
    """Approvals, asked for again and again."""
    held = hold(client)
    asked = {"op": "approval_request", **held, "action": "act", "details": [1e300] * 1_000, "timeout_ms": 1}
    return [asked] * 30


def deep_spends(client: WireClient) -> list[Said]:
    """Spending that counts for 32 parents too."""
    parent: dict[str, Any] = {}
    for level in range(33):
        parent = {"parent": client.dispatch("bad", key=f"{os.getpid()}-{level}", **parent)}
    handoff = parent["parent"]
    fence = client.claim(handoff=handoff, ttl_ms=LONG_MS)["fence"]
    return [{"op": "spend", "handoff": handoff, "fence": fence, "steps": 1}] * BURST


def many_leases(_: WireClient) -> list[Said]:
    """Renewals that are just no long frame."""
    leases = [{"handoff": os.urandom(32).hex(), "fence": 1} for _ in range(600)]
    return [{"op": "heartbeat", "leases": leases}] * 7


def statuses(client: WireClient) -> list[Said]:
    """Cheap requests, as many as a burst has."""
    return [{"op": "status", "handoff": client.dispatch("bad")}] * BURST


def strays(_: WireClient) -> list[Said]:
    """Questions after what nobody has, each of which the store is asked for."""
    return [{"op": "status", "handoff": os.urandom(32).hex()} for _ in range(BURST)]


def long_states(client: WireClient) -> list[Said]:
    """The longest checkpoint."""
    handoff = client.dispatch("bad", key=os.urandom(8).hex())
    fence = client.claim(handoff=handoff, ttl_ms=LONG_MS)["fence"]
    return [{"op": "checkpoint", "handoff": handoff, "fence": fence, "state": "x" * 4_000_000}]


def mixed(client: WireClient) -> list[Said]:
    """Some of everything."""
    short = [talk(client) for talk in (short_doubles, short_schemas, short_details, many_leases, statuses, strays)]
    return [said for few in zip(*(itertools.islice(one, 7) for one in short), strict=True) for said in few]


Crowd = tuple[int, Callable[[WireClient], list[Said]]]

CROWDS: dict[str, Crowd] = {
    f"{connections}x{talk.__name__}": (connections, talk)
    for connections, talk in (
        (1, short_doubles),
        (1, short_integers),
        (1, short_schemas),
        (1, short_details),
        (1, deep_spends),
        (1, many_leases),
        (40, statuses),
        (40, strays),
        (40, short_doubles),
        (30, long_states),
        (60, mixed),
    )
}
"""By name: how many connections each stranger has, and the burst that each of them sends without end."""


def flood(address: str, connections: int, talk: Callable[[WireClient], list[Said]]) -> None:
    """Sends on all of the connections whatever they take, and reads whatever comes; one that the daemon ends is made anew."""
    selector = selectors.DefaultSelector()

    def connect(burst: memoryview) -> None:
        sock = open_socket(address)
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, [burst, 0])

    with WireClient(address) as client:
        own = talk is long_states  # A checkpoint is that of one holder.
        said = [talk(client)] * connections if not own else [talk(client) for _ in range(connections)]
        bursts = [b"".join(frame({"id": 1, **one}, counted=True) for one in burst) for burst in said]
        for burst in bursts:
            connect(memoryview(burst))
        print("talking", flush=True)
        while True:
            for key, events in selector.select():
                sock: socket.socket = key.fileobj  # type: ignore[assignment]
                data, at = key.data
                try:
                    if events & selectors.EVENT_READ and not sock.recv(PIECE_BYTES):
                        raise ConnectionResetError
                    if events & selectors.EVENT_WRITE:
                        key.data[1] = (at + sock.send(data[at : at + PIECE_BYTES])) % len(data)
                except ConnectionError:
                    selector.unregister(sock)
                    sock.close()
                    connect(data)


# --- abuse -----------------------------------------------------------------------------------------------------------

MIB = 1024 * 1024
ALL_ABUSES = "all-at-once"
ABUSE_EVERY_S = 0.01
AGAIN_PER_S = 20
"""So many whom the daemon has closed come again in a second."""


class Abuse(NamedTuple):
    """What is said on each of the connections, again and again; `bytes_per_s` is what it comes to on all of them together.

    `new_per_s`: so many of them are closed in a second and others opened, those first that the daemon has closed.
    """

    connections: int
    bytes_per_s: int
    said: bytes
    new_per_s: int = 0


def asks(op: str, **members: Any) -> bytes:
    return frame({"op": op, "id": 1, **members}, counted=True)


LONG_FRAME = b'8388000 {"op":"dispatch","kind":"bad","inputs":{"x":"' + b"x" * 8_387_000

ABUSES: dict[str, Abuse] = {
    "idle": Abuse(1_000, 0, b"", new_per_s=50),
    "endless-lines": Abuse(20, 4 * MIB, b"x" * 65_536),
    "endless-requests": Abuse(20, 4 * MIB, b'{"op":"' + b"x" * 65_536),
    "garbage": Abuse(20, MIB, random.Random(1).randbytes(65_536)),
    "huge-counts": Abuse(20, MIB, b"9999999999 {}\n" * 100 + b"99999999999999 {}\n", new_per_s=50),
    "deaf": Abuse(100, MIB // 32, asks("stats") + asks("list") + asks("history", handoff="0" * 64)),
    "deaf-watchers": Abuse(100, MIB // 128, asks("watch", after=0)),
    "unfinished": Abuse(60, 16 * MIB, LONG_FRAME),
    "unfinished-lines": Abuse(60, 16 * MIB, b'{"op":"ping","x":"' + b"x" * 8_000_000),
    "waits": Abuse(100, MIB // 8, asks("claim", worker="w", kinds=[f"k{n}" for n in range(64)], wait_ms=LONG_MS)),
}


class Abuser:
    """One kind of abuse: `act` goes on with it for a moment."""

    def __init__(self, address: str, abuse: Abuse) -> None:
        self._address = address
        self._abuse = abuse
        self._sockets = [self._open() for _ in range(abuse.connections)]
        self._said = [0] * abuse.connections
        self._next = 0
        self._closed: set[int] = set()
        self._allowed_bytes = self._allowed_new = 0.0

    def act(self, passed_s: float) -> None:
        self._allowed_bytes = min(self._allowed_bytes, 0.0) + passed_s * self._abuse.bytes_per_s
        for _ in self._sockets if self._abuse.said else ():
            if self._allowed_bytes <= 0:
                break
            self._say(self._next)
            self._next = (self._next + 1) % len(self._sockets)
        self._allowed_new = min(self._allowed_new + passed_s * (self._abuse.new_per_s or AGAIN_PER_S), 10.0)
        while self._allowed_new >= 1 and (self._closed or self._abuse.new_per_s):
            self._allowed_new -= 1
            self._renew(self._closed.pop() if self._closed else self._next)
            self._next = (self._next + 1) % len(self._sockets)

    def _say(self, number: int) -> None:
        said = self._abuse.said
        at = self._said[number] % len(said)
        try:
            sent = self._sockets[number].send(said[at : at + PIECE_BYTES])
        except BlockingIOError:
            return
        except OSError:  # It was closed: so it comes again.
            self._closed.add(number)
            return
        self._said[number] += sent
        self._allowed_bytes -= sent

    def _renew(self, number: int) -> None:
        self._sockets[number].close()
        self._sockets[number] = self._open()
        self._said[number] = 0

    def _open(self) -> socket.socket:
        opened = open_socket(self._address)
        opened.setblocking(False)
        return opened


def abuse(address: str, kinds: list[str]) -> None:
    abusers = [Abuser(address, ABUSES[kind]) for kind in kinds]
    print("talking", flush=True)
    last_s = time.monotonic()
    while True:
        time.sleep(ABUSE_EVERY_S)
        now_s = time.monotonic()
        for abuser in abusers:
            abuser.act(now_s - last_s)
        last_s = now_s


def main(address: str, kind: str) -> None:
    sys.set_int_max_str_digits(0)
    if kind in (*ABUSES, ALL_ABUSES):
        abuse(address, list(ABUSES) if kind == ALL_ABUSES else [kind])
    if kind in CROWDS:
        flood(address, *CROWDS[kind])
    with WireClient(address) as client:
        said: dict[str, Any] = {}
        data = b""
        for number, request in enumerate(KINDS[kind](client)):
            if request is not said:  # What is said again isn't put into words again: that would be a pause.
                said, data = request, frame(request, counted=True)
            client.send_bytes(data)
            if number >= IN_FLIGHT:
                client.receive_line()
            if number == IN_FLIGHT:
                print("talking", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
