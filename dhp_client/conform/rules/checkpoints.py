"""Checkpoints: their numbers, their bytes, and what a standby gets of them (SPEC.md, sections 3, 7, 8 and 10)."""

import hashlib
import json

from ..bench import Bench
from ..judging import holds, same
from ..points import Rules

rules = Rules("checkpoints", "7 Operations, checkpoint")


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
