"""A frame too long to be taken in in one go is answered as a short one would be, and in its place in the line."""

import json
from typing import Any

import pytest

from dhp_protocol.decoding import RequestFault, decode_request
from dhpd.server.long_frames import LONG_BODY_BYTES, REST_BYTES
from tests.support.wire_client import WireClient

from .conftest import Connect

LONG = "x" * (2 * LONG_BODY_BYTES)
MANY = {f"member-{number}": number for number in range(REST_BYTES // 8)}
HANDOFF = "a" * 64


def body_of(**members: Any) -> bytes:
    return json.dumps({"id": 7, **members}, ensure_ascii=False).encode()


REFUSED = {
    "unknown member": body_of(op="ping", sate=LONG),
    "very many members": body_of(op="ping", **MANY),
    "unknown operation": body_of(op="pong", state=LONG),
    "lone surrogate": body_of(op="ping", s=LONG).replace(b"xx", b"\\ud800", 1),
    "raw line end": body_of(op="ping", s=LONG).replace(b"xx", b"\r", 1),
    "no UTF-8": body_of(op="checkpoint", handoff=HANDOFF, fence=1, state="é" * LONG_BODY_BYTES + "#").replace(
        b"#", b"\xff"
    ),
    "UTF-8 cut short": body_of(op="checkpoint", state="é" * LONG_BODY_BYTES + "#").replace(b"#", "é".encode()[:1]),
    "too deep": body_of(op="checkpoint", handoff=HANDOFF, fence=1, state=[LONG, 0]).replace(
        b"0]", b"[" * 200 + b"]" * 201
    ),
    "no JSON": body_of(op="checkpoint", handoff=HANDOFF, fence=1, state=LONG)[:-1] + b"]",
    "doubled name": body_of(op="checkpoint", handoff=HANDOFF, fence=1, state=LONG)[:-1] + b',"fence":2}',
    "a payload twice": body_of(op="checkpoint", handoff=HANDOFF, fence=1, state=LONG)[:-1] + b',"state":2}',
    "too many labels": body_of(op="dispatch", kind="k", inputs={}, labels=dict.fromkeys(MANY, "")),
    "too many leases": body_of(op="heartbeat", leases=[{"handoff": HANDOFF, "fence": 1}] * 3_000),
    "wrong type": body_of(op="checkpoint", handoff=HANDOFF, fence="1", state=LONG),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_wrong_with_it_is_told_as_with_a_short_one(client: WireClient, body: bytes) -> None:
    with pytest.raises(RequestFault) as fault:
        decode_request(body, 128)
    assert len(body) > LONG_BODY_BYTES
    client.send_bytes(b"%d %b\n" % (len(body), body))
    answer = client.receive()
    error = fault.value.error
    assert (answer["error"]["code"], answer["error"]["message"]) == (error.code, error.message)
    assert answer.get("id", None) == (fault.value.request_id or None)
    client.pump()


def test_a_request_that_is_long_beside_its_payload_is_good_all_the_same(client: WireClient) -> None:
    labels = {f"{number}": "é" * 256 for number in range(64)}
    body = (
        json.dumps({"op": "dispatch", "id": 1, "kind": "k", "inputs": {}, "labels": labels}).encode()
        + b" " * REST_BYTES
    )
    client.send_bytes(b"%d %b\n" % (len(body), body))
    handoff = client.result(1)["handoff"]
    assert client.status(handoff)["labels"] == labels


def test_what_comes_behind_it_waits_for_it(client: WireClient) -> None:
    handoff = client.dispatch()
    fence = client.claim()["fence"]
    write = {"handoff": handoff, "fence": fence}
    frames = [
        client.framed("checkpoint", **write, state=[{"a": [LONG]}] * 20, seq=1),
        client.framed("checkpoint", **write, state=1, seq=2),
        client.framed("checkpoint", **write, state=LONG, seq=3),
        client.framed("complete", **write, result=None),
    ]
    client.send_bytes(b"".join(data for _, data in frames))
    assert [client.result(request).get("seq") for request, _ in frames] == [1, 2, 3, None]


def test_it_is_answered_when_the_input_ends_behind_it(connect: Connect) -> None:
    client = connect()
    handoff = client.dispatch()
    fence = client.claim()["fence"]
    client.send("checkpoint", handoff=handoff, fence=fence, state=[LONG] * 10)
    client.send_bytes(b"%d %b\n" % (len(REFUSED["unknown member"]), REFUSED["unknown member"]))
    client.half_close()
    answers = client.messages_until_closed()
    assert [answer["ok"] for answer in answers] == [True, False]


def test_a_connection_that_goes_meanwhile_takes_it_along(connect: Connect, client: WireClient) -> None:
    for _ in range(20):
        going = connect()
        going.send("checkpoint", handoff=HANDOFF, fence=1, state=[{"a": [LONG]}] * 20)
        going.reset()
    while client.call("stats")["connections"] > 1:
        client.pump()


def test_a_payload_that_is_too_long_is_refused_by_its_member(client: WireClient) -> None:
    handoff = client.dispatch()
    write = {"handoff": handoff, "fence": client.claim()["fence"]}
    long_text = "x" * (5 * 1024 * 1024)
    for op, members, member in (
        ("checkpoint", {**write, "state": long_text}, "state"),
        ("complete", {**write, "result": [long_text]}, "result"),
        ("dispatch", {"kind": "k", "inputs": {"text": long_text}}, "inputs"),
        ("effect_done", {**write, "step": "s", "result": long_text}, "result"),
    ):
        refused = client.refused(op, **members)
        assert (refused.code, refused.details["member"]) == ("too_large", member)
        assert refused.details["size"] > refused.details["limit"]
    assert client.status(handoff)["status"] == "running"
