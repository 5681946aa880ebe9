"""What `hello` tells, and that it is kept to (SPEC.md, sections 6, 7 and 11)."""

import re

from ..bench import Bench
from ..judging import JSON, holds, same
from ..points import Rules
from .requests import sample

rules = Rules("hello", "7 Operations, hello")

_LIMITS = (
    *("max_frame_bytes", "max_depth", "max_state_bytes", "max_result_bytes", "max_intent_bytes", "max_details_bytes"),
    *("max_bundle_bytes", "max_bundle_records", "max_wait_ms", "max_page", "max_id_bytes", "max_kind_chars"),
    *("max_key_chars", "max_token_chars", "max_name_chars", "max_reason_chars", "max_error_chars", "max_kinds"),
    *("max_labels", "max_label_chars", "max_leases", "max_parent_depth", "max_delay_ms", "max_effects"),
    *("max_approvals", "max_open_approvals"),
)


def json_text(size_bytes: int) -> str:
    """A text whose JSON is that long."""
    return "x" * (size_bytes - 2)


@rules.point
def hello_tells_who_is_there(bench: Bench) -> None:
    """hello tells server, protocol dhp/1, session, roles, features and the time."""
    reply = bench.peer().call("hello", client="dhp conform")
    same("protocol", reply["protocol"], "dhp/1")
    for name in ("server", "session", "time"):
        holds(isinstance(reply[name], str) and reply[name] != "", f"{name} as text", reply[name])
    for name in ("roles", "features"):
        is_texts = isinstance(reply[name], list) and all(isinstance(one, str) for one in reply[name])
        holds(is_texts, f"{name} as a list of text", reply[name])
    time = reply["time"]
    holds(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time) is not None, "an RFC 3339 time in UTC", time)


@rules.in_section("11 Limits")
def hello_tells_every_limit(bench: Bench) -> None:
    """hello tells every limit of section 11 as a whole number; max_depth is never below 100."""
    limits = bench.peer().call("hello")["limits"]
    for name in _LIMITS:
        holds(type(limits[name]) is int and limits[name] > 0, f"{name} as a whole number", limits[name])
    holds(limits["max_depth"] >= 100, "a max_depth of at least 100", limits["max_depth"])


@rules.in_section("6 Leases and sessions")
def hello_tells_the_terms_of_leases(bench: Bench) -> None:
    """hello tells the lease's terms: the default between the bounds, and a heartbeat at a third of it."""
    lease = bench.peer().call("hello")["lease"]
    for name in ("ttl_ms", "heartbeat_ms", "min_ttl_ms", "max_ttl_ms", "disconnect_grace_ms"):
        holds(type(lease[name]) is int and lease[name] >= 0, f"{name} in milliseconds", lease[name])
    holds(lease["min_ttl_ms"] <= lease["ttl_ms"] <= lease["max_ttl_ms"], "a default within the bounds", lease)
    holds(0 < lease["heartbeat_ms"] <= lease["ttl_ms"] // 2, "a heartbeat well within the ttl", lease)


@rules.point
def a_session_is_made_up_where_none_is_named(bench: Bench) -> None:
    """Without a name hello makes up a session, another one each time and long enough not to be guessed."""
    names = [bench.peer().call("hello")["session"] for _ in range(5)]
    holds(len(set(names)) == 5, "five different sessions", names)
    holds(all(len(name) >= 16 for name in names), "names that can't be guessed", names)


@rules.point
def a_named_session_is_joined(bench: Bench) -> None:
    """A session that is named is the one that is told."""
    peer = bench.peer()
    for name in (bench.session("a"), bench.session("b"), bench.session("é")):
        same("the session", peer.call("hello", session=name)["session"], name)


@rules.in_section("6 Leases and sessions")
def a_claim_gets_the_default_lease(bench: Bench) -> None:
    """A claim without ttl_ms gets the ttl that hello tells, one with ttl_ms what it asks for; heartbeat is a third."""
    peer = bench.peer()
    lease = bench.terms.lease
    for asked, granted in ((None, lease["ttl_ms"]), (lease["min_ttl_ms"] + 300, lease["min_ttl_ms"] + 300)):
        members = {} if asked is None else {"ttl_ms": asked}
        got = peer.call("claim", worker="w", handoff=peer.dispatch(), **members)["lease"]
        same("ttl_ms", got["ttl_ms"], granted)
        same("heartbeat_ms", got["heartbeat_ms"], granted // 3)


def _too_large(details: JSON, member: str, limit: int) -> None:
    same("the member", details["member"], member)
    same("the limit", details["limit"], limit)
    holds(details["size"] > limit, "the size that was too large", details)


@rules.in_section("11 Limits")
def max_state_bytes_is_honoured(bench: Bench) -> None:
    """A state of max_state_bytes is taken, one byte more is too_large and costs nothing."""
    held = bench.peer().held()
    limit = bench.terms.limits["max_state_bytes"]
    _too_large(held.refused("too_large", "checkpoint", state=json_text(limit + 1)), "state", limit)
    same("seq", held.checkpoint(json_text(limit))["seq"], 1)


@rules.in_section("11 Limits")
def max_result_bytes_is_honoured(bench: Bench) -> None:
    """A result of max_result_bytes is taken, one byte more is too_large and the work goes on."""
    held = bench.peer().held()
    limit = bench.terms.limits["max_result_bytes"]
    _too_large(held.refused("too_large", "complete", result=json_text(limit + 1)), "result", limit)
    held.call("complete", result=json_text(limit))


@rules.in_section("11 Limits")
def max_intent_bytes_is_honoured(bench: Bench) -> None:
    """An intent of more than max_intent_bytes is too_large."""
    peer = bench.peer()
    limit = bench.terms.limits["max_intent_bytes"]
    details = peer.refused("too_large", "dispatch", **peer.intent(inputs={"text": json_text(limit)}))
    same("the limit", details["limit"], limit)


@rules.in_section("11 Limits")
def max_details_bytes_is_honoured(bench: Bench) -> None:
    """An approval's details of max_details_bytes are taken, one byte more is too_large."""
    held = bench.peer().held()
    limit = bench.terms.limits["max_details_bytes"]
    if limit + 1_024 > bench.terms.limits["max_frame_bytes"]:
        bench.skip("a frame can't hold so much")
    ask = {"action": "a", "timeout_ms": 600_000}
    _too_large(held.refused("too_large", "approval_request", details=json_text(limit + 1), **ask), "details", limit)
    held.call("approval_request", details=json_text(limit), **ask)


@rules.in_section("11 Limits")
def a_heartbeat_may_have_max_leases(bench: Bench) -> None:
    """One heartbeat may name max_leases leases; each there isn't is lost, not not_found."""
    count = min(bench.terms.limits["max_leases"], 2_000)
    leases = [{"handoff": f"{number:064x}", "fence": 1} for number in range(count)]
    reply = bench.peer().call("heartbeat", leases=leases)
    same("renewed", reply["renewed"], [])
    same("how many are lost", len(reply["lost"]), count)


@rules.in_section("6 Leases and sessions, Tokens and roles")
def without_a_token_nothing_is_said(bench: Bench) -> None:
    """Where a token is wanted, every operation but hello is unauthenticated until hello is accepted; so is a wrong token."""
    if not bench.terms.wants_token:
        bench.skip("the daemon wants no token on this address")
    with bench.stranger() as stranger:
        for op in ("ping", "status", "list", "stats"):
            stranger.refused_body("unauthenticated", sample(op, bench.kind), request_id=1)
        stranger.refused("unauthenticated", "hello")
        stranger.refused("unauthenticated", "hello", token="wrong" * 8)


@rules.in_section("6 Leases and sessions, Tokens and roles")
def the_third_refused_hello_closes(bench: Bench) -> None:
    """After the answer to the third hello that was refused the connection is closed."""
    if not bench.terms.wants_token:
        bench.skip("the daemon wants no token on this address")
    with bench.stranger() as stranger:
        for _ in range(3):
            stranger.refused("unauthenticated", "hello", token="wrong" * 8)
        holds(stranger.wire.receive() is None, "the connection's end", "more")
