"""The daemon may have as many files open as its connections need, or takes no more connections than it has files for."""

import contextlib
import resource
from pathlib import Path

from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient


def limited(soft: int, hard: int) -> list[str]:
    """What to start a process with, so that it may have so many files open."""
    return ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$0" "$@"']


def test_a_low_soft_limit_is_raised_to_what_the_connections_need(tmp_path: Path) -> None:
    with (
        DaemonProcess(tmp_path / "data", wrapper=limited(100, 1_000), env={"DHPD_MAX_CONNECTIONS": "500"}) as daemon,
        contextlib.ExitStack() as stack,
    ):
        soft, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        assert (500 < soft <= hard, hard) == (True, 1_000)
        peers = [stack.enter_context(WireClient(daemon.address)) for _ in range(200)]
        for peer in peers:
            peer.pump()
        assert "max_connections" not in daemon.stderr


def test_where_the_hard_limit_is_too_low_those_too_many_are_told_so(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", wrapper=limited(100, 150)) as daemon, contextlib.ExitStack() as stack:
        assert "max_connections = 10000" in daemon.stderr
        taken = []
        while True:
            peer = WireClient(daemon.address)
            peer.send("ping")
            answer = peer.receive()
            if not answer["ok"]:
                break
            taken.append(stack.enter_context(peer))
        peer.close()
        assert answer["error"]["code"] == "overloaded"
        assert 50 < len(taken) < 150
        for _ in range(200):
            with WireClient(daemon.address) as refused:
                assert refused.receive()["error"]["code"] == "overloaded"
        # Those who were there go on, and so does the store.
        for number, one in enumerate(taken):
            one.dispatch(key=str(number))
