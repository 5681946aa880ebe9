"""kill -9 of the daemon under load: what was acknowledged is there, and nothing that was shown is taken back."""

import random
import time
from typing import Any

from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.load import Ledger, Load
from tests.support.wire_client import WireClient

KILLS = 4


def journal(client: WireClient) -> dict[int, dict[str, Any]]:
    """Every record there is, by position, as a new watch shows it."""
    end = client.call("stats")["position"]
    client.call("watch", after=0)
    records: dict[int, dict[str, Any]] = {}
    while len(records) < end:
        event = client.event()
        records[event["record"]["position"]] = event
    assert list(records) == list(range(1, end + 1))
    return records


def test_what_was_acknowledged_is_there_and_nothing_shown_is_taken_back(
    daemon: DaemonProcess, connect: Connect, rng: random.Random
) -> None:
    ledger = Ledger()
    with Load(daemon.tcp, ledger):
        for _ in range(KILLS):
            ledger.await_more(400)
            time.sleep(rng.random() / 50)  # At no moment of the load's choosing.
            daemon.restart()
        ledger.await_more(400)
    assert ledger.surprises == []
    client = connect()
    records = journal(connect())
    by_handoff: dict[str, list[dict[str, Any]]] = {}
    for event in records.values():
        by_handoff.setdefault(event["handoff"], []).append(event["record"])

    assert ledger.dispatched.keys() <= by_handoff.keys()
    for handoff, seq, sha256 in ledger.checkpoints:
        assert (seq, sha256) in [(r["seq"], r["sha256"]) for r in by_handoff[handoff] if r["type"] == "checkpointed"]
    for handoff, result in ledger.results.items():
        assert client.call("result", handoff=handoff)["result"] == result
    assert len(ledger.results) > 50

    # Each status that was shown was so: its newest record is there, with that fence.
    for status in ledger.statuses:
        event = records[status["position"]]
        assert (event["handoff"], event["record"]["fence"]) == (status["handoff"], status["fence"])
    # Each refusal rested on a record that is there.
    assert len(ledger.refusals) > 20
    for handoff, details in ledger.refusals:
        assert details["fence"] in [record["fence"] for record in by_handoff[handoff]]
    # The watcher, who came back after each kill, saw each record once, and as it is.
    seen = [event["record"]["position"] for event in ledger.records]
    assert seen == list(range(1, len(seen) + 1))
    assert ledger.records == [records[position] for position in seen]
    # Live workers lost no lease by it, and nothing was done twice.
    for history in by_handoff.values():
        types = [record["type"] for record in history]
        assert "orphaned" not in types
        assert types.count("completed") <= 1
        fences = [record["fence"] for record in history]
        assert fences == sorted(fences)
