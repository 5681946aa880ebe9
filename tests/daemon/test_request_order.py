"""Requests about one handoff on one connection take effect in the order sent, whatever has to be fetched first."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dhp_protocol.intent import Intent, canonical_intent, handoff_id
from dhpd.server.lanes import ANY_HANDOFF
from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.in_process_daemon import InProcessDaemon
from tests.support.wire_client import WireClient, frame

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


# --- what isn't named yet -------------------------------------------------------------------------------------------


class SlowLooks:
    """Stands before the store's `facts_of`: a look for one of `handoffs` waits until it is let go. Used in a `with`."""

    def __init__(self, daemon: InProcessDaemon, *handoffs: str) -> None:
        self.began = {handoff: threading.Event() for handoff in handoffs}
        self._let_go = {handoff: threading.Event() for handoff in handoffs}
        self._inner = daemon.store.facts_of
        daemon.store.facts_of = self.facts_of  # type: ignore[method-assign]

    def __enter__(self) -> "SlowLooks":
        return self

    def __exit__(self, *error: object) -> None:
        for handoff in self._let_go:
            self.let_go(handoff)

    def let_go(self, handoff: str) -> None:
        self._let_go[handoff].set()

    async def facts_of(self, handoffs: list[str]) -> Any:
        for handoff in handoffs:
            if handoff in self.began:
                self.began[handoff].set()
                await asyncio.to_thread(self._let_go[handoff].wait)
        return await self._inner(handoffs)


def test_what_stands_behind_a_dispatch_that_is_not_named_yet_waits_for_it_whatever_stood_before(tmp_path: Path) -> None:
    handoff = id_of("long", LONG_INPUTS)
    with (
        InProcessDaemon(tmp_path) as daemon,
        WireClient(daemon.address) as client,
        SlowLooks(daemon, handoff) as looks,
    ):
        before, dispatched, after = send_all(
            client,
            ("status", {"handoff": handoff}),
            ("dispatch", {"kind": "long", "inputs": LONG_INPUTS}),
            ("status", {"handoff": handoff}),
        )
        client.pump()  # All three were taken in.
        while daemon.desk.lanes.taken(ANY_HANDOFF):
            client.pump()  # By now it has been named.
        looks.let_go(handoff)
        assert client.reply(before)["error"]["code"] == "not_found"
        assert client.result(dispatched)["created"] is True
        assert client.result(after)["status"] == "pending"


def test_what_was_asked_before_a_dispatch_that_is_not_named_yet_does_not_fall_behind_it(
    ended: tuple[str, WireClient],
) -> None:
    handoff, client = ended
    requests = send_all(
        client,
        ("status", {"handoff": handoff}),
        ("ack", {"handoff": handoff}),
        ("dispatch", {"kind": "long", "inputs": {"more": [LONG_INPUTS] * 4}}),
        ("status", {"handoff": handoff}),
    )
    before, _, _, after = [client.result(request) for request in requests]
    assert (before["acked"], after["acked"]) == (False, True)


# --- claims by kinds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", [{}, LONG_INPUTS], ids=["short", "long"])
def test_a_claim_by_kinds_finds_what_was_dispatched_just_before_it(
    connect: Connect, client: WireClient, inputs: dict[str, Any]
) -> None:
    """As from `printf ... | nc -N`: the answers come, and then the end."""
    requests = [{"op": "dispatch", "id": n, "kind": "work", "inputs": {**inputs, "n": n}} for n in range(3)]
    requests += [{"op": "claim", "id": n, "worker": "w", "kinds": ["none", "work"]} for n in range(3, 7)]
    bare = connect(counted=False)
    bare.send_bytes(b"".join(frame(request, counted=False) for request in requests))
    bare.half_close()
    answers = {answer["id"]: answer for answer in bare.messages_until_closed()}
    assert [answers[n]["created"] for n in range(3)] == [True] * 3
    assert [answers[n]["handoff"] for n in range(3, 6)] == [answers[n]["handoff"] for n in range(3)]
    assert answers[6]["handoff"] is None


def test_a_claim_by_kinds_does_not_wait_for_what_is_dispatched_behind_it(tmp_path: Path) -> None:
    first, second = id_of("work", {"n": 1}), id_of("work", {"n": 2})
    claim = ("claim", {"worker": "w", "kinds": ["work"]})
    with (
        InProcessDaemon(tmp_path) as daemon,
        WireClient(daemon.address) as client,
        SlowLooks(daemon, first, second) as looks,
    ):
        _, claimed = send_all(client, ("dispatch", {"kind": "work", "inputs": {"n": 1}}), claim)
        looks.began[first].wait()
        dispatched, behind = send_all(client, ("dispatch", {"kind": "work", "inputs": {"n": 2}}), claim)
        client.pump()
        assert not client.answered(claimed)
        looks.let_go(first)
        assert client.result(claimed)["handoff"] == first
        client.pump()
        assert not client.answered(dispatched)
        assert not client.answered(behind)
        looks.let_go(second)
        assert client.result(behind)["handoff"] == second


def test_a_claim_by_kinds_behind_a_dispatch_that_is_refused_goes_on(client: WireClient) -> None:
    handoff = client.dispatch()
    for inputs in ({"other": 1}, LONG_INPUTS):
        refused, claimed = send_all(
            client,
            ("dispatch", {"kind": "work", "inputs": inputs, "handoff": "0" * 64}),
            ("claim", {"worker": "w", "kinds": ["work"], "nonce": "n"}),
        )
        assert not client.reply(refused)["ok"]
        assert client.result(claimed)["handoff"] == handoff
