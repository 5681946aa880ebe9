"""A frame too long to be taken in in one go is answered as a short one would be, and in its place in the line."""

import asyncio
import json
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from dhp_protocol.decoding import RequestFault, check_in_steps, decode_request
from dhp_protocol.errors import BadJson
from dhp_protocol.messages import AnyRequest
from dhpd.server.long_frames import LONG_BODY_BYTES, REST_BYTES, LongFrames
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

from .conftest import Connect

MIB = 1024 * 1024
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


async def test_one_is_worked_on_at_a_time_and_handed_over_in_the_order_they_came() -> None:
    now_s = 0.0

    def clock_s() -> float:
        nonlocal now_s
        now_s += 1.0  # Every look at the clock takes long, so that each slice is one step.
        return now_s

    frames = LongFrames(128, clock_s)
    body = body_of(op="checkpoint", handoff=HANDOFF, fence=1, state="x" * (4 * LONG_BODY_BYTES))
    passes = 0
    handed_over: list[tuple[int, int]] = []

    def handed(number: int, _: AnyRequest) -> None:
        handed_over.append((number, passes))

    def count_passes() -> None:
        nonlocal passes
        passes += 1
        asyncio.get_running_loop().call_soon(count_passes)

    async def explain(_: bytes) -> RequestFault | None:
        raise AssertionError("it is good")

    asyncio.get_running_loop().call_soon(count_passes)
    await asyncio.gather(*(frames.take(body, explain, partial(handed, number)) for number in range(5)))
    assert [number for number, _ in handed_over] == list(range(5))
    steps = sum(1 for _ in check_in_steps(body, 128))
    at = [pass_ for _, pass_ in handed_over]
    assert all(later - earlier >= steps + 3 for earlier, later in pairwise(at)), (
        "a pass for each step, and for the rest"
    )


async def test_one_that_is_given_up_makes_way() -> None:
    frames = LongFrames(128, lambda: 0.0)
    body = body_of(op="checkpoint", handoff=HANDOFF, fence=1, state=LONG)
    handed_over: list[int] = []

    def handed(number: int, _: AnyRequest) -> None:
        handed_over.append(number)

    async def explain(_: bytes) -> RequestFault | None:
        raise AssertionError("it is good")

    tasks = [asyncio.create_task(frames.take(body, explain, partial(handed, number))) for number in range(4)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert handed_over == [1, 3]


async def test_who_waits_for_an_explanation_is_not_in_the_way() -> None:
    frames = LongFrames(128, lambda: 0.0)
    explained = asyncio.Event()

    async def explain(_: bytes) -> RequestFault | None:
        await explained.wait()
        return RequestFault(BadJson("It is none."))

    def refuse(_: AnyRequest) -> None:
        raise AssertionError("it isn't good")

    waiting = asyncio.create_task(frames.take(REFUSED["very many members"], explain, refuse))
    handed_over: list[AnyRequest] = []
    good = body_of(op="checkpoint", handoff=HANDOFF, fence=1, state=LONG)
    await frames.take(good, explain, handed_over.append)
    assert len(handed_over) == 1
    assert not waiting.done()
    explained.set()
    with pytest.raises(RequestFault):
        await waiting


def test_one_that_was_answered_takes_no_room_any_more(
    daemon: DaemonProcess, client: WireClient, connect: Connect
) -> None:
    body = body_of(op="ping", traceparent="x" * 3 * MIB)
    long_ping = b"%d %b\n" % (len(body), body)
    client.send_bytes(long_ping)
    assert client.receive()["ok"]
    before_bytes = daemon.rss_bytes
    for _ in range(20):
        peer = connect()
        peer.send_bytes(long_ping)
        assert peer.receive()["ok"]
    assert daemon.rss_bytes - before_bytes < 20 * MIB, "of these connections each holds what it has sent"
