"""What the load generator is to do with a peer's server, and the figures that come of it.

Owns the names of these figures. Does not own the generator, nor the server.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct

from bench import generator
from bench.figures import Figure
from bench.setting import Setting

KILOBYTE = 1024


class PeerLoad(Struct, frozen=True):
    """`work` names it in the figures; `mode` is the generator's. `depth` requests are outstanding on each connection."""

    work: str
    mode: str
    connections: int
    depth: int


Serving = Callable[[Path], AbstractContextManager[str]]
"""A fresh server in an empty folder; gives its address."""


def measured(setting: Setting, peer: str, loads: Sequence[PeerLoad], serving: Serving, note: str) -> Iterator[Figure]:
    """The figures of each load, each with a server of its own."""
    for number, load in enumerate(loads):
        folder = setting.folder / f"{peer}-{number}"
        folder.mkdir()
        with serving(folder) as address:
            yield from _measured(setting, peer, load, address, note)


def _measured(setting: Setting, peer: str, load: PeerLoad, address: str, note: str) -> Iterator[Figure]:
    """`peers/PEER/WORK/WxD/{rate,p50,p99}` with payloads of 1 KB; raises where anything was answered otherwise than it should."""
    told = generator.run(setting, load.mode, address, connections=load.connections, depth=load.depth, bytes=KILOBYTE)
    name = f"peers/{peer}/{load.work}/{load.connections}x{load.depth}"
    yield Figure(f"{name}/rate", told.per_second, "1/s", note)
    yield Figure(f"{name}/p50", told.p50_us / 1000, "ms", note)
    yield Figure(f"{name}/p99", told.p99_us / 1000, "ms", note)
