"""The vectors as points: each case played on the wire.

Nothing that isn't of this run alone is left behind: intents whose id is fixed are only named, with an id that isn't theirs, so that
the daemon tells what it computed; bundles, whose ids are fixed too, are taken back, and not sent where that id is in use.
"""

import json

from .bench import Bench
from .dialogues import Conversation
from .judging import Unlike, holds, is_json, same, shown
from .points import Check, Rules
from .streams import play_stream
from .vectors import Case, load, spelled
from .wire import Wire

SECTION = "15 Conformance vectors"
NOBODY = "0" * 64

frames = Rules("vectors/frames", SECTION)
requests = Rules("vectors/requests", SECTION)
intents = Rules("vectors/intents", SECTION)
bundles = Rules("vectors/bundles", SECTION)
dialogues = Rules("vectors/dialogues", SECTION)

OF_THE_USUAL_DAEMON = frozenset(
    (
        "hello, ping, goodbye",
        "payloads that are too large",
        "what a claim may ask for, and when there is nothing",
        "a person's word on one action",
        "how the daemon is",
        "intents that are refused",
    )
)
"""Dialogues that hold the default limits and terms."""

HOLD_WHERE_NOBODY_IS_SLOW = frozenset(
    (
        "a lease that ends, and a worker that is late",
        "a session that comes back in time keeps its leases",
        "orphaned before pending, priority before that",
        "who gets what",
    )
)
"""Dialogues in which the player must be quicker than a short lease, or the disconnect grace: played again where they fail."""
PLAYED_AGAIN = 3


def _stream(case: Case) -> Check:
    def check(bench: Bench) -> None:
        limit = bench.terms.limits["max_frame_bytes"]
        if case["max_frame_bytes"] != limit:
            bench.skip(f"it is for a daemon whose max_frame_bytes is {case['max_frame_bytes']}, not {limit}")
        play_stream(case, bench.wire())

    return check


def _refused_request(case: Case) -> Check:
    def check(bench: Bench) -> None:
        body = spelled(case["body"])
        if bench.terms.limits["max_depth"] != 128 or len(body) > bench.terms.limits["max_frame_bytes"]:
            bench.skip("it is for a daemon with the default max_depth and max_frame_bytes")
        peer = bench.peer()
        details = peer.refused_body(case["error"], body, request_id=case.get("id"))
        same("the member that is named", details.get("member"), case.get("member"))

    return check


def _good_request(case: Case) -> Check:
    """It asks about nothing that there is: so it is taken for what it is where it is `not_found`, or its fence holds nothing."""

    def check(bench: Bench) -> None:
        peer = bench.peer()
        peer.send_body(spelled(case["body"]))
        line = peer.next_line()
        reply = line.value
        code = None if reply["ok"] is True else reply["error"]["code"]
        holds(code in (None, "not_found", "lease_lost"), "ok, or not_found", line.text)

    return check


def _named_nobody(body: bytes) -> bool:
    """Whether a good request is about a handoff, or an approval, that there can't be."""
    named = [value for name, value in json.loads(body).items() if name in ("handoff", "approval")]
    return bool(named) and all(len(set(str(value).replace("-", ""))) <= 2 for value in named)


def _identity(text: str, identity: str) -> Check:
    def check(bench: Bench) -> None:
        details = bench.peer().refused_body("identity_mismatch", _with_another_id(text), request_id=1)
        came = sorted([details["expected"], details["got"]])
        holds(came == sorted([NOBODY, identity]), f"the id {identity}", details)

    return check


def _no_identity(case: Case) -> Check:
    def check(bench: Bench) -> None:
        peer = bench.peer()
        peer.send_body(_with_another_id(case["intent"]))
        line = peer.next_line()
        error = line.value["error"]
        if error["code"] == "bad_json" and not is_json(case["intent"]):
            return
        holds(error["code"] == "invalid_request", "invalid_request, or bad_json where it is no JSON", line.text)
        same("the member that is named", str(error["details"]["member"]).split(".")[0], case["refused"])

    return check


def _with_another_id(intent: str) -> str:
    """A dispatch of this intent under an id that isn't its own."""
    return f'{{"op":"dispatch","id":1,"handoff":"{NOBODY}",{intent.strip().removeprefix("{")}'


def _bundle(case: Case) -> Check:
    def check(bench: Bench) -> None:
        peer = bench.peer()
        body = f'{{"op":"import","id":1,"records":[{",".join(case["lines"])}]}}'
        if "handoff" in case:
            _import_and_take_back(bench, case["handoff"], body)
            return
        peer.send_body(body)
        line = peer.next_line()
        reply = line.value
        if case["line"] > len(case["lines"]):  # The end is missing, which nobody knows before the connection ends.
            holds(reply["ok"] is True and "handoff" not in reply, "ok alone, since more may come", line.text)
        elif is_json(body):
            same("the error's code", reply["error"]["code"], "invalid_request")
            same("the line that is named", reply["error"]["details"]["line"], case["line"])
        else:
            same("the error's code", reply["error"]["code"], "bad_json")

    return check


def _import_and_take_back(bench: Bench, handoff: str, body: str) -> None:
    peer = bench.peer()
    if peer.reply(peer.send("status", handoff=handoff))["ok"] is True:
        bench.skip(f"the daemon has a handoff {handoff[:12]} of its own")
    peer.send_body(body)
    reply = peer.granted(1, "a good bundle")
    holds(reply["handoff"] == handoff and reply["created"] is True, f"{handoff}, created", reply)
    peer.call("cancel", handoff=handoff)
    peer.call("forget", handoff=handoff)


def _dialogue(case: Case, *, counted: bool) -> Check:
    def check(bench: Bench) -> None:
        if "alone" in case:
            bench.skip("it needs a daemon of its own, which it drains")
        if case["name"] in OF_THE_USUAL_DAEMON and not bench.terms.are_usual:
            bench.skip("it is for a daemon with the default limits and terms, asked by an admin")

        for run in range(PLAYED_AGAIN if case["name"] in HOLD_WHERE_NOBODY_IS_SLOW else 1):
            try:
                return _play(case, bench, f"{bench.run}{run}", counted=counted)
            except Unlike as error:
                unlike = error
        raise unlike

    return check


def _play(case: Case, bench: Bench, run: str, *, counted: bool) -> None:
    deciders = {
        step["on"]
        for step in case["steps"]
        if step.get("send", {}).get("op") == "approval_decide" and step["expect"].get("ok") is True
    }

    def open_wire(on: str) -> Wire:
        return bench.wire(token=bench.approver_token() if on in deciders else None)

    with Conversation(open_wire, run, counted=counted) as conversation:
        for number, step in enumerate(case["steps"], 1):
            try:
                conversation.play(step)
            except Unlike as error:
                told = {name: value for name, value in step.items() if name != "expect"}
                raise Unlike(f"at step {number}, {shown(told)}: {error.expected}", error.came) from None


for _case in load("frames"):
    frames.add(_case["name"], "The answers to these bytes are the vector's.", _stream(_case))

for _case in load("requests"):
    if "error" in _case:
        requests.add(_case["name"], f"This body is refused as {_case['error']}.", _refused_request(_case))
    elif _named_nobody(spelled(_case["body"])):
        requests.add(_case["name"], "This body is a good request.", _good_request(_case))

for _case in load("intents"):
    if "id" in _case:
        intents.add(_case["name"], "This intent has the vector's id.", _identity(_case["intent"], _case["id"]))
    else:
        intents.add(_case["name"], f"This has no id: refused, naming {_case['refused']}.", _no_identity(_case))

for _case in load("ids"):
    _text = json.dumps(_case["intent"], ensure_ascii=False)
    intents.add(f"plain: {_case['name']}", "This intent has the vector's id.", _identity(_text, _case["id"]))

for _case in load("bundles"):
    if _case["lines"]:  # A request can't bring in nothing.
        _rule = (
            "This bundle is taken over." if "handoff" in _case else f"This bundle is refused at line {_case['line']}."
        )
        bundles.add(_case["name"], _rule, _bundle(_case), lane="bundles")

for _case in load("dialogues"):
    for _counted in (True, False):
        _form = "counted" if _counted else "bare"
        _lane = (
            _case["name"] if "$run" not in json.dumps(_case["steps"][0]) and "pipelined" in json.dumps(_case) else None
        )
        dialogues.add(
            f"{_case['name']} ({_form})",
            "What comes back in this dialogue is what the vector says.",
            _dialogue(_case, counted=_counted),
            lane=_lane,
        )
