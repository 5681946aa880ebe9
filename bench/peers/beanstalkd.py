"""beanstalkd: put of a 1 KB job, and the whole way of one (put, reserve, delete).

Owns beanstalkd's settings and what is measured with it. The load comes from the load generator; each connection uses a
tube of its own, as each of ours has a handoff.
"""

from collections.abc import Iterator
from functools import partial

from bench import debian
from bench.figures import Figure
from bench.peers import loads, servers
from bench.setting import Setting

NAME = "beanstalkd"
DURABILITY = (
    "-b DIR -f 0: each put and each delete is written to the log and followed by an fsync of its own before it is answered "
    "(none is shared between connections). A reserve isn't logged: after a crash the job is ready again. The log's directory "
    "is never synced, and an fsync that fails is only reported on stderr: the put is answered INSERTED all the same."
)

LOADS = (
    loads.PeerLoad("put/1KB", "beanstalkd-put", connections=1, depth=1),
    loads.PeerLoad("put/1KB", "beanstalkd-put", connections=64, depth=1),
    loads.PeerLoad("put/1KB", "beanstalkd-put", connections=64, depth=16),
    loads.PeerLoad("life", "beanstalkd-life", connections=64, depth=1),
)


def measure(setting: Setting) -> Iterator[Figure]:
    """Rates per second and latencies of each of LOADS, each with a fresh server. Raises `Unavailable` without beanstalkd."""
    program, version = debian.program("beanstalkd", "beanstalkd", "-v", setting.debian)
    serving = partial(servers.serving, program, _arguments, b"list-tube-used\r\n", b"USING")
    yield from loads.measured(setting, NAME, LOADS, serving, note=version)


def _arguments(port: int) -> list[str]:
    return ["-l", "127.0.0.1", "-p", str(port), "-b", ".", "-f", "0"]
