"""Leases (SPEC.md, section 6).

A check that a lease still lives holds only if nobody was slow, so it is tried again where somebody was. That a lease has ended is
looked at after its deadline, and after what the daemon itself says that it gave back for being late.
"""

from collections.abc import Callable

from ...clock import monotonic_ms
from ..bench import Bench, rest, rest_until
from ..judging import holds, same
from ..peer import Held, Peer
from ..points import Check, Rules
from .requests import NOBODY

rules = Rules("leases", "6 Leases and sessions")

JITTER_MS = 100
"""So late a timer may be on a machine that has other things to do, without the daemon giving that back. A scan is later."""


def _short(bench: Bench, peer: Peer, **members: object) -> tuple[Held, float, float]:
    """Work under the shortest lease, and the moments before which it can't have ended, and after which it must have."""
    handoff = peer.dispatch(**members)
    before_ms = monotonic_ms()
    held = Held(peer, handoff, peer.claim(handoff, ttl_ms=bench.min_ttl_ms))
    return held, before_ms + bench.min_ttl_ms, monotonic_ms() + bench.min_ttl_ms


def _refused_after_the_deadline(write: Callable[[Held], int]) -> Check:
    def check(bench: Bench) -> None:
        def attempt() -> bool:
            peer = bench.peer()
            offset = bench.given_back_ms(peer)
            held, _, ends_ms = _short(bench, peer)
            rest_until(ends_ms + JITTER_MS)
            reply = peer.reply(write(held))
            if reply["ok"] is True and bench.given_back_ms(peer) > offset:
                return False  # The daemon was late itself, and rightly moved the deadline.
            is_lost = reply["ok"] is False and reply["error"]["code"] == "lease_lost"
            holds(is_lost and reply["error"]["details"]["why"] == "expired", "lease_lost, expired", reply)
            return True

        bench.attempts(attempt)

    return check


for _op, _members in (
    ("checkpoint", {"state": 1}),
    ("complete", {"result": 1}),
    ("release", {}),
    ("spend", {"steps": 1}),
):
    rules.add(
        f"over at its deadline: {_op}",
        f"A lease is over at its deadline, not when somebody notices: {_op} after it is lease_lost (expired).",
        _refused_after_the_deadline(lambda held, op=_op, members=_members: held.peer.send(op, **held.ref, **members)),  # type: ignore[misc]
    )


@rules.point
def a_heartbeat_after_the_deadline_says_lost(bench: Bench) -> None:
    """A heartbeat that comes after the deadline renews nothing: the handoff is lost, once its end is durable."""

    def attempt() -> bool:
        peer = bench.peer()
        offset = bench.given_back_ms(peer)
        held, _, ends_ms = _short(bench, peer)
        rest_until(ends_ms + JITTER_MS)
        reply = peer.call("heartbeat", leases=[held.ref])
        if held.handoff in reply["renewed"] and bench.given_back_ms(peer) > offset:
            return False
        same("renewed", reply["renewed"], [])
        peer.call("recover", worker="w", handoff=held.handoff, wait_ms=600_000)
        same("lost", peer.call("heartbeat", leases=[held.ref])["lost"], [held.handoff])
        return True

    bench.attempts(attempt)


@rules.point
def a_lease_doesnt_end_before_its_deadline(bench: Bench) -> None:
    """A lease lives for its whole ttl: nobody gets the work before."""
    peer, other = bench.peer(), bench.peer()
    held, earliest_ms, _ = _short(bench, peer)
    other.call("recover", worker="w", handoff=held.handoff, wait_ms=600_000)
    came_ms = monotonic_ms()
    holds(came_ms >= earliest_ms, f"nothing within {bench.min_ttl_ms} ms", f"{earliest_ms - came_ms:.1f} ms too early")


def _kept_alive(renew: Callable[[Held, int], object]) -> Check:
    """Work is held for three ttls by renewals alone."""

    def check(bench: Bench) -> None:
        def attempt() -> bool:
            peer = bench.peer()
            held, safe_until_ms, _ = _short(bench, peer)
            for number in range(1, 9):
                rest(bench.min_ttl_ms * 0.3)
                renewed_ms = monotonic_ms()
                if renewed_ms > safe_until_ms - 0.2 * bench.min_ttl_ms:
                    return False
                renew(held, number)
                safe_until_ms = renewed_ms + bench.min_ttl_ms
            return True

        bench.attempts(attempt)

    return check


def _beat(held: Held, number: int) -> None:
    same("renewed", held.peer.call("heartbeat", leases=[held.ref])["renewed"], [held.handoff])


for _name, _renew in (
    ("heartbeat", _beat),
    ("checkpoint", lambda held, number: held.checkpoint(number)),
    ("spend", lambda held, number: held.call("spend", steps=1)),
    ("activity", lambda held, number: held.call("activity", digest=str(number))),
    ("duplicate checkpoint", lambda held, number: held.checkpoint("same", seq=1)),
):
    rules.add(
        f"renewed by: {_name}",
        f"A lease is renewed by each {_name}, and so lives on past its ttl.",
        _kept_alive(_renew),
    )


@rules.point
def a_lease_that_ends_is_told_and_orphans_the_work(bench: Bench) -> None:
    """At its deadline the session hears lease_lost (expired) with the lost fence; the work is orphaned, one failure more."""
    peer = bench.peer(session=bench.session())
    held, _, _ = _short(bench, peer)
    event = peer.event("lease_lost")
    same("the handoff", event["handoff"], held.handoff)
    same("the lost fence", event["fence"], held.fence)
    same("why", event["why"], "expired")
    same("the status that is told", event["status"], "orphaned")
    status = held.status()
    for name, value in (("status", "orphaned"), ("holder", None), ("failures", 1), ("lease_left_ms", None)):
        same(name, status[name], value)


@rules.point
def a_heartbeat_tells_renewed_and_lost_apart(bench: Bench) -> None:
    """One heartbeat renews what is held and tells what is lost: another fence, what ended, and what there isn't."""
    peer = bench.peer()
    alive, ended, never = peer.held(), peer.held(), peer.held()
    ended.call("release")
    wrong = {"handoff": never.handoff, "fence": never.fence + 5}
    reply = peer.call("heartbeat", leases=[alive.ref, ended.ref, wrong, {"handoff": NOBODY, "fence": 1}])
    same("renewed", reply["renewed"], [alive.handoff])
    same("lost", sorted(reply["lost"]), sorted([ended.handoff, never.handoff, NOBODY]))


@rules.point
def a_status_tells_what_is_left_of_the_lease(bench: Bench) -> None:
    """lease_left_ms lies within the ttl while the work is held, and is null otherwise."""
    held = bench.peer().held(claim={"ttl_ms": 60_000})
    left = held.status()["lease_left_ms"]
    holds(type(left) is int and 0 < left <= 60_000, "between 0 and 60000", left)
    held.call("release")
    same("lease_left_ms", held.status()["lease_left_ms"], None)
