"""The fence: raised by every change of status, and looked at by every write (SPEC.md, section 5).

Which operations take a fence is read from the protocol's own messages, so that a new one is looked at from its first day.
"""

from collections.abc import Callable

import msgspec

from ..bench import Bench
from ..judging import JSON, holds, same
from ..peer import Held, Peer
from ..points import Check, Rules
from .requests import OPERATIONS, sample

rules = Rules("fences", "5 The life of a handoff")

FENCED = sorted(
    op for op, cls in OPERATIONS.items() if "fence" in {field.name for field in msgspec.structs.fields(cls)}
)
"""Every operation that takes a fence."""

End = Callable[[Bench, Peer, Held], None]


def _write(op: str, held: Held, fence: int) -> dict[str, JSON]:
    """A good request of that operation, but for its fence."""
    whole = {**sample(op, held.peer.kind), **held.ref, "fence": fence}
    return {name: value for name, value in whole.items() if name not in ("op", "id")}


# --- how a hold ends, and why its fence is void then ------------------------------------------------------------------


def _dies_at_a_cap(bench: Bench, peer: Peer, held: Held) -> None:
    held.refused("budget_exceeded", "spend", steps=1_000)


def _expires(bench: Bench, peer: Peer, held: Held) -> None:
    peer.event("lease_lost")


def _repeats(bench: Bench, peer: Peer, held: Held) -> None:
    held.call("activity", digest="round")
    held.lost("stalled", "activity", digest="round")


ENDS: dict[str, tuple[End, dict[str, JSON], str]] = {
    "released": (lambda bench, peer, held: _call(held, "release"), {}, "pending"),
    "failed": (lambda bench, peer, held: _call(held, "fail", error={"type": "T"}), {}, "pending"),
    "suspended": (lambda bench, peer, held: _call(held, "suspend"), {}, "suspended"),
    "cancelled": (lambda bench, peer, held: _call_outside(held, "cancel"), {}, "cancelled"),
    "completed": (lambda bench, peer, held: _call(held, "complete", result="first"), {}, "completed"),
    "dead": (_dies_at_a_cap, {"budget": {"max_steps": 10}}, "dead"),
    "expired": (_expires, {}, "orphaned"),
    "stalled": (_repeats, {"budget": {"max_repeats": 1}}, "orphaned"),
}
"""By `why`: how to end a hold so, what to dispatch for that, and the status then."""


def _call(held: Held, op: str, **members: JSON) -> None:
    held.call(op, **members)


def _call_outside(held: Held, op: str) -> None:
    held.peer.call(op, handoff=held.handoff)


def _void_after(why: str) -> Check:
    end, members, status = ENDS[why]

    def check(bench: Bench) -> None:
        peer = bench.peer(session=bench.session())
        ttl = bench.min_ttl_ms if why == "expired" else 120_000
        held = peer.held(claim={"ttl_ms": ttl}, **members)
        end(bench, peer, held)
        before = held.status()
        same("the status", before["status"], status)
        same_hold = {"released": "release", "failed": "fail", "suspended": "suspend"}.get(why)
        for op in FENCED:
            if op != same_hold:
                details = peer.lost(why, op, **_write(op, held, held.fence))
                same("the status that is told", details["status"], status)
                same("the fence that is told", details["fence"], before["fence"])
        same("lost", peer.call("heartbeat", leases=[held.ref])["lost"], [held.handoff])
        after = held.status()
        for name in ("status", "fence", "seq", "position"):
            same(f"{name}, which no late write changes", after[name], before[name])

    return check


for _why in ENDS:
    rules.add(
        f"no write after: {_why}",
        f"Under the fence of a hold that was {_why} every write is lease_lost.",
        _void_after(_why),
    )


def _late(op: str) -> Check:
    def check(bench: Bench) -> None:
        peer, other = bench.peer(), bench.peer()
        late = peer.held()
        late.checkpoint(1)
        late.call("release")
        handoff = late.handoff
        newer = Held(other, handoff, other.claim(handoff))
        before = newer.status()
        details = peer.lost("superseded", op, **_write(op, late, late.fence))
        holds(details["fence"] == newer.fence and details["status"] == "running", "the present fence told", details)
        after = newer.status()
        for name in ("status", "fence", "seq", "holder", "steps", "position"):
            same(f"{name}, which no late write changes", after[name], before[name])
        newer.checkpoint(2, seq=2)

    return check


def _early(op: str) -> Check:
    def check(bench: Bench) -> None:
        peer = bench.peer()
        handoff = peer.dispatch()
        never = Held(peer, handoff, 1)
        peer.lost("never_claimed", op, **_write(op, never, 2**53 - 1))
        held = Held(peer, handoff, peer.claim(handoff))
        peer.lost("never_claimed", op, **_write(op, held, held.fence + 1))
        same("the status", held.status()["status"], "running")

    return check


for _op in FENCED:
    rules.add(
        f"late: {_op}",
        f"{_op} with the fence of an earlier claim is lease_lost (superseded), and changes nothing.",
        _late(_op),
    )
    rules.add(f"early: {_op}", f"{_op} with a fence that nobody was given is lease_lost (never_claimed).", _early(_op))


@rules.point
def any_connection_may_use_the_fence(bench: Bench) -> None:
    """The fence is the credential: another connection, of another session, may write with it."""
    peer, other = bench.peer(), bench.peer(session=bench.session())
    held = peer.held()
    elsewhere = Held(other, held.handoff, held.fence)
    same("seq", elsewhere.checkpoint(1)["seq"], 1)
    same("renewed", other.call("heartbeat", leases=[held.ref])["renewed"], [held.handoff])
    elsewhere.call("complete", result=1)


@rules.point
def every_claim_raises_the_fence(bench: Bench) -> None:
    """Every claim gives out a larger fence, the same worker's too."""
    peer = bench.peer()
    handoff = peer.dispatch()
    fences = [peer.status(handoff)["fence"]]
    for _ in range(4):
        fences.append(peer.claim(handoff))
        peer.call("release", handoff=handoff, fence=fences[-1])
    holds(fences == sorted(set(fences)), "fences that only rise", fences)


# --- by how much each change of status raises it -----------------------------------------------------------------------


def _rises(by: int, change: Callable[[Bench, Peer, str], object]) -> Check:
    def check(bench: Bench) -> None:
        peer = bench.peer(session=bench.session())
        handoff = peer.dispatch(budget={"max_steps": 10, "max_repeats": 1, "max_stalls": 3})
        before = peer.status(handoff)["fence"]
        raised = change(bench, peer, handoff)
        start = raised if isinstance(raised, int) else before
        same(f"the fence, which was {start}", peer.status(handoff)["fence"], start + by)

    return check


def _held(peer: Peer, handoff: str, **members: JSON) -> Held:
    return Held(peer, handoff, peer.claim(handoff, **members))


def _ended(op: str, **members: JSON) -> Callable[[Bench, Peer, str], int]:
    def change(bench: Bench, peer: Peer, handoff: str) -> int:
        held = _held(peer, handoff)
        held.call(op, **members)
        return held.fence

    return change


def _outside(op: str, *, first: str | None = None, **members: JSON) -> Callable[[Bench, Peer, str], int]:
    """What happens from outside, to work that is pending, or held (`first` is "claim"), or after another operation."""

    def change(bench: Bench, peer: Peer, handoff: str) -> int:
        if first == "claim":
            _held(peer, handoff)
        elif first is not None:
            peer.call(first, handoff=handoff)
        fence: int = peer.status(handoff)["fence"]
        peer.call(op, handoff=handoff, **members)
        return fence

    return change


def _orphaned(bench: Bench, peer: Peer, handoff: str) -> int:
    held = _held(peer, handoff, ttl_ms=bench.min_ttl_ms)
    peer.event("lease_lost")
    return held.fence


def _stalled(bench: Bench, peer: Peer, handoff: str) -> int:
    held = _held(peer, handoff)
    _repeats(bench, peer, held)
    return held.fence


def _capped(bench: Bench, peer: Peer, handoff: str) -> int:
    held = _held(peer, handoff)
    held.refused("budget_exceeded", "checkpoint", state=1, steps=11)
    return held.fence


def _redriven(bench: Bench, peer: Peer, handoff: str) -> int:
    _ended("fail", error={"type": "T"}, retry=False)(bench, peer, handoff)
    fence: int = peer.status(handoff)["fence"]
    peer.call("redrive", handoff=handoff)
    return fence


def _goodbye(bench: Bench, peer: Peer, handoff: str) -> int:
    held = _held(peer, handoff)
    peer.call("goodbye")
    return held.fence


for _name, _by, _change in (
    ("release", 1, _ended("release")),
    ("fail", 1, _ended("fail", error={"type": "T"})),
    ("fail for good", 2, _ended("fail", error={"type": "T"}, retry=False)),
    ("complete", 0, _ended("complete", result=1)),
    ("suspend with the fence", 1, _ended("suspend")),
    ("suspend pending work", 1, _outside("suspend")),
    ("suspend running work", 1, _outside("suspend", first="claim")),
    ("resume", 1, _outside("resume", first="suspend")),
    ("cancel pending work", 1, _outside("cancel")),
    ("cancel running work", 1, _outside("cancel", first="claim")),
    ("cancel suspended work", 1, _outside("cancel", first="suspend")),
    ("cancel what is cancelled", 0, _outside("cancel", first="cancel")),
    ("export pending work", 1, _outside("export")),
    ("export running work", 1, _outside("export", first="claim")),
    ("export what is final", 0, _outside("export", first="cancel")),
    ("ack", 0, _outside("ack", first="cancel")),
    ("goodbye", 1, _goodbye),
    ("the lease ends", 1, _orphaned),
    ("a stall", 1, _stalled),
    ("a cap is in the way", 1, _capped),
    ("redrive", 1, _redriven),
):
    rules.add(f"rises by {_by}: {_name}", f"The fence rises by {_by} with: {_name}.", _rises(_by, _change))


@rules.point
def waking_raises_the_fence_as_well(bench: Bench) -> None:
    """suspended (+1), woken (+1) and claimed (+1) again: no change of status leaves the fence as it was."""
    peer = bench.peer()
    handoff = peer.dispatch()
    before = peer.status(handoff)["fence"]
    peer.call("suspend", handoff=handoff, wake_ms=1)
    reply = peer.call("claim", worker="w", handoff=handoff, wait_ms=600_000)
    same("the fence", reply["fence"], before + 3)
