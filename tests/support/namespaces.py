"""A network of three namespaces: a worker's, a daemon's, and the router's between them, where traffic can be stopped.

Owns the namespaces, which live as long as the processes in them, and so leave nothing behind however a test ends; and what
a router or a cable does to traffic. Needs root and `TOOLS`.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from types import TracebackType

TOOLS = ("ip", "ss", "nsenter", "sysctl", "unshare")
DAEMONS_HOST = "10.77.2.2"
WORKERS_HOST = "10.77.1.2"
ROUTER = ((WORKERS_HOST, "worker", "10.77.1.1"), (DAEMONS_HOST, "daemon", "10.77.2.1"))


def missing() -> str | None:
    """Why there can't be such a network here; None where there can."""
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"there is no {', '.join(lacking)}"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return f"no network namespace is to be had: {tried.stderr.strip()}" if tried.returncode else None


class Namespace:
    """One network namespace; `enter` is a command that becomes the one that follows it, in there."""

    def __init__(self) -> None:
        # It ends when its input does, so also when the tests are killed; the namespace goes with its last process.
        keeps = "ip link set lo up && echo ready && exec cat"
        command = ["unshare", "--net", "sh", "-c", keeps]
        self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == "ready\n"
        self.pid = self._keeper.pid
        self.enter = ["nsenter", "--target", str(self.pid), "--net", "--"]

    def run(self, command: str) -> str:
        return subprocess.run([*self.enter, *command.split()], check=True, stdout=subprocess.PIPE, text=True).stdout

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.communicate()


class Network:
    """`with Network() as network:`; processes are started with `network.worker.enter` or `network.daemon.enter`."""

    def __init__(self) -> None:
        self.worker, self.daemon, self.router = (Namespace() for _ in range(3))

    def __enter__(self) -> "Network":
        self.router.run("sysctl -q -w net.ipv4.ip_forward=1")
        for namespace, (host, port, gateway) in zip((self.worker, self.daemon), ROUTER, strict=True):
            self.router.run(f"ip link add {port} type veth peer name line netns {namespace.pid}")
            self.router.run(f"ip address add {gateway}/24 dev {port}")
            self.router.run(f"ip link set {port} up")
            namespace.run(f"ip address add {host}/24 dev line")
            namespace.run("ip link set line up")
            namespace.run(f"ip route add default via {gateway}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for namespace in (self.worker, self.daemon, self.router):
            namespace.close()

    @contextlib.contextmanager
    def stopped(self, how: str) -> Iterator[None]:
        """No packet gets through: "unplugged", "dropped" by the router without a word, or "rejected" by it."""
        self._traffic(how, stopped=True)
        try:
            yield
        finally:
            self._traffic(how, stopped=False)

    def reset(self) -> int:
        """Destroys every connection of the daemon, whose peers get a reset; how many there were. Not every kernel can."""
        killed = self.daemon.run(f"ss --kill --no-header --tcp state established src {DAEMONS_HOST}")
        return len(killed.splitlines())

    def _traffic(self, how: str, *, stopped: bool) -> None:
        if how == "unplugged":
            self.router.run(f"ip link set worker {'down' if stopped else 'up'}")
            return
        route = {"dropped": "blackhole", "rejected": "prohibit"}[how]
        for host in (WORKERS_HOST, DAEMONS_HOST):
            self.router.run(f"ip route {'add' if stopped else 'delete'} {route} {host}/32")
