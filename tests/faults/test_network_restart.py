"""Everybody at once: a hundred clients with live leases, and their daemon is killed and started again.

`make check-restart` does it with five hundred, and with SIGTERM too, and says how they came back.
"""

import time
from contextlib import ExitStack

from tests.support.daemon_process import DaemonProcess
from tests.support.many_clients import ManyClients, all_back, leases_lost
from tests.support.wire_client import WireClient

CREWS = 2
CLIENTS = 50
TTL_MS = 6_000


def test_a_hundred_clients_come_back_and_no_live_lease_is_lost(own_daemon: DaemonProcess) -> None:
    daemon = own_daemon
    with WireClient(daemon.unix) as client:
        for number in range(CREWS * CLIENTS):
            client.dispatch(key=str(number))
    with ExitStack() as stack:
        crews = [stack.enter_context(ManyClients(daemon.tcp, "work", CLIENTS, ttl_ms=TTL_MS)) for _ in range(CREWS)]
        for crew in crews:
            crew.await_ready()
        daemon.kill()
        gone_s = time.monotonic()
        daemon.start()
        assert len(all_back(crews, gone_s)) == 2 * CREWS * CLIENTS
        assert [crew.save() for crew in crews] == [CLIENTS] * CREWS
        assert leases_lost(daemon, CREWS * CLIENTS) == []
