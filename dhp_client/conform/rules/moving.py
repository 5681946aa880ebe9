"""Export, import and bundles (SPEC.md, sections 5, 7 and 8)."""

import hashlib
import json

from ..bench import Bench
from ..judging import JSON, Members, holds, same
from ..peer import Peer
from ..points import Rules

rules = Rules("moving", "7 Operations, export and import")

_OUTSIDE_THE_CHAIN = ("chain", "intent", "payload", "payload_base64")


def _worked_on(peer: Peer) -> tuple[str, int]:
    """Work that is held and has three checkpoints; its id and fence."""
    held = peer.held(inputs={"t": "é"})
    for number in range(3):
        held.checkpoint({"n": number})
    return held.handoff, held.fence


def _exported(peer: Peer, handoff: str) -> list[Members]:
    return peer.pages("export", "records", handoff=handoff)


def _moved(records: list[Members]) -> list[JSON]:
    """Of records what a bundle carries: positions, and who dispatched it, are the source's own."""
    return [{name: value for name, value in one.items() if name not in ("position", "token")} for one in records]


def _gone(peer: Peer, handoff: str) -> None:
    peer.call("cancel", handoff=handoff)
    peer.call("forget", handoff=handoff)


@rules.in_section("8 Records, Bundles")
def a_bundle_is_chained(bench: Bench) -> None:
    """Each line's chain is the hash of the one before and of the line without payloads, in canonical form."""
    peer = bench.peer()
    handoff, _ = _worked_on(peer)
    lines = _exported(peer, handoff)
    chain = ""
    for line in lines:
        rest = {name: value for name, value in line.items() if name not in _OUTSIDE_THE_CHAIN}
        text = json.dumps(rest, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        chain = hashlib.sha256(f"{chain}\n{text}".encode()).hexdigest()
        same("the line's chain", line["chain"], chain)
    envelope, trailer = lines[0], lines[-1]
    same("bundle", envelope["bundle"], "dhp-bundle/1")
    same("the hash of the intent", hashlib.sha256(envelope["intent"].encode()).hexdigest(), handoff)
    same("how many records", trailer["records"], len(lines) - 2)
    for line in lines[1:-1]:
        if "payload" in line:
            same("sha256", line["sha256"], hashlib.sha256(line["payload"].encode()).hexdigest())


@rules.in_section("5 The life of a handoff, Moving")
def exporting_unfinished_work_puts_it_aside(bench: Bench) -> None:
    """Export of what isn't final suspends it (exported), whoever holds it; only resume with force takes it up there again."""
    peer = bench.peer(session=bench.session())
    handoff, fence = _worked_on(peer)
    bundle = _exported(peer, handoff)
    peer.event("lease_lost", lambda event: bool(event["why"] == "suspended"))
    status = peer.status(handoff)
    holds(status["status"] == "suspended" and status["reason"] == "exported", "suspended, exported", status)
    peer.lost("suspended", "checkpoint", handoff=handoff, fence=fence, state="late")
    same("reason", peer.refused("wrong_state", "resume", handoff=handoff)["reason"], "exported")
    same("the bundle, exported again", _exported(peer, handoff), bundle)
    same("status", peer.call("resume", handoff=handoff, force=True)["status"], "pending")


@rules.in_section("5 The life of a handoff, Moving")
def what_is_imported_is_what_was_exported(bench: Bench) -> None:
    """An import has the same id, state and history, no lease, a fence that isn't lower; it arrives suspended, to be resumed."""
    peer = bench.peer()
    handoff, fence = _worked_on(peer)
    history, bundle = peer.history(handoff), _exported(peer, handoff)
    _gone(peer, handoff)
    reply = peer.call("import", records=bundle)
    holds(reply["handoff"] == handoff and reply["created"] is True, "created", reply)
    status = peer.status(handoff)
    for name, value in (("status", "suspended"), ("reason", "imported"), ("seq", 3), ("lease_left_ms", None)):
        same(name, status[name], value)
    holds(status["fence"] > fence, f"a fence above {fence}", status)
    mine, came = (_moved(records) for records in (history, peer.history(handoff)))
    same("the history up to the export", came[: len(mine)], mine)
    peer.call("resume", handoff=handoff)
    claimed = peer.call("claim", worker="w", handoff=handoff)
    same("the state", claimed["checkpoint"]["state"], {"n": 2})


@rules.point
def an_import_of_what_is_there_changes_nothing(bench: Bench) -> None:
    """A bundle of work that is there and went on is left alone: created false, taken 0."""
    peer = bench.peer()
    handoff, _ = _worked_on(peer)
    bundle = _exported(peer, handoff)
    before = peer.status(handoff)
    reply = peer.call("import", records=bundle)
    holds(reply["created"] is False and reply["taken"] == 0, "created false, taken 0", reply)
    for name in ("status", "reason", "fence", "position"):
        same(name, peer.status(handoff)[name], before[name])


@rules.point
def a_bundle_may_come_in_parts(bench: Bench) -> None:
    """A part before the last is answered with ok alone, and nothing is there until the trailer."""
    peer, other = bench.peer(), bench.peer()
    handoff, _ = _worked_on(peer)
    bundle = _exported(peer, handoff)
    _gone(peer, handoff)
    for line in bundle[:-1]:
        same("the reply's members", sorted(peer.call("import", records=[line])), ["id", "ok"])
    other.refused("not_found", "status", handoff=handoff)
    same("handoff", peer.call("import", records=bundle[-1:])["handoff"], handoff)


@rules.point
def a_line_that_was_tampered_with_is_told_by_its_number(bench: Bench) -> None:
    """A line that was changed, left out, doubled or moved is invalid_request with its number, and nothing is there."""
    peer = bench.peer()
    handoff, _ = _worked_on(peer)
    bundle = _exported(peer, handoff)
    _gone(peer, handoff)
    changed: JSON = json.loads(json.dumps(bundle))
    changed[3]["payload"] = '{"n":9}'
    for name, lines, number in (
        ("changed", changed, 4),
        ("left out", [*bundle[:2], *bundle[3:]], 3),
        ("doubled", [*bundle[:3], bundle[2], *bundle[3:]], 4),
        ("moved", [*bundle[:2], bundle[3], bundle[2], *bundle[4:]], 3),
        ("behind the trailer", [*bundle, bundle[2]], len(bundle) + 1),
    ):
        details = peer.refused("invalid_request", "import", records=lines)
        same(f"the line that is {name}", details["line"], number)
        same("member", details["member"], "records")
        peer.refused("not_found", "status", handoff=handoff)


@rules.point
def what_is_final_is_copied(bench: Bench) -> None:
    """Export of what is final leaves it as it is, and brings its result along."""
    peer = bench.peer()
    held = peer.held()
    held.call("complete", result={"done": 1})
    before = held.status()
    bundle = _exported(peer, held.handoff)
    same("the fence", held.status()["fence"], before["fence"])
    same("status", held.status()["status"], "completed")
    peer.call("forget", handoff=held.handoff)
    peer.call("import", records=bundle)
    reply = peer.call("result", handoff=held.handoff)
    holds(reply["status"] == "completed" and reply["result"] == {"done": 1}, "completed, with its result", reply)
