"""Parents, and what their children count against (SPEC.md, section 5)."""

from ..bench import Bench
from ..judging import holds, same
from ..points import Rules

rules = Rules("parents", "5 The life of a handoff, Parents")


@rules.point
def a_child_counts_against_its_ancestors_caps(bench: Bench) -> None:
    """What a child spends counts against every ancestor; the write that would pass one names whose cap, and only the child dies."""
    peer = bench.peer()
    top = peer.dispatch(budget={"max_usd": 1})
    middle = peer.dispatch(parent=top)
    child = peer.held(parent=middle)
    child.call("spend", usd=0.75, steps=2)
    for handoff in (top, middle):
        status = peer.status(handoff)
        holds(status["usd"] == 0.75 and status["steps"] == 2, "the child's spending at each ancestor", status)
    details = child.refused("budget_exceeded", "spend", usd=0.5)
    for name, value in (("whose", top), ("cap", "max_usd"), ("lacking", 0.25)):
        same(name, details[name], value)
    same("the child's status", child.status()["status"], "dead")
    same("the ancestor's status", peer.status(top)["status"], "pending")
    same("the ancestor's sum", peer.status(top)["usd"], 0.75)


@rules.point
def a_parent_must_be_there_and_not_be_final(bench: Bench) -> None:
    """A parent that there isn't is not_found, a final one wrong_state."""
    peer = bench.peer()
    peer.refused("not_found", "dispatch", **peer.intent(parent="0" * 64))
    parent = peer.dispatch()
    peer.call("cancel", handoff=parent)
    same("status", peer.refused("wrong_state", "dispatch", **peer.intent(parent=parent))["status"], "cancelled")


@rules.point
def parents_go_max_parent_depth_deep(bench: Bench) -> None:
    """Generations deeper than max_parent_depth are invalid_request (parent)."""
    peer = bench.peer()
    limit = bench.terms.limits["max_parent_depth"]
    parent = peer.dispatch()
    for _ in range(limit):
        reply = peer.reply(peer.send("dispatch", **peer.intent(parent=parent)))
        if reply["ok"] is not True:
            break
        parent = reply["handoff"]
    details = peer.refused("invalid_request", "dispatch", **peer.intent(parent=parent))
    same("member", details["member"], "parent")


@rules.point
def cancelling_a_parent_takes_its_children_along_only_when_asked(bench: Bench) -> None:
    """cancel leaves children alone unless children is true; then all that descend from it and aren't final are cancelled."""
    peer = bench.peer()
    parent = peer.dispatch()
    child = peer.dispatch(parent=parent)
    grandchild = peer.held(parent=child)
    peer.call("cancel", handoff=parent)
    same("the child's status", peer.status(child)["status"], "pending")
    peer.call("cancel", handoff=parent, children=True)
    for handoff in (child, grandchild.handoff):
        same("the status", peer.status(handoff)["status"], "cancelled")
    grandchild.lost("cancelled")
