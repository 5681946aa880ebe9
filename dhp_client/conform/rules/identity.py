"""The id is the hash of the intent (SPEC.md, section 4).

The ids here are computed with nothing but a hash and this language's own JSON, which for text without surprises, whole numbers
and names in ASCII is the canonical form.
"""

import hashlib
import json
import random
import re

from ..bench import Bench
from ..judging import JSON, Unlike, holds, same
from ..points import Rules

rules = Rules("identity", "4 Identity")

_DEFAULTS: dict[str, JSON] = {"output_schema": {}, "budget": {}, "capabilities": {}, "key": ""}
_INTENT = re.compile(r'"intent":(\{.*\}),"checkpoint"')


def own_id(intent: dict[str, JSON]) -> str:
    """The id of an intent of plain text, names and whole numbers."""
    whole = {**_DEFAULTS, **intent}
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _random_value(rng: random.Random, depth: int) -> JSON:
    leaves = [0, 1, -7, 2**53 - 1, True, False, None, "", "é", "e\u0301", 'a\nb\t"\\', "\u2028 \u00ff", "\U0001f600"]
    choice = rng.randrange(3) if depth else 0
    if choice == 1:
        return [_random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    if choice == 2:
        names = rng.sample(["a", "B", "b", "aa", "a b", "_", "z0", "Z"], rng.randrange(5))
        return {name: _random_value(rng, depth - 1) for name in names}
    return rng.choice(leaves)


@rules.point
def the_id_is_the_hash_of_the_canonical_form(bench: Bench) -> None:
    """The id is the lower-case SHA-256 of the intent's canonical form, whatever it holds."""
    rng = random.Random(bench.run)
    peer = bench.peer()
    for _ in range(40):
        intent = peer.intent(inputs={"value": _random_value(rng, 4)}, capabilities={"fs": ["/a/*", "é"]})
        reply = peer.call("dispatch", **intent)
        same("the id", reply["handoff"], own_id(intent))
        again = peer.call("dispatch", **dict(reversed(intent.items())), handoff=own_id(intent))
        same("the id of the same in another order", again["handoff"], own_id(intent))
        same("created", again["created"], False)


@rules.point
def the_same_intent_twice_is_one_handoff(bench: Bench) -> None:
    """The same intent again is the same handoff, created false; its first priority and labels stand."""
    peer, other = bench.peer(), bench.peer(counted=False)
    intent = peer.intent(inputs={"n": 1})
    first = peer.call("dispatch", **intent, priority=3, labels={"team": "x"})
    holds(first["created"] is True and first["status"] == "pending", "created, and pending", first)
    again = other.call("dispatch", **intent, priority=9, labels={"team": "y"}, delay_ms=5)
    holds(again["created"] is False and again["handoff"] == first["handoff"], "created false, the same id", again)
    status = peer.status(first["handoff"])
    holds(status["priority"] == 3 and status["labels"] == {"team": "x"}, "the first priority and labels", status)


@rules.point
def defaults_written_out_are_the_same_intent(bench: Bench) -> None:
    """Absent members and their defaults written out are the same intent."""
    peer = bench.peer()
    intent = {"kind": bench.kind, "inputs": {"n": 1}}
    first = peer.call("dispatch", **intent)["handoff"]
    same("the id", peer.call("dispatch", **intent, **_DEFAULTS)["handoff"], first)


@rules.point
def each_member_of_the_intent_counts(bench: Bench) -> None:
    """Another key, kind, inputs, schema, budget or capabilities is another handoff."""
    peer = bench.peer()
    base = {"kind": bench.kind, "inputs": {}}
    changes: list[dict[str, JSON]] = [
        {},
        {"key": "a"},
        {"kind": f"{bench.kind}-b"},
        {"inputs": {"a": 1}},
        {"output_schema": True},
        {"budget": {"max_attempts": 3}},
        {"capabilities": {"fs": []}},
    ]
    ids = [peer.call("dispatch", **{**base, **change})["handoff"] for change in changes]
    holds(len(set(ids)) == len(changes), "as many ids as intents", ids)


@rules.point
def another_id_than_the_intents_is_identity_mismatch(bench: Bench) -> None:
    """A client may send the id it computed; another value is identity_mismatch with both, and nothing is made."""
    peer = bench.peer()
    intent = peer.intent()
    details = peer.refused("identity_mismatch", "dispatch", **intent, handoff="0" * 64)
    same("expected and got, in some order", sorted([details["expected"], details["got"]]), ["0" * 64, own_id(intent)])
    peer.refused("not_found", "status", handoff=own_id(intent))


@rules.point
def numbers_are_the_doubles_that_they_denote(bench: Bench) -> None:
    """1.0, 1e0 and 1 are one number, -0 is 0; the id is the same."""
    peer = bench.peer()
    for one, other in (("1", "1.0"), ("1", "10e-1"), ("0", "-0"), ("0.1", "0.1000000000000000055"), ("1e21", "1E+21")):
        head = f'{{"op":"dispatch","id":1,"kind":"{bench.kind}","inputs":{{"n":'
        ids = []
        for text in (one, other):
            peer.send_body(f"{head}{text}}}}}")
            ids.append(peer.granted(1)["handoff"])
        holds(ids[0] == ids[1], f"{one} and {other} to be one intent", ids)


@rules.point
def text_isnt_normalised(bench: Bench) -> None:
    """é and e + U+0301 are different intents; an escape and its character are the same one."""
    peer = bench.peer()
    head = f'{{"op":"dispatch","id":1,"kind":"{bench.kind}","inputs":{{"t":"'
    ids = []
    for text in ("é", "e\u0301", "\\u00e9"):
        peer.send_body(f'{head}{text}"}}}}')
        ids.append(peer.granted(1)["handoff"])
    holds(ids[0] != ids[1] and ids[0] == ids[2], "é apart from e + U+0301, the same as its escape", ids)


@rules.point
def what_has_no_canonical_form_is_refused(bench: Bench) -> None:
    """2^53 + 1, 1e400 and a doubled name in an intent are invalid_request, naming the member."""
    peer = bench.peer()
    for member, value in (
        ("inputs", '{"n":9007199254740993}'),
        ("inputs", '{"n":1e400}'),
        ("inputs", '{"a":1,"a":1}'),
        ("inputs", '{"b":{"a":1,"\\u0061":2}}'),
        ("inputs", "[]"),
        ("output_schema", '{"maximum":-1e999}'),
        ("capabilities", '{"fs":["a"],"fs":["a"]}'),
    ):
        rest = '"inputs":{},' if member != "inputs" else ""
        body = f'{{"op":"dispatch","id":1,"kind":"{bench.kind}",{rest}"{member}":{value}}}'
        came = peer.refused_body("invalid_request", body, request_id=1)["member"]
        holds(str(came).split(".")[0] == member, f"details that name {member}", came)


@rules.point
def a_claim_gives_the_intent_as_its_canonical_bytes(bench: Bench) -> None:
    """The intent in a claim has, byte for byte, the id as its hash."""
    peer = bench.peer()
    intent = peer.intent(inputs={"z": 1, "a": ["é", '"', {"b": None}], "B": ""})
    handoff = peer.call("dispatch", **intent)["handoff"]
    line = peer.line(peer.send("claim", worker="w", handoff=handoff))
    found = _INTENT.search(line.text)
    if found is None:
        raise Unlike('a claim that holds "intent" before "checkpoint"', line.text)
    same("the hash of the intent's bytes", hashlib.sha256(found[1].encode()).hexdigest(), handoff)


@rules.point
def caps_and_capabilities_that_are_none_are_refused(bench: Bench) -> None:
    """A cap that there isn't, or out of its bounds, is invalid_request with its place; so is a capability that is none."""
    peer = bench.peer()
    for budget, member in (
        ({"max_dollars": 1}, "budget.max_dollars"),
        ({"max_usd": -1}, "budget.max_usd"),
        ({"max_steps": 1.5}, "budget.max_steps"),
        ({"max_attempts": 0}, "budget.max_attempts"),
        ({"max_steps": None}, "budget.max_steps"),
        ({"max_steps": True}, "budget.max_steps"),
    ):
        details = peer.refused("invalid_request", "dispatch", **peer.intent(budget=budget))
        same("the member that is named", details["member"], member)
    for grants in ({"fs": "*"}, {"fs": [1]}, {"fs": [""]}, {"fs": ["a*b"]}):
        details = peer.refused("invalid_request", "dispatch", **peer.intent(capabilities=grants))
        holds(str(details["member"]).startswith("capabilities"), "details that name the capability", details)
