"""Approvals: a person's word on one action (SPEC.md, section 5)."""

from ..bench import Bench
from ..judging import JSON, holds, same
from ..peer import Held
from ..points import Rules

rules = Rules("approvals", "5 The life of a handoff, Approvals")

HOUR_MS = 3_600_000


def ask_for(held: Held, details: JSON = 1, *, timeout_ms: int = HOUR_MS, action: str = "pay") -> str:
    """Asks, and gives the approval's id."""
    approval: str = held.call("approval_request", action=action, details=details, timeout_ms=timeout_ms)["approval"]
    return approval


@rules.point
def the_same_question_is_the_same_approval(bench: Bench) -> None:
    """An approval is bound to handoff, action and canonical details: another amount is another question."""
    peer = bench.peer()
    held, other = peer.held(), peer.held()
    first = ask_for(held, {"usd": 5, "to": "Ada"})
    holds(first.startswith(f"{held.handoff}-"), "an id that begins with the handoff's", first)
    same("the same question", ask_for(held, {"to": "Ada", "usd": 5.0}, timeout_ms=1), first)
    others = [
        ask_for(held, {"usd": 500, "to": "Ada"}),
        ask_for(held, {"usd": 5, "to": "Ada"}, action="mail"),
        ask_for(other),
    ]
    holds(len({first, *others}) == 4, "four questions", [first, *others])


@rules.point
def whoever_asked_or_holds_the_work_never_decides(bench: Bench) -> None:
    """approval_decide by the session that asked, over another connection of it too, is forbidden (role approver)."""
    peer, twin = bench.peer(session=bench.session()), bench.peer(session=bench.session())
    approval = ask_for(peer.held())
    for one in (peer, twin):
        details = one.refused("forbidden", "approval_decide", approval=approval, decision="approve")
        same("role", details["role"], "approver")
    same("the decision", peer.call("approval_wait", approval=approval)["decision"], None)


@rules.point
def the_first_decision_stands(bench: Bench) -> None:
    """The same decision again changes nothing, the other one is already_decided; a wait ends with it."""
    peer, waiter, approver = bench.peer(), bench.peer(), bench.approver()
    held = peer.held()
    approval = ask_for(held)
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


@rules.point
def an_approval_is_used_up_once(bench: Bench) -> None:
    """effect_begin with an approval needs it approved, and of this handoff; it is used up for its step, and for no other."""
    peer, approver = bench.peer(), bench.approver()
    held, other = peer.held(), peer.held()
    approval = ask_for(held)
    details = held.refused("wrong_state", "effect_begin", step="pay", approval=approval)
    same("the decision", details["decision"], None)
    approver.call("approval_decide", approval=approval, decision="approve")
    other.refused("not_found", "effect_begin", step="pay", approval=approval)
    for _ in range(2):
        same("state", held.call("effect_begin", step="pay", approval=approval)["state"], "new")
    details = held.refused("wrong_state", "effect_begin", step="pay twice", approval=approval)
    same("used_by", details["used_by"], "pay")
    same("the effects", [one["step"] for one in peer.pages("effects", "effects", handoff=held.handoff)], ["pay"])


@rules.point
def what_was_denied_isnt_carried_out(bench: Bench) -> None:
    """effect_begin with a denied approval is wrong_state, with the decision."""
    peer, approver = bench.peer(), bench.approver()
    held = peer.held()
    approval = ask_for(held)
    approver.call("approval_decide", approval=approval, decision="deny", note="no")
    same("decision", held.refused("wrong_state", "effect_begin", step="s", approval=approval)["decision"], "denied")
    same("the same question", ask_for(held), approval)


@rules.point
def whoever_decided_doesnt_carry_it_out(bench: Bench) -> None:
    """effect_begin with an approval that the present holder's session gave is forbidden (role worker)."""
    if bench.terms.wants_token:
        bench.skip("with tokens the approver's token would have to be a worker's too")
    peer, approver = bench.peer(), bench.peer(session=bench.session("approver"))
    held = peer.held()
    approval = ask_for(held)
    approver.call("approval_decide", approval=approval, decision="approve")
    held.call("release")
    taken = Held(approver, held.handoff, approver.claim(held.handoff))
    details = taken.refused("forbidden", "effect_begin", step="pay", approval=approval)
    same("role", details["role"], "worker")


@rules.point
def nobody_deciding_isnt_a_no(bench: Bench) -> None:
    """After timeout_ms the decision is expired: deciding is approval_expired, and it may be asked again."""
    peer, approver = bench.peer(), bench.approver()
    held = peer.held()
    approval = ask_for(held, timeout_ms=1)
    same("decision", peer.call("approval_wait", approval=approval, wait_ms=600_000)["decision"], "expired")
    details = approver.refused("approval_expired", "approval_decide", approval=approval, decision="approve")
    same("decision", details["decision"], "expired")
    same("decision", held.refused("wrong_state", "effect_begin", step="s", approval=approval)["decision"], "expired")
    holds(ask_for(held) != approval, "another approval for the same question", approval)


@rules.point
def the_end_of_the_work_cancels_its_questions(bench: Bench) -> None:
    """When the work ends, what is open becomes cancelled: deciding it is approval_expired."""
    peer, approver = bench.peer(), bench.approver()
    held = peer.held()
    approval = ask_for(held)
    held.call("complete", result=1)
    same("decision", peer.call("approval_wait", approval=approval)["decision"], "cancelled")
    details = approver.refused("approval_expired", "approval_decide", approval=approval, decision="deny")
    same("decision", details["decision"], "cancelled")


@rules.in_section("7 Operations, approvals")
def approvals_are_told_page_by_page(bench: Bench) -> None:
    """approvals of a handoff are told in the order in which they were asked for, with exactly what was asked, filtered by status."""
    peer, approver = bench.peer(), bench.approver()
    held = peer.held()
    asked = [ask_for(held, {"b": number, "a": "é"}) for number in range(3)]
    approver.call("approval_decide", approval=asked[1], decision="deny")
    came = peer.pages("approvals", "approvals", handoff=held.handoff, limit=1)
    same("the approvals", [one["approval"] for one in came], asked)
    same("the details", came[0]["details"], {"a": "é", "b": 0})
    same("the decisions", [one["decision"] for one in came], [None, "denied", None])
    found = peer.pages("approvals", "approvals", handoff=held.handoff, status="denied")
    same("those that are denied", [one["approval"] for one in found], [asked[1]])
