"""What only looks: history, pages, lists, watches, reports (SPEC.md, sections 7, 8 and 9)."""

import re

from ..bench import Bench
from ..judging import Members, holds, same
from ..peer import Peer
from ..points import Rules

rules = Rules("looking", "7 Operations")
watching = Rules("watch", "7 Operations, watch")

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def _lived(peer: Peer) -> str:
    """A handoff with a history: dispatched, claimed, three checkpoints, completed."""
    held = peer.held()
    for number in range(3):
        held.checkpoint(number, usd=0.5)
    held.call("complete", result=1)
    return held.handoff


_TYPES = ["dispatched", "claimed", "checkpointed", "checkpointed", "checkpointed", "completed"]


@rules.in_section("8 Records")
def the_history_tells_all_in_order(bench: Bench) -> None:
    """history tells each record with n from 1, position, type, at and fence; positions and n only rise, fences never fall."""
    peer = bench.peer()
    records = peer.history(_lived(peer))
    same("the types", [one["type"] for one in records], _TYPES)
    same("n", [one["n"] for one in records], list(range(1, 7)))
    positions = [one["position"] for one in records]
    holds(positions == sorted(set(positions)), "positions that rise", positions)
    fences = [one["fence"] for one in records]
    holds(fences == sorted(fences), "fences that never fall", fences)
    holds(all(_TIME.fullmatch(str(one["at"])) for one in records), "times", [one["at"] for one in records])
    checkpoint = records[2]
    for name, value in (("seq", 1), ("steps", 1), ("bytes", 1), ("usd", 0.5)):
        same(name, checkpoint[name], value)


@rules.point
def a_status_has_all_its_members(bench: Bench) -> None:
    """status tells everything that section 7 lists."""
    peer = bench.peer()
    handoff = peer.dispatch(labels={"a": "b"}, priority=7, keep_checkpoints=40)
    status = peer.status(handoff)
    wanted = {
        "handoff": handoff,
        "kind": bench.kind,
        "status": "pending",
        "priority": 7,
        "holder": None,
        "attempt": 0,
        "failures": 0,
        "stalls": 0,
        "seq": 0,
        "keep_checkpoints": 40,
        "steps": 0,
        "reason": None,
        "parent": None,
        "labels": {"a": "b"},
        "claimed_at": None,
        "lease_left_ms": None,
        "acked": False,
        "wake_at": None,
        "kept": None,
        "checkpoint_at": None,
        "activity": None,
    }
    for name, value in wanted.items():
        same(name, status[name], value)
    for name in ("created_at", "updated_at"):
        holds(_TIME.fullmatch(str(status[name])) is not None, f"{name} as a time", status[name])
    same("position", status["position"], peer.history(handoff)[-1]["position"])


@rules.point
def a_status_tells_when_the_holder_last_did_something(bench: Bench) -> None:
    """status tells when the newest checkpoint came, and how the activity said last repeats; the next hold begins anew."""
    peer = bench.peer()
    held = peer.held()
    held.checkpoint(1)
    came_at = held.status()["checkpoint_at"]
    same("checkpoint_at", came_at, peer.history(held.handoff)[-1]["at"])
    for repeats in (0, 1):
        held.call("activity", digest="turn")
        activity = held.status()["activity"]
        same("repeats", activity["repeats"], repeats)
        holds(type(activity["ago_ms"]) is int and activity["ago_ms"] >= 0, "ago_ms in milliseconds", activity)
    held.call("release")
    peer.claim(held.handoff)
    status = peer.status(held.handoff)
    same("checkpoint_at and activity", (status["checkpoint_at"], status["activity"]), (came_at, None))


@rules.point
def a_list_turns_round_and_finds_beginnings(bench: Bench) -> None:
    """list with newest_first gives the opposite order, page by page; with prefix, what begins with it."""
    peer = bench.peer()
    made = [peer.dispatch() for _ in range(5)]
    for limit in (1, 2, 5, 6):
        found = peer.pages("list", "handoffs", kind=bench.kind, newest_first=True, limit=limit)
        same(f"the newest first, in pages of {limit}", [one["handoff"] for one in found], made[::-1])
    for digits in (4, 5, 63, 64):
        for newest_first in (False, True):
            found = peer.pages(
                "list",
                "handoffs",
                kind=bench.kind,
                status="pending",
                prefix=made[2][:digits],
                newest_first=newest_first,
            )
            wanted = [one for one in made if one.startswith(made[2][:digits])]
            same(
                f"what begins so, by {digits} digits",
                [one["handoff"] for one in found],
                sorted(wanted, key=made.index, reverse=newest_first),
            )
    same("of another status", peer.call("list", prefix=made[2], status="running")["handoffs"], [])


@rules.point
def pages_go_on_where_the_last_one_ended(bench: Bench) -> None:
    """next is what to pass as after; page by page nothing is left out or told twice, and null ends."""
    peer = bench.peer()
    handoff = _lived(peer)
    for op, name in (("history", "records"), ("checkpoints", "checkpoints")):
        whole = peer.pages(op, name, handoff=handoff)
        for limit in (1, 2, 3):
            same(f"{op} in pages of {limit}", peer.pages(op, name, handoff=handoff, limit=limit), whole)
    same("the seqs", [one["seq"] for one in peer.pages("checkpoints", "checkpoints", handoff=handoff)], [1, 2, 3])
    made = [peer.dispatch() for _ in range(5)]
    found = [one["handoff"] for one in peer.pages("list", "handoffs", kind=bench.kind, limit=2)]
    same("the list in pages of 2, in the order of dispatch", found, [handoff, *made])


@rules.point
def a_lists_filters_must_all_hold(bench: Bench) -> None:
    """list by kind, status, worker and label gives those for which all hold, each as its status."""
    peer = bench.peer()
    held = peer.held(labels={"team": "a=b"}, claim={"worker": "ada"})
    other, elsewhere = peer.dispatch(labels={"team": "c"}), peer.dispatch(kind=f"{bench.kind}-other")
    for filters, wanted in (
        ({"kind": bench.kind}, [held.handoff, other]),
        ({"kind": bench.kind, "status": "pending"}, [other]),
        ({"kind": bench.kind, "status": "running"}, [held.handoff]),
        ({"kind": bench.kind, "worker": "ada"}, [held.handoff]),
        ({"kind": bench.kind, "label": "team=a=b"}, [held.handoff]),
        ({"kind": bench.kind, "label": "team=a"}, []),
        ({"kind": bench.kind, "worker": "ada", "status": "pending"}, []),
        ({"kind": f"{bench.kind}-other"}, [elsewhere]),
    ):
        found = peer.pages("list", "handoffs", **filters)
        same(f"what {filters} finds", [one["handoff"] for one in found], wanted)
    page = peer.call("list", kind=bench.kind, status="pending")
    same("an item", dict(page["handoffs"][0]), {n: v for n, v in peer.status(other).items() if n not in ("id", "ok")})
    holds(type(page["position"]) is int, "the position that the list takes account of", page)


def _shows(watcher: Peer, records: list[Members]) -> None:
    """The watcher hears of just these records: the last one is waited for, so that none need be missed for long."""
    came: list[Members] = []
    while not came or came[-1]["position"] < records[-1]["position"]:
        came.append(watcher.event("record")["record"])
    same("the records", came, records)
    watcher.pings()
    same("what else came", watcher.events, [])


@watching.point
def a_watch_replays_without_gap_or_doubling(bench: Bench) -> None:
    """watch with after replays what came after it and then follows: each record once, in order, as history tells it."""
    peer, watcher = bench.peer(), bench.peer(counted=False)
    start = peer.dispatch()
    after = peer.status(start)["position"]
    handoff = _lived(peer)
    watcher.call("watch", kinds=[bench.kind], after=after)
    later = _lived(peer)
    whole = peer.history(handoff) + peer.history(later)
    _shows(watcher, whole)
    again = bench.peer()
    again.call("watch", kinds=[bench.kind], after=whole[4]["position"])
    _shows(again, whole[5:])


@watching.point
def a_watch_follows_from_its_position(bench: Bench) -> None:
    """watch without after tells the position that events follow: nothing from before it, everything from then on."""
    peer, watcher = bench.peer(), bench.peer()
    _lived(peer)
    position = watcher.call("watch", kinds=[bench.kind])["position"]
    handoff = _lived(peer)
    records = peer.history(handoff)
    holds(records[0]["position"] > position, f"a position above {position}", records[0])
    _shows(watcher, records)


@watching.point
def a_watch_shows_only_what_was_asked_for(bench: Bench) -> None:
    """watch by handoff, or by kinds, shows no other one's records; the event tells the handoff."""
    peer, by_handoff, by_kind = bench.peer(), bench.peer(), bench.peer()
    watched, other = peer.dispatch(), peer.dispatch(kind=f"{bench.kind}-other")
    by_handoff.call("watch", handoff=watched)
    by_kind.call("watch", kinds=[f"{bench.kind}-other", f"{bench.kind}-none"])
    for handoff in (other, watched, other):
        peer.call("release", handoff=handoff, fence=peer.claim(handoff))
    for watcher, handoff, count in ((by_handoff, watched, 2), (by_kind, other, 4)):
        for _ in range(count):
            same("the event's handoff", watcher.event("record")["handoff"], handoff)
        watcher.pings()
        same("what else came", watcher.events, [])


@watching.point
def a_connection_has_one_watch(bench: Bench) -> None:
    """A second watch replaces the first; after unwatch no more events come."""
    peer, watcher = bench.peer(), bench.peer()
    first, second = peer.dispatch(), peer.dispatch()
    watcher.call("watch", handoff=first)
    watcher.call("watch", handoff=second)
    peer.call("cancel", handoff=first)
    peer.call("cancel", handoff=second)
    same("the event's handoff", watcher.event("record")["handoff"], second)
    watcher.call("unwatch")
    watcher.call("unwatch")
    peer.call("ack", handoff=second)
    watcher.pings()
    same("what else came", watcher.events, [])


@rules.in_section("7 Operations, health")
def health_tells_how_it_is(bench: Bench) -> None:
    """health tells status, store, durability, version, uptime_ms and clock_offset_ms."""
    reply = bench.peer().call("health")
    holds(reply["status"] in ("ok", "draining", "disk_full", "store_unavailable"), "a status", reply["status"])
    holds(reply["store"] in ("ok", "unavailable"), "ok or unavailable", reply["store"])
    holds(reply["durability"] in ("power loss", "process crash"), "what an answer survives", reply["durability"])
    holds(isinstance(reply["version"], str), "a version", reply["version"])
    for name in ("uptime_ms", "clock_offset_ms"):
        holds(type(reply[name]) is int and reply[name] >= 0, f"{name} in milliseconds", reply[name])


@rules.in_section("7 Operations, stats")
def stats_counts(bench: Bench) -> None:
    """stats counts handoffs by status, and tells the rest of what section 7 lists; nothing shown is ahead of the disk."""
    peer = bench.peer()
    position = peer.status(peer.held().handoff)["position"]
    reply = peer.call("stats")
    holds(_TIME.fullmatch(str(reply["time"])) is not None, "the daemon's time", reply["time"])
    for name in ("dispatched", "claimed"):
        holds(reply["records_by_type"].get(name, 0) >= 1, f"at least one {name}", reply["records_by_type"])
    for status in ("pending", "running", "orphaned", "suspended", "completed", "cancelled", "dead"):
        holds(type(reply["handoffs"][status]) is int, f"how many are {status}", reply["handoffs"])
    for name in ("leases", "waiting_claims", "sessions", "connections", "position", "durable_position", "commits"):
        holds(type(reply[name]) is int and reply[name] >= 0, f"{name} as a count", reply[name])
    holds(reply["durable_position"] >= position, f"at least {position} durable, which was shown", reply)
    holds(reply["leases"] >= 1 and reply["handoffs"]["running"] >= 1, "at least the one that is held", reply)
