"""Strangers with every right to speak, who say the most tiresome things: `strangers.py ADDRESS KIND`.

Run as a process of its own (`Stranger`). Owns what is sent: well-formed requests that are as dear to take in as a
stranger could make them, without end. Of one kind of stranger (`KINDS`) each has a connection, and sends a few at a time; of
the other (`CROWDS`) each has many connections, and sends bursts on all of them at once, as fast as they are taken.
"""

import itertools
import os
import random
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

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
    """Sends on all of the connections whatever they take, and reads whatever comes."""
    selector = selectors.DefaultSelector()
    with WireClient(address) as client:
        own = talk is long_states  # A checkpoint is that of one holder.
        said = [talk(client)] * connections if not own else [talk(client) for _ in range(connections)]
        bursts = [b"".join(frame({"id": 1, **one}, counted=True) for one in burst) for burst in said]
        for burst in bursts:
            sock = open_socket(address)
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, [memoryview(burst), 0])
        print("talking", flush=True)
        while True:
            for key, events in selector.select():
                sock = key.fileobj  # type: ignore[assignment]
                if events & selectors.EVENT_READ:
                    sock.recv(PIECE_BYTES)
                if events & selectors.EVENT_WRITE:
                    data, at = key.data
                    key.data[1] = (at + sock.send(data[at : at + PIECE_BYTES])) % len(data)


def main(address: str, kind: str) -> None:
    sys.set_int_max_str_digits(0)
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
