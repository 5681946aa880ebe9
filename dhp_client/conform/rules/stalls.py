"""Standing still, and going round in circles (SPEC.md, section 5)."""

from ..bench import Bench
from ..judging import same
from ..points import Rules

rules = Rules("stalls", "5 The life of a handoff, Stalls")


@rules.point
def going_round_in_circles_is_a_stall(bench: Bench) -> None:
    """At the max_repeats-th repetition the work is orphaned as stalled: lease_lost, a stall and no failure. A circle counts."""
    peer = bench.peer()
    held = peer.held(budget={"max_repeats": 2})
    for digest, repeats in (("a", 0), ("b", 0), ("a", 1), ("c", 0), ("a", 1), ("b", 1)):
        same("repeats", held.call("activity", digest=digest)["repeats"], repeats)
    held.lost("stalled", "activity", digest="a")
    status = held.status()
    for name, value in (("status", "orphaned"), ("stalls", 1), ("failures", 0)):
        same(name, status[name], value)


@rules.point
def the_last_stall_is_dead(bench: Bench) -> None:
    """The max_stalls-th stall makes the work dead."""
    peer = bench.peer()
    held = peer.held(budget={"max_repeats": 1, "max_stalls": 2})
    for status in ("orphaned", "dead"):
        held.call("activity", digest="a")
        held.lost("stalled", "activity", digest="a")
        same("the status", held.status()["status"], status)
        if status == "orphaned":
            held.fence = peer.claim(held.handoff)


@rules.point
def standing_still_is_a_stall(bench: Bench) -> None:
    """stall_ms without anything new orphans the work, however well its lease is renewed; renewals and spend aren't new."""
    peer = bench.peer(session=bench.session())
    held = peer.held(budget={"stall_ms": 300})
    held.call("spend", steps=1)
    event = peer.event("lease_lost")
    same("why", event["why"], "stalled")
    same("failures", held.status()["failures"], 0)
    held.lost("stalled")


@rules.in_section("7 Operations, checkpoint")
def a_checkpoint_whose_activity_stalls_is_kept(bench: Bench) -> None:
    """A checkpoint with the activity that stalls is lease_lost (stalled), and has been kept."""
    peer = bench.peer()
    held = peer.held(budget={"max_repeats": 1})
    held.checkpoint("one", activity="a")
    held.lost("stalled", state="two", activity="a")
    same("the newest state", peer.call("last_checkpoint", handoff=held.handoff)["checkpoint"]["state"], "two")
