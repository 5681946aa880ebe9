"""Reply bodies: `id` and `ok` come first, payloads pass through byte for byte, every body is one line."""

import msgspec
import pytest
from msgspec import UNSET, Raw

from dhp_protocol.messages import RequestId
from dhp_protocol.replies import (
    AnyEvent,
    CancelledEvent,
    ClaimLease,
    ClaimReply,
    DispatchReply,
    DrainingEvent,
    Empty,
    LaggedEvent,
    LeaseLostEvent,
    NothingToClaim,
    RecordEvent,
    ReplyHead,
    ResultReply,
    StoredCheckpoint,
    reply_body,
)


def test_an_empty_reply_with_and_without_an_id() -> None:
    assert reply_body(UNSET, Empty()) == b'{"ok":true}'
    assert reply_body(7, Empty()) == b'{"id":7,"ok":true}'
    assert reply_body("", Empty()) == b'{"id":"","ok":true}'


@pytest.mark.parametrize(
    "request_id", [0, -(2**63), 2**63 - 1, "r1", 'quote " and \\', "line\nfeed", "\u2028", "\U0001f600"]
)
def test_the_id_is_echoed_as_it_was(request_id: RequestId) -> None:
    body = reply_body(request_id, DispatchReply(handoff="h", created=True, status="pending"))
    assert msgspec.json.decode(body) == {
        "id": request_id,
        "ok": True,
        "handoff": "h",
        "created": True,
        "status": "pending",
    }
    assert b"\n" not in body
    assert b"\r" not in body
    head = msgspec.json.decode(body, type=ReplyHead)
    assert (head.id, head.ok, head.error, head.event) == (request_id, True, UNSET, UNSET)


def test_payloads_pass_through_byte_for_byte() -> None:
    state = b'{"n": 1.0, "m":1e400,"a":1,"a":2,"t":"\\u00e9\\/"}'
    checkpoint = StoredCheckpoint(seq=3, state=Raw(state), sha256="0" * 64, at="2026-11-29T18:00:00.000Z")
    body = reply_body(
        1,
        ClaimReply(
            handoff="h",
            fence=2,
            attempt=1,
            lease=ClaimLease(ttl_ms=6000, heartbeat_ms=2000),
            intent=Raw(b'{"kind":"k"}'),
            checkpoint=checkpoint,
            was="orphaned",
        ),
    )
    assert b'"state":' + state + b"," in body
    assert b'"intent":{"kind":"k"}' in body


def test_a_wait_that_ended_empty_says_so() -> None:
    assert reply_body(1, NothingToClaim()) == b'{"id":1,"ok":true,"handoff":null}'


def test_a_result_is_absent_unless_there_is_one() -> None:
    assert reply_body(1, ResultReply(status="pending")) == b'{"id":1,"ok":true,"status":"pending"}'
    assert reply_body(1, ResultReply(status="completed", result=Raw(b"null"))).endswith(b',"result":null}')


@pytest.mark.parametrize(
    "event",
    [
        LeaseLostEvent(handoff="h", fence=3, why="expired", status="orphaned"),
        CancelledEvent(handoff="h", fence=3, reason=None),
        DrainingEvent(after_ms=5000),
        RecordEvent(handoff="h", record=Raw(b'{"n":1}')),
        LaggedEvent(after=17),
    ],
)
def test_an_event_is_told_from_a_reply_and_reads_back(event: AnyEvent) -> None:
    body = msgspec.json.encode(event)
    head = msgspec.json.decode(body, type=ReplyHead)
    assert isinstance(head.event, str)
    assert (head.id, head.ok) == (UNSET, UNSET)
    again = msgspec.json.decode(body, type=AnyEvent)
    assert type(again) is type(event)
    assert msgspec.json.encode(again) == body
