"""The eight invariants, one function each. All are asked after each step of a world that changed or told anything.

Owns what each invariant means, judged by the step at hand: what came to the disk in it and what went from it, what was decided
in memory, and what was told. Each looks at that and at nothing else, so it costs no more in a long run. The rules in detail
(which record may follow which, what each answer has to agree with) are `stories`', `checks`' and `contract_checks`'; a
violation of an invariant that they find is named after it as well.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from dhp_protocol.errors import ERROR_BY_CODE
from dhpd.engine.facts import Handoff

from .history import Kept, may_be_gone, promised
from .stories import Story
from .violations import require

ERROR_CODES = frozenset(ERROR_BY_CODE) - {"internal"}
"""What a stranger may hear."""
KEPT_WITH_A_RESULT = frozenset(("acked", "exported", "imported", "forgotten", "spent"))
"""What may be noted of a handoff that has ended: that somebody took note of it or took it along, and what its children spend."""


class Told(msgspec.Struct, frozen=True):
    """One answer that has left the daemon, with the request that it answers."""

    asked: dict[str, Any]
    said: dict[str, Any]
    body: bytes


class Landed(msgspec.Struct, frozen=True):
    """One record that has come to the disk, and what its handoff was before (None: it is the first)."""

    kept: Kept
    story: Story
    status_before: str | None
    fence_before: int


class Step(msgspec.Struct):
    """What has happened since the invariants were asked last."""

    landed: list[Landed] = []
    gone: list[Kept] = []
    decided: list[Handoff] = []
    told: list[Told] = []
    strangers_heard: list[dict[str, Any]] = []


class Seen(msgspec.Struct):
    """What is remembered of a world for the invariants.

    `lives` are the records of each handoff's present life; `asked` and `acknowledged` its checkpoints, by fence and seq.
    """

    stories: dict[str, Story] = {}
    lives: dict[str, list[Kept]] = {}
    earlier: dict[str, list[Kept]] = {}
    holders: dict[tuple[str, int], str] = {}
    acknowledged: dict[str, list[tuple[int, int]]] = {}
    asked: dict[str, list[tuple[int, int]]] = {}
    forget_asked: set[str] = set()

    def records(self, handoff: str) -> list[Kept]:
        return [*self.earlier.get(handoff, ()), *self.lives.get(handoff, ())]


def fences_never_fall_and_have_one_holder(step: Step, seen: Seen) -> None:
    """Invariant 1. Of the writes accepted for a handoff, the fences never fall; one fence has one holder."""
    for landed in step.landed:
        fence = landed.kept.record["fence"]
        require(fence >= landed.fence_before, f"invariant 1: the fence fell from {landed.fence_before} to {fence}")
        if landed.kept.record["type"] == "claimed":
            require(fence > landed.fence_before, f"invariant 1: a claim left the fence at {fence}")
    for facts in step.decided:
        story = seen.stories.get(facts.id)
        if story is not None and facts.position >= story.last.position:
            require(facts.fence >= story.fence, f"invariant 1: {facts.fence} in memory, {story.fence} on disk")
    for told in step.told:
        if told.asked["op"] in ("claim", "recover") and told.said["ok"] and told.said["handoff"]:
            key = (told.said["handoff"], told.said["fence"])
            holder = seen.holders.setdefault(key, told.asked["worker"])
            require(holder == told.asked["worker"], f"invariant 1: {key} was granted to {holder} before: {told.said}")


def what_was_acknowledged_is_there(step: Step, seen: Seen) -> None:
    """Invariant 2. What was acknowledged survives: its record is on disk when it is told, and goes only when it may."""
    for told in step.told:
        fits = promised(told.asked, told.said) if told.said["ok"] else None
        if fits is not None:
            found = any(fits(kept) for kept in reversed(seen.records(_handoff_of(told))))
            require(found, f"invariant 2: {told.asked} was answered {told.said}, and isn't on disk")
    for kept in step.gone:
        life = next(life for life in (seen.lives, seen.earlier) if kept in life.get(kept.handoff, ()))
        gone = life is seen.earlier or may_be_gone(kept, life[kept.handoff])
        require(gone, f"invariant 2: {kept.record} went from the disk, and nothing has replaced it")


def a_standby_resumes_from_the_last_acknowledged(step: Step, seen: Seen) -> None:
    """Invariant 3. A standby resumes from the last acknowledged checkpoint or a later one; at most one is redone."""
    for told in step.told:
        asked, said = told.asked, told.said
        if asked["op"] == "checkpoint" and said["ok"]:
            seen.acknowledged.setdefault(asked["handoff"], []).append((asked["fence"], said["seq"]))
        if asked["op"] not in ("claim", "recover") or not said["ok"] or not said["handoff"]:
            continue
        handoff, stored = said["handoff"], said["checkpoint"]
        seq = 0 if stored is None else stored["seq"]
        begins = seen.lives[handoff][0].record["fence"]
        known = [known for fence, known in seen.acknowledged.get(handoff, ()) if begins < fence < said["fence"]]
        require(seq >= max(known, default=0), f"invariant 3: resumes after {seq}, acknowledged was {max(known or [0])}")
        # Before its answer comes a holder goes on to no further step: more than one would be lost with that.
        asked_for = [known for fence, known in seen.asked.get(handoff, ()) if begins < fence < said["fence"]]
        redone = max(asked_for, default=0) - seq
        require(redone <= 1, f"invariant 3: {redone} steps are redone after {seq}")
        if stored is not None:
            right = seen.stories[handoff].checkpoints[seq] == stored["sha256"]
            require(right, f"invariant 3: a standby got another state {seq} than was stored")


def a_result_stays_until_somebody_has_acknowledged_it(step: Step, seen: Seen) -> None:
    """Invariant 4. A completed result never changes, and stays until somebody has acknowledged it."""
    for landed in step.landed:
        kind, story = landed.kept.record["type"], landed.story
        if landed.status_before == "completed":
            require(kind in KEPT_WITH_A_RESULT, f"invariant 4: {kind} of what is completed")
        if kind == "forgotten":
            acked = any(kept.record["type"] == "acked" for kept in seen.lives[story.handoff])
            asked = story.handoff in seen.forget_asked
            require(acked or asked, f"invariant 4: {story.handoff[:8]} went, and nobody has acknowledged it")
    for facts in step.decided:
        known = seen.stories.get(facts.id)
        same_life = known is not None and facts.number == seen.lives[facts.id][0].position
        if same_life and known.status == "completed" and facts.position >= known.last.position:
            require(facts.status == "completed", f"invariant 4: what is completed is {facts.status} in memory")
    for told in step.told:
        if told.asked["op"] == "result" and told.said["ok"] and told.said["status"] == "completed":
            result = seen.stories[told.asked["handoff"]].result
            require(msgspec.json.encode(told.said["result"]) == result, "invariant 4: another result is shown")


def the_id_is_the_hash_of_the_intent(step: Step, seen: Seen) -> None:
    """Invariant 5. The id is the hash of the intent that ran."""
    for landed in step.landed:
        if landed.kept.record["type"] == "dispatched":
            sha256 = hashlib.sha256(landed.kept.payload or b"").hexdigest()
            require(sha256 == landed.kept.handoff, f"invariant 5: {landed.kept.handoff[:8]} isn't the hash")
    for told in step.told:
        if told.asked["op"] in ("claim", "recover") and told.said["ok"] and told.said["handoff"]:
            intent = bytes(_decode_grant(told.body).intent)
            right = hashlib.sha256(intent).hexdigest() == told.said["handoff"]
            require(right, f"invariant 5: {told.said['handoff'][:8]} was granted with another intent")


def no_cap_is_passed(step: Step, seen: Seen) -> None:
    """Invariant 6. No cap is ever passed, in memory or on disk; where a write would, the handoff is parked in `dead`."""
    for facts in step.decided:
        used = ((facts.budget.max_steps, facts.steps), (facts.budget.max_usd_nano, facts.usd_nano))
        require(all(cap is None or amount <= cap for cap, amount in used), f"invariant 6, in memory: {facts}")
    for landed in step.landed:
        landed.story.check_caps()
    for told in step.told:
        if not told.said["ok"] and told.said["error"]["code"] == "budget_exceeded" and told.asked["op"] != "redrive":
            cap = told.said["error"]["details"]["cap"]
            parked = cap in seen.stories[told.asked["handoff"]].refusals
            require(parked, f"invariant 6: {told.asked} was refused, and nothing is parked")


def nothing_told_could_be_taken_back(step: Step, seen: Seen) -> None:
    """Invariant 7. Nothing that goes out, a refusal included, shows what a crash could take back."""
    for told in step.told:
        said = told.said if told.said["ok"] else told.said["error"].get("details", {})
        for shown in (said, *said.get("handoffs", ())):
            handoff = shown.get("handoff")
            story = None if not isinstance(handoff, str) else seen.stories.get(handoff)
            if story is None:
                continue
            fence, position = shown.get("fence", 0), shown.get("position", 0)
            durable = fence <= story.fence and position <= story.last.position
            require(durable, f"invariant 7: {shown} was told, on disk is {story.last}")


def bad_input_costs_nobody_else_anything(step: Step, seen: Seen) -> None:
    """Invariant 8. Bad input gets a clear error, and comes to nothing: nothing is decided, nobody else hears of it.

    That others fare exactly as without it is a test of its own, which plays worlds with a stranger and without.
    """
    for said in step.strangers_heard:
        error = said.get("error", {})
        clear = not said["ok"] and error["code"] in ERROR_CODES and bool(error["message"])
        require(clear, f"invariant 8: a stranger was answered {said}")


INVARIANTS: tuple[Callable[[Step, Seen], None], ...] = (
    fences_never_fall_and_have_one_holder,
    what_was_acknowledged_is_there,
    a_standby_resumes_from_the_last_acknowledged,
    a_result_stays_until_somebody_has_acknowledged_it,
    the_id_is_the_hash_of_the_intent,
    no_cap_is_passed,
    nothing_told_could_be_taken_back,
    bad_input_costs_nobody_else_anything,
)


class _Grant(msgspec.Struct):
    intent: msgspec.Raw


_decode_grant = msgspec.json.Decoder(_Grant).decode


def _handoff_of(told: Told) -> str:
    asked, said = told.asked, told.said
    if asked["op"] in ("dispatch", "claim", "recover"):
        return str(said["handoff"])
    return str(asked.get("handoff") or asked["approval"][:64])
