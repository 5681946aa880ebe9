"""Redis streams: XADD of a 1 KB entry, and the whole way of one (XADD, XREADGROUP, XACK).

Owns Redis's settings and what is measured with it. The load comes from the load generator; each connection has a stream of
its own, as each of ours has a handoff.
"""

from collections.abc import Iterator
from functools import partial

from bench import debian
from bench.figures import Figure
from bench.peers import loads, servers
from bench.setting import Setting

NAME = "redis-streams"
DURABILITY = (
    "appendonly yes, appendfsync always: all commands of one pass of the event loop are written to the log and made durable "
    "by one fdatasync before any of them is answered; if that fails, Redis ends and answers none. Entries, deliveries and "
    "acknowledgements are all in the log. Snapshots and rewrites of the log are off while it is measured."
)

SETTINGS = {
    "bind": "127.0.0.1",
    "dir": ".",
    "appendonly": "yes",
    "appendfsync": "always",
    "auto-aof-rewrite-percentage": "0",
    "save": "",
    "daemonize": "no",
}

LOADS = (
    loads.PeerLoad("xadd/1KB", "redis-xadd", connections=1, depth=1),
    loads.PeerLoad("xadd/1KB", "redis-xadd", connections=64, depth=1),
    loads.PeerLoad("xadd/1KB", "redis-xadd", connections=64, depth=16),
    loads.PeerLoad("life", "redis-life", connections=64, depth=1),
)


def measure(setting: Setting) -> Iterator[Figure]:
    """Rates per second and latencies of each of LOADS, each with a fresh server. Raises `Unavailable` without Redis."""
    program, version = debian.program("redis-server", "redis-server", "--version", setting.debian)
    serving = partial(servers.serving, program, _arguments, b"PING\r\n", b"+PONG")
    yield from loads.measured(setting, NAME, LOADS, serving, note=_short(version))


def _arguments(port: int) -> list[str]:
    settings = SETTINGS | {"port": str(port)}
    return [part for name, value in settings.items() for part in (f"--{name}", value)]


def _short(version: str) -> str:
    """`Redis 7.0.15` of `Redis server v=7.0.15 sha=…`."""
    numbers = [word.removeprefix("v=") for word in version.split() if word.startswith("v=")]
    return f"Redis {numbers[0]}" if numbers else version
