"""A host that vanishes without a word is found, idle or in the middle of something, and its connections make way."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client_worker import ClientWorker
from tests.support.daemon_process import DaemonProcess
from tests.support.namespaces import DAEMONS_HOST, Network
from tests.support.wire_client import WireClient

VANISHED_MS = 1_500
LONG_MS = 600_000


@pytest.fixture
def daemon(network: Network, tmp_path: Path) -> Iterator[DaemonProcess]:
    listen = (f"{DAEMONS_HOST}:0", f"unix:{tmp_path}/dhpd.sock")
    with DaemonProcess(
        tmp_path / "data",
        listen=listen,
        arguments=["--insecure"],
        wrapper=network.daemon.enter,
        env={"DHPD_VANISHED_MS": str(VANISHED_MS)},
    ) as running:
        yield running
    assert "Traceback" not in running.stderr


def test_connections_of_a_host_that_vanished_are_gone_and_those_of_one_that_is_silent_stay(
    network: Network, daemon: DaemonProcess
) -> None:
    with (
        WireClient(daemon.unix) as client,
        ClientWorker(daemon.tcp, "async", wrapper=network.worker.enter) as worker,
    ):
        handoff = client.dispatch()
        worker.call("claim", kinds="work", ttl_ms=LONG_MS)
        while client.call("stats")["connections"] < 3:
            pass  # One of the two over TCP renews its leases.
        worker.pause()  # Its host still answers for it, however silent it is itself.
        empty = client.call("recover", worker="w", handoff=handoff, wait_ms=2 * VANISHED_MS)
        assert empty["handoff"] is None
        assert client.call("stats")["connections"] == 3
        with network.stopped("dropped"):
            client.call("cancel", handoff=handoff)  # What is told to it is on its way, and never confirmed.
            while (now := client.call("stats"))["connections"] > 1:
                pass
        assert now["limits_hit"]["connections_vanished"] == 2
