"""Draining, which a daemon doesn't come back from: looked at last, and only where it may be (SPEC.md, sections 7 and 9)."""

from ..bench import Bench
from ..judging import holds, same
from ..points import Rules

rules = Rules("drain", "7 Operations, drain")


@rules.in_section("7 Operations, drain", turn="drained")
def draining_stops_what_is_new_and_lets_what_is_held_go_on(bench: Bench) -> None:
    """After drain new claims and dispatches are draining, claims that wait end so, and what is held goes on; again is no error."""
    peer, waiter, other = bench.peer(session=bench.session()), bench.peer(), bench.peer()
    intent = peer.intent()
    handoff = peer.call("dispatch", **intent)["handoff"]
    fence = peer.claim(handoff)
    waiting = waiter.send("claim", worker="w", kinds=[bench.kind], wait_ms=600_000)
    waiter.pings()
    holds(other.call("drain")["leases"] >= 1, "the lease that is held, counted", None)
    peer.event("draining")
    error = waiter.denied(waiting, "draining")
    same("retry", error["retry"], "later")
    peer.refused("draining", "dispatch", **peer.intent())
    same("created", peer.call("dispatch", **intent)["created"], False)
    peer.refused("draining", "claim", worker="w", kinds=[bench.kind])
    peer.refused("draining", "claim", worker="w", handoff=handoff)
    other.call("drain")
    same("the health's status", peer.call("health")["status"], "draining")
    same("renewed", peer.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["renewed"], [handoff])
    peer.call("checkpoint", handoff=handoff, fence=fence, state=1)
    peer.call("complete", handoff=handoff, fence=fence, result=1)
    bench.peer(session=bench.session("late")).event("draining")
