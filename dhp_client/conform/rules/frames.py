"""How bytes become frames (SPEC.md, section 1)."""

from ..bench import Bench
from ..judging import Members, holds
from ..peer import Peer
from ..points import Rules
from ..streams import said
from ..wire import Line

rules = Rules("frames", "1 Frames")
PING = b'{"op":"ping"}'


def _first_answer(peer: Peer, data: bytes) -> Line:
    peer.wire.send(data)
    return peer.next_line()


def _is_fault(line: Line, code: str) -> None:
    holds(line.value["ok"] is False and line.value["error"]["code"] == code, f"{code} for an answer", line.text)
    holds("id" not in line.value, "that answer without an id", line.text)


def _closed_after(bench: Bench, data: bytes, code: str) -> None:
    """Bytes that put the stream out of step: one answer, nothing after it is carried out, and the connection ends."""
    peer = bench.peer()
    lines = said(peer.wire, [data, b"\n", PING, b"\n"], end_input=False)
    holds(len(lines) == 1, f"{code}, nothing else, and the connection's end", [line.text for line in lines])
    _is_fault(lines[0], code)


def _goes_on_after(bench: Bench, data: bytes, code: str) -> None:
    peer = bench.peer(counted=False)
    _is_fault(_first_answer(peer, data), code)
    peer.pings()


@rules.point
def a_reply_has_the_form_of_its_request(bench: Bench) -> None:
    """A client may mix both forms; each reply has the form of its request."""
    peer = bench.peer()
    for counted in (True, False, False, True, True):
        peer.counted = counted
        peer.pings()


@rules.point
def pipelined_forms_are_kept_apart(bench: Bench) -> None:
    """Of many requests sent at once, each is answered, and in its own form."""
    peer = bench.peer()
    forms = {number: number % 3 == 0 for number in range(300)}
    for number, counted in forms.items():
        peer.counted = counted
        peer.send_body({"op": "ping", "id": number})
    for number, counted in forms.items():
        peer.counted = counted
        peer.granted(number)


@rules.point
def empty_lines_are_skipped(bench: Bench) -> None:
    """An empty line, LF or CR LF, is skipped without an answer."""
    peer = bench.peer()
    peer.wire.send(b"\n\r\n\n\n\r\n")
    peer.pings()


@rules.point
def a_cr_before_the_lf_of_a_bare_line_is_dropped(bench: Bench) -> None:
    """In the bare form one CR before the LF doesn't count."""
    peer = bench.peer(counted=False)
    line = _first_answer(peer, PING + b"\r\n")
    holds(line.value["ok"] is True and not line.counted, "a bare reply with ok", line.text)


@rules.point
def another_first_byte_is_bad_frame_at_once(bench: Bench) -> None:
    """A line that begins with neither a digit nor { is answered before its end, discarded up to its LF, and all goes on."""
    peer = bench.peer(counted=False)
    _is_fault(_first_answer(peer, b"GET / HTTP/1.1 12 {}"), "bad_frame")
    peer.wire.send(b" and more of it {} \n")
    peer.pings()


@rules.point
def what_is_no_frame_is_answered_in_the_last_form(bench: Bench) -> None:
    """The answer to bytes that are no frame has the form of the connection's last good frame, and is bare before it."""
    peer = bench.peer()
    line = _first_answer(peer, b"?\n")
    holds(not line.counted, "a bare answer before the first good frame", line.text)
    for counted in (True, False):
        peer.counted = counted
        peer.pings()
        line = _first_answer(peer, b"?\n")
        holds(line.counted == counted, f"an answer in the form of the last good frame (counted: {counted})", line.text)


@rules.point
def a_leading_zero_closes(bench: Bench) -> None:
    """A LEN with a leading zero puts the stream out of step: bad_frame, and closed."""
    _closed_after(bench, b"013 " + PING, "bad_frame")


@rules.point
def a_len_without_its_space_closes(bench: Bench) -> None:
    """A LEN that isn't followed by one space is bad_frame, and the connection is closed."""
    _closed_after(bench, b"13" + PING, "bad_frame")


@rules.point
def an_eleventh_digit_closes(bench: Bench) -> None:
    """An eleventh digit of LEN is bad_frame, and the connection is closed."""
    _closed_after(bench, b"10000000000", "bad_frame")


@rules.point
def a_body_that_goes_on_beyond_len_closes(bench: Bench) -> None:
    """A counted body that isn't followed by LF is bad_frame, and the connection is closed."""
    _closed_after(bench, b"12 " + PING, "bad_frame")


@rules.point
def a_cr_after_a_counted_body_closes(bench: Bench) -> None:
    """After a counted body nothing but LF may stand, CR neither."""
    _closed_after(bench, b"13 " + PING + b"\r", "bad_frame")


@rules.point
def len_0_is_bad_json(bench: Bench) -> None:
    """LEN 0 is well formed: bad_json, and the connection goes on."""
    _goes_on_after(bench, b"0 \n", "bad_json")


@rules.point
def an_over_long_counted_frame_is_answered_before_its_body(bench: Bench) -> None:
    """A LEN above max_frame_bytes is frame_too_large, counted, without id, before the body has come."""
    peer = bench.peer(counted=False)
    limit = bench.terms.limits["max_frame_bytes"]
    line = _first_answer(peer, b"%d " % (limit + 1))
    _is_fault(line, "frame_too_large")
    holds(line.counted, "a counted answer", line.text)
    holds(line.value["error"]["details"]["limit"] == limit, f"details with the limit {limit}", line.text)


LARGE_BYTES = 64 * 1024 * 1024
"""More isn't sent just to see it thrown away."""


def _frame_limit(bench: Bench) -> int:
    limit: int = bench.terms.limits["max_frame_bytes"]
    if limit > LARGE_BYTES:
        bench.skip(f"a frame of more than {limit} bytes would have to be sent")
    return limit


@rules.point
def an_over_long_counted_frame_is_skipped(bench: Bench) -> None:
    """The body of an over-long counted frame is skipped, whatever it holds, and the connection goes on behind its LF."""
    limit = _frame_limit(bench)
    peer = bench.peer()
    peer.wire.send(b"%d " % (limit + 2) + b"\n" + b'{"op":"ping"}\n'.ljust(limit + 1, b"\n") + b"\n")
    _is_fault(peer.next_line(), "frame_too_large")
    peer.pings()


@rules.point
def an_over_long_bare_line_closes(bench: Bench) -> None:
    """A bare line above max_frame_bytes is frame_too_large, bare, without id, and the connection is closed."""
    peer = bench.peer()
    lines = said(peer.wire, [b"{".ljust(_frame_limit(bench) + 1, b" "), b"}\n", PING, b"\n"], end_input=False)
    holds(len(lines) == 1, "frame_too_large, nothing else, and the connection's end", [line.text for line in lines])
    _is_fault(lines[0], "frame_too_large")
    holds(not lines[0].counted, "a bare answer", lines[0].text)


@rules.point
def what_is_no_object_is_bad_json(bench: Bench) -> None:
    """A body that is JSON but no object is bad_json, and the connection goes on."""
    for body in (b"[]", b"1", b'"ping"', b"null"):
        _goes_on_after(bench, b"%d %b\n" % (len(body), body), "bad_json")


@rules.point
def broken_json_is_bad_json(bench: Bench) -> None:
    """A body that is no JSON is bad_json without id, and the connection goes on."""
    for body in (b'{"op":"ping"', b'{"op":"ping"}}', b"{'op':'ping'}", b'{"op":"ping","n":01}'):
        _goes_on_after(bench, body + b"\n", "bad_json")


@rules.point
def what_isnt_utf8_is_bad_json(bench: Bench) -> None:
    """A body that isn't UTF-8 is bad_json, and the connection goes on."""
    for text in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf"):
        _goes_on_after(bench, b'{"op":"ping","id":"' + text + b'"}\n', "bad_json")


@rules.point
def a_raw_cr_or_lf_inside_is_bad_json(bench: Bench) -> None:
    """A raw CR or LF within a body is bad_json, also where JSON would allow it."""
    for body in (b'{"op":\r"ping"}', b'{"op":\n"ping"}'):
        _goes_on_after(bench, b"%d %b\n" % (len(body), body), "bad_json")


@rules.point
def max_depth_levels_are_taken(bench: Bench) -> None:
    """A body may have max_depth levels, itself being level 1; brackets in text don't count."""
    peer = bench.peer()
    depth = bench.terms.limits["max_depth"]
    peer.send_body(b'{"op":"ping","id":1,"traceparent":%b%b}' % (b"[" * (depth - 1), b"]" * (depth - 1)))
    peer.granted(1, f"a body of {depth} levels")
    peer.send_body(b'{"op":"ping","id":2,"traceparent":"%b"}' % (b"[" * 5 * depth))
    peer.granted(2, "brackets in text")


@rules.point
def more_than_max_depth_levels_are_bad_json(bench: Bench) -> None:
    """A body of more than max_depth levels is bad_json without id, and the connection goes on."""
    depth = bench.terms.limits["max_depth"]
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        body = b'{"op":"ping","traceparent":%b1%b}' % (opening * depth, closing * depth)
        _goes_on_after(bench, b"%d %b\n" % (len(body), body), "bad_json")


@rules.point
def bytes_may_come_one_by_one(bench: Bench) -> None:
    """How bytes are cut into packets makes no difference."""
    peer = bench.peer()
    for byte in b'20 {"op":"ping","id":1}\n':
        peer.wire.send(bytes((byte,)))
    peer.granted(1)


@rules.point
def half_closing_gets_what_was_asked_answered(bench: Bench) -> None:
    """At the end of input what was received is answered, then the daemon closes."""
    peer = bench.peer()
    lines = said(peer.wire, [PING + b"\n" + b"13 " + PING + b"\n"], end_input=True)
    came = [(line.counted, line.value) for line in lines]
    wanted = [(False, Members(ok=True)), (True, Members(ok=True))]
    holds(
        sorted(came, key=str) == sorted(wanted, key=str),
        "both pings answered, then the end",
        [str(one) for one in came],
    )


@rules.point
def half_closing_ends_waits(bench: Bench) -> None:
    """At the end of input waiting requests end at once, as if their wait were over."""
    peer = bench.peer()
    peer.send("claim", worker="w", kinds=[bench.kind], wait_ms=600_000)
    peer.wire.end_input()
    line = peer.next_line("the waiting claim to end as empty")
    holds(line.value["ok"] is True and line.value["handoff"] is None, "the waiting claim to end as empty", line.text)
    holds(peer.wire.receive() is None, "the connection's end", "more")


@rules.point
def a_last_line_without_its_lf_is_bad_frame(bench: Bench) -> None:
    """A line that the end of input cuts off isn't carried out: bad_frame."""
    peer = bench.peer()
    lines = said(peer.wire, [PING], end_input=True)
    holds(len(lines) == 1, "bad_frame and the end", [line.text for line in lines])
    _is_fault(lines[0], "bad_frame")


@rules.point
def nothing_is_sent_unasked(bench: Bench) -> None:
    """A connection that said nothing hears nothing: what comes first is the answer to what is asked first."""
    bench.without_hello()
    quiet, worker = bench.peer(), bench.peer(session=bench.session())
    held = worker.held()
    worker.call("cancel", handoff=held.handoff)
    worker.event("cancelled")
    quiet.send_body({"op": "ping", "id": 1})
    line = quiet.next_line()
    holds(line.value == {"id": 1, "ok": True}, "the ping's answer, first of all", line.text)
