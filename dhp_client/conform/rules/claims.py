"""Claims: what one gets, in which order, and sent twice (SPEC.md, sections 5, 7 and 10)."""

from ..bench import Bench
from ..judging import holds, same
from ..points import Rules

rules = Rules("claims", "7 Operations, claim")


@rules.point
def nothing_there_is_an_empty_claim(bench: Bench) -> None:
    """A claim by kinds that finds nothing is answered with handoff null, with or without a wait."""
    peer = bench.peer()
    for wait_ms in (0, 30):
        reply = peer.call("claim", worker="w", kinds=[bench.kind], wait_ms=wait_ms)
        same("the reply's members", sorted(reply), ["handoff", "id", "ok"])
        same("handoff", reply["handoff"], None)


@rules.point
def a_claim_tells_all_that_a_worker_needs(bench: Bench) -> None:
    """A granted claim tells handoff, fence, attempt, lease, intent, checkpoint, and what it was."""
    peer = bench.peer()
    handoff = peer.dispatch(inputs={"n": 1})
    reply = peer.call("claim", worker="w", kinds=[bench.kind], ttl_ms=60_000)
    same("handoff", reply["handoff"], handoff)
    same("attempt", reply["attempt"], 1)
    same("was", reply["was"], "pending")
    same("checkpoint", reply["checkpoint"], None)
    same("the intent's inputs", reply["intent"]["inputs"], {"n": 1})
    holds(type(reply["fence"]) is int and reply["fence"] >= 1, "a fence of at least 1", reply["fence"])
    status = peer.status(handoff)
    holds(status["holder"] == "w" and status["status"] == "running", "running, held by w", status)


@rules.point
def either_a_handoff_or_kinds(bench: Bench) -> None:
    """Both or neither of handoff and kinds is invalid_request."""
    peer = bench.peer()
    handoff = peer.dispatch()
    same("member", peer.refused("invalid_request", "claim", worker="w")["member"], "kinds")
    both = peer.refused("invalid_request", "claim", worker="w", handoff=handoff, kinds=[bench.kind])
    same("member", both["member"], "kinds")


@rules.in_section("5 The life of a handoff, Choice")
def the_highest_priority_comes_first_then_the_oldest(bench: Bench) -> None:
    """A claim by kinds gets the highest priority, within it the one dispatched first."""
    peer = bench.peer()
    priorities = [5, 1, 9, 5, 0, 9, 7]
    made = [(priority, number, peer.dispatch(priority=priority)) for number, priority in enumerate(priorities)]
    wanted = [handoff for _, _, handoff in sorted(made, key=lambda one: (-one[0], one[1]))]
    came = [peer.call("claim", worker="w", kinds=[bench.kind])["handoff"] for _ in made]
    same("the order of the claims", came, wanted)


@rules.in_section("5 The life of a handoff, Choice")
def orphaned_comes_before_pending(bench: Bench) -> None:
    """Within a priority what was orphaned comes before what is pending, though younger; priority counts more."""
    peer, other = bench.peer(), bench.peer(session=bench.session())
    old = peer.dispatch()
    held = other.held(claim={"ttl_ms": bench.min_ttl_ms})
    urgent = peer.dispatch(priority=6)
    other.event("lease_lost")
    came = [peer.call("claim", worker="w", kinds=[bench.kind]) for _ in range(3)]
    same("the order of the claims", [reply["handoff"] for reply in came], [urgent, held.handoff, old])
    same("what they were", [reply["was"] for reply in came], ["pending", "orphaned", "pending"])


@rules.in_section("5 The life of a handoff, Choice")
def waiting_claims_are_served_first_come_first_served(bench: Bench) -> None:
    """Each freed handoff goes to the claim that waits longest and fits."""
    peer, other = bench.peer(), bench.peer()
    elsewhere = f"{bench.kind}-other"
    first = peer.send("claim", worker="1", kinds=[bench.kind], wait_ms=600_000)
    second = peer.send("claim", worker="2", kinds=[elsewhere, bench.kind], wait_ms=600_000)
    third = peer.send("claim", worker="3", kinds=[elsewhere], wait_ms=600_000)
    peer.pings()
    made = [other.dispatch(), other.dispatch(kind=elsewhere), other.dispatch(kind=elsewhere)]
    came = [peer.granted(request)["handoff"] for request in (first, second, third)]
    same("who got what", came, made)


@rules.in_section("5 The life of a handoff, Choice")
def a_waiter_that_has_gone_is_passed_over(bench: Bench) -> None:
    """A waiting claim whose connection is gone gets nothing; the next one does."""
    gone, peer, other = bench.peer(), bench.peer(), bench.peer()
    gone.send("claim", worker="gone", kinds=[bench.kind], wait_ms=600_000)
    gone.pings()
    waiting = peer.send("claim", worker="here", kinds=[bench.kind], wait_ms=600_000)
    peer.pings()
    gone.wire.end_input()
    holds(gone.wire.receive() is not None and gone.wire.receive() is None, "an empty answer, then the end", "other")
    handoff = other.dispatch()
    same("what the waiter that is here got", peer.granted(waiting)["handoff"], handoff)
    same("failures", other.status(handoff)["failures"], 0)


@rules.point
def what_runs_is_already_claimed(bench: Bench) -> None:
    """A claim of a given handoff that runs is already_claimed, telling the holder; with wait_ms it waits for it."""
    peer, other = bench.peer(), bench.peer()
    held = peer.held(claim={"worker": "ada"})
    details = other.refused("already_claimed", "claim", worker="w", handoff=held.handoff)
    holds(details["holder"] == "ada" and details["handoff"] == held.handoff, "the holder told", details)
    same("handoff", other.call("claim", worker="w", handoff=held.handoff, wait_ms=20)["handoff"], None)
    waiting = other.send("claim", worker="w", handoff=held.handoff, wait_ms=600_000)
    other.pings()
    held.call("release")
    same("what the waiter got", other.granted(waiting)["handoff"], held.handoff)


@rules.point
def what_is_delayed_or_suspended_is_not_claimable(bench: Bench) -> None:
    """A delayed or suspended handoff is not_claimable, after_ms where it is known; by kinds it isn't found."""
    peer = bench.peer()
    delayed = peer.dispatch(delay_ms=600_000)
    error = peer.denied(peer.send("claim", worker="w", handoff=delayed), "not_claimable")
    same("status", error["details"]["status"], "pending")
    holds(0 < error["after_ms"] <= 600_000, "after_ms within the delay", error)
    peer.call("suspend", handoff=peer.dispatch())
    same("what a claim by kinds finds", peer.call("claim", worker="w", kinds=[bench.kind])["handoff"], None)
    suspended = peer.dispatch()
    peer.call("suspend", handoff=suspended)
    details = peer.refused("not_claimable", "claim", worker="w", handoff=suspended)
    same("status", details["status"], "suspended")


@rules.point
def what_is_final_is_not_claimable_for_good(bench: Bench) -> None:
    """A final handoff is not_claimable with retry no, also for a claim that waits when it ends."""
    peer, other = bench.peer(), bench.peer()
    held = peer.held()
    waiting = other.send("claim", worker="w", handoff=held.handoff, wait_ms=600_000)
    other.pings()
    held.call("complete", result=1)
    for request in (waiting, other.send("claim", worker="w", handoff=held.handoff)):
        error = other.denied(request, "not_claimable")
        holds(error["retry"] == "no" and error["details"]["status"] == "completed", "retry no, completed", error)


@rules.point
def a_delay_ends_by_itself(bench: Bench) -> None:
    """What was dispatched with delay_ms can be claimed afterwards, and a claim that waits gets it."""
    peer = bench.peer()
    handoff = peer.dispatch(delay_ms=150)
    reply = peer.call("claim", worker="w", kinds=[bench.kind], wait_ms=600_000)
    same("what the claim got", reply["handoff"], handoff)


@rules.in_section("7 Operations, recover")
def recover_takes_only_what_is_orphaned(bench: Bench) -> None:
    """recover of pending work is wrong_state, of running work already_claimed; it waits until the work is orphaned."""
    peer, other = bench.peer(), bench.peer()
    pending = peer.dispatch()
    same("status", peer.refused("wrong_state", "recover", worker="w", handoff=pending)["status"], "pending")
    held = peer.held(claim={"ttl_ms": bench.min_ttl_ms})
    other.refused("already_claimed", "recover", worker="w", handoff=held.handoff)
    reply = other.call("recover", worker="w", handoff=held.handoff, wait_ms=600_000)
    holds(reply["handoff"] == held.handoff and reply["was"] == "orphaned", "the orphaned handoff", reply)
    holds(reply["fence"] > held.fence, "a higher fence", reply)
    other.call("cancel", handoff=pending)
    other.refused("not_claimable", "recover", worker="w", handoff=pending)


@rules.in_section("10 Promises and retries")
def a_nonce_gets_the_same_lease_back(bench: Bench) -> None:
    """The same worker's same nonce gets the same lease back while it lives, over another connection too."""
    peer, other = bench.peer(session=bench.session()), bench.peer(session=bench.session())
    peer.dispatch(), peer.dispatch()
    ask = {"worker": "w", "kinds": [bench.kind], "nonce": bench.session("n"), "ttl_ms": 60_000}
    first = peer.call("claim", **ask)
    again = other.call("claim", **ask)
    for name in ("handoff", "fence", "attempt"):
        same(name, again[name], first[name])
    stranger = other.call("claim", **{**ask, "worker": "v"})
    holds(stranger["handoff"] != first["handoff"], "another worker's same nonce to be another claim", stranger)


@rules.in_section("10 Promises and retries")
def the_nonce_of_a_lease_that_has_ended_is_lease_lost(bench: Bench) -> None:
    """Once its lease has ended, a claim's nonce is lease_lost: it never gets other work."""
    peer = bench.peer()
    peer.dispatch()
    ask = {"worker": "w", "kinds": [bench.kind], "nonce": bench.session("n"), "ttl_ms": 60_000}
    first = peer.call("claim", **ask)
    peer.call("complete", handoff=first["handoff"], fence=first["fence"], result=1)
    peer.dispatch()
    peer.refused("lease_lost", "claim", **ask)


@rules.in_section("10 Promises and retries")
def a_nonce_takes_over_the_place_of_a_claim_that_waits(bench: Bench) -> None:
    """A claim sent again while it still waits takes over its place; the old one ends as empty."""
    peer, other = bench.peer(), bench.peer()
    ask = {"worker": "w", "kinds": [bench.kind], "nonce": bench.session("n"), "wait_ms": 600_000}
    first = peer.send("claim", **ask)
    peer.pings()
    second = other.send("claim", **ask)
    same("what the first claim ended with", peer.granted(first)["handoff"], None)
    handoff = peer.dispatch()
    same("what the second claim got", other.granted(second)["handoff"], handoff)


@rules.point
def attempts_are_counted(bench: Bench) -> None:
    """attempt counts the claims so far, this one included."""
    peer = bench.peer()
    handoff = peer.dispatch()
    for attempt in (1, 2, 3):
        reply = peer.call("claim", worker="w", handoff=handoff)
        same("attempt", reply["attempt"], attempt)
        peer.call("release", handoff=handoff, fence=reply["fence"])
    same("the status's attempt", peer.status(handoff)["attempt"], 3)
