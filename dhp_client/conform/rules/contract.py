"""Effects, approvals, capabilities, and work that is put aside (SPEC.md, section 5)."""

import hashlib

from ..bench import Bench
from ..judging import JSON, holds, same
from ..peer import Held, Peer
from ..points import Rules

effects = Rules("effects", "5 The life of a handoff, Effects")
approvals = Rules("approvals", "5 The life of a handoff, Approvals")
capabilities = Rules("capabilities", "5 The life of a handoff, Capabilities")
suspension = Rules("suspension", "5 The life of a handoff, Suspension")

HOUR_MS = 3_600_000


def _anew(peer: Peer, held: Held) -> Held:
    """The same work under the next fence."""
    held.call("release")
    return Held(peer, held.handoff, peer.claim(held.handoff))


@effects.point
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


@effects.point
def the_idempotency_key_is_the_same_for_every_attempt(bench: Bench) -> None:
    """idempotency_key is the SHA-256 of the id, one LF and the step."""
    peer = bench.peer()
    held = peer.held()
    for step in ("pay", "é mail"):
        wanted = hashlib.sha256(f"{held.handoff}\n{step}".encode()).hexdigest()
        same("idempotency_key", held.call("effect_begin", step=step)["idempotency_key"], wanted)
        held = _anew(peer, held)
        same("idempotency_key", held.call("effect_begin", step=step)["idempotency_key"], wanted)


@effects.in_section("10 Promises and retries")
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


@effects.in_section("7 Operations, effects")
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


def _ask(held: Held, details: JSON = 1, *, timeout_ms: int = HOUR_MS, action: str = "pay") -> str:
    approval: str = held.call("approval_request", action=action, details=details, timeout_ms=timeout_ms)["approval"]
    return approval


@approvals.point
def the_same_question_is_the_same_approval(bench: Bench) -> None:
    """An approval is bound to handoff, action and canonical details: another amount is another question."""
    peer = bench.peer()
    held, other = peer.held(), peer.held()
    first = _ask(held, {"usd": 5, "to": "Ada"})
    holds(first.startswith(f"{held.handoff}-"), "an id that begins with the handoff's", first)
    same("the same question", _ask(held, {"to": "Ada", "usd": 5.0}, timeout_ms=1), first)
    others = [_ask(held, {"usd": 500, "to": "Ada"}), _ask(held, {"usd": 5, "to": "Ada"}, action="mail"), _ask(other)]
    holds(len({first, *others}) == 4, "four questions", [first, *others])


@approvals.point
def whoever_asked_or_holds_the_work_never_decides(bench: Bench) -> None:
    """approval_decide by the session that asked, over another connection of it too, is forbidden (role approver)."""
    peer, twin = bench.peer(session=bench.session()), bench.peer(session=bench.session())
    approval = _ask(peer.held())
    for one in (peer, twin):
        details = one.refused("forbidden", "approval_decide", approval=approval, decision="approve")
        same("role", details["role"], "approver")
    same("the decision", peer.call("approval_wait", approval=approval)["decision"], None)


@approvals.point
def the_first_decision_stands(bench: Bench) -> None:
    """The same decision again changes nothing, the other one is already_decided; a wait ends with it."""
    peer, waiter, approver = bench.peer(), bench.peer(), bench.approver()
    held = peer.held()
    approval = _ask(held)
    waiting = waiter.send("approval_wait", approval=approval, wait_ms=600_000)
    waiter.pings()
    first = approver.call("approval_decide", approval=approval, decision="approve", note="go")
    same("decision", first["decision"], "approved")
    again = approver.call("approval_decide", approval=approval, decision="approve", note="again")
    for reply in (again, waiter.granted(waiting), peer.call("approval_wait", approval=approval)):
        for name in ("decision", "note", "at"):
            same(name, reply[name], first[name])
    details = approver.refused("already_decided", "approval_decide", approval=approval, decision="deny")
    same("the decision that stands", details["decision"], "approved")


@approvals.point
def an_approval_is_used_up_once(bench: Bench) -> None:
    """effect_begin with an approval needs it approved, and of this handoff; it is used up for its step, and for no other."""
    peer, approver = bench.peer(), bench.approver()
    held, other = peer.held(), peer.held()
    approval = _ask(held)
    details = held.refused("wrong_state", "effect_begin", step="pay", approval=approval)
    same("the decision", details["decision"], None)
    approver.call("approval_decide", approval=approval, decision="approve")
    other.refused("not_found", "effect_begin", step="pay", approval=approval)
    for _ in range(2):
        same("state", held.call("effect_begin", step="pay", approval=approval)["state"], "new")
    details = held.refused("wrong_state", "effect_begin", step="pay twice", approval=approval)
    same("used_by", details["used_by"], "pay")
    same("the effects", [one["step"] for one in peer.pages("effects", "effects", handoff=held.handoff)], ["pay"])


@approvals.point
def what_was_denied_isnt_carried_out(bench: Bench) -> None:
    """effect_begin with a denied approval is wrong_state, with the decision."""
    peer, approver = bench.peer(), bench.approver()
    held = peer.held()
    approval = _ask(held)
    approver.call("approval_decide", approval=approval, decision="deny", note="no")
    same("decision", held.refused("wrong_state", "effect_begin", step="s", approval=approval)["decision"], "denied")
    same("the same question", _ask(held), approval)


@approvals.point
def whoever_decided_doesnt_carry_it_out(bench: Bench) -> None:
    """effect_begin with an approval that the present holder's session gave is forbidden (role worker)."""
    if bench.terms.wants_token:
        bench.skip("with tokens the approver's token would have to be a worker's too")
    peer, approver = bench.peer(), bench.peer(session=bench.session("approver"))
    held = peer.held()
    approval = _ask(held)
    approver.call("approval_decide", approval=approval, decision="approve")
    held.call("release")
    taken = Held(approver, held.handoff, approver.claim(held.handoff))
    details = taken.refused("forbidden", "effect_begin", step="pay", approval=approval)
    same("role", details["role"], "worker")


@approvals.point
def nobody_deciding_isnt_a_no(bench: Bench) -> None:
    """After timeout_ms the decision is expired: deciding is approval_expired, and it may be asked again."""
    peer, approver = bench.peer(), bench.approver()
    held = peer.held()
    approval = _ask(held, timeout_ms=1)
    same("decision", peer.call("approval_wait", approval=approval, wait_ms=600_000)["decision"], "expired")
    details = approver.refused("approval_expired", "approval_decide", approval=approval, decision="approve")
    same("decision", details["decision"], "expired")
    same("decision", held.refused("wrong_state", "effect_begin", step="s", approval=approval)["decision"], "expired")
    holds(_ask(held) != approval, "another approval for the same question", approval)


@approvals.point
def the_end_of_the_work_cancels_its_questions(bench: Bench) -> None:
    """When the work ends, what is open becomes cancelled: deciding it is approval_expired."""
    peer, approver = bench.peer(), bench.approver()
    held = peer.held()
    approval = _ask(held)
    held.call("complete", result=1)
    same("decision", peer.call("approval_wait", approval=approval)["decision"], "cancelled")
    details = approver.refused("approval_expired", "approval_decide", approval=approval, decision="deny")
    same("decision", details["decision"], "cancelled")


@approvals.in_section("7 Operations, approvals")
def approvals_are_told_page_by_page(bench: Bench) -> None:
    """approvals of a handoff are told in the order in which they were asked for, with exactly what was asked, filtered by status."""
    peer, approver = bench.peer(), bench.approver()
    held = peer.held()
    asked = [_ask(held, {"b": number, "a": "é"}) for number in range(3)]
    approver.call("approval_decide", approval=asked[1], decision="deny")
    came = peer.pages("approvals", "approvals", handoff=held.handoff, limit=1)
    same("the approvals", [one["approval"] for one in came], asked)
    same("the details", came[0]["details"], {"a": "é", "b": 0})
    same("the decisions", [one["decision"] for one in came], [None, "denied", None])
    found = peer.pages("approvals", "approvals", handoff=held.handoff, status="denied")
    same("those that are denied", [one["approval"] for one in found], [asked[1]])


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


@suspension.point
def what_is_suspended_waits_for_resume(bench: Bench) -> None:
    """suspend by its worker puts work aside at no cost; nobody can claim it until resume; a claim with wait_ms waits for that."""
    peer, other = bench.peer(), bench.peer()
    held = peer.held()
    reply = held.call("suspend", reason="later")
    holds(reply["status"] == "suspended" and reply["duplicate"] is False, "suspended", reply)
    status = held.status()
    for name, value in (("status", "suspended"), ("reason", "later"), ("failures", 0), ("holder", None)):
        same(name, status[name], value)
    waiting = other.send("claim", worker="w", handoff=held.handoff, wait_ms=600_000)
    other.pings()
    same("status", peer.call("resume", handoff=held.handoff)["status"], "pending")
    same("what the waiter got", other.granted(waiting)["handoff"], held.handoff)
    same("status", peer.refused("wrong_state", "resume", handoff=held.handoff)["status"], "running")


@suspension.point
def suspending_from_outside_takes_the_lease(bench: Bench) -> None:
    """suspend without a fence ends the hold: the session hears lease_lost (suspended); the second time is wrong_state."""
    peer, other = bench.peer(session=bench.session()), bench.peer()
    held = peer.held()
    other.call("suspend", handoff=held.handoff)
    event = peer.event("lease_lost")
    holds(event["why"] == "suspended" and event["fence"] == held.fence, "lease_lost, suspended", event)
    held.lost("suspended")
    held.lost("suspended", "suspend", reason="mine")
    same("status", other.refused("wrong_state", "suspend", handoff=held.handoff)["status"], "suspended")


@suspension.point
def a_wake_up_comes_by_itself(bench: Bench) -> None:
    """suspend with wake_ms wakes by itself, and a status tells when."""
    peer = bench.peer()
    held = peer.held()
    held.call("suspend", wake_ms=200)
    holds(isinstance(held.status()["wake_at"], str | None), "wake_at", held.status())
    reply = peer.call("claim", worker="w", handoff=held.handoff, wait_ms=600_000)
    same("what the claim got", reply["handoff"], held.handoff)
    same("failures", held.status()["failures"], 0)


@suspension.point
def a_decision_wakes_what_waits_for_it(bench: Bench) -> None:
    """suspend with approval wakes when that is decided; decided already, it is pending in the same change."""
    peer, approver = bench.peer(), bench.approver()
    held = peer.held()
    approval = _ask(held)
    same("status", held.call("suspend", approval=approval)["status"], "suspended")
    approver.call("approval_decide", approval=approval, decision="approve")
    again = Held(peer, held.handoff, peer.claim(held.handoff, wait_ms=600_000))
    same("status", again.call("suspend", approval=approval)["status"], "pending")
    third = Held(peer, held.handoff, peer.claim(held.handoff))
    holds(third.fence == again.fence + 3, "the fence 2 higher by that, and 1 by the claim", third.fence)
    third.refused("not_found", "suspend", approval=f"{held.handoff}-{'0' * 16}")


@suspension.point
def some_reasons_are_the_daemons_own(bench: Bench) -> None:
    """suspend doesn't take the reasons exported and imported."""
    held = bench.peer().held()
    for reason in ("exported", "imported"):
        same("member", held.refused("invalid_request", "suspend", reason=reason)["member"], "reason")
