"""Effects, and capabilities: what a worker does to the world outside, and what it may touch there (SPEC.md, section 5)."""

import hashlib

from ..bench import Bench
from ..judging import holds, same
from ..peer import Held, Peer
from ..points import Rules

rules = Rules("effects", "5 The life of a handoff, Effects")
capabilities = Rules("capabilities", "5 The life of a handoff, Capabilities")


def _anew(peer: Peer, held: Held) -> Held:
    """The same work under the next fence."""
    held.call("release")
    return Held(peer, held.handoff, peer.claim(held.handoff))


@rules.point
def an_effect_is_new_once(bench: Bench) -> None:
    """new for the fence that begins it, until done; in_doubt for a later one; done, with its result, from then on."""
    peer = bench.peer()
    held = peer.held()
    for _ in range(2):
        same("state", held.call("effect_begin", step="pay")["state"], "new")
    second = _anew(peer, held)
    for _ in range(2):
        same("state", second.call("effect_begin", step="pay")["state"], "in_doubt")
    second.call("effect_done", step="pay", result={"receipt": 1})
    for one in (second, _anew(peer, second)):
        reply = one.peer.reply(
            one.peer.send("effect_begin", handoff=one.handoff, fence=peer.status(one.handoff)["fence"], step="pay")
        )
        holds(reply["state"] == "done" and reply["result"] == {"receipt": 1}, "done, with the result", reply)


@rules.point
def the_idempotency_key_is_the_same_for_every_attempt(bench: Bench) -> None:
    """idempotency_key is the SHA-256 of the id, one LF and the step."""
    peer = bench.peer()
    held = peer.held()
    for step in ("pay", "é mail"):
        wanted = hashlib.sha256(f"{held.handoff}\n{step}".encode()).hexdigest()
        same("idempotency_key", held.call("effect_begin", step=step)["idempotency_key"], wanted)
        held = _anew(peer, held)
        same("idempotency_key", held.call("effect_begin", step=step)["idempotency_key"], wanted)


@rules.in_section("10 Promises and retries")
def effect_done_stands_by_its_first_bytes(bench: Bench) -> None:
    """effect_done again with the same bytes is a duplicate, with others effect_conflict; never begun is invalid_request."""
    held = bench.peer().held()
    same("member", held.refused("invalid_request", "effect_done", step="pay", result=1)["member"], "step")
    held.call("effect_begin", step="pay")
    same("duplicate", held.call("effect_done", step="pay", result="a")["duplicate"], False)
    same("duplicate", held.call("effect_done", step="pay", result="a")["duplicate"], True)
    details = held.refused("effect_conflict", "effect_done", step="pay", result="b")
    same("step", details["step"], "pay")
    same("expected", details["expected"], hashlib.sha256(b'"a"').hexdigest())
    same("result", held.call("effect_begin", step="pay")["result"], "a")


@rules.in_section("7 Operations, effects")
def effects_are_told_page_by_page(bench: Bench) -> None:
    """effects tells each with step, state, fence and hash, in the order in which they were begun."""
    peer = bench.peer()
    held = peer.held()
    for step in ("c", "a", "b"):
        held.call("effect_begin", step=step)
    held.call("effect_done", step="a", result=1)
    came = peer.pages("effects", "effects", handoff=held.handoff, limit=1)
    same("the steps", [one["step"] for one in came], ["c", "a", "b"])
    same("the states", [one["state"] for one in came], ["begun", "done", "begun"])
    same("the fence", came[0]["fence"], held.fence)
    same("the hashes", [one["sha256"] for one in came], [None, hashlib.sha256(b"1").hexdigest(), None])


@capabilities.point
def only_what_is_named_is_granted(bench: Bench) -> None:
    """A resource is granted if it is named exactly, or begins with a prefix that ends in *; domains have no patterns."""
    peer = bench.peer()
    held = peer.held(capabilities={"fs": ["/data/*", "/etc/hosts"], "net": ["*"], "*": ["x"]})
    for domain, resource, granted in (
        ("fs", "/data/a", True),
        ("fs", "/data/", True),
        ("fs", "/data", False),
        ("fs", "/etc/hosts", True),
        ("fs", "/etc/hosts2", False),
        ("fs", "/DATA/a", False),
        ("fs", "*", False),
        ("net", "anything", True),
        ("mail", "x", False),
        ("*", "x", True),
    ):
        came = held.call("check_capability", domain=domain, resource=resource)["granted"]
        same(f"granted, for {resource} in {domain}", came, granted)
    nothing = peer.held()
    same("granted", nothing.call("check_capability", domain="fs", resource="/")["granted"], False)


@capabilities.point
def refusals_are_recorded_each_time_grants_once(bench: Bench) -> None:
    """A refusal is in the history each time, a grant once per fence."""
    peer = bench.peer()
    held = peer.held(capabilities={"fs": ["a"]})
    for resource in ("a", "a", "b", "b"):
        held.call("check_capability", domain="fs", resource=resource)
    came = [one for one in peer.history(held.handoff) if one["type"] == "capability_checked"]
    same(
        "what is recorded",
        [(one["resource"], one["granted"]) for one in came],
        [("a", True), ("b", False), ("b", False)],
    )
