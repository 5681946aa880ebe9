"""Requests, replies, and the order of checks (SPEC.md, section 2), for every operation that there is."""

from typing import get_args

import msgspec

from dhp_protocol.messages import AnyRequest

from ..bench import Bench
from ..judging import JSON, holds, same
from ..points import Check, Rules

rules = Rules("requests", "2 Requests, replies, events")

NOBODY = "0" * 64
_SAMPLES: dict[str, JSON] = {
    "handoff": NOBODY,
    "fence": 1,
    "worker": "w",
    "leases": [],
    "state": 1,
    "result": 1,
    "error": {"type": "T"},
    "add": {"max_steps": 1},
    "digest": "d",
    "step": "s",
    "action": "a",
    "details": {},
    "timeout_ms": 1,
    "approval": f"{NOBODY}-{'0' * 16}",
    "decision": "deny",
    "domain": "d",
    "resource": "r",
    "records": [{}],
    "inputs": {},
}
_MAY_BE_NULL = frozenset(("id", "traceparent", "state", "result", "details"))
OPERATIONS = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyRequest)}
HARMFUL = frozenset(("drain",))
"""What isn't asked for, not even wrongly, unless it may be: a daemon that takes it would do harm to others."""


def required(op: str) -> list[str]:
    """The members that an operation can't do without."""
    return [field.encode_name for field in msgspec.structs.fields(OPERATIONS[op]) if field.required]


def sample(op: str, kind: str) -> dict[str, JSON]:
    """A request of that operation about nothing that there is, with the members it needs."""
    needed = {name: kind if name == "kind" else _SAMPLES[name] for name in required(op)}
    return {"op": op, "id": 1, **needed}


def _refuses(op: str, body: dict[str, JSON], member: str, bench: Bench) -> None:
    if op in HARMFUL and not bench.drains:
        return
    peer = bench.peer()
    details = peer.refused_body("invalid_request", body, request_id=1)
    same(f"the member that {op} names", details["member"], member)


def _unknown_member(op: str) -> Check:
    def check(bench: Bench) -> None:
        _refuses(op, {**sample(op, bench.kind), "wiat_ms": 5}, "wiat_ms", bench)

    return check


def _missing_members(op: str) -> Check:
    def check(bench: Bench) -> None:
        whole = sample(op, bench.kind)
        for name in required(op):
            _refuses(op, {other: value for other, value in whole.items() if other != name}, name, bench)

    return check


def _null_members(op: str) -> Check:
    def check(bench: Bench) -> None:
        for field in msgspec.structs.fields(OPERATIONS[op]):
            if field.encode_name not in _MAY_BE_NULL:
                _refuses(op, {**sample(op, bench.kind), field.encode_name: None}, field.encode_name, bench)

    return check


for _op in sorted(OPERATIONS):
    rules.add(f"unknown member: {_op}", f"{_op} refuses a member that it doesn't know, by name.", _unknown_member(_op))
    if required(_op):
        rules.add(f"missing member: {_op}", f"{_op} names the member that is missing.", _missing_members(_op))
    if len(msgspec.structs.fields(OPERATIONS[_op])) > 2:
        rules.add(f"null: {_op}", f"{_op} refuses null where it isn't listed, by name.", _null_members(_op))


@rules.point
def the_id_is_echoed(bench: Bench) -> None:
    """The reply repeats the id: text of up to 256 bytes, or a 64-bit integer."""
    peer = bench.peer()
    for request_id in (0, 7, -1, 2**63 - 1, -(2**63), "", "é", "x" * 256, "7", '"\\\n', "\u2028"):
        peer.send_body({"op": "ping", "id": request_id})
        line = peer.next_line()
        same("the id of the reply", line.value["id"], request_id)


@rules.point
def an_error_echoes_the_id(bench: Bench) -> None:
    """A refusal carries the request's id, too."""
    peer = bench.peer()
    for request_id in (-5, "a b", "é"):
        peer.refused_body("not_found", {"op": "status", "handoff": NOBODY, "id": request_id}, request_id=request_id)
        peer.refused_body("unknown_op", {"op": "pong", "id": request_id}, request_id=request_id)


@rules.point
def without_an_id_the_reply_has_none(bench: Bench) -> None:
    """The reply to a request without id has none, an error neither."""
    peer = bench.peer()
    peer.send_body({"op": "ping"})
    line = peer.next_line()
    holds("id" not in line.value, "a reply without id", line.text)
    peer.refused_body("not_found", {"op": "status", "handoff": NOBODY}, request_id=None)


@rules.point
def an_unusable_id_is_refused(bench: Bench) -> None:
    """An id that is too long, no integer of 64 bits, or of another type is invalid_request, answered without id."""
    peer = bench.peer()
    for text in ('"' + "x" * 257 + '"', '"' + "é" * 129 + '"', "9223372036854775808", "1.5", "null", "true", "[]"):
        body = f'{{"op":"ping","id":{text}}}'
        details = peer.refused_body("invalid_request", body, request_id=None)
        same("the member that is named", details["member"], "id")


@rules.point
def a_doubled_name_is_refused(bench: Bench) -> None:
    """No member may stand twice in a request, escaped or not, the same value or not."""
    peer = bench.peer()
    for text, member in (
        ('{"op":"ping","op":"ping","id":1}', "op"),
        ('{"op":"ping","\\u006fp":"ping","id":1}', "op"),
        (f'{{"op":"status","handoff":"{NOBODY}","id":1,"handoff":"{NOBODY}"}}', "handoff"),
        (f'{{"id":1,"op":"claim","worker":"a","kinds":["{bench.kind}"],"worker":"b"}}', "worker"),
    ):
        same("the member that is named", peer.refused_body("invalid_request", text, request_id=1)["member"], member)
    peer.refused_body("invalid_request", '{"op":"ping","id":1,"id":1}', request_id=None)


@rules.point
def a_doubled_name_within_a_member_is_refused(bench: Bench) -> None:
    """Nor may one stand twice in a lease, an error, or the labels."""
    peer = bench.peer()
    named = f'"id":1,"handoff":"{NOBODY}","fence":1'
    for text, member in (
        (f'{{"op":"heartbeat","id":1,"leases":[{{"handoff":"{NOBODY}","fence":1,"fence":2}}]}}', "leases[0].fence"),
        (f'{{"op":"fail",{named},"error":{{"type":"a","type":"b"}}}}', "error.type"),
        (f'{{"op":"dispatch","id":1,"kind":"{bench.kind}","inputs":{{}},"labels":{{"a":"b","a":"c"}}}}', "labels.a"),
    ):
        same("the member that is named", peer.refused_body("invalid_request", text, request_id=1)["member"], member)


@rules.point
def a_lone_surrogate_is_refused(bench: Bench) -> None:
    """An escape of a lone surrogate is invalid_request wherever it stands, in payloads too."""
    peer = bench.peer()
    named = f'"id":1,"handoff":"{NOBODY}","fence":1'
    for text in (
        f'{{"op":"checkpoint",{named},"state":"\\ud800"}}',
        f'{{"op":"claim","id":1,"worker":"\\udc00","kinds":["{bench.kind}"]}}',
        f'{{"op":"complete",{named},"result":{{"\\udbff":1}}}}',
    ):
        peer.refused_body("invalid_request", text, request_id=1)
    peer.send_body('{"op":"ping","id":"\\ud83d\\ude00"}')
    same("the id that a pair of surrogates stands for", peer.next_line().value["id"], "\U0001f600")


@rules.point
def an_unknown_operation_is_refused_by_name(bench: Bench) -> None:
    """An operation that there isn't is unknown_op, and named."""
    same("details.op", bench.peer().refused("unknown_op", "claims")["op"], "claims")


@rules.point
def op_must_be_there_and_be_text(bench: Bench) -> None:
    """A request without op, or with one that is no text, is invalid_request."""
    peer = bench.peer()
    for body in ({"id": 1}, {"id": 1, "op": 1}, {"id": 1, "op": None}, {"id": 1, "op": ["ping"]}):
        same("the member", peer.refused_body("invalid_request", body, request_id=1)["member"], "op")


@rules.point
def an_unusable_traceparent_is_ignored(bench: Bench) -> None:
    """traceparent may stand on any request; one that can't be used, null too, is ignored."""
    peer = bench.peer()
    values: tuple[JSON, ...] = (
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        None,
        5,
        {"a": []},
        "x" * 1000,
    )
    for value in values:
        peer.call("ping", traceparent=value)
        peer.call("dispatch", **peer.intent(), traceparent=value)


@rules.point
def a_waiting_claim_holds_up_nothing(bench: Bench) -> None:
    """While a claim waits, the same connection's heartbeats, writes and reads are answered."""
    peer = bench.peer(session=bench.session())
    held = peer.held()
    waiting = peer.send("claim", worker="w", kinds=[f"{bench.kind}-none"], wait_ms=600_000)
    same("renewed", peer.call("heartbeat", leases=[held.ref])["renewed"], [held.handoff])
    held.checkpoint(1)
    same("the status", held.status()["status"], "running")
    peer.dispatch(kind=f"{bench.kind}-none")
    holds(peer.granted(waiting)["handoff"] is not None, "the claim to be served afterwards", None)


@rules.point
def other_waits_hold_up_nothing(bench: Bench) -> None:
    """While result, recover and approval_wait wait, the same connection's requests are answered."""
    peer = bench.peer()
    held = peer.held()
    approval = held.call("approval_request", action="a", details=1, timeout_ms=600_000)["approval"]
    waiting = [
        peer.send("result", handoff=held.handoff, wait_ms=600_000),
        peer.send("recover", worker="w", handoff=held.handoff, wait_ms=600_000),
        peer.send("approval_wait", approval=approval, wait_ms=600_000),
    ]
    held.checkpoint(1)
    held.call("complete", result=1)
    same("the result's status", peer.granted(waiting[0])["status"], "completed")
    peer.denied(waiting[1], "not_claimable")
    same("the decision", peer.granted(waiting[2])["decision"], "cancelled")


@rules.point
def requests_about_one_handoff_keep_their_order(bench: Bench) -> None:
    """Requests about one handoff on one connection take effect in the order sent, without waiting for answers."""
    peer = bench.peer()
    held = peer.held()
    sent = [peer.send("checkpoint", **held.ref, state=n, seq=n) for n in range(1, 61)]
    sent.append(peer.send("complete", **held.ref, result="end"))
    late = peer.send("checkpoint", **held.ref, state="late")
    for request_id in sent:
        peer.granted(request_id, "each write in its place")
    peer.denied(late, "lease_lost", "a write after complete")
    same("the newest checkpoint", peer.status(held.handoff)["seq"], 60)


@rules.in_section("12 Errors")
def what_there_isnt_is_not_found(bench: Bench) -> None:
    """Every operation that names a handoff, or an approval, tells what there isn't."""
    peer = bench.peer()
    for op in sorted(OPERATIONS.keys() - {"heartbeat", "watch", "dispatch"}):
        whole = sample(op, bench.kind)
        named = {name for name in ("handoff", "approval") if name in whole}
        if named:
            details = peer.refused_body("not_found", whole, request_id=1)
            told = [name for name in ("handoff", "approval") if details.get(name) in (NOBODY, whole.get(name))]
            holds(bool(told), f"{op} to tell the handoff, or the approval, that there isn't", details)


@rules.in_section("7 Operations")
def ping_says_nothing_more(bench: Bench) -> None:
    """The reply to ping has no members of its own."""
    reply = bench.peer().call("ping")
    same("the reply's members", sorted(reply), ["id", "ok"])
