"""What clients asked and heard, judged afterwards: the daemon must have told no lie.

Owns what an answer promises, however the daemon came to it. `judge` is a pure function of what each client noted down (when it
asked, when it was answered, what it said and heard) and of the journal that is there in the end; it knows nothing of the
engine. Only what is certain counts: of two operations one comes before the other if it was answered before the other was asked.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

_encode = msgspec.json.encode
DEFAULT_KEEP_CHECKPOINTS = 16


class Operation(msgspec.Struct):
    """One request of a client, from when it was first sent to when an answer came (None: none has).

    `called` and `answered` are moments in any unit that puts them in order.
    """

    client: str
    called: int
    request: Mapping[str, Any]
    answered: int | None = None
    said: Mapping[str, Any] | None = None


class Kept(msgspec.Struct, frozen=True):
    """One record of the journal, in the order of `position`; `there`: it can still be read."""

    position: int
    handoff: str
    record: Mapping[str, Any]
    payload: bytes | None = None
    there: bool = True


class Lie(msgspec.Struct, frozen=True):
    """An answer that wasn't true, or didn't stay so."""

    kind: str
    what: str


GONE = "what was acknowledged isn't there"
TWO_HOLDERS = "one fence had two holders"
TAKEN_BACK = "a read was taken back"
RESULT_CHANGED = "a result that was read didn't stay"
FENCE_FELL = "a fence that was told has fallen"
RESUMED_EARLY = "work was resumed before what was acknowledged"
LATE_WRITE = "a write was accepted under an older fence"


def judge(history: Sequence[Operation], journal: Sequence[Kept]) -> list[Lie]:
    """All lies that the history shows; none where there is none."""
    answered = [each for each in history if each.answered is not None and each.said is not None]
    good = [each for each in answered if each.said and each.said["ok"]]
    lives = _Lives(journal)
    judges: tuple[Iterator[Lie], ...] = (
        _there(good, lives),
        _one_holder(good),
        _reads_stay(good, lives),
        _results_stay(good, lives),
        _fences_rise(answered),
        _resumes_late_enough(good, lives),
        _no_older_fence(good),
    )
    return [lie for each in judges for lie in each]


class _Lives:
    """The journal by handoff. What was forgotten may be dispatched anew: then it has lives, each with fences above the last."""

    def __init__(self, journal: Sequence[Kept]) -> None:
        self.of: dict[str, list[list[Kept]]] = {}
        for kept in journal:
            lives = self.of.setdefault(kept.handoff, [])
            if kept.record["type"] == "dispatched" or not lives:
                lives.append([])
            lives[-1].append(kept)

    def records(self, handoff: str) -> list[Kept]:
        return [kept for life in self.of.get(handoff, ()) for kept in life]

    def with_fence(self, handoff: str, fence: int) -> int:
        """The number of the life in which this fence was held."""
        numbers = [number for number, life in enumerate(self.of.get(handoff, ())) if life[0].record["fence"] < fence]
        return max(numbers, default=0)

    def with_position(self, handoff: str, position: int) -> int:
        numbers = [number for number, life in enumerate(self.of.get(handoff, ())) if life[0].position <= position]
        return max(numbers, default=0)

    def may_be_gone(self, kept: Kept) -> bool:
        (life,) = (life for life in self.of[kept.handoff] if any(each is kept for each in life))
        return may_be_gone(kept, life)


def may_be_gone(kept: Kept, life: Sequence[Kept]) -> bool:
    """Whether its life has been forgotten, or it is a checkpoint that newer ones have replaced."""
    if life[-1].record["type"] == "forgotten":
        return True
    keep = life[0].record.get("keep_checkpoints", DEFAULT_KEEP_CHECKPOINTS)
    newest = max((each.record["seq"] for each in life if _is_state(each)), default=0)
    return bool(kept.record["type"] == "checkpointed" and kept.record["seq"] <= newest - keep)


def _is_state(kept: Kept) -> bool:
    return kept.record["type"] == "checkpointed" or (kept.record["type"] == "redriven" and "seq" in kept.record)


# --- what was acknowledged is there -----------------------------------------------------------------------------------


def _there(good: Sequence[Operation], lives: _Lives) -> Iterator[Lie]:
    for operation in good:
        fits = promised(operation.request, operation.said or {})
        if fits is None:
            continue
        handoff = _handoff_of(operation)
        found = [kept for kept in lives.records(handoff) if fits(kept)]
        if not found:
            yield Lie(GONE, f"{_told(operation)}: there is no such record")
        elif not any(kept.there or lives.may_be_gone(kept) for kept in found):
            yield Lie(GONE, f"{_told(operation)}: its record can't be read any more, and nothing has replaced it")


def promised(asked: Mapping[str, Any], said: Mapping[str, Any]) -> Callable[[Kept], bool] | None:
    """Which record an answer promises; None: it promises none."""
    op = asked["op"]
    match op:
        case "claim" | "recover" if said["handoff"] is not None:
            return _is("claimed", fence=said["fence"], worker=asked["worker"])
        case "dispatch":
            return _is("dispatched")
        case "checkpoint":
            stored = {"seq": said["seq"], "sha256": said["sha256"]}
            return lambda kept: _is("checkpointed", **stored)(kept) or _is("redriven", **stored)(kept)
        case "complete":
            completed = _is("completed", fence=asked["fence"])
            return lambda kept: completed(kept) and kept.payload == _encode(asked["result"])
        case "release" | "fail":
            return _is({"release": "released", "fail": "failed"}[op], fence=asked["fence"] + 1)
        case "suspend" if "fence" in asked:
            return _is("suspended", fence=asked["fence"] + 1)
        case "spend" if "nonce" in asked and (asked.get("steps") or asked.get("usd")):
            nonce = asked["nonce"]
            return lambda kept: nonce in (kept.record.get("nonce"), kept.record.get("kept_nonce"))
        case "redrive" | "budget_add" if "nonce" in asked:
            return _is({"redrive": "redriven", "budget_add": "budget_added"}[op], nonce=asked["nonce"])
        case "effect_begin":
            return _is("effect_begun", step=asked["step"])
        case "effect_done":
            done = _is("effect_done", step=asked["step"])
            return lambda kept: done(kept) and kept.payload == _encode(asked["result"])
        case "approval_request":
            return _is("approval_requested", approval=said["approval"])
        case "approval_decide":
            return _is("approval_decided", approval=asked["approval"], decision=said["decision"])
        case "cancel":
            return _is({"cancelled": "cancelled", "dead": "dead", "completed": "completed"}[said["status"]])
        case "ack" | "forget":
            return _is({"ack": "acked", "forget": "forgotten"}[op])
    return None


def _is(kind: str, **members: Any) -> Callable[[Kept], bool]:
    def fits(kept: Kept) -> bool:
        record = kept.record
        return bool(record["type"] == kind) and all(record.get(name) == value for name, value in members.items())

    return fits


# --- one holder per fence ---------------------------------------------------------------------------------------------


def _one_holder(good: Sequence[Operation]) -> Iterator[Lie]:
    holders: dict[tuple[str, int], tuple[str, str | None]] = {}
    for operation in _grants(good):
        said = operation.said or {}
        claimed = (operation.request["worker"], operation.request.get("nonce"))
        holder = holders.setdefault((said["handoff"], said["fence"]), claimed)
        if holder != claimed:
            yield Lie(TWO_HOLDERS, f"{said['fence']} of {said['handoff'][:8]} went to {holder} and to {claimed}")


def _grants(good: Sequence[Operation]) -> list[Operation]:
    return [each for each in good if each.request["op"] in ("claim", "recover") and (each.said or {})["handoff"]]


# --- no read is taken back --------------------------------------------------------------------------------------------


def _reads_stay(good: Sequence[Operation], lives: _Lives) -> Iterator[Lie]:
    """Whoever reads later reads the same or something newer, and all that was acknowledged before."""
    known: dict[str, int] = {}
    seqs: dict[tuple[str, int], int] = {}
    for operation, before in _in_real_time(good):
        for earlier in before:
            for handoff, position, _ in _readings(earlier):
                known[handoff] = max(known.get(handoff, 0), position)
            if earlier.request["op"] == "checkpoint":
                handoff, fence = earlier.request["handoff"], earlier.request["fence"]
                key = (handoff, lives.with_fence(handoff, fence))
                seqs[key] = max(seqs.get(key, 0), (earlier.said or {})["seq"])
        for handoff, position, seq in _readings(operation):
            if position < known.get(handoff, 0):
                yield Lie(TAKEN_BACK, f"{_told(operation)} shows {position}, after {known[handoff]} was shown")
            acknowledged = seqs.get((handoff, lives.with_position(handoff, position)), 0)
            if seq is not None and seq < acknowledged:
                yield Lie(TAKEN_BACK, f"{_told(operation)} shows seq {seq}, after {acknowledged} was acknowledged")


def _readings(operation: Operation) -> Iterator[tuple[str, int, int | None]]:
    """Of which handoff the answer shows which position, and which newest checkpoint (None: it doesn't say)."""
    said = operation.said or {}
    match operation.request["op"]:
        case "status":
            yield said["handoff"], said["position"], said["seq"]
        case "list":
            for status in said["handoffs"]:
                yield status["handoff"], status["position"], status["seq"]
        case "history" if said["next"] is None:
            yield operation.request["handoff"], max(record["position"] for record in said["records"]), None


def _results_stay(good: Sequence[Operation], lives: _Lives) -> Iterator[Lie]:
    """A result that somebody has read is what everybody reads from then on, while it isn't forgotten."""
    known: dict[str, bytes] = {}
    for operation, before in _in_real_time(good):
        for earlier in before:
            said = earlier.said or {}
            if earlier.request["op"] == "result" and said["status"] == "completed":
                known.setdefault(earlier.request["handoff"], _encode(said["result"]))
        op, said = operation.request["op"], operation.said or {}
        handoff = operation.request.get("handoff", "")
        if op not in ("result", "status") or handoff not in known:
            continue
        if any(kept.record["type"] == "forgotten" for kept in lives.records(handoff)):
            continue
        other = op == "result" and said["status"] == "completed" and _encode(said["result"]) != known[handoff]
        if said["status"] != "completed" or other:
            yield Lie(RESULT_CHANGED, f"{_told(operation)}: {known[handoff]!r} was read before")


# --- fences -----------------------------------------------------------------------------------------------------------


def _fences_rise(answered: Sequence[Operation]) -> Iterator[Lie]:
    """Whatever tells a handoff's fence, a refusal too, tells none below one that was told before."""
    for operation, fence, highest in _falls(answered, _fences_told):
        yield Lie(FENCE_FELL, f"{_told(operation)} tells {fence}, after {highest}")


def _falls(
    operations: Sequence[Operation], fences: Callable[[Operation], Iterator[tuple[str, int]]]
) -> Iterator[tuple[Operation, int, int]]:
    """Operations with a fence below one of the same handoff's that came before: that fence, and the highest before it."""
    known: dict[str, int] = {}
    for operation, before in _in_real_time(operations):
        for earlier in before:
            for handoff, fence in fences(earlier):
                known[handoff] = max(known.get(handoff, 0), fence)
        for handoff, fence in fences(operation):
            if fence < known.get(handoff, 0):
                yield operation, fence, known[handoff]


def _fences_told(operation: Operation) -> Iterator[tuple[str, int]]:
    said = operation.said or {}
    if not said["ok"]:
        details = said["error"].get("details", {})
        if said["error"]["code"] == "lease_lost" and "handoff" in details:
            yield details["handoff"], details["fence"]
    elif "fence" in said and said.get("handoff"):
        yield said["handoff"], said["fence"]
    for status in said.get("handoffs", ()):
        yield status["handoff"], status["fence"]


def _no_older_fence(good: Sequence[Operation]) -> Iterator[Lie]:
    """Once something was accepted under a fence, nothing is under an older one."""
    for operation, _, highest in _falls(good, _accepted):
        yield Lie(LATE_WRITE, f"{_told(operation)}, after something under {highest}")


def _accepted(operation: Operation) -> Iterator[tuple[str, int]]:
    asked, said = operation.request, operation.said or {}
    if asked["op"] == "heartbeat":
        for ref in asked["leases"]:
            if ref["handoff"] in said["renewed"]:
                yield ref["handoff"], ref["fence"]
    elif asked["op"] in ("claim", "recover") and said["handoff"]:
        yield said["handoff"], said["fence"]
    elif "fence" in asked:
        yield asked["handoff"], asked["fence"]


def _resumes_late_enough(good: Sequence[Operation], lives: _Lives) -> Iterator[Lie]:
    """Whoever takes over has all that was acknowledged to the holders before, whenever they heard of it."""
    acknowledged: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for operation in good:
        if operation.request["op"] == "checkpoint":
            handoff, fence = operation.request["handoff"], operation.request["fence"]
            key = (handoff, lives.with_fence(handoff, fence))
            acknowledged.setdefault(key, []).append((fence, (operation.said or {})["seq"]))
    for operation in _grants(good):
        said = operation.said or {}
        seq = 0 if said["checkpoint"] is None else said["checkpoint"]["seq"]
        earlier = acknowledged.get((said["handoff"], lives.with_fence(said["handoff"], said["fence"])), ())
        newest = max((known for fence, known in earlier if fence < said["fence"]), default=0)
        if seq < newest:
            yield Lie(RESUMED_EARLY, f"{_told(operation)} begins after {seq}, acknowledged was {newest}")


# --- order ------------------------------------------------------------------------------------------------------------


def _in_real_time(operations: Sequence[Operation]) -> Iterator[tuple[Operation, list[Operation]]]:
    """Each operation in the order of their calls, and those that were answered since the one before, but before its own call."""
    ended = sorted(operations, key=lambda each: each.answered or 0)
    at = 0
    for operation in sorted(operations, key=lambda each: each.called):
        before = []
        while at < len(ended) and (ended[at].answered or 0) < operation.called:
            before.append(ended[at])
            at += 1
        yield operation, before


def _handoff_of(operation: Operation) -> str:
    asked, said = operation.request, operation.said or {}
    if asked["op"] in ("dispatch", "claim", "recover"):
        return str(said["handoff"])
    return str(asked.get("handoff") or asked["approval"][:64])


def _told(operation: Operation) -> str:
    return f"{operation.client}'s {dict(operation.request)} was answered {dict(operation.said or {})}"
