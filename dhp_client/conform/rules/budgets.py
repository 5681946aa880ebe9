"""Caps on steps, money and time, and what brings dead work back (SPEC.md, sections 3, 5, 7 and 10)."""

from ..bench import Bench
from ..judging import JSON, holds, same
from ..peer import Held
from ..points import Rules

rules = Rules("budgets", "5 The life of a handoff, Budgets")


def _over(held: Held, details: JSON, **wanted: JSON) -> None:
    for name, value in {"whose": held.handoff, **wanted}.items():
        same(name, details[name], value)


@rules.point
def steps_may_be_reached_not_passed(bench: Bench) -> None:
    """max_steps may be reached; the write that would pass it is budget_exceeded, and the work is dead."""
    held = bench.peer().held(budget={"max_steps": 3})
    held.checkpoint("a", steps=2)
    held.checkpoint("b")
    details = held.refused("budget_exceeded", "checkpoint", state="c")
    _over(held, details, cap="max_steps", limit=3, used=3, asked=1, lacking=1)
    status = held.status()
    holds(status["status"] == "dead" and status["steps"] == 3 and status["seq"] == 2, "dead, with 3 steps", status)
    held.lost("dead")


@rules.point
def money_may_be_reached_not_passed(bench: Bench) -> None:
    """max_usd may be reached, exactly; a nano-dollar more is budget_exceeded."""
    held = bench.peer().held(budget={"max_usd": 0.3})
    held.call("spend", usd=0.1)
    same("usd", held.call("spend", usd=0.2)["usd"], 0.3)
    details = held.refused("budget_exceeded", "spend", usd=0.000000001)
    _over(held, details, cap="max_usd", limit=0.3, used=0.3, asked=0.000000001, lacking=0.000000001)


@rules.in_section("3 Values")
def money_adds_up_exactly(bench: Bench) -> None:
    """Amounts add up exactly, in nano-dollars: ten times 0.1 is 1, and what is above 0 is at least one."""
    held = bench.peer().held()
    for _ in range(10):
        reply = held.call("spend", usd=0.1)
    same("ten times 0.1", float(reply["usd"]), 1.0)
    same("and the least there is", held.call("spend", usd=1e-30)["usd"], 1.000000001)
    same("steps", held.call("spend")["steps"], 0)


@rules.point
def what_a_cap_refused_is_kept(bench: Bench) -> None:
    """A refused checkpoint's amounts, seq and state are kept; all earlier ones stay; redrive with more applies it."""
    peer = bench.peer()
    held = peer.held(budget={"max_steps": 1})
    held.checkpoint("first")
    held.refused("budget_exceeded", "checkpoint", state="paid for", steps=2)
    kept = held.status()["kept"]
    holds(kept["steps"] == 2 and kept["seq"] == 2, "kept: 2 steps, seq 2", kept)
    same("the newest checkpoint", peer.call("last_checkpoint", handoff=held.handoff)["checkpoint"]["state"], "first")
    details = peer.refused("budget_exceeded", "redrive", handoff=held.handoff)
    same("what is lacking", details["lacking"], 2)
    same("the status", held.status()["status"], "dead")
    same("the status", peer.call("redrive", handoff=held.handoff, budget_add={"max_steps": 2})["status"], "pending")
    status = held.status()
    holds(
        status["steps"] == 3 and status["seq"] == 2 and status["kept"] is None, "3 steps, seq 2, nothing kept", status
    )
    reply = peer.call("claim", worker="w", handoff=held.handoff)
    same("the state to go on from", reply["checkpoint"]["state"], "paid for")


@rules.in_section("7 Operations, redrive")
def redrive_brings_dead_work_back(bench: Bench) -> None:
    """redrive makes dead work pending with all it has, failures counted anew; of any other it is wrong_state."""
    peer = bench.peer()
    held = peer.held()
    held.checkpoint("kept", steps=2)
    same("status", peer.refused("wrong_state", "redrive", handoff=held.handoff)["status"], "running")
    held.call("fail", error={"type": "T"}, retry=False)
    same("status", peer.call("redrive", handoff=held.handoff)["status"], "pending")
    status = held.status()
    for name, value in (("failures", 0), ("seq", 1), ("steps", 2)):
        same(name, status[name], value)
    peer.claim(held.handoff)


@rules.in_section("10 Promises and retries")
def spend_by_nonce_counts_once(bench: Bench) -> None:
    """A spend with the same nonce counts once, and tells the present sums; another nonce counts."""
    held = bench.peer().held()
    for _ in range(3):
        reply = held.call("spend", usd=0.5, steps=2, nonce="a")
        holds(reply["usd"] == 0.5 and reply["steps"] == 2, "0.5 and 2", reply)
    reply = held.call("spend", usd=0.5, nonce="b")
    holds(reply["usd"] == 1 and reply["steps"] == 2, "1 and 2", reply)
    held.call("spend", usd=0.25)
    same("what the first nonce tells now", held.call("spend", usd=0.5, steps=2, nonce="a")["usd"], 1.25)


@rules.in_section("10 Promises and retries")
def budget_add_by_nonce_counts_once(bench: Bench) -> None:
    """budget_add gives more of caps in force, once for a nonce; what isn't in force, or not above 0, is refused."""
    peer = bench.peer()
    handoff = peer.dispatch(budget={"max_steps": 5})
    for _ in range(2):
        reply = peer.call("budget_add", handoff=handoff, add={"max_steps": 3}, nonce="n")
        same("max_steps", reply["budget"]["max_steps"], 8)
    for add, member in (({"max_usd": 1}, "add.max_usd"), ({"max_steps": 0}, "add.max_steps"), ({}, "add")):
        same("member", peer.refused("invalid_request", "budget_add", handoff=handoff, add=add)["member"], member)
    peer.call("cancel", handoff=handoff)
    peer.refused("wrong_state", "budget_add", handoff=handoff, add={"max_steps": 3})


@rules.in_section("10 Promises and retries")
def redrive_by_nonce_happens_once(bench: Bench) -> None:
    """A redrive with the same nonce isn't carried out again, though the work is running or dead by then."""
    peer = bench.peer()
    held = peer.held(budget={"max_steps": 1})
    held.refused("budget_exceeded", "spend", steps=2)
    ask = {"handoff": held.handoff, "budget_add": {"max_steps": 1}, "nonce": "n"}
    same("status", peer.call("redrive", **ask)["status"], "pending")
    same("status", peer.call("redrive", **ask)["status"], "pending")
    same("max_steps", held.status()["budget"]["max_steps"], 2)
    held.fence = peer.claim(held.handoff)
    held.refused("budget_exceeded", "spend", steps=1)
    same("status", peer.call("redrive", **ask)["status"], "dead")
    same("max_steps", held.status()["budget"]["max_steps"], 2)


@rules.point
def a_cap_on_time_ends_it_at_its_moment(bench: Bench) -> None:
    """max_wallclock_ms after the first claim it is dead, held or not."""
    peer = bench.peer(session=bench.session())
    held = peer.held(budget={"max_wallclock_ms": 200})
    same("the status that is told", peer.event("lease_lost")["status"], "dead")
    held.lost("dead")
    handed_back = peer.held(budget={"max_wallclock_ms": 200})
    handed_back.call("release", delay_ms=600_000)
    same("status", peer.call("result", handoff=handed_back.handoff, wait_ms=600_000)["status"], "dead")
    peer.refused("budget_exceeded", "redrive", handoff=handed_back.handoff)


@rules.point
def a_sum_out_of_range_is_refused_and_changes_nothing(bench: Bench) -> None:
    """A sum above 8,000,000 dollars is invalid_request (usd), and neither parks the work nor counts."""
    held = bench.peer().held()
    held.call("spend", usd=7_999_999)
    same("member", held.refused("invalid_request", "spend", usd=1.5)["member"], "usd")
    status = held.status()
    holds(status["status"] == "running" and status["usd"] == 7_999_999, "running, as it was", status)


@rules.point
def the_caps_in_force_are_told(bench: Bench) -> None:
    """status tells the caps in force, defaults filled in."""
    peer = bench.peer()
    budget = peer.status(peer.dispatch(budget={"max_usd": 1.5}))["budget"]
    for name, value in (("max_usd", 1.5), ("max_attempts", 3), ("max_stalls", 2), ("max_invalid_results", 3)):
        same(name, budget[name], value)
