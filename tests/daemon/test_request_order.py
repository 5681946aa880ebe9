"""Requests about one handoff on one connection take effect in the order sent, whatever has to be fetched first."""

import json
from typing import Any

import msgspec
import pytest

from dhp_protocol.intent import Intent, canonical_intent, handoff_id
from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

LONG_INPUTS: dict[str, Any] = {"numbers": [number / 7 for number in range(12_000)]}
"""Some 230 KB whose canonical form takes a while."""


def id_of(kind: str, inputs: dict[str, Any]) -> str:
    return handoff_id(canonical_intent(Intent(kind=kind, inputs=msgspec.Raw(json.dumps(inputs).encode()))))


def send_all(client: WireClient, *requests: tuple[str, dict[str, Any]]) -> list[int]:
    """Sends the requests in one piece, so that they lie there together."""
    framed = [client.framed(op, **members) for op, members in requests]
    client.send_bytes(b"".join(data for _, data in framed))
    return [request_id for request_id, _ in framed]


@pytest.mark.parametrize("names_it", [False, True])
def test_what_stands_behind_a_long_dispatch_finds_it_done(client: WireClient, names_it: bool) -> None:
    handoff = id_of("long", LONG_INPUTS)
    named = {"handoff": handoff} if names_it else {}
    replies = send_all(
        client,
        ("dispatch", {"kind": "long", "inputs": LONG_INPUTS, **named}),
        ("claim", {"worker": "w", "handoff": handoff}),
        ("checkpoint", {"handoff": handoff, "fence": 1, "state": 1}),
        ("checkpoint", {"handoff": handoff, "fence": 1, "state": 2}),
        ("complete", {"handoff": handoff, "fence": 1, "result": "done"}),
        ("result", {"handoff": handoff}),
    )
    dispatched, claimed, first, second, completed, result = [client.result(request) for request in replies]
    assert (dispatched["handoff"], dispatched["created"], dispatched["status"]) == (handoff, True, "pending")
    assert claimed["fence"] == 1
    assert (first["seq"], second["seq"]) == (1, 2)
    assert completed["duplicate"] is False
    assert result["result"] == "done"


def test_what_stands_before_a_long_dispatch_finds_nothing(client: WireClient) -> None:
    handoff = id_of("long", LONG_INPUTS)
    before, dispatched, after = send_all(
        client,
        ("cancel", {"handoff": handoff}),
        ("dispatch", {"kind": "long", "inputs": LONG_INPUTS}),
        ("status", {"handoff": handoff}),
    )
    assert client.reply(before)["error"]["code"] == "not_found"
    assert client.result(dispatched)["created"] is True
    assert client.result(after)["status"] == "pending"


def test_long_dispatches_keep_their_order(client: WireClient) -> None:
    first = {**LONG_INPUTS, "number": 1}
    requests = [
        ("dispatch", {"kind": "long", "inputs": first, "priority": 9}),
        ("dispatch", {"kind": "long", "inputs": {"short": True}}),
        ("dispatch", {"kind": "long", "inputs": first, "priority": 1}),
    ]
    created = [client.result(request)["created"] for request in send_all(client, *requests)]
    assert created == [True, True, False]
    assert client.status(id_of("long", first))["priority"] == 9


def test_a_long_dispatch_holds_up_no_heartbeat_and_no_other_connection(client: WireClient, connect: Connect) -> None:
    held = connect().claim(handoff=client.dispatch())
    leases = [{"handoff": held["handoff"], "fence": held["fence"]}]
    requests = send_all(
        client,
        *(("dispatch", {"kind": "long", "inputs": {**LONG_INPUTS, "number": number}}) for number in range(5)),
        ("heartbeat", {"leases": leases}),
    )
    assert client.result(requests[-1])["renewed"] == [held["handoff"]]
    assert not client.answered(requests[4])
    for request in requests[:-1]:
        assert client.result(request)["created"]


@pytest.fixture
def ended(daemon: DaemonProcess, connect: Connect) -> tuple[str, WireClient]:
    """A completed handoff that the daemon has on disk only, and a new connection."""
    client = connect()
    handoff = client.dispatch("ended")
    fence = client.claim(handoff=handoff)["fence"]
    client.call("checkpoint", handoff=handoff, fence=fence, state="last")
    client.call("complete", handoff=handoff, fence=fence, result="done")
    client.call("list")  # What it shows is in the table of facts, and so out of the next start's way.
    daemon.restart()
    return handoff, connect()


def test_requests_about_an_ended_handoff_keep_their_order(ended: tuple[str, WireClient]) -> None:
    handoff, client = ended
    replies = send_all(
        client,
        ("status", {"handoff": handoff}),
        ("ack", {"handoff": handoff}),
        ("status", {"handoff": handoff}),
        ("result", {"handoff": handoff, "wait_ms": 600_000}),
        ("last_checkpoint", {"handoff": handoff}),
        ("complete", {"handoff": handoff, "fence": 1, "result": "done"}),
    )
    before, _, after, result, checkpoint, completed = [client.result(request) for request in replies]
    assert (before["acked"], after["acked"]) == (False, True)
    assert result["result"] == "done"
    assert checkpoint["checkpoint"]["state"] == "last"
    assert completed["duplicate"] is True


@pytest.mark.parametrize("long", [False, True])
def test_dispatching_an_ended_handoff_again_lines_up_with_what_else_is_asked_of_it(
    connect: Connect, daemon: DaemonProcess, long: bool
) -> None:
    inputs = LONG_INPUTS if long else {}
    client = connect()
    handoff = client.dispatch("ended", inputs=inputs)
    client.call("cancel", handoff=handoff)
    client.call("list")
    daemon.restart()
    client = connect()
    requests = send_all(
        client,
        ("status", {"handoff": handoff}),
        ("ack", {"handoff": handoff}),
        ("dispatch", {"kind": "ended", "inputs": inputs}),
        ("status", {"handoff": handoff}),
        ("dispatch", {"kind": "ended", "inputs": inputs}),
        ("history", {"handoff": handoff}),
    )
    first, _, again, second, once_more, history = [client.result(request) for request in requests]
    assert (first["acked"], second["acked"]) == (False, True)
    assert (again["created"], again["status"]) == (False, "cancelled")
    assert once_more["created"] is False
    assert [record["type"] for record in history["records"]] == ["dispatched", "cancelled", "acked"]


def test_claims_sent_again_whose_handoffs_have_ended_are_each_answered(connect: Connect, daemon: DaemonProcess) -> None:
    client = connect()
    for number in range(3):
        client.dispatch("ended", key=str(number))
    requests = []
    for number in range(3):
        held = client.claim("ended", nonce=str(number))
        client.call("complete", handoff=held["handoff"], fence=held["fence"], result=number)
        # Without an id, as from a person: the answers can't be told apart, but each has to come.
        requests.append(b'{"op":"claim","worker":"w","kinds":["ended"],"nonce":"%d"}\n' % number)
    fill_memory(client)
    bare = connect(counted=False)
    bare.send_bytes(b"".join(requests))
    bare.half_close()
    answers = bare.messages_until_closed()
    assert [answer["error"]["details"]["why"] for answer in answers] == ["completed"] * 3


def fill_memory(client: WireClient) -> None:
    """Ends so many handoffs that those before are no longer kept in memory."""
    handoffs = [client.send("dispatch", kind="filling", inputs={}, key=str(number)) for number in range(1_100)]
    cancels = [client.send("cancel", handoff=client.result(request)["handoff"]) for request in handoffs]
    for request in cancels:
        client.result(request)
    client.call("list")


def test_a_claim_behind_a_long_dispatch_is_granted_to_nobody_once_its_connection_has_gone(
    client: WireClient, connect: Connect
) -> None:
    handoff, blocked = client.dispatch("free"), client.dispatch("held")
    held = client.claim(handoff=blocked)
    goner = connect()
    requests = send_all(
        goner,
        ("dispatch", {"kind": "long", "inputs": {"more": [LONG_INPUTS] * 4}}),
        ("dispatch", {"kind": "held", "inputs": {}}),
        ("claim", {"worker": "gone", "handoff": handoff}),
        ("claim", {"worker": "gone", "handoff": blocked, "wait_ms": 600_000}),
        ("ping", {}),
    )
    goner.result(requests[-1])  # All has been taken in.
    goner.reset()
    client.dispatch("long", inputs={"more": [LONG_INPUTS] * 4})  # By now the other one is done as well.
    client.call("release", handoff=blocked, fence=held["fence"])
    assert client.status(handoff)["status"] == "pending"
    assert client.status(blocked)["status"] == "pending"
    assert client.call("stats")["waiting_claims"] == 0
