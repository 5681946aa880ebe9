"""The frames table, row by row and byte by byte, over TCP and over a unix socket."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.conftest import assert_no_mistake
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy
from tests.support.wire_client import WireClient, connections, frame

MAX_FRAME_BYTES = 8 * 1024 * 1024
PONG = b'{"ok":true}'
fresh = count(1)
"""For kinds of a test's own: the daemon is the same for all."""


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One for all tests here: whatever they send it, it has to serve the next one."""
    folder: Path = tmp_path_factory.mktemp("frames")
    with DaemonProcess(folder / "data", listen=("127.0.0.1:0", f"unix:{folder}/dhpd.sock")) as running:
        yield running
    assert_no_mistake(running)


@pytest.fixture(params=["tcp", "unix"])
def open_raw(request: pytest.FixtureRequest, shared_daemon: DaemonProcess) -> Iterator[Callable[[], WireClient]]:
    """Opens connections for bytes of the test's own."""
    with connections(lambda: getattr(shared_daemon, request.param)) as open_one:
        yield open_one


@pytest.fixture
def raw(open_raw: Callable[[], WireClient]) -> WireClient:
    return open_raw()


def ping_answers(raw: WireClient) -> None:
    """The connection goes on."""
    raw.send_bytes(b'{"op":"ping","id":"still here"}\n')
    assert raw.receive_line() == b'{"id":"still here","ok":true}\n'


def error_of(line: bytes) -> dict[str, Any]:
    """The error in a bare answer without an id."""
    message = json.loads(line)
    assert message["ok"] is False
    assert "id" not in message
    error: dict[str, Any] = message["error"]
    assert error["message"].endswith(".")
    return error


def test_a_bare_request_gets_a_bare_reply(raw: WireClient) -> None:
    raw.send_bytes(b'{"op":"ping","id":7}\n')
    assert raw.receive_line() == b'{"id":7,"ok":true}\n'


def test_a_carriage_return_before_the_line_feed_is_dropped(raw: WireClient) -> None:
    raw.send_bytes(b'{"op":"ping"}\r\n')
    assert raw.receive_line() == PONG + b"\n"


def test_a_counted_request_gets_a_counted_reply(raw: WireClient) -> None:
    raw.send_bytes(b'20 {"op":"ping","id":7}\n')
    assert raw.receive_line() == b'18 {"id":7,"ok":true}\n'


def test_each_reply_has_the_form_of_its_own_request(raw: WireClient) -> None:
    raw.send_bytes(b'{"op":"ping","id":1}\n20 {"op":"ping","id":2}\n{"op":"ping","id":3}\n')
    assert raw.receive_line() == b'{"id":1,"ok":true}\n'
    assert raw.receive_line() == b'18 {"id":2,"ok":true}\n'
    assert raw.receive_line() == b'{"id":3,"ok":true}\n'


def test_the_length_counts_bytes_and_not_characters(raw: WireClient) -> None:
    body = '{"op":"ping","id":"ß€𝄞"}'.encode()
    raw.send_bytes(b"%d %b\n" % (len(body), body))
    answer = '{"id":"ß€𝄞","ok":true}'.encode()
    assert raw.receive_line() == b"%d %b\n" % (len(answer), answer)


def test_empty_lines_are_skipped(raw: WireClient) -> None:
    raw.send_bytes(b'\n\r\n\n{"op":"ping","id":1}\n\n\r\n20 {"op":"ping","id":2}\n\n')
    assert raw.receive_line() == b'{"id":1,"ok":true}\n'
    assert raw.receive_line() == b'18 {"id":2,"ok":true}\n'
    ping_answers(raw)


@pytest.mark.parametrize(
    "line", [b"ping", b"GET / HTTP/1.1\r", b" {}", b"[1]", b"\xff\xfe", b"-1 {}", b"\rx", b'"text"']
)
def test_a_line_that_begins_otherwise_is_answered_with_a_hint_and_the_connection_goes_on(
    raw: WireClient, line: bytes
) -> None:
    raw.send_bytes(line + b"\n")
    error = error_of(raw.receive_line())
    assert error["code"] == "bad_frame"
    assert "Begin a line with '{'" in error["message"]
    ping_answers(raw)


def test_the_answer_to_no_frame_has_the_form_of_the_last_good_one(raw: WireClient) -> None:
    raw.send_bytes(b"nonsense\n")
    assert raw.receive_line()[:1] == b"{"
    raw.send_bytes(b'20 {"op":"ping","id":1}\n')
    assert raw.receive_line() == b'18 {"id":1,"ok":true}\n'
    raw.send_bytes(b"nonsense\n")
    assert raw.receive_line()[:1].isdigit()
    ping_answers(raw)
    raw.send_bytes(b"nonsense\n")
    assert raw.receive_line()[:1] == b"{"


@pytest.mark.parametrize(
    "data",
    [
        b"01 {}\n",
        b"00 {}\n",
        b'12345678901 {"op":"ping"}\n',
        b'13{"op":"ping"}\n',
        b'13\t{"op":"ping"}\n',
        b"13\n",
        b"1_3 {}\n",
        b'12 {"op":"ping"}\n',
        b'14 {"op":"ping"}\n  ',
        b'13 {"op":"ping"}\r\n',
    ],
)
def test_a_stream_out_of_step_is_answered_and_closed(raw: WireClient, data: bytes) -> None:
    raw.send_bytes(b'{"op":"ping","id":1}\n' + data + b'{"op":"ping","id":2}\n' * 2)
    answers = raw.messages_until_closed()
    assert {"id": 1, "ok": True} in answers
    (refusal,) = [answer for answer in answers if not answer["ok"]]
    assert refusal["error"]["code"] == "bad_frame"
    assert "id" not in refusal
    assert len(answers) == 2


def test_length_nought_is_well_formed_and_no_json(raw: WireClient) -> None:
    raw.send_bytes(b"0 \n")
    answer = raw.receive()
    assert answer["error"]["code"] == "bad_json"
    ping_answers(raw)


def test_a_counted_frame_that_is_too_long_is_answered_and_skipped(raw: WireClient) -> None:
    body = b'{"op":"ping","id":"' + b"x" * MAX_FRAME_BYTES + b'"}'
    raw.send_bytes(b"%d " % len(body))
    answer = raw.receive()  # Before its body has been sent.
    assert "id" not in answer
    assert answer["error"]["code"] == "frame_too_large"
    assert answer["error"]["details"] == {"limit": MAX_FRAME_BYTES, "size": len(body)}
    raw.send_bytes(body + b"\n")
    ping_answers(raw)


def test_a_bare_line_that_is_too_long_is_answered_and_closed(raw: WireClient) -> None:
    raw.send_bytes(b'{"op":"ping","id":"' + b"x" * MAX_FRAME_BYTES)
    error = error_of(raw.receive_line())
    assert error["code"] == "frame_too_large"
    assert error["details"] == {"limit": MAX_FRAME_BYTES}
    assert raw.receive_until_closed() == b""


@pytest.mark.parametrize("counted", [False, True])
def test_a_frame_of_exactly_the_limit_is_taken(raw: WireClient, counted: bool) -> None:
    head = b'{"op":"ping","id":"full"'
    body = head + b" " * (MAX_FRAME_BYTES - len(head) - 1) + b"}"
    raw.send_bytes(b"%d %b\n" % (len(body), body) if counted else body + b"\n")
    answer = b'{"id":"full","ok":true}'
    assert raw.receive_line() == (b"%d %b\n" % (len(answer), answer) if counted else answer + b"\n")


@pytest.mark.parametrize(
    "body",
    [
        b'{"op":"ping"',
        b"{}}",
        b'{"op":"p\xffng"}',
        b"[]",
        b"7",
        b'"ping"',
        b"null",
        b"",
        b'{"op":\n"ping"}',
        b'{"op":\r"ping"}',
        b'{"op":"ping","id":' + b"[" * 128 + b"]" * 128 + b"}",
    ],
)
def test_a_body_that_is_no_object_on_one_line_is_answered_without_id(raw: WireClient, body: bytes) -> None:
    raw.send_bytes(b"%d %b\n" % (len(body), body))
    answer = raw.receive()
    assert answer["error"]["code"] == "bad_json"
    assert "id" not in answer
    ping_answers(raw)


def test_a_hundred_levels_are_taken(raw: WireClient) -> None:
    raw.send_bytes(frame({"op": "dispatch", "id": 1, "kind": "deep", "inputs": {"a": nested(98)}}))
    assert raw.receive()["ok"]


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_an_id_is_echoed_as_it_was(raw: WireClient) -> None:
    for request_id in (0, -1, 2**63 - 1, -(2**63), "", "a", "x" * 256, "\u0000\u2028"):
        raw.send_bytes(frame({"op": "ping", "id": request_id}))
        assert raw.receive()["id"] == request_id
    raw.send_bytes(frame({"op": "ping"}))
    assert "id" not in raw.receive()


def test_a_request_that_is_not_good_is_answered_under_its_id_and_the_connection_goes_on(raw: WireClient) -> None:
    for members, code, details in (
        ({"op": "pong"}, "unknown_op", {"op": "pong"}),
        ({"op": "ping", "wait": 1}, "invalid_request", {"member": "wait"}),
        ({"op": "status"}, "invalid_request", {"member": "handoff"}),
        ({"op": "status", "handoff": None}, "invalid_request", {"member": "handoff"}),
    ):
        raw.send_bytes(frame({"id": "mine", **members}))
        answer = raw.receive()
        assert answer["id"] == "mine"
        assert (answer["error"]["code"], answer["error"]["details"]) == (code, details)


# --- the end of input ------------------------------------------------------------------------------------------------


def test_at_half_close_everything_received_is_answered_and_then_the_daemon_closes(raw: WireClient) -> None:
    raw.send_bytes(b'{"op":"dispatch","kind":"half-close","inputs":{},"id":1}\n{"op":"ping","id":2}\n')
    raw.send_bytes(frame({"op": "stats", "id": 3}) + frame({"op": "list", "id": 4}) + b"nonsense\n")
    raw.half_close()
    answers = raw.messages_until_closed()
    assert sorted(answer["id"] for answer in answers if answer["ok"]) == [1, 2, 3, 4]
    assert [answer["error"]["code"] for answer in answers if not answer["ok"]] == ["bad_frame"]


def test_at_half_close_a_long_dispatch_and_what_stands_behind_it_are_answered(raw: WireClient) -> None:
    inputs = {"numbers": list(range(40_000))}
    raw.send_bytes(frame({"op": "dispatch", "kind": "long", "inputs": inputs, "id": 1}))
    raw.send_bytes(frame({"op": "dispatch", "kind": "long", "inputs": {}, "id": 2}))
    raw.half_close()
    assert sorted(answer["id"] for answer in raw.messages_until_closed()) == [1, 2]


def test_waiting_requests_end_empty_at_half_close(open_raw: Callable[[], WireClient]) -> None:
    raw, other = open_raw(), open_raw()
    handoff = other.dispatch(f"waited-for-{next(fresh)}")
    other.claim(handoff=handoff)
    raw.send_bytes(
        frame({"op": "claim", "worker": "w", "kinds": ["nothing-of-this-kind"], "wait_ms": 600_000, "id": 1})
        + frame({"op": "claim", "worker": "w", "handoff": handoff, "wait_ms": 600_000, "id": 2})
        + frame({"op": "result", "handoff": handoff, "wait_ms": 600_000, "id": 3})
    )
    raw.half_close()
    answers = {answer["id"]: answer for answer in raw.messages_until_closed()}
    assert answers[1] == {"id": 1, "ok": True, "handoff": None}
    assert answers[2] == {"id": 2, "ok": True, "handoff": None}
    assert answers[3] == {"id": 3, "ok": True, "status": "running"}


def test_waiting_requests_end_empty_when_the_stream_is_out_of_step(open_raw: Callable[[], WireClient]) -> None:
    raw, other = open_raw(), open_raw()
    kind = f"out-of-step-{next(fresh)}"
    waiting = frame({"op": "claim", "worker": "w", "kinds": [kind], "wait_ms": 600_000, "id": 1})
    raw.send_bytes(waiting + b"00000\n")
    answers = raw.messages_until_closed()
    assert {"id": 1, "ok": True, "handoff": None} in answers
    assert [answer["error"]["code"] for answer in answers if not answer["ok"]] == ["bad_frame"]
    handoff = other.dispatch(kind)
    assert other.status(handoff)["status"] == "pending"  # Nobody was given it.


@pytest.mark.parametrize("tail", [b'{"op":"ping"}', b'13 {"op":"ping"}', b"13 {", b"1", b"{"])
def test_a_last_line_without_an_end_is_told_so(raw: WireClient, tail: bytes) -> None:
    ping_answers(raw)
    raw.send_bytes(tail)
    raw.half_close()
    assert error_of(raw.receive_line())["code"] == "bad_frame"
    assert raw.receive_until_closed() == b""


def test_a_connection_that_says_nothing_hears_nothing(raw: WireClient) -> None:
    raw.half_close()
    assert raw.receive_until_closed() == b""


def test_an_answer_before_closing_arrives_although_the_peer_goes_on_sending(raw: WireClient) -> None:
    raw.send_bytes(b"7x\n")
    for _ in range(16):
        raw.send_bytes(b"y" * 1024 * 1024)
    assert error_of(raw.receive_line())["code"] == "bad_frame"
    assert raw.receive_until_closed() == b""


def test_requests_one_byte_at_a_time(shared_daemon: DaemonProcess) -> None:
    with Proxy(shared_daemon.tcp) as proxy:
        proxy.piece_bytes = 1
        with WireClient(proxy.address) as counted, WireClient(proxy.address, counted=False) as bare:
            for client in (counted, bare):
                client.send_bytes(b"\r\nnonsense\r\n")
                handoff = client.dispatch("bytes", inputs={"text": "ß€𝄞", "from": client.counted})
                assert client.stray[0]["error"]["code"] == "bad_frame"
                assert client.status(handoff)["status"] == "pending"
