"""Work that is put aside, and how it comes back (SPEC.md, section 5)."""

from ..bench import Bench
from ..judging import holds, same
from ..peer import Held
from ..points import Rules
from .approvals import ask_for

rules = Rules("suspension", "5 The life of a handoff, Suspension")


@rules.point
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


@rules.point
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


@rules.point
def a_wake_up_comes_by_itself(bench: Bench) -> None:
    """suspend with wake_ms wakes by itself, and a status tells when."""
    peer = bench.peer()
    held = peer.held()
    held.call("suspend", wake_ms=200)
    holds(isinstance(held.status()["wake_at"], str | None), "wake_at", held.status())
    reply = peer.call("claim", worker="w", handoff=held.handoff, wait_ms=600_000)
    same("what the claim got", reply["handoff"], held.handoff)
    same("failures", held.status()["failures"], 0)


@rules.point
def a_decision_wakes_what_waits_for_it(bench: Bench) -> None:
    """suspend with approval wakes when that is decided; decided already, it is pending in the same change."""
    peer, approver = bench.peer(), bench.approver()
    held = peer.held()
    approval = ask_for(held)
    same("status", held.call("suspend", approval=approval)["status"], "suspended")
    approver.call("approval_decide", approval=approval, decision="approve")
    again = Held(peer, held.handoff, peer.claim(held.handoff, wait_ms=600_000))
    same("status", again.call("suspend", approval=approval)["status"], "pending")
    third = Held(peer, held.handoff, peer.claim(held.handoff))
    holds(third.fence == again.fence + 3, "the fence 2 higher by that, and 1 by the claim", third.fence)
    third.refused("not_found", "suspend", approval=f"{held.handoff}-{'0' * 16}")


@rules.point
def some_reasons_are_the_daemons_own(bench: Bench) -> None:
    """suspend doesn't take the reasons exported and imported."""
    held = bench.peer().held()
    for reason in ("exported", "imported"):
        same("member", held.refused("invalid_request", "suspend", reason=reason)["member"], "reason")
