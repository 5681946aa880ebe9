"""Values and their bounds (SPEC.md, section 3)."""

from ..bench import Bench
from ..judging import holds, same
from ..points import Rules
from .requests import NOBODY

rules = Rules("values", "3 Values")


@rules.point
def waits_lifetimes_and_limits_are_clamped(bench: Bench) -> None:
    """wait_ms, ttl_ms and limit are clamped to their bounds, whatever integer they are."""
    peer = bench.peer()
    lease = bench.terms.lease
    for wait_ms in (-1, -(10**15)):
        same("handoff", peer.call("claim", worker="w", kinds=[bench.kind], wait_ms=wait_ms)["handoff"], None)
    for ttl_ms, granted in ((-5, lease["min_ttl_ms"]), (0, lease["min_ttl_ms"]), (10**15, lease["max_ttl_ms"])):
        handoff = peer.dispatch()
        reply = peer.call("claim", worker="w", handoff=handoff, ttl_ms=ttl_ms)
        same(f"the lease's ttl_ms when {ttl_ms} was asked for", reply["lease"]["ttl_ms"], granted)
    for limit in (-1, 0, 10**15):
        holds(len(peer.call("list", kind=bench.kind, limit=limit)["handoffs"]) >= 1, "at least one item", limit)


@rules.point
def other_values_out_of_bounds_are_refused(bench: Bench) -> None:
    """Every other value out of its bounds is invalid_request, naming the member."""
    peer = bench.peer()
    limits = bench.terms.limits
    new = {"op": "dispatch", "id": 1, "kind": bench.kind, "inputs": {}}
    named = {"id": 1, "handoff": NOBODY}
    for body, member in (
        ({**new, "priority": 10}, "priority"),
        ({**new, "priority": -1}, "priority"),
        ({**new, "delay_ms": -1}, "delay_ms"),
        ({**new, "delay_ms": limits["max_delay_ms"] + 1}, "delay_ms"),
        ({**new, "kind": "a b"}, "kind"),
        ({**new, "kind": "k" * (limits["max_kind_chars"] + 1)}, "kind"),
        ({**new, "key": "k" * (limits["max_key_chars"] + 1)}, "key"),
        ({**new, "keep_checkpoints": 0}, "keep_checkpoints"),
        ({**new, "labels": {f"{n}": "" for n in range(limits["max_labels"] + 1)}}, "labels"),
        ({"op": "claim", "id": 1, "worker": "", "kinds": ["k"]}, "worker"),
        ({"op": "claim", "id": 1, "worker": "w" * (limits["max_name_chars"] + 1), "kinds": ["k"]}, "worker"),
        ({"op": "claim", "id": 1, "worker": "w", "kinds": []}, "kinds"),
        ({"op": "claim", "id": 1, "worker": "w", "kinds": ["k"] * (limits["max_kinds"] + 1)}, "kinds"),
        ({"op": "checkpoint", **named, "fence": -1, "state": 1}, "fence"),
        ({"op": "checkpoint", **named, "fence": 2**53, "state": 1}, "fence"),
        ({"op": "checkpoint", **named, "fence": 1, "state": 1, "seq": 0}, "seq"),
        ({"op": "checkpoint", **named, "fence": 1, "state": 1, "steps": -1}, "steps"),
        ({"op": "checkpoint", **named, "fence": True, "state": 1}, "fence"),
        ({"op": "cancel", **named, "reason": "r" * (limits["max_reason_chars"] + 1)}, "reason"),
        ({"op": "status", "id": 1, "handoff": "F" * 64}, "handoff"),
        ({"op": "status", "id": 1, "handoff": "0" * 63}, "handoff"),
        ({"op": "status", "id": 1, "handoff": "0" * 64 + "\n"}, "handoff"),
        ({"op": "list", "id": 1, "after": -1}, "after"),
    ):
        same("the member that is named", peer.refused_body("invalid_request", body, request_id=1)["member"], member)
    leases = [{"handoff": NOBODY, "fence": 1}] * (limits["max_leases"] + 1)
    details = peer.refused_body("invalid_request", {"op": "heartbeat", "id": 1, "leases": leases}, request_id=1)
    same("the member that is named", details["member"], "leases")
    text = f'{{"op":"checkpoint","id":1,"handoff":"{NOBODY}","fence":1.0,"state":1}}'
    same("the member", peer.refused_body("invalid_request", text, request_id=1)["member"], "fence")


@rules.point
def money_out_of_bounds_is_refused(bench: Bench) -> None:
    """Money is a number from 0 to 8,000,000: nothing below, above, or that is no number."""
    peer = bench.peer()
    for text in ("-0.01", "8000000.01", "1e400", '"1"', "true", "null", "[]"):
        body = f'{{"op":"spend","id":1,"handoff":"{NOBODY}","fence":1,"usd":{text}}}'
        same("the member that is named", peer.refused_body("invalid_request", body, request_id=1)["member"], "usd")
