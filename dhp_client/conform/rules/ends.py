"""How work ends, or is handed back: complete, fail, release, cancel, forget (SPEC.md, sections 4, 5, 7 and 10)."""

from ..bench import Bench
from ..judging import JSON, holds, same
from ..points import Rules

rules = Rules("ends", "7 Operations")


@rules.in_section("10 Promises and retries")
def complete_again_with_the_same_bytes_is_a_duplicate(bench: Bench) -> None:
    """complete with the same fence and bytes is duplicate: true; other bytes are lease_lost (completed)."""
    peer = bench.peer()
    held = peer.held()
    same("duplicate", held.call("complete", result={"a": 1})["duplicate"], False)
    same("duplicate", held.call("complete", result={"a": 1})["duplicate"], True)
    held.lost("completed", "complete", result={"a": 2})
    same("the result", peer.call("result", handoff=held.handoff)["result"], {"a": 1})


@rules.in_section("5 The life of a handoff")
def a_completed_result_never_changes(bench: Bench) -> None:
    """What is completed stays so, whatever comes: cancel tells it, suspend, resume, redrive and budget_add are wrong_state."""
    peer = bench.peer()
    held = peer.held()
    held.call("complete", result="kept")
    before = held.status()
    same("what cancel tells", peer.call("cancel", handoff=held.handoff)["status"], "completed")
    for op, members in (("suspend", {}), ("resume", {}), ("redrive", {}), ("budget_add", {"add": {"max_attempts": 1}})):
        details = peer.refused("wrong_state", op, handoff=held.handoff, **members)
        same(f"the status that {op} tells", details["status"], "completed")
    same("the fence", held.status()["fence"], before["fence"])
    same("the result", peer.call("result", handoff=held.handoff)["result"], "kept")


@rules.in_section("7 Operations, complete")
def a_result_that_doesnt_fit_can_be_mended(bench: Bench) -> None:
    """result_invalid tells path, rule and the tries left; the lease lives on, and a better result is taken."""
    peer = bench.peer()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    held = peer.held(output_schema=schema)
    for result, path, rule, left in (({"n": "x"}, "/n", "type", 2), ({}, "", "required", 1)):
        details = held.refused("result_invalid", "complete", result=result)
        for name, value in (("path", path), ("rule", rule), ("left", left)):
            same(name, details[name], value)
    same("the status", held.status()["status"], "running")
    held.call("complete", result={"n": 1})
    same("the status", held.status()["status"], "completed")


@rules.in_section("7 Operations, complete")
def the_last_result_that_doesnt_fit_is_dead(bench: Bench) -> None:
    """At left 0 the handoff is dead, and result shows the refused one."""
    peer = bench.peer()
    held = peer.held(output_schema={"type": "integer"}, budget={"max_invalid_results": 2})
    same("left", held.refused("result_invalid", "complete", result="a")["left"], 1)
    same("left", held.refused("result_invalid", "complete", result="b")["left"], 0)
    reply = peer.call("result", handoff=held.handoff)
    holds(reply["status"] == "dead" and reply["refused"] == "b", "dead, and what was refused", reply)
    held.lost("dead", "complete", result=1)


@rules.in_section("4 Identity, Output schemas")
def a_schema_that_cant_be_enforced_is_refused_at_dispatch(bench: Bench) -> None:
    """schema_invalid tells path and rule when the work is asked for, not when it is done; nothing is fetched."""
    peer = bench.peer()
    schemas: tuple[JSON, ...] = (
        {"type": "integr"},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "file:///etc/passwd"},
        {"properties": {"a": {"minimum": "1"}}},
        {"pattern": "("},
        {"$schema": "http://json-schema.org/draft-03/schema#"},
        {"nullable": True},
    )
    for schema in schemas:
        details = peer.refused("schema_invalid", "dispatch", **peer.intent(output_schema=schema))
        holds(isinstance(details["path"], str) and isinstance(details["rule"], str), "path and rule", details)


@rules.in_section("7 Operations, result")
def result_waits_for_the_end(bench: Bench) -> None:
    """result with wait_ms is answered when the work ends; where the wait ends first, with the status then."""
    peer, other = bench.peer(), bench.peer()
    held = peer.held()
    early = other.call("result", handoff=held.handoff, wait_ms=20)
    holds(early["status"] == "running" and "result" not in early, "running, without a result", early)
    waiting = other.send("result", handoff=held.handoff, wait_ms=600_000)
    other.pings()
    held.call("complete", result=[1])
    reply = other.granted(waiting)
    holds(reply["status"] == "completed" and reply["result"] == [1], "completed, with the result", reply)


@rules.in_section("7 Operations, ack")
def ack_counts_once_it_has_ended(bench: Bench) -> None:
    """ack before the end is wrong_state; afterwards acked is true, and again is no error."""
    peer = bench.peer()
    held = peer.held()
    same("status", peer.refused("wrong_state", "ack", handoff=held.handoff)["status"], "running")
    held.call("complete", result=1)
    same("acked", held.status()["acked"], False)
    peer.call("ack", handoff=held.handoff)
    peer.call("ack", handoff=held.handoff)
    same("acked", held.status()["acked"], True)


@rules.in_section("7 Operations, fail")
def a_failure_is_retried_after_a_back_off(bench: Bench) -> None:
    """fail makes it pending again, one failure more, not claimable for a back-off; delay_ms says otherwise."""
    peer = bench.peer()
    held = peer.held()
    failing = peer.send("fail", **held.ref, error={"type": "Timeout", "message": "m"})
    error = peer.denied(peer.send("claim", worker="w", handoff=held.handoff), "not_claimable")
    same("status", peer.granted(failing)["status"], "pending")
    holds(0 < error["after_ms"] <= 200, "a back-off of at most 200 ms", error)
    fence = peer.claim(held.handoff, wait_ms=600_000)
    peer.call("fail", handoff=held.handoff, fence=fence, error={"type": "T"}, delay_ms=0)
    peer.claim(held.handoff)
    same("failures", held.status()["failures"], 2)


@rules.in_section("5 The life of a handoff")
def the_last_failure_is_dead(bench: Bench) -> None:
    """The max_attempts-th failure makes it dead in the same change, with all it has; retry: false does at once."""
    peer = bench.peer()
    once = peer.held(budget={"max_attempts": 1})
    once.checkpoint("kept")
    same("status", once.call("fail", error={"type": "T"})["status"], "dead")
    same("the state", peer.call("last_checkpoint", handoff=once.handoff)["checkpoint"]["state"], "kept")
    holds(isinstance(once.status()["reason"], str), "a reason", once.status())
    for_good = peer.held()
    same("status", for_good.call("fail", error={"type": "T"}, retry=False)["status"], "dead")


@rules.in_section("5 The life of a handoff")
def the_lease_that_ends_last_is_dead(bench: Bench) -> None:
    """A lease that ends is a failure too: max_attempts 1 gives one run, not two."""
    peer = bench.peer(session=bench.session())
    held = peer.held(claim={"ttl_ms": bench.min_ttl_ms}, budget={"max_attempts": 1})
    same("the status that is told", peer.event("lease_lost")["status"], "dead")
    peer.refused("not_claimable", "claim", worker="w", handoff=held.handoff, wait_ms=600_000)


@rules.in_section("10 Promises and retries")
def what_ended_a_hold_can_be_said_again(bench: Bench) -> None:
    """release, fail, suspend with the fence they ended are duplicate: true until the next claim; another one is lease_lost."""
    peer = bench.peer()
    requests: dict[str, dict[str, JSON]] = {"release": {}, "fail": {"error": {"type": "T"}}, "suspend": {}}
    for op, members in requests.items():
        held = peer.held()
        same("duplicate", held.call(op, **members)["duplicate"], False)
        before = held.status()
        same("duplicate", held.call(op, **members)["duplicate"], True)
        for other in requests.keys() - {op}:
            held.refused("lease_lost", other, **requests[other])
        same("the fence", held.status()["fence"], before["fence"])
        same("failures", held.status()["failures"], before["failures"])
        if op == "suspend":
            peer.call("resume", handoff=held.handoff)
        peer.claim(held.handoff, wait_ms=600_000)
        held.lost("superseded", op, **members)


@rules.in_section("7 Operations, release")
def a_release_costs_no_attempt(bench: Bench) -> None:
    """release hands the work back, pending, with its reason; no failure is counted; delay_ms holds it back."""
    peer = bench.peer()
    held = peer.held()
    held.call("release", reason="deploy", delay_ms=600_000)
    status = held.status()
    for name, value in (("status", "pending"), ("failures", 0), ("reason", "deploy"), ("holder", None)):
        same(name, status[name], value)
    peer.refused("not_claimable", "claim", worker="w", handoff=held.handoff)


@rules.in_section("7 Operations, cancel")
def cancel_ends_whoever_holds_it(bench: Bench) -> None:
    """cancel ends pending, running and suspended work; a final one stays as it is, and is told."""
    peer = bench.peer()
    suspended = peer.dispatch()
    peer.call("suspend", handoff=suspended)
    held = peer.held()
    for handoff in (peer.dispatch(), held.handoff, suspended):
        for _ in range(2):
            same("status", peer.call("cancel", handoff=handoff, reason="r")["status"], "cancelled")
        same("the result's status", peer.call("result", handoff=handoff)["status"], "cancelled")
    held.lost("cancelled")


@rules.in_section("7 Operations, forget")
def what_is_forgotten_is_gone_and_its_fence_isnt_used_again(bench: Bench) -> None:
    """forget of live work is wrong_state; afterwards it is not_found; done anew, its fence begins above the old ones."""
    peer = bench.peer()
    intent = peer.intent()
    handoff = peer.call("dispatch", **intent)["handoff"]
    peer.refused("wrong_state", "forget", handoff=handoff)
    for _ in range(3):
        late = peer.claim(handoff)
        peer.call("release", handoff=handoff, fence=late)
    peer.call("cancel", handoff=handoff)
    peer.call("forget", handoff=handoff)
    for op in ("status", "forget", "result", "history"):
        peer.refused("not_found", op, handoff=handoff)
    again = peer.call("dispatch", **intent)
    holds(again["created"] is True and again["handoff"] == handoff, "a new handoff with the same id", again)
    fence = peer.claim(handoff)
    holds(fence > late, f"a fence above {late}", fence)
    peer.refused("lease_lost", "checkpoint", handoff=handoff, fence=late, state="late")
