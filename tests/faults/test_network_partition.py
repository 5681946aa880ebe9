"""Worker and daemon on hosts of their own, and the network between them stops: unplugged, dropping, rejecting, resetting."""

import time
from collections.abc import Iterator

import pytest

from tests.faults.test_network_silence import assert_a_full_lease
from tests.support.client_worker import ClientWorker
from tests.support.daemon_process import DaemonProcess
from tests.support.namespaces import DAEMONS_HOST, Network
from tests.support.wire_client import WireClient

TTL_MS = 1_000
HOWS = pytest.mark.parametrize(("how", "flavour"), [("unplugged", "async"), ("dropped", "sync"), ("rejected", "async")])


@pytest.fixture(scope="module")
def shared_daemon(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """On a host of its own; its unix socket is reached from here."""
    folder = tmp_path_factory.mktemp("partition")
    listen = (f"{DAEMONS_HOST}:0", f"unix:{folder}/dhpd.sock")
    wrapper, arguments = network.daemon.enter, ["--insecure"]
    with DaemonProcess(folder / "data", listen=listen, arguments=arguments, wrapper=wrapper) as running:
        yield running
    assert "Traceback" not in running.stderr


@HOWS
def test_a_worker_cut_off_beyond_its_ttl_is_replaced_and_refused_when_it_is_back(
    network: Network, shared_daemon: DaemonProcess, standby: WireClient, kind: str, how: str, flavour: str
) -> None:
    handoff = standby.dispatch(kind)
    with ClientWorker(shared_daemon.tcp, flavour, wrapper=network.worker.enter) as worker:
        fence = worker.call("claim", kinds=kind, ttl_ms=TTL_MS)["fence"]
        worker.call("checkpoint", state={"page": 1})
        with network.stopped(how):
            worker.tell("checkpoint", state={"page": "too late"})
            taken = standby.claim(kind, wait_ms=60_000)
            assert (taken["handoff"], taken["was"], taken["checkpoint"]["state"]) == (handoff, "orphaned", {"page": 1})
            assert_a_full_lease(standby, handoff, TTL_MS)
            standby.call("checkpoint", handoff=handoff, fence=taken["fence"], state={"page": 2})
        assert worker.told() == {"error": "LeaseLost", "why": "superseded"}
        late = standby.refused("checkpoint", handoff=handoff, fence=fence, state=0)
        assert (late.code, late.details["why"]) == ("lease_lost", "superseded")
    assert standby.call("last_checkpoint", handoff=handoff)["checkpoint"]["state"] == {"page": 2}


@HOWS
def test_a_worker_cut_off_for_less_than_its_ttl_goes_on(
    network: Network, shared_daemon: DaemonProcess, standby: WireClient, kind: str, how: str, flavour: str
) -> None:
    handoff = standby.dispatch(kind)
    with ClientWorker(shared_daemon.tcp, flavour, wrapper=network.worker.enter) as worker:
        worker.call("claim", kinds=kind, ttl_ms=60_000)
        with network.stopped(how):
            worker.tell("checkpoint", state={"page": 1})
            time.sleep(0.5)
            assert standby.status(handoff)["seq"] == 0
        assert worker.told()["seq"] == 1
        worker.call("complete", result="done")
    assert [record["type"] for record in standby.history(handoff)] == [
        *("dispatched", "claimed", "checkpointed", "completed")
    ]


def test_connections_that_are_reset_again_and_again_cost_nothing(
    network: Network, shared_daemon: DaemonProcess, standby: WireClient, kind: str
) -> None:
    handoff = standby.dispatch(kind)
    with ClientWorker(shared_daemon.tcp, wrapper=network.worker.enter) as worker:
        worker.call("claim", kinds=kind, ttl_ms=60_000)
        if network.reset() == 0:
            pytest.skip("needs a kernel that destroys sockets (INET_DIAG_DESTROY)")
        for number in range(10):
            worker.tell("write", times=20)
            time.sleep(0.01)
            network.reset()
            assert worker.told() == 20, number
        worker.call("complete", result="done")
    status = standby.status(handoff)
    assert (status["status"], status["attempt"], status["seq"], status["fence"]) == ("completed", 1, 200, 1)
