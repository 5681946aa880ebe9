"""Checkpoints, and how work ends: complete, fail, release, cancel (SPEC.md, sections 3, 5, 7 and 10)."""

import hashlib
import json

from ..bench import Bench
from ..judging import JSON, holds, same
from ..points import Rules

rules = Rules("checkpoints", "7 Operations, checkpoint")
ends = Rules("ends", "7 Operations")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@rules.point
def seqs_count_from_1(bench: Bench) -> None:
    """The first seq is 1, each later one 1 more; absent it is just that; sha256 is that of the state's bytes."""
    held = bench.peer().held()
    for seq in (1, 2, 3, 4):
        state = {"n": seq}
        reply = held.checkpoint(state, **({"seq": seq} if seq % 2 else {}))
        same("seq", reply["seq"], seq)
        same("sha256", reply["sha256"], sha256(json.dumps(state, separators=(",", ":"))))
        same("duplicate", reply["duplicate"], False)
    same("the status's seq", held.status()["seq"], 4)


@rules.in_section("10 Promises and retries")
def the_same_checkpoint_again_is_a_duplicate(bench: Bench) -> None:
    """A stored seq with the same bytes is duplicate: true, and nothing is counted twice."""
    held = bench.peer().held()
    held.checkpoint("a", seq=1, steps=3, usd=0.5)
    held.checkpoint("b", seq=2, steps=3)
    for seq, state in ((1, "a"), (2, "b")):
        reply = held.checkpoint(state, seq=seq, steps=9, usd=9)
        holds(reply["duplicate"] is True and reply["seq"] == seq, f"a duplicate of {seq}", reply)
    status = held.status()
    holds(status["seq"] == 2 and status["steps"] == 6 and status["usd"] == 0.5, "what the first ones brought", status)


@rules.in_section("10 Promises and retries")
def other_bytes_under_a_seq_are_a_conflict(bench: Bench) -> None:
    """A stored seq with other bytes is checkpoint_conflict with both hashes, and the stored one stands."""
    held = bench.peer().held()
    held.checkpoint("a", seq=1)
    details = held.refused("checkpoint_conflict", "checkpoint", state="b", seq=1)
    same("seq", details["seq"], 1)
    same("expected", details["expected"], sha256('"a"'))
    same("got", details["got"], sha256('"b"'))
    same("the state", held.peer.call("last_checkpoint", handoff=held.handoff)["checkpoint"]["state"], "a")


@rules.point
def a_gap_is_out_of_order(bench: Bench) -> None:
    """A seq that leaves a gap is out_of_order, told which one is expected."""
    held = bench.peer().held()
    for seq in (2, 2**53 - 1):
        details = held.refused("out_of_order", "checkpoint", state="x", seq=seq)
        holds(details["seq"] == seq and details["expected"] == 1, "expected 1", details)
    held.checkpoint("a", seq=1)
    details = held.refused("out_of_order", "checkpoint", state="x", seq=3)
    holds(details["expected"] == 2 and "first_kept" in details, "expected 2, and a first_kept", details)


@rules.in_section("8 Records, Retention")
def what_was_pruned_is_out_of_order(bench: Bench) -> None:
    """Only keep_checkpoints are kept: an older one is neither shown nor compared, but out_of_order with first_kept."""
    peer = bench.peer()
    held = peer.held(keep_checkpoints=2)
    for seq in range(1, 6):
        held.checkpoint(seq, seq=seq)
    details = held.refused("out_of_order", "checkpoint", state=1, seq=1)
    holds(details["expected"] == 6 and details["first_kept"] == 4, "expected 6, first_kept 4", details)
    kept = peer.pages("checkpoints", "checkpoints", handoff=held.handoff)
    same("the seqs that are shown", [one["seq"] for one in kept], [4, 5])
    holds(held.checkpoint(4, seq=4)["duplicate"] is True, "what is kept to be a duplicate", None)


@rules.point
def a_wrong_hash_is_a_conflict(bench: Bench) -> None:
    """A sha256 that isn't that of the bytes is checkpoint_conflict, and nothing is stored; the right one is taken."""
    held = bench.peer().held()
    details = held.refused("checkpoint_conflict", "checkpoint", state="a", sha256="0" * 64)
    same("both hashes", sorted([details["expected"], details["got"]]), ["0" * 64, sha256('"a"')])
    same("seq", held.status()["seq"], 0)
    same("sha256", held.checkpoint("a", sha256=sha256('"a"'))["sha256"], sha256('"a"'))


@rules.in_section("3 Values")
def payloads_are_kept_byte_for_byte(bench: Bench) -> None:
    """A payload comes back as it was sent: numbers, doubled names, escapes and white space included; null is one."""
    peer = bench.peer()
    held = peer.held()
    texts = (
        '{"n" : 1.0, "m":1e400, "a":1,"a":2, "t":"\\u00e9\\/" , "z":[ ]}',
        "123456789012345678901234567890",
        "-0.0",
        "null",
        '"é\\ud83d\\ude00"',
        "[[],{},  0]",
    )
    for seq, text in enumerate(texts, 1):
        peer.send_body(
            f'{{"op":"checkpoint","id":"c","handoff":"{held.handoff}","fence":{held.fence},"state": {text} }}'
        )
        same("sha256", peer.granted("c")["sha256"], sha256(text))
        line = peer.line(peer.send("last_checkpoint", handoff=held.handoff))
        holds(f'"state":{text}' in line.text, f"the state {text}", line.text)
        same("seq", line.value["checkpoint"]["seq"], seq)
    peer.send_body(f'{{"op":"complete","id":"e","handoff":"{held.handoff}","fence":{held.fence},"result":{texts[0]}}}')
    peer.granted("e")
    line = peer.line(peer.send("result", handoff=held.handoff))
    holds(f'"result":{texts[0]}' in line.text, f"the result {texts[0]}", line.text)


@rules.in_section("10 Promises and retries")
def a_standby_goes_on_from_the_last_checkpoint(bench: Bench) -> None:
    """A claim gives the newest acknowledged checkpoint: seq, state, sha256 and time."""
    peer = bench.peer()
    held = peer.held()
    for seq in (1, 2, 3):
        held.checkpoint({"page": seq})
    held.call("release")
    line = peer.line(peer.send("claim", worker="w", handoff=held.handoff))
    found = line.value["checkpoint"]
    holds(found["seq"] == 3 and found["state"] == {"page": 3}, "the third state", line.text)
    same("sha256", found["sha256"], sha256('{"page":3}'))
    holds(isinstance(found["at"], str), "its time", found)
    same("seq of the next", peer.call("checkpoint", handoff=held.handoff, fence=line.value["fence"], state=4)["seq"], 4)


@rules.point
def last_checkpoint_is_null_where_there_is_none(bench: Bench) -> None:
    """last_checkpoint of work without one is null."""
    peer = bench.peer()
    same("checkpoint", peer.call("last_checkpoint", handoff=peer.dispatch())["checkpoint"], None)


# --- ends --------------------------------------------------------------------------------------------------------------


@ends.in_section("10 Promises and retries")
def complete_again_with_the_same_bytes_is_a_duplicate(bench: Bench) -> None:
    """complete with the same fence and bytes is duplicate: true; other bytes are lease_lost (completed)."""
    peer = bench.peer()
    held = peer.held()
    same("duplicate", held.call("complete", result={"a": 1})["duplicate"], False)
    same("duplicate", held.call("complete", result={"a": 1})["duplicate"], True)
    held.lost("completed", "complete", result={"a": 2})
    same("the result", peer.call("result", handoff=held.handoff)["result"], {"a": 1})


@ends.in_section("5 The life of a handoff")
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


@ends.in_section("7 Operations, complete")
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


@ends.in_section("7 Operations, complete")
def the_last_result_that_doesnt_fit_is_dead(bench: Bench) -> None:
    """At left 0 the handoff is dead, and result shows the refused one."""
    peer = bench.peer()
    held = peer.held(output_schema={"type": "integer"}, budget={"max_invalid_results": 2})
    same("left", held.refused("result_invalid", "complete", result="a")["left"], 1)
    same("left", held.refused("result_invalid", "complete", result="b")["left"], 0)
    reply = peer.call("result", handoff=held.handoff)
    holds(reply["status"] == "dead" and reply["refused"] == "b", "dead, and what was refused", reply)
    held.lost("dead", "complete", result=1)


@ends.in_section("4 Identity, Output schemas")
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


@ends.in_section("7 Operations, result")
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


@ends.in_section("7 Operations, ack")
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


@ends.in_section("7 Operations, fail")
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


@ends.in_section("5 The life of a handoff")
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


@ends.in_section("5 The life of a handoff")
def the_lease_that_ends_last_is_dead(bench: Bench) -> None:
    """A lease that ends is a failure too: max_attempts 1 gives one run, not two."""
    peer = bench.peer(session=bench.session())
    held = peer.held(claim={"ttl_ms": bench.min_ttl_ms}, budget={"max_attempts": 1})
    same("the status that is told", peer.event("lease_lost")["status"], "dead")
    peer.refused("not_claimable", "claim", worker="w", handoff=held.handoff, wait_ms=600_000)


@ends.in_section("10 Promises and retries")
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


@ends.in_section("7 Operations, release")
def a_release_costs_no_attempt(bench: Bench) -> None:
    """release hands the work back, pending, with its reason; no failure is counted; delay_ms holds it back."""
    peer = bench.peer()
    held = peer.held()
    held.call("release", reason="deploy", delay_ms=600_000)
    status = held.status()
    for name, value in (("status", "pending"), ("failures", 0), ("reason", "deploy"), ("holder", None)):
        same(name, status[name], value)
    peer.refused("not_claimable", "claim", worker="w", handoff=held.handoff)


@ends.in_section("7 Operations, cancel")
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


@ends.in_section("7 Operations, forget")
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
